/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates and shares of a port, as an SR-IOV NIC gives its virtual functions.  Pure logic on a clock that the caller
 * reads: the TSC.
 *
 * A `limit` is what may pass in a second, in bits (layer 2, FCS included), in frames, or both.  It is exact in the long
 * run; after a pause what the limit allows in RATE_BURST_MS may pass at once, and one frame more, since a frame is let
 * through before its length is known.
 *
 * `shares` divide what one receiver can take among the ports that send to it, in proportion to their weights, by bytes.
 * Each sender has a credit.  What the receiver can take is poured into the credits by weight; a credit that is full
 * overflows into the others, so that what one sender does not use is used by the rest, and is there for it when it
 * comes back.  What is poured is, for a limited receiver, the time that has passed; for any other, what it has taken.
 * There shares matter only while the receiver is full: a sender without credit lets those go first that wait and have
 * some, and nobody waits for one that has nothing to send.
 */
#ifndef TAILRACE_STEER_RATE_H
#define TAILRACE_STEER_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RATE_BURST_MS = 10,
	RATE_FCS = 4, /* bytes that stand in no buffer and count all the same */
	SHARE_WEIGHT_MOST = 1000,
	SHARE_UNIT_BITS = 8,	  /* credits of a limited receiver are cycles, a fraction of 2^8 */
	SHARE_PATIENCE_US = 1000, /* a sender that has not asked for so long waits no more */
};

/*
 * What has passed and is not spent yet, because somebody else was at the account: nobody waits for that.  Whoever is
 * there next spends it.  Atomic; it may be late by a burst of each worker.
 */
struct owed {
	uint64_t bytes, packets;
};

static inline void owed_add(struct owed *owed, uint64_t bytes, uint32_t packets)
{
	__atomic_fetch_add(&owed->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&owed->packets, packets, __ATOMIC_RELEASE);
}

/* Add it to what is being spent. */
static inline void owed_take(struct owed *owed, uint64_t *bytes, uint32_t *packets)
{
	if (__atomic_load_n(&owed->packets, __ATOMIC_RELAXED) == 0)
		return;
	*packets += (uint32_t)__atomic_exchange_n(&owed->packets, 0, __ATOMIC_ACQUIRE);
	*bytes += __atomic_exchange_n(&owed->bytes, 0, __ATOMIC_RELAXED);
}

/* What is asked for; 0 is no limit. */
struct rate {
	uint64_t bits;	  /* a second */
	uint64_t packets; /* a second */
};

struct limit {
	uint64_t byte_cost, packet_cost; /* TSC cycles, a fraction of 2^32; 0: no limit */
	uint64_t burst;			 /* cycles */
	uint64_t byte_due, packet_due;	 /* when the next frame may pass */
	uint32_t byte_fraction, packet_fraction;
};

/* A limit that starts at `now` without having saved anything up.  `hz` is the clock's. */
void limit_set(struct limit *limit, const struct rate *rate, uint64_t now, uint64_t hz);

/* May a frame pass at `now`?  Forgets what was saved up beyond the burst. */
static inline bool limit_open(struct limit *limit, uint64_t now)
{
	if ((int64_t)(now - limit->byte_due) > (int64_t)limit->burst)
		limit->byte_due = now - limit->burst;
	if ((int64_t)(now - limit->packet_due) > (int64_t)limit->burst)
		limit->packet_due = now - limit->burst;
	return (int64_t)(now - limit->byte_due) >= 0 && (int64_t)(now - limit->packet_due) >= 0;
}

static inline void limit_advance(uint64_t *due, uint32_t *fraction, unsigned __int128 cost)
{
	cost += *fraction;
	*fraction = (uint32_t)cost;
	*due += (uint64_t)(cost >> 32);
}

/* `packets` frames of `bytes` in all, without FCS, have passed. */
static inline void limit_spend(struct limit *limit, uint64_t bytes, uint32_t packets)
{
	bytes += (uint64_t)packets * RATE_FCS;
	limit_advance(&limit->byte_due, &limit->byte_fraction, (unsigned __int128)bytes * limit->byte_cost);
	limit_advance(&limit->packet_due, &limit->packet_fraction, (unsigned __int128)packets * limit->packet_cost);
}

/*
 * How many of `count` frames of these lengths (without FCS) may pass at `now`, in order; they are spent.
 * limit_open() was just asked.
 */
unsigned limit_pass(struct limit *limit, uint64_t now, const uint32_t *lengths, unsigned count);

struct share {
	uint32_t weight; /* 1 to SHARE_WEIGHT_MOST */
	int64_t credit;
	int64_t depth;	     /* the most that is saved up by one that does not wait */
	uint64_t waiting_at; /* when it last had frames left that it could not give; 0: it gave all it had */
	struct owed owed;
};

struct shares {
	uint64_t byte_cost, packet_cost; /* of a frame, as in a limit; both 0: the receiver has no limit */
	uint64_t poured_at;		 /* TSC */
	uint64_t patience;		 /* cycles */
	uint64_t remainder;		 /* poured and not yet given to anybody */
	bool contended;			 /* without a limit: the receiver has been full lately */
	uint64_t full_at;		 /* ... last at */
	unsigned nb_members;
	struct share members[];
};

/* For a receiver with this limit (`rate` NULL or zeros: none); NULL without memory.  Free it with free(). */
struct shares *shares_make(const struct rate *rate, const uint32_t *weights, unsigned nb_members, uint64_t now,
			   uint64_t hz);

static inline bool shares_limited(const struct shares *shares)
{
	return (shares->byte_cost | shares->packet_cost) != 0;
}

/* May this sender, which has frames for the receiver, give it any at `now`? */
bool shares_open(struct shares *shares, unsigned member, uint64_t now);

/* How many of `count` frames of these lengths it may give, in order.  shares_open() was just asked; nothing is spent.
 */
unsigned shares_pass(const struct shares *shares, unsigned member, const uint32_t *lengths, unsigned count);

/* What came of it: the receiver took `packets` frames of `bytes` in all (without FCS) from this sender. */
struct share_use {
	uint64_t bytes;
	uint32_t packets;
	bool waiting; /* the sender has frames left that it could not give */
	bool full;    /* because the receiver has no room */
};

void shares_spend(struct shares *shares, unsigned member, const struct share_use *use, uint64_t now);

/* The same while somebody else may be at it: it is spent with what this sender gives next. */
static inline void shares_owe(struct shares *shares, unsigned member, const struct share_use *use)
{
	owed_add(&shares->members[member].owed, use->bytes, use->packets);
}

#endif
