/* SPDX-License-Identifier: Apache-2.0
 *
 * What a source does beyond moving frames: limits, shares, mirrors and captures, the hop trace, following.  A source or
 * an egress without any of it has no watch, and pays for none: it is looked for once a burst.
 *
 * A poll of a watched source, steered or direct, is:
 *
 *     limit = watch_limit(source, round)             frames that its port's rate lets it send now
 *     vring_read(from, &burst, limit)
 *     watch_read(source, &burst, round)              who is followed
 *     watch_in(source, &burst, count, round)         mirrors and captures of what comes in
 *     ... for each egress: egress_take(), egress_drain(), egress_give() instead of egress_write() ...
 *     watch_spend(source, bytes, packets)            what has left the port
 *     vring_read_done(from, &burst)
 *     watch_done(source, round)
 *
 * The control side makes watches with a program and frees them with it.
 */
#ifndef TAILRACE_STEER_WATCH_H
#define TAILRACE_STEER_WATCH_H

#include "steer/egress.h"
#include "steer/follow.h"
#include "steer/hop_trace.h"
#include "steer/park.h"
#include "steer/rate.h"
#include "steer/shaper.h"
#include "steer/tap.h"

/* A port's limit on what it sends, for all its queues; survives programs. */
struct gate {
	struct limit limit;
	rte_spinlock_t lock; /* its queues may have several workers */
	uint32_t mean;	     /* bytes of its last frames */
	struct owed owed;
	struct rate rate; /* as it was set */
};

/* How a receiver is divided among its senders. */
struct division {
	rte_spinlock_t lock;
	struct shares *shares;
};

/* Why frames are dropped before anybody can look at them. */
#define WATCH_UNREAD(X)                                                                         \
	X(drop_frame_too_short, "it is shorter than an Ethernet header (drop_frame_too_short)") \
	X(drop_frame_too_long, "it is longer than the switch carries (drop_frame_too_long)")    \
	X(drop_frame_fragmented, "it is in too many pieces (drop_frame_fragmented)")            \
	X(drop_offload_malformed, "its network header contradicts it (drop_offload_malformed)") \
	X(drop_no_buffer, "the switch had no packet buffer (drop_no_buffer)")

/* Counters of the source's queue before it is read. */
struct watch_unread {
#define WATCH_UNREAD_FIELD(reason, text) uint64_t reason;
	WATCH_UNREAD(WATCH_UNREAD_FIELD)
#undef WATCH_UNREAD_FIELD
};

/* Of a source. */
struct watch {
	struct gate *gate; /* or NULL; so below */
	struct hop_trace *hops;
	unsigned number;	  /* of the port */
	struct tap_held held;	  /* the worker's; so below */
	struct followed followed; /* for one burst; so below */
	struct watch_unread unread;
	unsigned nb_taps;
	struct tap taps[]; /* copies of all that comes in */
};

/* Of an egress. */
struct egress_watch {
	struct division *division; /* or NULL */
	unsigned member;
	struct shaper *shaper;	      /* or NULL: what is above the division's rate stays with its sender */
	struct park *park;	      /* or NULL: what its guest, which is moving, cannot be given yet */
	struct hop_counters *hop;     /* the egress's, which counts what waited in one of the two; NULL: none */
	unsigned number;	      /* of the port */
	char label[FOLLOW_TEXT - 48]; /* for who follows: "chain voice, hop 1" */
	unsigned nb_offered;	      /* of the taps, the first: copies of what is to be given, where a chain begins */
	unsigned nb_taps;	      /* all; the others have copies of what was given */
	struct tap taps[];
};

/* How many frames the source may read now: 0 to VRING_BURST. */
unsigned watch_limit_now(const struct source *source, const struct round *round);

/* What the functions below do when there is something to do. */
void watch_pick(const struct source *source, const struct burst *burst, const struct round *round);
void watch_copy(const struct source *source, struct burst *burst, unsigned count, const struct round *round);

static inline unsigned watch_limit(const struct source *source, const struct round *round)
{
	return likely(source->watch == NULL) ? VRING_BURST : watch_limit_now(source, round);
}

/* The burst has been read; nothing is decided, and frames may yet have to stay with the sender. */
static inline void watch_read(const struct source *source, const struct burst *burst, const struct round *round)
{
	if (unlikely(source->watch != NULL && source->watch->followed.follow != NULL))
		watch_pick(source, burst, round);
}

/* The first `count` packets do leave the port, and nothing has been edited. */
static inline void watch_in(const struct source *source, struct burst *burst, unsigned count, const struct round *round)
{
	if (unlikely(source->watch != NULL && source->watch->nb_taps > 0))
		watch_copy(source, burst, count, round);
}

