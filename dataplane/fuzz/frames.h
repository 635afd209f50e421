/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, for the targets of functions that follow connections; and what holds for each whatever the
 * function is.  An input is one frame after the other, each behind three bytes: at which port and in how many pieces,
 * how long in units of 8 bytes, and how many quarters of a second later.
 */
#ifndef TAILRACE_FUZZ_FRAMES_H
#define TAILRACE_FUZZ_FRAMES_H

#include "fuzz/fuzz.h"

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "functions/connections.h"
#include "functions/function.h"
#include "functions/plain.h"

enum { ROOM = 2048, CONNECTIONS = 8, LONGEST = 7440, FRAME_PREFIX = 3 };

static struct rte_mempool *pool;
static unsigned nb_queues = 1; /* of the function */
enum { QUEUES = 2 };	       /* of one that follows connections */

struct fallen {
	uint16_t in;
	uint8_t quarters;
	const uint8_t *bytes;
	size_t length;
	enum verdict verdict; /* of inspect() */
	struct rte_mbuf *mbuf;
};

/* DPDK, packet buffers, and the function with its settings, which end with NULL; few connections, so that all are
 * soon taken. */
static inline void start_function(const struct function *function, unsigned frames, const char *const settings[][2])
{
	check(start_dpdk(64) == 0);
	pool = rte_pktmbuf_pool_create("frames", frames, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL && function->set("connections", "8") == NULL);
	for (; settings != NULL && (*settings)[0] != NULL; settings++)
		check(function->set((*settings)[0], (*settings)[1]) == NULL);
	check(function->keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = nb_queues}) ==
	      0);
}

static inline void configure_function(const struct function *function, const char *text)
{
	json_t *params = json_loads(text, 0, NULL);
	struct control_error error;

	check(function->keeping->configure(params, &error) == 0);
	json_decref(params);
}

/* The sanitizer sees a byte too far. */
static inline enum verdict inspect_exact(const uint8_t *bytes, uint32_t size, uint32_t length, struct inspected *frame)
{
	struct inspected quoted;
	uint8_t *copy = malloc(size);
	enum verdict verdict;

	memcpy(copy, bytes, size);
	verdict = inspect(copy, size, length, frame);
	if (verdict == VERDICT_ERROR)
		inspect_quoted(copy, size, frame, &quoted);
	check(verdict != VERDICT_FLOW || frame->event < EVENTS);
	free(copy);
	return verdict;
}

/* What is read of a plain frame is what is found by looking at all of it. */
static inline void check_plain(const struct rte_mbuf *mbuf, enum verdict verdict, const struct inspected *frame)
{
	struct inspected plain;
	struct plain words, ends;

	if (!plain_read(mbuf, &words))
		return;
	check(plain_ends(mbuf, &ends) && ends.source == words.source && ends.destination == words.destination &&
	      ends.ports == words.ports && ends.protocol == words.protocol);
	plain_fill(&words, &plain);
	check(verdict == VERDICT_FLOW && memcmp(&plain.headers, &frame->headers, sizeof(plain.headers)) == 0);
	check(plain.event == frame->event && plain.query == frame->query && plain.first == frame->first &&
	      plain.transport == frame->transport);
}

/* The next frame; returns the bytes of the input that it takes. */
static inline size_t frame_fall(const uint8_t *data, size_t size, struct fallen *fallen)
{
	const size_t length = RTE_MIN(size - FRAME_PREFIX, (size_t)data[1] * 8);
	const size_t head = data[0] & 2 ? length / 2 : length;
	struct inspected frame;

	*fallen = (struct fallen){
		.in = data[0] & 1,
		.quarters = data[2],
		.bytes = data + FRAME_PREFIX,
		.length = length,
		.mbuf = rte_pktmbuf_alloc(pool),
	};
	check(fallen->mbuf != NULL);
	memcpy(rte_pktmbuf_append(fallen->mbuf, head), fallen->bytes, head);
	if (head < length) {
		struct rte_mbuf *second = rte_pktmbuf_alloc(pool);

		memcpy(rte_pktmbuf_append(second, length - head), fallen->bytes + head, length - head);
		check(rte_pktmbuf_chain(fallen->mbuf, second) == 0);
	}
	fallen->verdict = inspect_exact(fallen->bytes, RTE_MIN(length, (size_t)PARSE_BYTES), length, &frame);
	check_plain(fallen->mbuf, fallen->verdict, &frame);
	return FRAME_PREFIX + length;
}

/* The queue that it belongs to; it came in by one that the input chose. */
static inline uint8_t frame_home(const struct function *function, const struct fallen *fallen)
{
	uint8_t home = QUEUES;

	function->homes(&fallen->mbuf, 1, fallen->in, fallen->quarters % QUEUES, &home);
	check(home < QUEUES);
	return home;
}

/* A header whose checksum holds, of IPv4; of IPv6 only where it is allowed. */
static inline void check_header(const uint8_t *head, uint32_t size, unsigned families)
{
	struct headers headers;

	parse_frame(head, size, &headers);
	check((headers.family & families) == headers.family && headers.family != HEADERS_OTHER);
	if (headers.family == HEADERS_IPV4)
		check(rte_raw_cksum(head + headers.network, (head[headers.network] & 15u) * 4) == 0xffff);
}

/* It is as long as it came; and if it was changed, its header holds. */
static inline void check_left(struct rte_mbuf *mbuf, const struct fallen *fallen, unsigned families)
{
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);

	check(rte_pktmbuf_pkt_len(mbuf) == fallen->length);
	if (memcmp(head, fallen->bytes, size) != 0)
		check_header(head, size, families);
	rte_pktmbuf_free(mbuf);
}

/* Nothing is left for the next input: no buffer, and after the longest time no connection. */
static inline void age(struct connections *flows, uint64_t *now)
{
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	*now += (LONGEST + 60) * rte_get_tsc_hz();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(flows, connections_tick(*now) + i);
	check(flows->used == 0, "a connection does not age");
}

#endif
