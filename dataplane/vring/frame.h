/* SPDX-License-Identifier: Apache-2.0
 *
 * One frame at a time, of any shape, taken from a ring or enqueued to one.  For the modules of vring/ itself.
 */
#ifndef TAILRACE_VRING_FRAME_H
#define TAILRACE_VRING_FRAME_H

#include <linux/virtio_net.h>

#include "vring/packet.h"
#include "vring/vring.h"

enum vring_step {
	VRING_STEP_MOVED,   /* the frame was moved */
	VRING_STEP_BLOCKED, /* the receiver lacks buffers; nothing was changed */
	VRING_STEP_FAULT,   /* a ring was stopped */
	VRING_STEP_DROPPED, /* the frame cannot be carried; counted */
};

/*
 * Look up the frame at `ahead`, whatever its shape.  Returns MOVED when `frame` holds it (header included),
 * DROPPED when it is to be completed without being carried, FAULT when the ring was stopped.
 */
enum vring_step vring_take_frame(struct virtqueue *from, uint16_t ahead, struct vring_chain *chain,
				 struct vring_frame *frame);

/* Where the next byte of a frame in pieces is read or written. */
struct frame_cursor {
	const struct vring_piece *piece;
	uint32_t offset;
};

/* The next `length` bytes, as pieces.  Returns how many. */
unsigned frame_slice(struct frame_cursor *cursor, uint32_t length, struct vring_piece *pieces);

/* A private copy of the first `length` bytes of the frame, which is no shorter. */
void vring_peek(uint8_t *to, const struct vring_frame *frame, uint32_t length);

/* Cut the first `bytes` off; some must remain. */
void vring_frame_skip(struct vring_frame *frame, uint32_t bytes);

/* Where frames are written in a ring, while it is written to. */
struct vring_room {
	uint16_t used; /* slots that have been written to */
	uint16_t end;  /* slots that are offered */
};

/*
 * Write the `length` bytes of `pieces` to the receive buffers from room->used on, with this network header, completing
 * as many as it takes and moving room->used past them.  Unless MOVED is returned, nothing has changed.
 */
enum vring_step vring_enqueue_frame(struct virtqueue *to, struct vring_room *room, const struct vring_piece *pieces,
				    uint32_t length, const struct virtio_net_hdr *offload);

/* Look for more buffers, for a frame of `length` bytes that found too few.  Returns whether there are more. */
bool vring_more_room(struct virtqueue *to, struct vring_room *room);

/* ------- with offloads ------- */

/*
 * Make the packet of a frame that begins with the network header: the head copied, the rest in packet->pieces, which
 * has room for PACKET_PIECES.  Returns false when the header is malformed (counted): the frame is to be dropped.
 */
bool packet_of_frame(struct packet *packet, const struct virtqueue *from, struct vring_frame *frame);

/* Make the packet of a device's frame, whose segments are no more than there is room for in packet->pieces. */
void packet_of_mbuf(struct packet *packet, struct rte_mbuf *mbuf);

/*
 * The network header that a receiver gets with the packet, which is whole then: what the receiver does not take has
 * been done, for the packet's other receivers too.  NULL: it is a long segment that has to be cut.
 */
const struct virtio_net_hdr *packet_header(const struct virtqueue *to, struct packet *packet);

/*
 * Write the packet to the receive buffers, doing in software what is left to do and the receiver does not take on.
 * `*frames` and `*bytes` count what it got: a long segment may become several frames.  As vring_enqueue_frame().
 */
enum vring_step packet_enqueue(struct virtqueue *to, struct vring_room *room, struct packet *packet, unsigned *frames,
			       uint64_t *bytes);

#endif
