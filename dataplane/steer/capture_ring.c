/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "steer/capture_ring.h"
#include "vring/packet_bytes.h"

/* Copy into the ring at `head`, around its end if need be. */
static void put(struct capture_ring *ring, uint64_t head, const struct packet *packet, uint32_t length)
{
	uint64_t at = head & (ring->size - 1), first = RTE_MIN((uint64_t)length, ring->size - at);

	packet_copy(packet, 0, (uint32_t)first, ring->data + at);
	packet_copy(packet, (uint32_t)first, length - (uint32_t)first, ring->data);
}

static void put_header(struct capture_ring *ring, const uint32_t *record)
{
	uint64_t at = ring->head & (ring->size - 1), first = RTE_MIN((uint64_t)CAPTURE_RECORD, ring->size - at);

	memcpy(ring->data + at, record, first);
	memcpy(ring->data, (const uint8_t *)record + first, CAPTURE_RECORD - first);
}

void capture_ring_add(struct capture_ring *ring, const struct packet *packet, uint64_t ns)
{
	const uint32_t length = RTE_MIN(packet->length, ring->snaplen);
	const uint32_t record[] = {(uint32_t)(ns / 1000000000), (uint32_t)(ns % 1000000000), length, packet->length};
	uint64_t used = ring->head - __atomic_load_n(&ring->header->tail, __ATOMIC_ACQUIRE);

	/* A tail that makes no sense leaves no room either. */
	if (used > ring->size || ring->size - used < CAPTURE_RECORD + length) {
		ring->dropped++;
		return;
	}
	put_header(ring, record);
	put(ring, ring->head + CAPTURE_RECORD, packet, length);
	ring->head += CAPTURE_RECORD + length;
	ring->frames++;
}

void capture_ring_show(struct capture_ring *ring)
{
	struct capture_header *header = ring->header;

	__atomic_store_n(&header->frames, ring->frames, __ATOMIC_RELAXED);
	__atomic_store_n(&header->dropped, ring->dropped, __ATOMIC_RELAXED);
	__atomic_store_n(&header->head, ring->head, __ATOMIC_RELEASE);
}
