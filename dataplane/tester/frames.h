/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames that a stream sends: made ones of one or several sizes, or those of a capture.
 *
 * A made frame is Ethernet, IPv4 and UDP, with its last 18 bytes left to the signature.  Addresses are from
 * 198.18.0.0/15, which RFC 2544 sets aside for this.  Flow k has source address 198.18.1.(k mod 256) and source
 * port 1024 + k / 256; the other direction mirrors addresses and ports, so that flow k is the same five-tuple
 * both ways.  The IPv4 checksum is right, and UDP goes without one, as it may.
 *
 * Frames come from pools, one for each port, size and direction, whose buffers are filled in beforehand and come back
 * from the driver as they left; so only the bytes that change are written.  Pools outlive a trial, because a
 * driver gives sent buffers back late.  The control thread opens; the polling thread takes.
 */
#ifndef TAILRACE_TESTER_FRAMES_H
#define TAILRACE_TESTER_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "capture.h"
#include "common/signature.h"

enum {
	FRAME_SMALLEST = 64, /* sizes include the FCS */
	FRAME_LARGEST = 9018,
	FRAME_FLOWS = 1000000,
	FRAME_KINDS = 16,     /* sizes in a mix */
	FRAME_PATTERN = 4096, /* frames in one round of a mix */
	FRAME_BURST = 64,
};

/* Offsets in a made frame. */
enum {
	FRAME_IP = 14,
	FRAME_IP_CHECKSUM = 24,
	FRAME_SOURCE = 26,
	FRAME_DESTINATION = 30,
	FRAME_SOURCE_PORT = 34,
	FRAME_DESTINATION_PORT = 36,
	FRAME_FIRST_PORT = 1024,
};

struct frame_pool {
	struct frame_pool *next;
	struct rte_mempool *mempool;
	uint16_t port;	 /* the one that sends: its driver holds on to as many buffers as its ring has slots */
	uint16_t length; /* bytes without FCS; of a capture's pool, the room for one */
	bool capture;
	bool reverse;
	uint32_t flows; /* above the highest that a stream has sent from it; at 1, the buffers stay as they were filled
			 */
	uint16_t users; /* streams that have it open */
	uint16_t fresh_left;
	struct rte_mbuf *fresh[FRAME_BURST]; /* the first fresh_left are taken from the mempool and not used yet */
	struct rte_mbuf *stash[FRAME_BURST]; /* fetched, to be sent next */
};

struct frame_kind {
	struct frame_pool *pool;
	uint32_t checksum_base; /* sum of the IPv4 header's words for flow 0, without the checksum itself */
	uint16_t length;
};

struct frames {
	struct frame_kind kinds[FRAME_KINDS];
	uint8_t pattern[FRAME_PATTERN]; /* kinds in the order in which they are sent */
	uint32_t pattern_length, position;
	uint32_t flows, flow, first_flow;
	uint16_t nb_kinds;
	uint16_t flow_address, flow_port; /* offsets of the bytes that change with the flow */
	struct capture *capture;	  /* or NULL */
	uint32_t capture_position;
};

/* All pools of the program. */
struct frame_pools {
	struct frame_pool *first;
	unsigned made;	  /* so that each has a name of its own */
	uint16_t buffers; /* in each: more than a transmit ring holds */
};

struct frames_plan {
	uint16_t port;		 /* that sends */
	bool reverse;		 /* from the second port to the first */
	uint32_t flows;		 /* 1 to FRAME_FLOWS */
	uint32_t first_flow;	 /* flows are first_flow to first_flow + flows - 1 */
	uint64_t first_sequence; /* its flow is first_flow + first_sequence mod flows */
	uint16_t nb_sizes;	 /* 0 with a capture */
	uint16_t sizes[FRAME_KINDS];
	uint32_t weights[FRAME_KINDS]; /* frames of each size, relative; at least 1 */
	const char *capture;	       /* path, or NULL */
	uint16_t longest;	       /* bytes without FCS that both ports take */
};

/* Returns 0, or -errno after writing what is wrong to `error`. */
int frames_open(struct frames *frames, const struct frames_plan *plan, struct frame_pools *pools, char *error,
		size_t size);
void frames_close(struct frames *frames);

/*
 * Order `weights` evenly: in every prefix of the pattern each kind has its share, to within one frame.
 * Returns the length of the pattern, or 0 if it does not fit `size`.
 */
uint32_t frames_interleave(const uint32_t *weights, uint16_t nb_kinds, uint8_t *pattern, uint32_t size);

