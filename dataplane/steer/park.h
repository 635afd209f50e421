/* SPDX-License-Identifier: Apache-2.0
 *
 * What is put aside for a guest that moves from one switch to another: frames that come for it between its pause there
 * and its first ring here.  First in, first out, bounded, in memory of the switch's own (shaper.h).
 *
 * Where it comes from, what comes after the pause is put aside, and the control side takes it out.  Where it goes to,
 * what the other switch had is delivered before all else (park_give()).  What comes here meanwhile may be the same
 * frames, if the network sends them to both.  So of these only the newest are kept, and when the other switch's are
 * known, all are forgotten up to the last that is one of those: what the guest has got there already, and what it is
 * about to get.  Frames that are alike in every byte cannot be told apart.
 *
 * The control side makes and frees it.  Workers put and deliver frames with its lock, which nobody has for long: the
 * control side looks through frames beside it.
 */
#ifndef TAILRACE_STEER_PARK_H
#define TAILRACE_STEER_PARK_H

#include <rte_spinlock.h>

#include "steer/shaper.h"

enum {
	PARK_PACKETS = 1 << 17, /* that each of the queues holds at the most; SHAPER_MOST_BYTES too */
};

/* Frames so far. */
struct park_counts {
	uint64_t parked;    /* put aside here */
	uint64_t given;	    /* that the other switch had, put before them */
	uint64_t delivered; /* to the guest */
	uint64_t taken;	    /* for the other switch */
	uint64_t forgotten; /* that the guest has got, or gets, from the other switch */
	uint64_t dropped;   /* for want of room, or unfit for the other switch, or left over at the end */
};

struct park {
	rte_spinlock_t lock;
	bool slides; /* nothing is known of the other switch's frames yet: the newest are kept */
	bool giving; /* the control side has all queues but `own` */
	/* In this order: what the other switch had, what had come here by then, what has come since. */
	struct shaper given, early, own;
	struct shaper spare; /* the control side's */
	uint64_t secret[2];  /* of the hashes: who sends must not be able to choose frames that are taken for others */
	uint64_t *expected;  /* hashes of the other switch's frames that are still to come here, to be forgotten */
	uint32_t nb_expected, next_expected;
	struct park_counts counts; /* with the lock */
	uint64_t lost;		   /* of what was dropped, by the control side: no counter of a port has those yet */
};

/* Returns false without memory. */
bool park_open(struct park *park, bool slides);
void park_close(struct park *park);

static inline uint32_t park_waiting(const struct park *park)
{
	return __atomic_load_n(&park->given.packets, __ATOMIC_RELAXED) +
	       __atomic_load_n(&park->early.packets, __ATOMIC_RELAXED) +
	       __atomic_load_n(&park->own.packets, __ATOMIC_RELAXED);
}

/* With the lock: put a copy aside, or forget it.  False: there is no room; it is counted as dropped. */
bool park_put(struct park *park, struct packet *packet);

/* With the lock: the queue whose oldest frames are next; NULL: none may be delivered now. */
static inline struct shaper *park_next(struct park *park)
{
	if (park->giving)
		return NULL;
	if (shaper_waiting(&park->given))
		return &park->given;
	return shaper_waiting(&park->early) ? &park->early : shaper_waiting(&park->own) ? &park->own : NULL;
}

/* With the lock: remove the oldest `count` of that queue, which have been delivered. */
void park_delivered(struct park *park, struct shaper *queue, unsigned count);

/* Take out all that waits, into `out`, which is open and empty.  By the control side; takes the lock. */
void park_take(struct park *park, struct shaper *out);

/* So many frames were dropped that were not in the queues.  By the control side; takes the lock. */
void park_lose(struct park *park, uint32_t count);

/*
 * The other switch had these, in this order, and behind those that it has given before.  By the control side; takes the
 * lock.  Returns false without memory, and has given nothing.
 */
bool park_give(struct park *park, struct packet *packets, unsigned count);

#endif
