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
 * Most drivers use descriptors one after the other: where the last chain's is as far from the first's as it is in the
 * ring, those between are taken to be, and each line is asked for once.
 */
static __rte_always_inline void vring_prefetch(const struct virtqueue *vring, const bool packed, unsigned count,
					       unsigned completions)
{
	const unsigned mask = vring->size - 1u;
	unsigned head;

	if (packed || count == 0)
		return;
	head = vring_head(vring, 0);
	if (likely(vring_head(vring, count - 1) == ((head + count - 1) & mask))) {
		for (unsigned i = 0; i < count; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_desc))
			rte_prefetch0(&vring->desc[(head + i) & mask]);
		rte_prefetch0(&vring->desc[(head + count - 1) & mask]);
	} else {
		for (unsigned i = 0; i < count; i++)
			rte_prefetch0(&vring->desc[vring_head(vring, i)]);
	}
	for (unsigned i = 0; i < completions; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_used_elem))
		__builtin_prefetch(&vring->used->ring[(vring->index + i) & mask], 1);
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
