/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations counted by size: exact up to 255 ns, then 128 steps for each doubling (at most 0.8 % wide), up to
 * 17.18 s.  Nothing is sampled and nothing is averaged on the way in; minimum, maximum and sum are the true ones.
 * The layout is HdrHistogram's with a lowest value of 1 and two significant digits, so that its tools read it:
 * http://hdrhistogram.org.
 * One thread records; others read once it has finished.
 */
#ifndef TAILRACE_COMMON_HISTOGRAM_H
#define TAILRACE_COMMON_HISTOGRAM_H

#include <stdint.h>

/* How many, the smallest, the largest and the total; `min` is UINT64_MAX while empty. */
struct tally {
	uint64_t count;
	uint64_t min;
	uint64_t max;
	unsigned __int128 sum; /* 64 bits would hold 40 hours at 10 Mpps only up to a mean of 12 ms */
};

#define TALLY_EMPTY ((struct tally){.min = UINT64_MAX})

/* Add `count` values that are the same. */
static inline void tally_add(struct tally *tally, uint64_t value, uint64_t count)
{
	tally->count += count;
	tally->sum += (unsigned __int128)value * count;
	tally->min = value < tally->min ? value : tally->min;
	tally->max = value > tally->max ? value : tally->max;
}

static inline void tally_merge(struct tally *into, const struct tally *from)
{
	into->count += from->count;
	into->sum += from->sum;
	into->min = from->min < into->min ? from->min : into->min;
	into->max = from->max > into->max ? from->max : into->max;
}

enum {
	HISTOGRAM_STEP_BITS = 7, /* 128 steps for each doubling */
	HISTOGRAM_VALUE_BITS = 34,
	HISTOGRAM_SIZE = (HISTOGRAM_VALUE_BITS - HISTOGRAM_STEP_BITS + 1) << HISTOGRAM_STEP_BITS,
};

#define HISTOGRAM_HIGHEST ((UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1)

struct histogram {
	struct tally tally;
	uint64_t overflow; /* values above HISTOGRAM_HIGHEST; they stand in the last count as well */
	uint64_t counts[HISTOGRAM_SIZE];
};

void histogram_clear(struct histogram *histogram);

/* The count that a value up to HISTOGRAM_HIGHEST belongs to. */
static inline uint32_t histogram_index(uint64_t value)
{
	uint32_t shift = 63 - HISTOGRAM_STEP_BITS - __builtin_clzll(value | (1 << HISTOGRAM_STEP_BITS));

	return (shift << HISTOGRAM_STEP_BITS) + (uint32_t)(value >> shift);
}

/* Count `count` values that are the same, leaving the tally to the caller, who may merge one for a whole burst. */
static inline void histogram_count(struct histogram *histogram, uint64_t value, uint64_t count)
{
	if (__builtin_expect(value > HISTOGRAM_HIGHEST, 0)) {
		histogram->overflow += count;
		value = HISTOGRAM_HIGHEST;
	}
	histogram->counts[histogram_index(value)] += count;
}

/* Add all values of another. */
void histogram_merge(struct histogram *into, const struct histogram *from);

static inline void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram_count(histogram, value, 1);
	tally_add(&histogram->tally, value, 1);
}

/* The smallest and the largest value of a count. */
uint64_t histogram_lowest_at(uint32_t index);
uint64_t histogram_highest_at(uint32_t index);

/*
 * The rank-th smallest value, from 1 to tally.count, rounded up within its count but never above the true maximum; so
 * at most 0.8 % too large, and never too small.  0 if there is no such rank.
 * A percentile is one by its rank (nearest rank, RFC 2330, section 11.3), worked out in whole numbers.
 */
uint64_t histogram_at_rank(const struct histogram *histogram, uint64_t rank);

#endif
