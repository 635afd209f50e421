/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue in front of a receiver with a rate: frames that one source has for it above that rate, and that cannot wait
 * where they came from, since others behind them go elsewhere or a device has handed them over.  First in, first out,
 * in memory of the switch's own: what is written here is what is delivered, with nothing left for a guest to change.
 *
 * It is bounded by bytes and frames, which are the rate times the longest that a frame may wait; the newest frame is
 * the one that finds no room.  A long segment that would take more than a quarter of it is cut, so that TCP sees a
 * queue of frames and not of bursts.
 *
 * The control side makes and frees it and sets its limits.  All else belongs to the worker that polls the source.
 */
#ifndef TAILRACE_STEER_SHAPER_H
#define TAILRACE_STEER_SHAPER_H

#include <stdbool.h>
#include <stdint.h>

#include "vring/packet.h"

enum {
	SHAPER_LATENCY_US = 10000, /* that a frame waits at the most, unless it is said otherwise */
	/* What is held however low the rate: TCP begins with ten frames at once (RFC 6928), and some to spare. */
	SHAPER_LEAST_PACKETS = 16,
	SHAPER_LEAST_BYTES = SHAPER_LEAST_PACKETS * 1518,
	SHAPER_MOST_BYTES = 16 << 20, /* however high; 13 ms of 10 Gbps */
};

struct shaper_limits {
	uint32_t bytes; /* of waiting frames, FCS included */
	uint32_t packets;
};

struct shaper {
	uint8_t *memory;	 /* a ring; its pages are made when they are first used */
	uint32_t head, tail;	 /* the oldest frame, and behind the newest */
	uint32_t packets, bytes; /* that wait */
	uint64_t full_since;	 /* TSC, for who drains it: the receiver has had no room since; 0: it has */
	struct shaper_limits limits;
};

/* A queue without room, until its limits are set.  Returns false without memory. */
bool shaper_open(struct shaper *shaper);
void shaper_close(struct shaper *shaper);

/*
 * The limits for this part of a receiver's rate (bits and packets a second; 0: no such limit), of `whole` parts, if a
 * frame waits `latency_us` at the most.
 */
struct shaper_limits shaper_limits_of(uint64_t bits, uint64_t packets, uint64_t latency_us, uint64_t part,
				      uint64_t whole);

static inline bool shaper_waiting(const struct shaper *shaper)
{
	return shaper->packets > 0;
}

/* Must the packet be cut, and so go through the queue, before it is given? */
bool shaper_cuts(const struct shaper *shaper, const struct packet *packet);

/* Append a copy of the packet, or of what it is cut into.  False: there is no room, and nothing has changed. */
bool shaper_put(struct shaper *shaper, struct packet *packet);

/* Make a burst of the oldest frames, which stay.  Its packets hold until shaper_remove(). */
void shaper_read(const struct shaper *shaper, struct burst *burst);

/* Remove the oldest `count`. */
void shaper_remove(struct shaper *shaper, unsigned count);

/* Remove all.  Returns how many. */
unsigned shaper_clear(struct shaper *shaper);

#endif