/* Write a made frame of `length` bytes, of flow 0, whole but for its signature.  Returns its checksum base. */
uint32_t frame_make(uint8_t *frame, uint16_t length, bool reverse);

/* Make a made frame one of this flow. */
static inline void frame_set_flow(uint8_t *frame, uint32_t checksum_base, uint16_t address, uint16_t port,
				  uint32_t flow)
{
	uint32_t sum = checksum_base + (flow & 0xff);
	rte_be16_t checksum = rte_cpu_to_be_16((uint16_t) ~(sum + (sum >> 16)));
	rte_be16_t port_value = rte_cpu_to_be_16((uint16_t)(FRAME_FIRST_PORT + (flow >> 8)));

	frame[address + 3] = (uint8_t)flow;
	memcpy(frame + FRAME_IP_CHECKSUM, &checksum, 2);
	memcpy(frame + port, &port_value, 2);
}

/*
 * Have what sending writes to a buffer fetched for writing: the driver's header before the frame, the frame's own
 * headers, and its signature.  Another core read them last, so they are far away.
 */
static inline void frame_prefetch(struct rte_mbuf *mbuf, uint16_t length)
{
	uint8_t *frame = (uint8_t *)mbuf + sizeof(*mbuf) + RTE_PKTMBUF_HEADROOM;

	__builtin_prefetch(mbuf, 1);
	__builtin_prefetch(frame - 1, 1);
	__builtin_prefetch(frame, 1);
	__builtin_prefetch(frame + length - SIGNATURE_SIZE, 1);
}

/* Take a buffer; its slot in the stash goes to one that is fetched now and taken a whole burst later. */
static inline struct rte_mbuf *frame_pool_take(struct frame_pool *pool)
{
	struct rte_mbuf *mbuf;

	if (unlikely(pool->fresh_left == 0)) {
		if (rte_mempool_get_bulk(pool->mempool, (void **)pool->fresh, FRAME_BURST) != 0)
			return NULL;
		pool->fresh_left = FRAME_BURST;
	}
	pool->fresh_left--;
	mbuf = pool->stash[pool->fresh_left];
	pool->stash[pool->fresh_left] = pool->fresh[pool->fresh_left];
	frame_prefetch(pool->stash[pool->fresh_left], pool->length);
	/* What a driver may have changed; a free buffer is one segment with one owner anyway. */
	mbuf->data_off = RTE_PKTMBUF_HEADROOM;
	mbuf->ol_flags = 0;
	return mbuf;
}

static inline void frame_set_length(struct rte_mbuf *mbuf, uint16_t length)
{
	mbuf->pkt_len = length;
	mbuf->data_len = length;
}

/* Sign a frame that frames_next() gave, whole with that. */
static inline void frames_sign(const struct frames *frames, struct rte_mbuf *mbuf, uint32_t key, uint16_t stream,
			       uint64_t sequence, uint64_t time)
{
	uint8_t *bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);

	if (likely(frames->capture == NULL))
		signature_write(bytes + mbuf->data_len - SIGNATURE_SIZE, key, stream, sequence, time);
	else
		capture_frame_sign(&frames->capture->frames[mbuf->hash.usr], bytes, key, stream, sequence, time);
}

/* The next frame, whole but for its signature; NULL while all buffers are under way. */
static inline struct rte_mbuf *frames_next(struct frames *frames)
{
	struct frame_kind *kind = &frames->kinds[frames->pattern[frames->position]];
	struct rte_mbuf *mbuf = frame_pool_take(kind->pool);

	if (unlikely(mbuf == NULL))
		return NULL;
	if (unlikely(frames->capture != NULL)) {
		const struct capture_frame *frame = &frames->capture->frames[frames->capture_position];

		memcpy(rte_pktmbuf_mtod(mbuf, void *), frames->capture->bytes + frame->start, frame->length);
		frame_set_length(mbuf, frame->length);
		mbuf->hash.usr = frames->capture_position; /* which no driver looks at when it sends */
		if (++frames->capture_position == frames->capture->nb_frames)
			frames->capture_position = 0;
		return mbuf;
	}
	frame_set_length(mbuf, kind->length);
	if (kind->pool->flows > 1)
		frame_set_flow(rte_pktmbuf_mtod(mbuf, uint8_t *), kind->checksum_base, frames->flow_address,
			       frames->flow_port, frames->first_flow + frames->flow);
	if (++frames->flow == frames->flows)
		frames->flow = 0;
	if (++frames->position == frames->pattern_length)
		frames->position = 0;
	return mbuf;
}

#endif
