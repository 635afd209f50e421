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
	uint16_t head;
};

/*
 * Ask for the descriptors of the next `count` chains and for the places where their completions will be written, so
 * that the misses run beside each other instead of one after the other.
 */
static inline void vring_prefetch(const struct virtqueue *vring, unsigned count, unsigned completions)
{
	for (unsigned i = 0; i < count; i++)
		rte_prefetch0(&vring->desc[vring_head(vring, i)]);
	for (unsigned i = 0; i < completions; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_used_elem))
		__builtin_prefetch(&vring->used->ring[(uint16_t)(vring->index + i) & (vring->size - 1)], 1);
}

/*
 * Look up to `count` frames from the guest, starting `ahead` places after the ring's position.
 * Returns how many were plain; the next, if any, is for vring_walk().
 */
static inline unsigned vring_gather_frames(const struct virtqueue *vring, uint16_t ahead, unsigned count,
					   struct vring_buffer *buffers)
{
	const uint32_t least = vring->header + VRING_FRAME_MIN, most = vring->header + VRING_FRAME_MAX;
	unsigned i;

	for (i = 0; i < count; i++) {
		uint16_t head = vring_head(vring, ahead + i);
		struct vring_desc desc;
		uint8_t *at;

		if (unlikely(head >= vring->size))
			break;
		desc = vring_descriptor(&vring->desc[head]);
		if (unlikely(desc.flags != 0 || desc.len < least || desc.len > most))
			break;
		at = guest_memory_at(vring->memory, desc.addr, desc.len);
		if (unlikely(at == NULL))
			break;
		rte_prefetch0(at + vring->header);
		buffers[i] = (struct vring_buffer){at, desc.len, head};
	}
	return i;
}

/* The same for the buffers that the guest offers to receive into. */
static inline unsigned vring_gather_buffers(const struct virtqueue *vring, uint16_t ahead, unsigned count,
					    struct vring_buffer *buffers)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		uint16_t head = vring_head(vring, ahead + i);
		struct vring_desc desc;
		uint8_t *at;

		if (unlikely(head >= vring->size))
			break;
		desc = vring_descriptor(&vring->desc[head]);
		if (unlikely(desc.flags != VRING_DESC_F_WRITE))
			break;
		at = guest_memory_at(vring->memory, desc.addr, desc.len);
		if (unlikely(at == NULL))
			break;
		__builtin_prefetch(at, 1);
		__builtin_prefetch(at + vring->header, 1);
		buffers[i] = (struct vring_buffer){at, desc.len, head};
	}
	return i;
}

/* Write the network header of a frame that needs no offload and lies in `buffers` receive buffers. */
static inline void vring_write_header(uint8_t *at, uint8_t header, uint16_t buffers)
{
	uint64_t flags_to_checksum_start = 0;

	memcpy(at, &flags_to_checksum_start, 8);
	if (header == 12) {
		uint32_t offset_and_buffers = (uint32_t)buffers << 16;

		memcpy(at + 8, &offset_and_buffers, 4);
	} else {
		uint16_t checksum_offset = 0;

		memcpy(at + 8, &checksum_offset, 2);
	}
}

/* ------- one frame at a time, of any shape ------- */

enum vring_step {
	VRING_STEP_MOVED,   /* the frame was moved, or dropped and counted */
	VRING_STEP_BLOCKED, /* the receiver lacks buffers; nothing was changed */
	VRING_STEP_FAULT,   /* a ring was stopped */
	VRING_STEP_DROPPED, /* the frame cannot be carried; counted */
};

/*
 * Look up the frame at `ahead`, whatever its shape.  Returns MOVED when `frame` holds it (header included),
 * DROPPED when it is to be completed without being carried, FAULT when the ring was stopped.
 */
enum vring_step vring_take_frame(struct virtqueue *from, uint16_t ahead, uint16_t *head, struct vring_frame *frame);

/*
 * Write the `length` bytes that begin `skip` bytes into `frame` to the receive buffers from `*ahead` on, of
 * which `room` are offered, completing as many as it takes and moving `*ahead` past them.
 */
enum vring_step vring_give_frame(struct virtqueue *to, uint16_t *ahead, uint16_t room, const struct vring_frame *frame,
				 uint32_t skip, uint32_t length);

/* Copy all of the frame after its first `skip` bytes to one place. */
void vring_flatten(uint8_t *to, const struct vring_frame *frame, uint32_t skip);

#endif