/* The packets from this one on stay with the sender, and will be read again. */
static inline void watch_stay(const struct source *source, const struct burst *burst, unsigned first)
{
	if (unlikely(source->watch != NULL && source->watch->followed.packets >> first != 0))
		follow_take_back(&source->watch->followed, burst, first, source->watch->number);
}

/* Frames have left the port. */
void watch_spend_now(struct watch *watch, uint64_t bytes, unsigned packets);

static inline void watch_spend(const struct source *source, uint64_t bytes, unsigned packets)
{
	if (unlikely(source->watch != NULL && source->watch->gate != NULL))
		watch_spend_now(source->watch, bytes, packets);
}

/* The burst has been shown, or there was none: who looks on sees what became of it. */
static inline void watch_done(const struct source *source, const struct round *round)
{
	if (likely(source->watch == NULL))
		return;
	if (unlikely(source->watch->held.count > 0))
		tap_release(&source->watch->held, round);
	if (unlikely(source->watch->followed.unshown > 0))
		follow_show(&source->watch->followed);
}

/* What became of frames that were to be given. */
struct given {
	unsigned dealt;	   /* with: given, or dropped and counted */
	unsigned admitted; /* of the packets; the others are above the receiver's rate, or the sender's share of it */
	unsigned shaped;   /* of those, the first: they wait in the shaper, or were put aside, and are done with here */
	unsigned refused;  /* the last: they could not be put aside, and are dropped and counted */
	bool kept_off;	   /* another has had for long what was put aside: none is dealt with */
};

/*
 * Give the packets which[0..n) to the egress's port, whose queue has been taken, as far as its rate and the sender's
 * share of it allow; those above wait in its shaper, if it has one.  `only` is egress_write()'s, but for who watches
 * the egress.
 */
struct given egress_give_watched(const struct source *source, const struct egress *egress, struct burst *burst,
				 const uint8_t *which, unsigned n, bool only, const struct round *round);

static inline struct given egress_give(const struct source *source, const struct egress *egress, struct burst *burst,
				       const uint8_t *which, unsigned n, bool only, const struct round *round)
{
	if (likely(egress->watch == NULL))
		return (struct given){.dealt = egress_write(egress, burst, which, n, only), .admitted = n};
	return egress_give_watched(source, egress, burst, which, n, only, round);
}

/* Has the egress a queue for frames above its rate? */
static inline bool egress_is_shaped(const struct egress *egress)
{
	return unlikely(egress->watch != NULL) && egress->watch->shaper != NULL;
}

/* Have frames been put aside for the egress's guest? */
static inline bool egress_parks(const struct egress *egress)
{
	return unlikely(egress->watch != NULL) && egress->watch->park != NULL && park_waiting(egress->watch->park) > 0;
}

/* Do frames wait for the egress's rate, or were they put aside, and could be given now? */
static inline bool egress_shapes(const struct egress *egress)
{
	return (egress_is_shaped(egress) && shaper_waiting(egress->watch->shaper)) ||
	       (egress_parks(egress) && egress_up(egress));
}

/*
 * Give what was put aside, and then what waits for the egress's rate, as far as that allows now.  In every round, with
 * the egress's queue taken and before anything else is given to it.  What the receiver has had no room for as long as
 * frames are kept waiting is dropped, and all if nobody is attached; that of a guest that moves is put aside.
 */
void egress_drain(const struct source *source, const struct egress *egress, const struct round *round);

/*
 * For a direct source that does not look at its frames, and an egress that is divided without a limit: may it give a
 * burst now, while others wait?  And what came of it: `bytes` in `packets` were taken, and the sender has more.
 */
bool egress_turn(const struct egress *egress, const struct round *round);
void egress_turned(const struct egress *egress, uint64_t bytes, unsigned packets, bool waiting,
		   const struct round *round);

/* The source has frames for the egress, which has no room at all: for others to know, who share it. */
void egress_refused(const struct egress *egress, const struct round *round);

/* Count as dropped those of `n` packets that were not dealt with and do not wait, and tell who follows them. */
void egress_drop(const struct source *source, const struct egress *egress, struct burst *burst, const uint8_t *which,
		 unsigned n, struct given given, const struct round *round);

/* The packet is followed: add a step.  FOLLOW(source, burst, i, "rule %u ...", ...) costs nothing else. */
#define FOLLOW(source, burst, packet, ...)                                              \
	do {                                                                            \
		struct watch *watch_ = (source)->watch;                                 \
		if (unlikely(watch_ != NULL && watch_->followed.packets >> (packet)&1)) \
			follow_say(&watch_->followed, burst, packet, __VA_ARGS__);      \
	} while (0)

/* The last step of a frame that nobody wants, from the port of this name. */
#define NO_CHAIN "dropped: port %s is in no chain (drop_no_chain)"

/* source_poll() of a direct source that is watched. */
unsigned watched_poll(struct source *source, const struct round *round);

#endif
