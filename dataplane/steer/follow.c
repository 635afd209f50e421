/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include <nmmintrin.h>
#include <rte_cycles.h>

#include "steer/follow.h"

uint32_t follow_mark(const struct packet *packet)
{
	struct headers headers;
	uint32_t mark = 0xffffffff;
	uint32_t from;

	parse_frame(packet->head, packet->head_length, &headers);
	/* Without an IP header: behind the Ethernet header. */
	from = headers.network != 0 ? headers.network + (headers.family == HEADERS_IPV6 ? 40 : 20) : 14;
	for (uint32_t i = from; i < packet->head_length; i++)
		mark = _mm_crc32_u8(mark, packet->head[i]);
	return mark;
}

void follow_pick(struct followed *followed, const struct burst *burst, const char *port, unsigned number)
{
	struct follow *follow = followed->follow;
	struct headers headers[VRING_BURST];
	uint32_t wanted[VRING_BURST];

	followed->packets = 0;
	if (number >= FOLLOW_PORTS || atomic_load_explicit(&follow->left[number], memory_order_relaxed) <= 0)
		return;
	for (unsigned i = 0; i < burst->count; i++)
		parse_frame(burst->packets[i].head, burst->packets[i].head_length, &headers[i]);
	classify(follow->match, headers, burst->count, wanted);
	for (unsigned i = 0; i < burst->count; i++) {
		if (wanted[i] == 0 || atomic_fetch_sub_explicit(&follow->left[number], 1, memory_order_relaxed) <= 0)
			continue;
		followed->packets |= UINT64_C(1) << i;
		followed->marks[i] = follow_mark(&burst->packets[i]);
		followed->sightings[i] = (uint64_t)followed->worker << 48 |
					 follow->rings[followed->worker]->sightings++;
		follow_say(followed, burst, i, "enters by port %s", port);
	}
}

void follow_say(struct followed *followed, const struct burst *burst, unsigned packet, const char *format, ...)
{
	struct note_ring *ring = followed->follow->rings[followed->worker];
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct note *note = &ring->notes[head % FOLLOW_NOTES];
	va_list arguments;

	if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == FOLLOW_NOTES) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		return;
	}
	note->time = rte_rdtsc();
	note->sighting = followed->sightings[packet];
	note->mark = followed->marks[packet];
	note->length = burst->packets[packet].length;
	va_start(arguments, format);
	vsnprintf(note->text, sizeof(note->text), format, arguments);
	va_end(arguments);
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}
