/* SPDX-License-Identifier: Apache-2.0
 *
 * The TSC as a clock: cycles to nanoseconds by one multiplication.
 */
#ifndef TAILRACE_TESTER_CLOCK_H
#define TAILRACE_TESTER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct clock_rate {
	uint64_t hz;
	uint64_t ns_per_cycle; /* a fraction of 2^32 */
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

/* Whether the TSC ticks at one rate whatever the core's frequency and sleep (CPUID 80000007h, EDX bit 8). */
bool clock_is_invariant(void);

#endif
