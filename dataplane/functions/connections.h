/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections that a firewall or a NAT knows: a bounded table, one entry for both directions.  A bucket of the
 * index is a cache line, and so is an entry: a known flow costs two misses, which a burst asks for ahead.  Where a flow
 * is kept depends on a secret, so nobody can aim at another's bucket.
 *
 * Flows that nobody has answered, and those that have ended, give way: the oldest of them when the table is full, so
 * that a flood of beginnings takes no entry from a connection that is in use.
 *
 * Owned by the forwarding thread.  Another one may copy entries (connections_copy()); what it copies while that
 * changes may be of two moments.
 */
#ifndef TAILRACE_FUNCTIONS_CONNECTIONS_H
#define TAILRACE_FUNCTIONS_CONNECTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_prefetch.h>

#include "inspect.h"

enum {
	CONNECTION_TICK_SHIFT = 20, /* a tick is 2^20 TSC cycles, some tenths of a millisecond */
	CONNECTION_SLOTS = 8,
	CONNECTION_KEY_WORDS = 6,
};

/*
 * How long a flow that is not seen is known, in seconds:
 * RFC 5382, REQ-5: two hours and four minutes, and four minutes while a connection ends; RFC 4787, REQ-5: two minutes
 * at least, five are better; RFC 5508, REQ-2: a minute at least.  A SYN that nobody answers is sent again, and is then
 * looked up again, so that nothing is lost by a time that is shorter than RFC 5382's.
 */
#define CONNECTION_TIMEOUTS(X)   \
	X(tcp_half_open, 30)     \
	X(tcp_established, 7440) \
	X(tcp_closing, 240)      \
	X(tcp_closed, 10)        \
	X(one_way, 120)          \
	X(two_way, 300)          \
	X(query, 60)

enum connection_timeout {
#define X(name, seconds) CONNECTION_TIMEOUT_##name,
	CONNECTION_TIMEOUTS(X)
#undef X
		CONNECTION_NB_TIMEOUTS
};

/* What is known of a flow; with the time that it is kept, and whether it gives way when the table is full. */
#define CONNECTION_STATES(X)                                                                 \
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

enum connection_state {
#define X(name, timeout, gives_way) CONNECTION_##name,
	CONNECTION_STATES(X)
#undef X
		CONNECTION_NB_STATES,
	CONNECTION_REFUSED = CONNECTION_NB_STATES, /* the frame is not for a flow in this state */
	CONNECTION_ANEW,			   /* it begins another one */
};

struct connection {
	/* As struct headers has it, with the ends in an order that both directions share; and what ICMP's query was. */
	uint64_t key[CONNECTION_KEY_WORDS];
	uint32_t seen;		      /* the tick */
	uint32_t next;		      /* of those that give way, or that are free */
	uint32_t previous;	      /* of those that give way */
	uint8_t state;		      /* enum connection_state; none: free */
	uint8_t opener : 1, port : 1; /* which end of the key began, and at which port that is */
	uint16_t mark;		      /* of who follows it: 0 at first */
} __rte_cache_aligned;

struct connection_bucket {
	uint32_t signatures[CONNECTION_SLOTS]; /* 0: none */
	uint32_t flows[CONNECTION_SLOTS];      /* numbers; 0: none */
} __rte_cache_aligned;

struct connections {
	struct connection *flows; /* 0 is no flow's, and holds the list of those that give way */
	struct connection_bucket *buckets;
	uint64_t secret[2];
	uint32_t bucket_mask;
	uint32_t most;
	uint32_t free; /* the first; 0: none */
	uint32_t swept;
	uint32_t sweep_tick;
	uint32_t timeouts[CONNECTION_NB_STATES]; /* ticks */
	_Atomic uint32_t used;
	_Atomic uint64_t begun, aged, gave_way;
	/* Of who keeps something beside a flow, by its number: it ends now.  NULL: nobody. */
	void (*removed)(struct connections *flows, uint32_t number);
	/* Likewise: what else stands in its row of the table (connections_show()).  From any thread. */
	void (*describe)(const struct connection *flow, json_t *row);
};

/* One way to look a flow up. */
struct connection_key {
	uint64_t words[CONNECTION_KEY_WORDS];
	uint64_t hash;
	uint8_t source; /* which end of the key sent the frame */
};

/* What a function is told of its connections. */
struct connection_limits {
	uint32_t most;
	uint32_t seconds[CONNECTION_NB_TIMEOUTS];
};

#define CONNECTION_SECONDS(name, seconds) seconds,
#define CONNECTION_LIMITS_DEFAULT                                                     \
	{                                                                             \
		.most = 65536, .seconds = { CONNECTION_TIMEOUTS(CONNECTION_SECONDS) } \
	}

/* Take a setting.  Returns false if it is none of these; if its value is wrong, `expected` is what was expected. */
bool connections_set(struct connection_limits *limits, const char *name, const char *value, const char **expected);

/* Room for so many, all of it taken now.  Returns 0, or -ENOMEM after logging. */
int connections_open(struct connections *flows, const struct connection_limits *limits);

void connections_close(struct connections *flows);

static inline uint32_t connections_tick(uint64_t tsc)
{
	return (uint32_t)(tsc >> CONNECTION_TICK_SHIFT);
}

void connection_key_make(const struct connections *flows, const struct inspected *frame, struct connection_key *key);

static inline struct connection_bucket *connection_bucket(const struct connections *flows, uint64_t hash)
{
	return &flows->buckets[(hash >> 32) & flows->bucket_mask];
}

static inline void connections_prefetch(const struct connections *flows, uint64_t hash)
{
	rte_prefetch0(connection_bucket(flows, hash));
}

/* The flow that has this signature in its bucket, and most likely is the one; 0: there is none.  Asks for its entry. */
uint32_t connections_guess(const struct connections *flows, uint64_t hash);

/* The flow, with the guess that was made of it before; NULL: it is not known, or no more. */
struct connection *connections_find(struct connections *flows, const struct connection_key *key, uint32_t guess,
				    uint32_t tick);

/* A flow that is not known; NULL: there is no room. */
struct connection *connections_add(struct connections *flows, const struct connection_key *key,
				   enum connection_state state, uint16_t in, uint32_t tick);

void connections_remove(struct connections *flows, struct connection *flow);

/* What becomes of a flow by a frame of its opener, or of the other end: another state, or one of the two above. */
unsigned connection_after(enum connection_state state, bool by_opener, enum event event);

/* The state that a frame begins a flow in; CONNECTION_REFUSED: it begins none. */
unsigned connection_begin(enum event event);

/* It was seen, and is in this state now. */
void connections_enter(struct connections *flows, struct connection *flow, enum connection_state state, uint32_t tick);

/* Forget what has aged, a part of the table at a time; once a round. */
void connections_sweep(struct connections *flows, uint32_t tick);

/* From any thread: entry `number` (from 1) as it is; false: it is free. */
bool connections_copy(const struct connections *flows, uint32_t number, struct connection *flow);

/* The number of an entry, from 1. */
static inline uint32_t connection_number(const struct connections *flows, const struct connection *flow)
{
	return (uint32_t)(flow - flows->flows);
}

/* From any thread: how many there are, and what became of them. */
json_t *connections_describe(const struct connections *flows);

/* From any thread: so many flows as rows of a table. */
json_t *connections_show(const struct connections *flows, unsigned most, uint32_t tick);

#endif
