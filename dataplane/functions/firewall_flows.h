/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections that a firewall knows: a bounded table, one entry for both directions.  A bucket of the index is a
 * cache line, and so is an entry: a known flow costs two misses, which a burst asks for ahead.  Where a flow is kept
 * depends on a secret, so nobody can aim at another's bucket.
 *
 * Flows that nobody has answered, and those that have ended, give way: the oldest of them when the table is full, so
 * that a flood of beginnings takes no entry from a connection that is in use.
 *
 * Owned by the forwarding thread.  Another one may copy entries (firewall_flows_copy()); what it copies while that
 * changes may be of two moments.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_FLOWS_H
#define TAILRACE_FUNCTIONS_FIREWALL_FLOWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_prefetch.h>

#include "firewall_headers.h"

enum {
	FIREWALL_TICK_SHIFT = 20, /* a tick is 2^20 TSC cycles, some tenths of a millisecond */
	FIREWALL_SLOTS = 8,
	FIREWALL_KEY_WORDS = 6,
};

/*
 * How long a flow that is not seen is known, in seconds:
 * RFC 5382, REQ-5: two hours and four minutes, and four minutes while a connection ends; RFC 4787, REQ-5: two minutes
 * at least, five are better; RFC 5508, REQ-2: a minute at least.  A SYN that nobody answers is sent again, and is then
 * looked up again, so that nothing is lost by a time that is shorter than RFC 5382's.
 */
#define FIREWALL_TIMEOUTS(X)     \
	X(tcp_half_open, 30)     \
	X(tcp_established, 7440) \
	X(tcp_closing, 240)      \
	X(tcp_closed, 10)        \
	X(one_way, 120)          \
	X(two_way, 300)          \
	X(query, 60)

enum firewall_timeout {
#define X(name, seconds) FIREWALL_TIMEOUT_##name,
	FIREWALL_TIMEOUTS(X)
#undef X
		FIREWALL_NB_TIMEOUTS
};

/* What is known of a flow; with the time that it is kept, and whether it gives way when the table is full. */
#define FIREWALL_STATES(X)                                                                   \
	X(none, tcp_half_open, false)                                                        \
	X(syn_sent, tcp_half_open, true)                                                     \
	X(syn_both, tcp_half_open, true)     /* both ends have begun (RFC 9293, figure 7) */ \
	X(syn_received, tcp_half_open, true) /* answered, and the answer not acknowledged */ \
	X(established, tcp_established, false)                                               \
	X(closing_opener, tcp_closing, false) /* this end has sent its last byte */          \
	X(closing_other, tcp_closing, false)                                                 \
	X(time_wait, tcp_closing, true) /* both have */                                      \
	X(reset, tcp_closed, true)                                                           \
	X(one_way, one_way, true) /* of other protocols: nobody has answered */              \
	X(two_way, two_way, false)                                                           \
	X(asked, query, true)                                                                \
	X(answered, query, false)

enum firewall_state {
#define X(name, timeout, gives_way) FIREWALL_STATE_##name,
	FIREWALL_STATES(X)
#undef X
		FIREWALL_NB_STATES,
	FIREWALL_REFUSED = FIREWALL_NB_STATES, /* the frame is not for a flow in this state */
	FIREWALL_ANEW,			       /* it begins another one */
};

struct firewall_flow {
	/* As struct headers has it, with the ends in an order that both directions share; and what ICMP's query was. */
	uint64_t key[FIREWALL_KEY_WORDS];
	uint32_t seen;		      /* the tick */
	uint32_t next;		      /* of those that give way, or that are free */
	uint32_t previous;	      /* of those that give way */
	uint8_t state;		      /* enum firewall_state; none: free */
	uint8_t opener : 1, port : 1; /* which end of the key began, and at which port that is */
} __rte_cache_aligned;

struct firewall_bucket {
	uint32_t signatures[FIREWALL_SLOTS]; /* 0: none */
	uint32_t flows[FIREWALL_SLOTS];	     /* numbers; 0: none */
} __rte_cache_aligned;

struct firewall_flows {
	struct firewall_flow *flows; /* 0 is no flow's, and holds the list of those that give way */
	struct firewall_bucket *buckets;
	uint64_t secret[2];
	uint32_t bucket_mask;
	uint32_t most;
	uint32_t free; /* the first; 0: none */
	uint32_t swept;
	uint32_t sweep_tick;
	uint32_t timeouts[FIREWALL_NB_STATES]; /* ticks */
	_Atomic uint32_t used;
	_Atomic uint64_t begun, aged, gave_way;
};

/* One way to look a flow up. */
struct firewall_key {
	uint64_t words[FIREWALL_KEY_WORDS];
	uint64_t hash;
	uint8_t source; /* which end of the key sent the frame */
};

/* Room for so many, all of it taken now.  Returns 0, or -ENOMEM. */
int firewall_flows_open(struct firewall_flows *flows, uint32_t most, const uint32_t seconds[FIREWALL_NB_TIMEOUTS]);

void firewall_flows_close(struct firewall_flows *flows);

static inline uint32_t firewall_tick(uint64_t tsc)
{
	return (uint32_t)(tsc >> FIREWALL_TICK_SHIFT);
}

void firewall_key_make(const struct firewall_flows *flows, const struct firewall_frame *frame,
		       struct firewall_key *key);

static inline struct firewall_bucket *firewall_bucket(const struct firewall_flows *flows, uint64_t hash)
{
	return &flows->buckets[(hash >> 32) & flows->bucket_mask];
}

static inline void firewall_flows_prefetch(const struct firewall_flows *flows, uint64_t hash)
{
	rte_prefetch0(firewall_bucket(flows, hash));
}

/* The flow that has this signature in its bucket, and most likely is the one; 0: there is none.  Asks for its entry. */
uint32_t firewall_flows_guess(const struct firewall_flows *flows, uint64_t hash);

/* The flow, with the guess that was made of it before; NULL: it is not known, or no more. */
struct firewall_flow *firewall_flows_find(struct firewall_flows *flows, const struct firewall_key *key, uint32_t guess,
					  uint32_t tick);

/* A flow that is not known; NULL: there is no room. */
struct firewall_flow *firewall_flows_add(struct firewall_flows *flows, const struct firewall_key *key,
					 enum firewall_state state, uint16_t in, uint32_t tick);

void firewall_flows_remove(struct firewall_flows *flows, struct firewall_flow *flow);

/* What becomes of a flow by a frame of its opener, or of the other end: another state, or one of the two above. */
unsigned firewall_flow_after(enum firewall_state state, bool by_opener, enum firewall_event event);

/* The state that a frame begins a flow in; FIREWALL_REFUSED: it begins none. */
unsigned firewall_flow_begin(enum firewall_event event);

/* It was seen, and is in this state now. */
void firewall_flows_enter(struct firewall_flows *flows, struct firewall_flow *flow, enum firewall_state state,
			  uint32_t tick);

/* Forget what has aged, a part of the table at a time; once a round. */
void firewall_flows_sweep(struct firewall_flows *flows, uint32_t tick);

/* From any thread: entry `number` (from 1) as it is; false: it is free. */
bool firewall_flows_copy(const struct firewall_flows *flows, uint32_t number, struct firewall_flow *flow);

/* From any thread: so many flows as rows of a table. */
json_t *firewall_flows_show(const struct firewall_flows *flows, unsigned most, uint32_t tick);

extern const char *const firewall_timeout_names[FIREWALL_NB_TIMEOUTS];

#endif
