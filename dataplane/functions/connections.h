/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections that a firewall or a NAT knows: a bounded table, one entry for both directions.  A bucket of the
 * index is half a cache line, and an entry is one: a known flow costs two misses, which a burst asks for ahead
 * (passing.h).  Where a flow is kept depends on a secret, so nobody can aim at another's bucket.
 *
 * Flows that nobody has answered, and those that have ended, give way: the oldest of them when the table is full, so
 * that a flood of beginnings takes no entry from a connection that is in use.
 *
 * Owned by the forwarding thread; where there are several, each queue has a table of its own, and that is its
 * thread's.  Another one may copy entries (connections_copy()); what it copies while that
 * changes may be of two moments.
 */
#ifndef TAILRACE_FUNCTIONS_CONNECTIONS_H
#define TAILRACE_FUNCTIONS_CONNECTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <jansson.h>
#include <rte_prefetch.h>

#include "function.h"
#include "inspect.h"
#include "steer/hash.h"

enum {
	CONNECTION_TICK_SHIFT = 20, /* a tick is 2^20 TSC cycles, some tenths of a millisecond */
	CONNECTION_SLOTS = 8,
	CONNECTION_KEY_WORDS = 6,
	CONNECTION_NUMBER = (1 << 25) - 1, /* of a slot; above it a part of the hash */
	CONNECTIONS_MOST = 16 << 20,
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
	uint8_t state;		      /* enum connection_state; none: free */
	uint8_t opener : 1, port : 1; /* which end of the key began, and at which port that is */
	uint16_t mark;		      /* of who follows it: 0 at first */
	uint32_t marks[2];	      /* likewise, whatever at first */
} __rte_cache_aligned;
static_assert(sizeof(struct connection) == RTE_CACHE_LINE_SIZE, "a known flow costs no more than that");

/* Beside the entries, because a frame that changes nothing of its flow does not read it. */
struct connection_link {
	uint32_t next;	   /* of those that give way, or that are free */
	uint32_t previous; /* of those that give way */
};

/* Numbers, beside a part of the hash each; a number of 0: none. */
struct connection_bucket {
	uint32_t slots[CONNECTION_SLOTS];
} __rte_aligned(32);

struct connections {
	struct connection *flows;      /* 0 is no flow's */
	struct connection_link *links; /* 0 holds the list of those that give way */
	uint32_t *changed;	       /* the tick at which each began, or was in another state */
	struct connection_bucket *buckets;
	uint64_t secret[2];
	uint32_t bucket_mask;
	uint32_t most;
	uint32_t free; /* the first; 0: none */
	uint32_t swept;
	uint32_t sweep_tick;
	uint32_t sweep_left;			 /* entries that are to be looked at by then */
	uint32_t timeouts[CONNECTION_NB_STATES]; /* ticks */
	_Atomic uint32_t used;
	_Atomic uint64_t begun, aged, gave_way;
	/* Of who keeps something beside a flow, by its number: it ends now.  NULL: nobody. */
	void (*removed)(struct connections *flows, uint32_t number);
	/* Likewise: what else stands in its row of the table (connections_show()).  From any thread. */
	void (*describe)(const struct connection *flow, json_t *row);
	uint64_t tails_secret[2]; /* of the second halves of IPv6's addresses */
};

/* Those of a function: a table for each of its queues. */
struct connection_tables {
	struct connections *tables[FUNCTION_QUEUES];
	unsigned nb;
};

