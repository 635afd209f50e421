/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_cycles.h>

#include "common/signature.h"
#include "steer/hop_trace.h"
#include "vring/packet_bytes.h"

static inline void append(struct hop_ring *ring, uint64_t *head, const struct hop_record *record)
{
	ring->records[(*head)++ & ring->mask] = *record;
}

void hop_trace_note(struct hop_trace *trace, unsigned worker, const struct burst *burst, const uint8_t *which,
		    unsigned n, uint16_t from, uint16_t to, uint64_t arrived)
{
	const uint64_t key = atomic_load_explicit(&trace->key, memory_order_relaxed);
	struct hop_ring *sampled = &trace->sampled[worker], *recent = &trace->recent[worker];
	struct hop_record record = {.arrived = arrived, .from = from, .to = to};
	uint64_t sampled_head = *sampled->head, recent_head = trace->has_recent ? *recent->head : 0;

	if (!(key & HOP_KEYED))
		return;
	record.stay = (uint32_t)(rte_rdtsc() - arrived);
	for (unsigned i = 0; i < n; i++) {
		const struct packet *packet = &burst->packets[which[i]];
		uint8_t room[SIGNATURE_SIZE];
		struct signature signature;

		if (packet->length < SIGNATURE_SIZE ||
		    !signature_read(packet_bytes(packet, packet->length - SIGNATURE_SIZE, SIGNATURE_SIZE, room),
				    (uint32_t)key, &signature))
			continue;
		record.frame = (uint64_t)signature.stream << 48 | signature.sequence;
		if ((signature.sequence & trace->every_mask) == 0)
			append(sampled, &sampled_head, &record);
		if (trace->has_recent)
			append(recent, &recent_head, &record);
	}
	__atomic_store_n(sampled->head, sampled_head, __ATOMIC_RELEASE);
	if (trace->has_recent)
		__atomic_store_n(recent->head, recent_head, __ATOMIC_RELEASE);
}
