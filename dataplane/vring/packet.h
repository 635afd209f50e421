/* SPDX-License-Identifier: Apache-2.0
 *
 * The steered path: frames that somebody looks at before it is known where they go.
 *
 *     vring_read(from, &burst, limit);              a private copy of each frame's first bytes; nothing is completed
 *     ... decide by packet->head, edit it ...
 *     vring_write(to, &burst, which, n);            for each receiver: one copy of each frame, shown to nobody yet
 *     vring_read_done(from, &burst);                all frames go back to the sender, then the receivers see theirs
 *
 * The guest may change a frame while it is looked at.  So what was decided on is what is delivered: the first
 * PACKET_HEAD bytes always come from the private copy; what follows them is copied from the guest's memory (or a
 * device's packet buffer) straight to each receiver.
 *
 * The same packet may be written to several rings.  A receiver sees its frames only after the sender has got them
 * back (burst_show()), so that a switch that is killed in between loses frames and never sends one twice.  Between
 * vring_write() and that moment the ring must stay with this worker: where several workers write to a ring, its lock
 * is held for as long, and locks of several rings are taken in one order everywhere.
 *
 * Everything here belongs to one worker and holds for one burst.
 */
#ifndef TAILRACE_VRING_PACKET_H
#define TAILRACE_VRING_PACKET_H

#include <assert.h>
#include <stddef.h>

#include <linux/virtio_net.h>
#include <rte_mbuf.h>

#include "vring/offload.h"
#include "vring/vring.h"

enum {
	PACKET_HEAD = 128, /* bytes of a frame that are copied before it is looked at */
	PACKET_ROOM = 14,  /* by which the head may grow in front: two VLAN tags, and to spare */

	/* Pieces of guest memory that the frames of one burst lie in; a burst ends early when they run out. */
	BURST_PIECES = 2 * VRING_BURST + 2 * VRING_PIECES,
	PACKET_PIECES = 1 + VRING_PIECES + 2, /* of one guest's frame: the head, what follows it, a checksum therein */
	SEGMENT_PIECES = 1 + BURST_PIECES, /* of a frame that is cut out of a long one: its header, and what was cut */

	BURST_BYTES = 256 * 1024, /* a burst ends with the frame that reaches this */
};

struct packet {
	uint8_t *head;		    /* the frame's first bytes, private: edit them at will */
	struct vring_piece *pieces; /* [0] is the head's, filled in when written; then the rest of the frame */
	struct rte_mbuf *mbuf;	    /* the packet buffer of a device's frame, or NULL */
	uint32_t length;	    /* of the whole frame as it will be delivered */
	uint32_t received;	    /* of the frame as it came */
	uint16_t head_length;
	uint16_t nb_pieces;
	bool delivered;		       /* written to a port, at least once */
	struct virtio_net_hdr offload; /* checked; what the sender left for others to do, all zeros when nothing */

	_Alignas(16) uint8_t checksum[2];	  /* the field of one that is unfinished, where it is not in the head */
	uint8_t bytes[PACKET_ROOM + PACKET_HEAD]; /* the head as it came begins a cache line */
};
static_assert(offsetof(struct packet, bytes) + PACKET_ROOM == RTE_CACHE_LINE_SIZE, "or each head is a line more");
static_assert((unsigned)OFFLOAD_STEERED == PACKET_HEAD, "steering decides by the head");

struct burst {
	unsigned count;				/* packets to decide on */
	unsigned taken;				/* chains behind them and behind frames that were dropped on reading */
	unsigned nb_pieces;			/* in use */
	uint32_t bytes;				/* of the packets as they came */
	struct virtqueue *unshown;		/* rings written to, linked by next_unshown */
	struct vring_chain chains[VRING_BURST]; /* what to give back to the sender */
	struct vring_piece pieces[BURST_PIECES];
	_Alignas(64) struct packet packets[VRING_BURST];
};

/*
 * Look at up to `limit` (at most VRING_BURST) frames of the guest.  Frames that cannot be carried are dropped and
 * counted, so `burst->count` may be less than what is returned: the number of frames taken.
 * vring_read_done() must follow, also after 0.
 */
unsigned vring_read(struct virtqueue *from, struct burst *burst, unsigned limit);

/*
 * Copy the packets with the numbers which[0..n) into the guest's receive buffers, in this order.  Returns how many
 * were dealt with, those too long for the receiver's buffers (dropped and counted) included; for the others it has no
 * buffer now.  `burst` may come from a guest or a device.
 */
unsigned vring_write(struct virtqueue *to, struct burst *burst, const uint8_t *which, unsigned n);

/* Give all frames back to the sender, count them, and show each receiver what was written to it. */
void vring_read_done(struct virtqueue *from, struct burst *burst);

/* ------- for whoever reads from elsewhere: a device ------- */

void burst_start(struct burst *burst);

/*
 * Add the frame in `mbuf`, which stays the caller's.  The head is the first segment, in place, since no guest can
 * change it: it must have PACKET_ROOM bytes of headroom and no other owner.  Returns NULL when the burst is full.
 */
struct packet *burst_add_mbuf(struct burst *burst, struct rte_mbuf *mbuf);

/* Show each receiver what was written to it. */
void burst_show(struct burst *burst);

/* ------- editing ------- */

/* Begin the frame `bytes` (at most PACKET_ROOM in all) earlier; what is there is the caller's to write. */
static inline void packet_push(struct packet *packet, uint16_t bytes)
{
	packet->head -= bytes;
	packet->head_length += bytes;
	packet->length += bytes;
	if (packet->offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		packet->offload.csum_start += bytes;
	if (packet->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		packet->offload.hdr_len += bytes;
}

/* Cut the frame's first `bytes` off; the caller has seen that it is so long. */
static inline void packet_pop(struct packet *packet, uint16_t bytes)
{
	packet->head += bytes;
	packet->head_length -= bytes;
	packet->length -= bytes;
	if (packet->offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		packet->offload.csum_start -= bytes;
	if (packet->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		packet->offload.hdr_len -= bytes;
}

#endif