/* One way to look a flow up. */
struct connection_key {
	uint64_t words[CONNECTION_KEY_WORDS] __attribute__((aligned(32)));
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

/* The limits of one of so many tables, which have as many together: flows are shared out evenly by a hash. */
struct connection_limits connections_share(const struct connection_limits *limits, unsigned number, unsigned nb);

void connections_close(struct connections *flows);

static inline uint32_t connections_tick(uint64_t tsc)
{
	return (uint32_t)(tsc >> CONNECTION_TICK_SHIFT);
}

/*
 * Of both ends' addresses, of what kind the flow is, and of what else its key has: a plain flow (plain.h) has all of it
 * in these words.  Ports one after the other differ by a constant after the first product; once more, or some secrets
 * crowd them into few buckets.
 */
static inline uint64_t connection_hash_words(const struct connections *flows, uint64_t ends, uint64_t kind,
					     uint64_t last)
{
	return hash_mix(hash_mix(ends ^ flows->secret[0], last ^ kind * HASH_1 ^ flows->secret[1]), HASH_3);
}

/* Of a key's fifth word: a bit of its family. */
#define CONNECTION_IPV6 ((uint64_t)(HEADERS_IPV6 & ~HEADERS_IPV4) << 48)

static inline uint64_t connection_hash(const struct connections *flows, const uint64_t *words)
{
	uint64_t ends = words[0] ^ (words[2] << 32 | words[2] >> 32);

	/* Two IPv4 addresses are in those 64 bits.  IPv6's are not, and each word has a secret of its own: addresses
	 * that are each other's, or some constant, would cancel out otherwise. */
	if ((words[4] & CONNECTION_IPV6) != 0)
		ends = hash_mix(words[0] ^ flows->secret[0], words[2] ^ flows->secret[1]) ^
		       hash_mix(words[1] ^ flows->tails_secret[0], words[3] ^ flows->tails_secret[1]);
	return connection_hash_words(flows, ends, words[4], words[5]);
}

/*
 * The key of what a frame's headers say (struct headers), in whole words.  Which of two ends comes first is as good as
 * random, so nothing branches on it.  The two are never the same (martian), so the ports need not be asked.
 */
static inline void connection_key_make(const struct connections *flows, const struct inspected *frame,
				       struct connection_key *key)
{
	const uint64_t *from = frame->headers.key;
	const uint64_t source = from[0], destination = from[2];
	const bool swap = from[1] != from[3] ? from[1] > from[3] : source > destination;
	const uint64_t all = -(uint64_t)swap, heads = (source ^ destination) & all, tails = (from[1] ^ from[3]) & all;
	const uint32_t ports = (uint32_t)from[5], half = swap * 16; /* both ports, in two halves */
	uint64_t last = (from[5] & ~(uint64_t)UINT32_MAX) | (ports << half | ports >> half);

	/* Two that ask each other with the same identifier are two flows. */
	if (unlikely(frame->query != 0))
		last |= (uint64_t)frame->query << 40 | (uint64_t)((frame->event == EVENT_QUERY) == swap) << 48;
	key->words[0] = source ^ heads;
	key->words[1] = from[1] ^ tails;
	key->words[2] = destination ^ heads;
	key->words[3] = from[3] ^ tails;
	key->words[4] = from[4];
	key->words[5] = last;
	key->source = swap;
	key->hash = connection_hash(flows, key->words);
}

static inline struct connection_bucket *connection_bucket(const struct connections *flows, uint64_t hash)
{
	return &flows->buckets[(hash >> 32) & flows->bucket_mask];
}

static inline void connections_prefetch(const struct connections *flows, uint64_t hash)
{
	rte_prefetch0(connection_bucket(flows, hash));
}

/* A flow's slot, but for its number. */
static inline uint32_t connection_tag(uint64_t hash)
{
	return (uint32_t)hash & ~(uint32_t)CONNECTION_NUMBER;
}

/* Which slots of a bucket have a tag; of those that are free some may. */
static inline unsigned connection_slots(const struct connection_bucket *bucket, uint32_t tag)
{
#if defined(__AVX2__)
	const __m256i slots = _mm256_load_si256((const __m256i *)bucket->slots);
	const __m256i tags = _mm256_andnot_si256(_mm256_set1_epi32(CONNECTION_NUMBER), slots);

	return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(tags, _mm256_set1_epi32((int)tag))));
#else
	unsigned same = 0;

	for (unsigned i = 0; i < CONNECTION_SLOTS; i++)
		same |= ((bucket->slots[i] & ~(uint32_t)CONNECTION_NUMBER) == tag) << i;
	return same;
#endif
}

/* It is going to be written. */
static inline void connections_ask(const struct connections *flows, uint32_t number)
{
	__builtin_prefetch(&flows->flows[number], 1);
}

/*
 * The flow that has this tag in its bucket, and most likely is the one; 0: there is none.  Asks for its entry.  What is
 * free has tag 0, so that one of 128 flows is not found if it stands behind that: connections_find() searches.
 */
