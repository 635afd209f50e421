/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gaps.h"
#include "log.h"
#include "shared_file.h"

enum { GAPS_LINE = 64, GAPS_NAME = 48 };

struct gaps_header {
	char magic[8];
	uint32_t version, loops;
	uint64_t limit, tsc_hz;
	uint8_t room[32];
};

struct gaps_loop {
	char name[GAPS_NAME];
	int32_t thread;
	uint32_t records, length, waits;
	uint64_t busy; /* on a cache line of its own: nobody else writes there while it runs */
	uint8_t room[56];
};

_Static_assert(sizeof(struct gaps_header) == 64 && sizeof(struct gaps_loop) == GAPS_LOOP, "as readers know them");

/* Returns the memory of a file that nobody can cut short or make longer, or NULL with errno set. */
static void *sealed_file(size_t size)
{
	void *memory = NULL;
	int fd = memfd_create(GAPS_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return NULL;
	if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		memory = shared_file_map(fd, size);
	if (memory != NULL)
		return memory; /* the descriptor stays open for readers, as long as the process lives */
	close(fd);
	return NULL;
}

static struct gap_ring ring_at(uint8_t *file, size_t offset)
{
	return (struct gap_ring){(uint64_t *)(file + offset), (struct gap *)(file + offset + GAPS_LINE)};
}

int gaps_open(struct gap_log *logs, const char *const *names, unsigned count, uint64_t tsc_hz)
{
	const size_t ring = GAPS_LINE + GAPS_LENGTH * sizeof(struct gap);
	const size_t first = sizeof(struct gaps_header) + count * sizeof(struct gaps_loop);
	uint8_t *file = sealed_file(first + count * 2 * ring);
	struct gaps_loop *loops = (struct gaps_loop *)(file + sizeof(struct gaps_header));
	struct gaps_header *header = (struct gaps_header *)file;

	if (file == NULL) {
		int rc = -errno;

		log_error("no memory for the gaps of polling loops: %s", strerror(errno));
		return rc;
	}
	for (unsigned i = 0; i < count; i++) {
		const size_t head = first + i * 2 * ring;

		loops[i] = (struct gaps_loop){
			.records = (uint32_t)(head + GAPS_LINE),
			.length = GAPS_LENGTH,
			.waits = (uint32_t)(head + ring + GAPS_LINE),
		};
		snprintf(loops[i].name, GAPS_NAME, "%s", names[i]);
		logs[i] = (struct gap_log){
			.limit = &header->limit,
			.thread = &loops[i].thread,
			.busy = &loops[i].busy,
			.gaps = ring_at(file, head),
			.waits = ring_at(file, head + ring),
		};
	}
	*header = (struct gaps_header){
		.version = GAPS_VERSION,
		.loops = count,
		.limit = tsc_hz / 1000000 * GAPS_LIMIT_US,
		.tsc_hz = tsc_hz,
	};
	memcpy(header->magic, "TAILGAPS", sizeof(header->magic));
	return 0;
}

void gaps_begin(struct gap_log *log)
{
	__atomic_store_n(log->thread, gettid(), __ATOMIC_RELAXED);
}

void gaps_note(struct gap_ring *ring, uint64_t begin, uint64_t end, uint64_t what)
{
	uint64_t head = *ring->head;

	ring->records[head % GAPS_LENGTH] = (struct gap){begin, end, what};
	__atomic_store_n(ring->head, head + 1, __ATOMIC_RELEASE);
}
