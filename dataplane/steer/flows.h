/* SPDX-License-Identifier: Apache-2.0
 *
 * A bounded memory of decisions: which replica a flow was given.  A bucket is one cache line of eight entries, so a
 * lookup is one miss, and that can be asked for a burst ahead.  Entries age; when a bucket is full, the one that is
 * missed least gives way.  Where a flow is kept depends on a secret, so nobody can aim at another's bucket.
 *
 * Any number of workers share a table without locks: an entry is one word, read and written whole.  Two that write the
 * same entry at once lose one of the two notes, and a flow without a note is decided again.
 */
#ifndef TAILRACE_STEER_FLOWS_H
#define TAILRACE_STEER_FLOWS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "steer/hash.h"

enum {
	FLOWS_BUCKET = 8,
	FLOWS_REPLICAS = 64,
	FLOWS_TICK_SHIFT = 30, /* a tick is 2^30 TSC cycles, some tenths of a second */
};

/* An entry: signature 32 bits, tick when last seen 16, replica 8, flags 8. */
#define FLOW_USED    1u /* the entry is taken */
#define FLOW_LASTING 2u /* the flow has lived longer than a tick */
#define FLOW_MARK    4u /* the caller's */

struct flow_bucket {
	_Alignas(64) uint64_t entries[FLOWS_BUCKET];
};

struct flows {
	uint64_t secret[2];
	uint32_t bucket_mask;
	uint16_t ageing;  /* ticks after which a flow that is not seen is forgotten */
	uint64_t crowded; /* flows that found no slot, or took another's: bounds show here; any worker adds */
	struct flow_bucket *buckets;
};

/* A table of 8 * `buckets` entries, a power of two; all of its memory is taken now.  Returns NULL without memory. */
struct flows *flows_new(unsigned buckets, unsigned ageing_seconds);

void flows_free(struct flows *flows);

void flows_set_ageing(struct flows *flows, unsigned seconds);

static inline uint16_t flows_tick(uint64_t tsc)
{
	return tsc >> FLOWS_TICK_SHIFT;
}

static inline struct flow_bucket *flows_bucket(const struct flows *flows, uint64_t hash)
{
	return &flows->buckets[hash_mix(hash ^ flows->secret[0], flows->secret[1]) & flows->bucket_mask];
}

static inline uint32_t flow_signature(uint64_t hash)
{
	return hash;
}

static inline unsigned flow_replica(uint64_t entry)
{
	return (uint8_t)(entry >> 8);
}

static inline uint16_t flow_seen(uint64_t entry)
{
	return entry >> 16;
}

static inline uint64_t flow_entry(uint32_t signature, uint16_t tick, unsigned replica, unsigned flags)
{
	return (uint64_t)signature << 32 | (uint64_t)tick << 16 | replica << 8 | flags | FLOW_USED;
}

/* An entry with a number in the place of replica and flags. */
#define FLOW_NUMBERS 0x7fffu

static inline uint64_t flow_numbered(uint32_t signature, uint16_t tick, unsigned number)
{
	return (uint64_t)signature << 32 | (uint64_t)tick << 16 | number << 1 | FLOW_USED;
}

static inline unsigned flow_number(uint64_t entry)
{
	return (uint16_t)entry >> 1;
}

static inline uint64_t flow_read(const uint64_t *entry)
{
	return __atomic_load_n(entry, __ATOMIC_RELAXED);
}

static inline void flow_write(uint64_t *entry, uint64_t value)
{
	__atomic_store_n(entry, value, __ATOMIC_RELAXED);
}

/*
 * Ticks since an entry was seen, at `tick`.  Who asks has looked at the clock before, and another worker may have seen
 * the flow since: an entry that is a little ahead is of now.  Sweeps leave none so old that its ticks come round.
 */
static inline uint16_t flow_age(uint64_t entry, uint16_t tick)
{
	enum { AHEAD = 64 /* ticks, some 20 s */ };
	const uint16_t age = tick - flow_seen(entry);

	return age >= UINT16_MAX - AHEAD ? 0 : age;
}

static inline bool flow_fresh(const struct flows *flows, uint64_t entry, uint16_t tick)
{
	return flow_age(entry, tick) <= flows->ageing;
}

/* Is the entry this flow's?  Another worker may have given its slot away since it was found. */
static inline bool flow_is(uint64_t entry, uint64_t hash)
{
	return entry >> 32 == flow_signature(hash);
}

/* The entry of a flow in its bucket, fresh or not; NULL: none. */
static inline uint64_t *flows_find(struct flow_bucket *bucket, uint64_t hash)
{
	const uint64_t wanted = (uint64_t)flow_signature(hash) << 32 | FLOW_USED, bits = 0xffffffff00000000 | FLOW_USED;
#if defined(__AVX512F__)
	const __m512i entries = _mm512_load_si512(bucket->entries);
	const __mmask8 same = _mm512_cmpeq_epi64_mask(_mm512_and_si512(entries, _mm512_set1_epi64(bits)),
						      _mm512_set1_epi64(wanted));

	return same != 0 ? &bucket->entries[__builtin_ctz(same)] : (uint64_t *)0;
#else
	for (unsigned i = 0; i < FLOWS_BUCKET; i++)
		if ((flow_read(&bucket->entries[i]) & bits) == wanted)
			return &bucket->entries[i];
	return (uint64_t *)0;
#endif
}

/*
 * Note a flow that has no entry.  In a full bucket it takes the place of one that has aged, or else of one that came
 * and went within a tick, or else of the longest unseen; never of one on a replica in the set `kept`.
 */
void flows_add(struct flows *flows, struct flow_bucket *bucket, uint64_t entry, uint16_t tick, uint64_t kept);

/* How many fresh flows each replica has.  Reads all of the table: for the control side. */
void flows_count(const struct flows *flows, uint16_t tick, uint64_t counts[FLOWS_REPLICAS]);

/*
 * Forget what has aged in one of `parts` equal parts of the table.  For all of it to be looked at before ticks, of
 * which an entry has 16 bits, come round: then what is long gone would seem to be fresh.
 */
void flows_sweep(struct flows *flows, uint16_t tick, unsigned part, unsigned parts);

/* Forget all flows of a set of replicas that no worker knows any more. */
void flows_forget(struct flows *flows, uint64_t replicas);

#endif
