/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "common/mapping.h"
#include "common/shared_file.h"
#include "switch/capture.h"

/* Make the ring at `path`.  Returns 0 or -1 with errno set. */
static int open_ring(struct capture_ring *ring, const char *path, const struct capture_options *options)
{
	struct capture_header *header = shared_file_make(path, CAPTURE_DATA + options->ring, 0600);

	if (header == NULL)
		return -1;
	*header = (struct capture_header){
		.magic = "TAILCAPT",
		.version = CAPTURE_VERSION,
		.snaplen = options->snaplen,
		.size = options->ring,
	};
	*ring = (struct capture_ring){
		.header = header,
		.data = (uint8_t *)header + CAPTURE_DATA,
		.size = options->ring,
		.snaplen = options->snaplen,
	};
	if (shared_file_show(path) == 0)
		return 0;
	mapping_end(header, CAPTURE_DATA + options->ring, MAPPING_PAGE);
	ring->header = NULL;
	return -1;
}

struct capture_session *capture_open(const struct capture_options *options, unsigned id)
{
	struct capture_session *session = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*session), 64));
	int saved;

	if (session == NULL) {
		free(options->match);
		return NULL;
	}
	memset(session, 0, sizeof(*session));
	session->id = id;
	session->in = options->in;
	session->out = options->out;
	session->of_chain = options->of_chain;
	session->ring_size = options->ring;
	session->capture.match = options->match;
	snprintf(session->name, sizeof(session->name), "%s", options->name);
	for (unsigned worker = 0; worker < options->workers; worker++) {
		snprintf(session->paths[worker], sizeof(session->paths[worker]), "%s.capture-%u.%u",
			 options->folder_path, id, worker);
		if (open_ring(&session->capture.rings[worker], session->paths[worker], options) != 0) {
			saved = errno;
			capture_close(session);
			errno = saved;
			return NULL;
		}
		session->capture.nb_rings++;
	}
	capture_set_clock(session);
	session->asked_at = rte_rdtsc();
	return session;
}

void capture_set_clock(struct capture_session *session)
{
	struct capture *capture = &session->capture;
	unsigned next = !atomic_load_explicit(&capture->clock, memory_order_relaxed);
	struct timespec wall;
	uint64_t before = rte_rdtsc();

	clock_gettime(CLOCK_REALTIME, &wall);
	capture->clocks[next] = (struct capture_clock){
		.tsc = before + (rte_rdtsc() - before) / 2,
		.ns = (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec,
		.ns_per_cycle = (uint64_t)(1e9 * 0x1p32 / (double)rte_get_tsc_hz()),
	};
	atomic_store_explicit(&capture->clock, next, memory_order_release);
}

json_t *capture_describe(const struct capture_session *session)
{
	json_t *rings = json_array();
	uint64_t frames = 0, dropped = 0;

	for (unsigned i = 0; i < session->capture.nb_rings; i++) {
		const struct capture_header *header = session->capture.rings[i].header;

		frames += __atomic_load_n(&header->frames, __ATOMIC_RELAXED);
		dropped += __atomic_load_n(&header->dropped, __ATOMIC_RELAXED);
		json_array_append_new(rings, json_string(session->paths[i]));
	}
	return json_pack("{s:i, s:I, s:I, s:o}", "capture", session->id, "frames", (json_int_t)frames, "dropped",
			 (json_int_t)dropped, "rings", rings);
}

void capture_close(struct capture_session *session)
{
	for (unsigned i = 0; i < session->capture.nb_rings; i++) {
		mapping_end(session->capture.rings[i].header, CAPTURE_DATA + session->ring_size, MAPPING_PAGE);
		unlink(session->paths[i]);
	}
	free(session->capture.match);
	free(session);
}
