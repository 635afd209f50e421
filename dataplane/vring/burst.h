/* SPDX-License-Identifier: Apache-2.0
 *
 * The common case, many frames at a time: each frame lies in one buffer, in one descriptor, in one region.
 * Gathering first and copying afterwards lets the cache misses of a whole burst overlap; on a busy switch
 * every ring, descriptor and frame was last written by another core, and these misses are what a hop costs.
 * What is not the common case ends the run, and vring_walk() takes it from there, one frame at a time.
 */
#ifndef TAILRACE_VRING_BURST_H
#define TAILRACE_VRING_BURST_H

#include "vring/copy.h"
#include "vring/gather.h"

/*
 * Ask for the descriptors of the next `count` chains and for the places where their completions will be written, so
 * that the misses run beside each other instead of one after the other.  Of a packed ring they have just been read.
 */
static __rte_always_inline void vring_prefetch(const struct virtqueue *vring, const bool packed, unsigned count,
					       unsigned completions)
{
	if (packed)
		return;
	for (unsigned i = 0; i < count; i++)
		rte_prefetch0(&vring->desc[vring_head(vring, i)]);
	for (unsigned i = 0; i < completions; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_used_elem))
		__builtin_prefetch(&vring->used->ring[(vring->index + i) & (vring->size - 1u)], 1);
}

/*
 * There is nothing to do: fetch the lines that the next frame will be written to, one step at each visit, so that they
 * are here when it comes.  Each was last written by the guest's core, and a frame that comes alone would wait for them.
 */
static __rte_always_inline void vring_expect(struct virtqueue *to, const bool packed)
{
	struct vring_descriptor desc;
	uint16_t id;
	uint8_t *at;

	if (likely(to->expected == 2) || vring_available_in(to, packed, 1) == 0)
		return;
	if (to->expected++ == 0) {
		if (packed) {
			bool wrap;

			__builtin_prefetch(vring_packed_place(to, 0, &wrap), 1);
		} else {
			vring_prefetch(to, false, 1, 1);
		}
	} else if (vring_first(to, packed, 0, &desc, &id)) {
		at = guest_memory_at(to->memory, desc.address, desc.length);
		if (at != NULL) {
			__builtin_prefetch(at, 1);
			__builtin_prefetch(at + RTE_CACHE_LINE_SIZE, 1);
		}
	}
}

/*
 * Write the network header of a frame that needs no offload and lies in one receive buffer, unless it is there already.
 * A guest that forwards uses its buffers again and leaves the header as it found it; then both cores keep the header's
 * line, and it does not move between them for each frame.
 */
static __rte_always_inline void vring_write_header(uint8_t *at, uint8_t header)
{
	uint64_t first;

	memcpy(&first, at, 8);
	if (first != 0) {
		first = 0;
		memcpy(at, &first, 8);
	}
	if (header == 12) {
		const uint32_t wanted = 1u << 16; /* no checksum offset; one buffer */
		uint32_t second;

		memcpy(&second, at + 8, 4);
		if (second != wanted)
			memcpy(at + 8, &wanted, 4);
	} else {
		memset(at + 8, 0, 2);
	}
}

#endif
