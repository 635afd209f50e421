/* SPDX-License-Identifier: Apache-2.0
 *
 * The common case, many frames at a time: each frame lies in one buffer, in one descriptor, in one region.
 * Gathering first and copying afterwards lets the cache misses of a whole burst overlap; on a busy switch
 * every ring, descriptor and frame was last written by another core, and these misses are what a hop costs.
 * What is not the common case ends the run, and vring_walk() takes it from there, one frame at a time.
 */
#ifndef TAILRACE_VRING_BURST_H
#define TAILRACE_VRING_BURST_H

#include <rte_prefetch.h>

#include "vring/copy.h"
#include "vring/vring.h"

struct vring_buffer {
	uint8_t *at;
	uint32_t length; /* bytes, network header included */
	uint16_t id;
};

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

static __rte_always_inline bool vring_first(const struct virtqueue *vring, const bool packed, uint16_t ahead,
					    struct vring_descriptor *desc, uint16_t *id);

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

/* A private copy of the first descriptor at `ahead`.  Returns false when its chain's head is malformed. */
static __rte_always_inline bool vring_first(const struct virtqueue *vring, const bool packed, uint16_t ahead,
					    struct vring_descriptor *desc, uint16_t *id)
{
	if (packed) {
		bool wrap;

		*desc = vring_descriptor(true, vring_packed_place(vring, ahead, &wrap));
		*id = desc->link;
		return true;
	}
	*id = vring_head(vring, ahead);
	if (unlikely(*id >= vring->size))
		return false;
	*desc = vring_descriptor(false, &vring->desc[*id]);
	return true;
}

/*
 * Look up to `count` frames from the guest, starting `ahead` places after the ring's position, all of which are
 * available.  Returns how many were plain; the next, if any, is for vring_walk().
 */
static __rte_always_inline unsigned vring_gather_frames(const struct virtqueue *vring, const bool packed,
							uint16_t ahead, unsigned count, struct vring_buffer *buffers)
{
	const uint32_t least = vring->header + VRING_FRAME_MIN, most = VRING_RUN_FRAME;
	unsigned i;

	for (i = 0; i < count; i++) {
		struct vring_descriptor desc;
		uint16_t id;
		uint8_t *at;

		if (unlikely(!vring_first(vring, packed, ahead + i, &desc, &id)))
			break;
		if (unlikely(desc.flags != 0 || desc.length < least || desc.length > most))
			break;
		at = guest_memory_at(vring->memory, desc.address, desc.length);
		if (unlikely(at == NULL))
			break;
		rte_prefetch0(at + vring->header);
		buffers[i] = (struct vring_buffer){at, desc.length, id};
	}
	return i;
}

/* The same for the buffers that the guest offers to receive into. */
static __rte_always_inline unsigned vring_gather_buffers(const struct virtqueue *vring, const bool packed,
							 uint16_t ahead, unsigned count, struct vring_buffer *buffers)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		struct vring_descriptor desc;
		uint16_t id;
		uint8_t *at;

		if (unlikely(!vring_first(vring, packed, ahead + i, &desc, &id)))
			break;
		if (unlikely(desc.flags != VRING_DESC_F_WRITE))
			break;
		at = guest_memory_at(vring->memory, desc.address, desc.length);
		if (unlikely(at == NULL))
			break;
		/* To be compared (vring_write_header()), and to be written. */
		rte_prefetch0(at);
		__builtin_prefetch(at + vring->header, 1);
		buffers[i] = (struct vring_buffer){at, desc.length, id};
	}
	return i;
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
