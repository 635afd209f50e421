/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that Linux has handed over unfinished (common/device_packet.h).
 *
 * A checksum, or a TCP segment of up to 64 KiB, goes on as it is wherever vring/offload.h knows it: a receiver takes it
 * so, or it is finished on the way to it.  Everything else is finished here, before anybody looks at the frame: the
 * checksum of SCTP, one that would be written where steering looks, and segments that only Linux knows (TCP and UDP in
 * a tunnel, UDP, more than 64 KiB or than OFFLOAD_SEGMENTS frames).
 *
 * Linux's word is taken, but Linux may only pass on a guest's: what contradicts the frame is refused.
 *
 * For the worker that takes frames from the queue.
 */
#ifndef TAILRACE_PORT_DEVICE_FINISH_H
#define TAILRACE_PORT_DEVICE_FINISH_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>
#include <rte_mbuf.h>

enum { DEVICE_CUT_HEADERS = 512 /* bytes that all headers of a segment may take */ };

/* A checksum that covers all from a header on. */
struct device_sum {
	uint16_t from;	/* the header; 0: there is no such checksum */
	uint16_t field; /* the byte of the checksum */
	uint16_t base;	/* sum of the pseudo header without the length, in network order */
	bool length;	/* the length is in the pseudo header */
};

/* A long segment that is being cut. */
struct device_cut {
	struct rte_mbuf *frame; /* NULL: none */
	struct rte_mbuf *at;	/* where the rest of its payload begins */
	uint32_t offset;
	uint32_t left; /* bytes of the rest */
	uint32_t sent; /* bytes that have been cut off */
	uint16_t number;
	uint16_t size;		      /* payload of a segment */
	uint16_t outer, ip;	      /* IP headers, of a tunnel (0: none) and of the segment */
	uint16_t transport, headers;  /* the TCP or UDP header; the end of all */
	uint16_t outer_udp;	      /* of a tunnel; 0: none */
	bool tcp;		      /* or UDP */
	struct device_sum sum, other; /* the segment's, and the tunnel's */
	uint8_t head[DEVICE_CUT_HEADERS];
};

enum device_finish {
	DEVICE_WHOLE,	  /* it is one frame; what is left to do of it stands in `offload`, checked */
	DEVICE_CUT,	  /* it is being cut, and belongs to `cut` */
	DEVICE_MALFORMED, /* the header contradicts the frame */
};

/* Finish a frame, whose head is whole and may be edited, as far as need be.  `cut` cuts nothing yet. */
enum device_finish device_finish(struct rte_mbuf *frame, struct virtio_net_hdr *offload, struct device_cut *cut);

/* The next segment, complete; cut->frame is NULL after the last one.  Returns NULL when the pool has no buffer. */
struct rte_mbuf *device_cut_next(struct device_cut *cut, struct rte_mempool *pool);

/* How many segments are left. */
unsigned device_cut_left(const struct device_cut *cut);

/* Cut no more; frees what is left of it. */
void device_cut_end(struct device_cut *cut);

#endif