static inline uint32_t connections_guess(const struct connections *flows, uint64_t hash)
{
	const struct connection_bucket *bucket = connection_bucket(flows, hash);
	const unsigned same = connection_slots(bucket, connection_tag(hash));
	uint32_t number;

	if (unlikely(same == 0))
		return 0;
	number = bucket->slots[__builtin_ctz(same)] & CONNECTION_NUMBER;
	connections_ask(flows, number);
	return number;
}

static inline bool connection_same(const struct connection *flow, const struct connection_key *key)
{
#if defined(__AVX2__)
	const __m256i ends = _mm256_xor_si256(_mm256_load_si256((const __m256i *)flow->key),
					      _mm256_load_si256((const __m256i *)key->words));
	const __m128i rest = _mm_xor_si128(_mm_load_si128((const __m128i *)&flow->key[4]),
					   _mm_load_si128((const __m128i *)&key->words[4]));
	const __m256i all = _mm256_or_si256(ends, _mm256_zextsi128_si256(rest));

	return _mm256_testz_si256(all, all);
#else
	uint64_t difference = 0;

	for (unsigned i = 0; i < CONNECTION_KEY_WORDS; i++)
		difference |= flow->key[i] ^ key->words[i];
	return difference == 0;
#endif
}

static inline bool connection_aged(const struct connections *flows, const struct connection *flow, uint32_t tick)
{
	return tick - flow->seen > flows->timeouts[flow->state];
}

/* As connections_find(), of a guess that was wrong, or of a flow that has aged. */
struct connection *connections_search(struct connections *flows, const struct connection_key *key, uint32_t tick);

static inline bool connection_known(const struct connections *flows, const struct connection *flow, uint32_t tick)
{
	return flow->state != CONNECTION_none && !connection_aged(flows, flow, tick);
}

/* The flow, with the guess that was made of it before; NULL: it is not known, or no more. */
static inline struct connection *connections_find(struct connections *flows, const struct connection_key *key,
						  uint32_t guess, uint32_t tick)
{
	struct connection *flow = &flows->flows[guess];

	if (likely(connection_same(flow, key) && connection_known(flows, flow, tick)))
		return flow;
	return connections_search(flows, key, tick);
}

/* A flow that is not known; NULL: there is no room. */
struct connection *connections_add(struct connections *flows, const struct connection_key *key,
				   enum connection_state state, uint16_t in, uint32_t tick);

void connections_remove(struct connections *flows, struct connection *flow);

extern const uint8_t connection_transitions[CONNECTION_NB_STATES][2][EVENTS];

/* What becomes of a flow by a frame of its opener, or of the other end: another state, or one of the two above. */
static inline unsigned connection_after(enum connection_state state, bool by_opener, enum event event)
{
	return connection_transitions[state][!by_opener][event];
}

/* The state that a frame begins a flow in; CONNECTION_REFUSED: it begins none. */
unsigned connection_begin(enum event event);

/* It is in another state since it was seen last. */
void connections_change(struct connections *flows, struct connection *flow, enum connection_state state);

/* It was seen, and is in this state now. */
static inline void connections_enter(struct connections *flows, struct connection *flow, enum connection_state state,
				     uint32_t tick)
{
	if (flow->seen != tick)
		flow->seen = tick;
	if (unlikely(flow->state != state))
		connections_change(flows, flow, state);
}

/* Forget what has aged, a part of the table at a time; once a round. */
void connections_sweep(struct connections *flows, uint32_t tick);

/* Whether that is behind, after a rest: more of it is to be done though no frame comes. */
static inline bool connections_sweep_waits(const struct connections *flows)
{
	return flows->sweep_left > 0;
}

/* From any thread: entry `number` (from 1) as it is; false: it is free. */
bool connections_copy(const struct connections *flows, uint32_t number, struct connection *flow);

/* The number of an entry, from 1. */
static inline uint32_t connection_number(const struct connections *flows, const struct connection *flow)
{
	return (uint32_t)(flow - flows->flows);
}

/* From any thread: how many there are, and what became of them. */
json_t *connections_describe(const struct connection_tables *tables);

/* From any thread: so many flows as rows of a table. */
json_t *connections_show(const struct connection_tables *tables, unsigned most, uint32_t tick);

#endif
