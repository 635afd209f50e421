/* SPDX-License-Identifier: Apache-2.0
 *
 * The TSC as a clock: whether it is one, how fast it ticks and how sure that is, and cycles to nanoseconds by one
 * multiplication.
 *
 * Its rate is measured against CLOCK_MONOTONIC_RAW, which nothing steers, at the start, and checked over the time
 * since whenever a result is reported.  A reading of both takes a fraction of a microsecond, which is what bounds the
 * error: over 100 ms a few millionths, over a minute nothing that matters.
 */
#ifndef TAILRACE_TESTER_CLOCK_H
#define TAILRACE_TESTER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct clock_rate {
	uint64_t hz;
	uint64_t ns_per_cycle; /* a fraction of 2^32 */
};

/* Both clocks at one moment, give or take `doubt` cycles. */
struct clock_reading {
	uint64_t cycles, doubt;
	uint64_t ns; /* CLOCK_MONOTONIC_RAW */
};

/* How well a rate fits what two readings saw. */
struct clock_check {
	double seconds; /* between the readings */
	double error;	/* the most that a duration can be wrong by, as a part of it: 1e-6 is 1 µs in a second */
};

/* Exact to 1e-9 of the duration for any TSC above 250 MHz. */
static inline struct clock_rate clock_rate(uint64_t hz)
{
	return (struct clock_rate){.hz = hz, .ns_per_cycle = (uint64_t)(1e9 * 0x1p32 / (double)hz + 0.5)};
}

static inline uint64_t clock_ns(const struct clock_rate *rate, uint64_t cycles)
{
	return (uint64_t)(((unsigned __int128)cycles * rate->ns_per_cycle) >> 32);
}

static inline uint64_t clock_cycles(const struct clock_rate *rate, double seconds)
{
	return (uint64_t)(seconds * (double)rate->hz);
}

static inline double clock_seconds(const struct clock_rate *rate, uint64_t cycles)
{
	return (double)cycles / (double)rate->hz;
}

/* What CPUID says of a leaf; false if the processor has no such leaf. */
typedef bool clock_cpuid(uint32_t leaf, uint32_t *edx);

clock_cpuid clock_cpuid_of_this_cpu;

/* Whether the TSC ticks at one rate whatever the core's frequency and sleep (CPUID 80000007h, EDX bit 8). */
bool clock_is_invariant(clock_cpuid *cpuid);

/* The best of a few readings. */
struct clock_reading clock_read(void);

/* The rate between two readings, in cycles a second. */
uint64_t clock_measure(const struct clock_reading *early, const struct clock_reading *late);

/* How far the rate may be from what two readings saw, their doubt and the conversion's rounding included. */
struct clock_check clock_compare(const struct clock_rate *rate, const struct clock_reading *early,
				 const struct clock_reading *late);

#endif
