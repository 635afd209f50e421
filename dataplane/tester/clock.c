/* SPDX-License-Identifier: Apache-2.0 */
#include <cpuid.h>
#include <math.h>
#include <time.h>

#include <rte_cycles.h>

#include "clock.h"

enum {
	POWER_LEAF = 0x80000007,
	INVARIANT = 1u << 8,
	READINGS = 100,
};

#define ROUNDING 1e-9 /* of the conversion by one multiplication */

bool clock_cpuid_of_this_cpu(uint32_t leaf, uint32_t *edx)
{
	unsigned eax, ebx, ecx;

	return __get_cpuid(leaf, &eax, &ebx, &ecx, edx) != 0;
}

bool clock_is_invariant(clock_cpuid *cpuid)
{
	uint32_t edx = 0;

	return cpuid((uint32_t)POWER_LEAF, &edx) && (edx & INVARIANT) != 0;
}

struct clock_reading clock_read(void)
{
	struct clock_reading best = {.doubt = UINT64_MAX};

	for (unsigned i = 0; i < READINGS; i++) {
		struct timespec wall;
		uint64_t before = rte_rdtsc_precise(), after;

		clock_gettime(CLOCK_MONOTONIC_RAW, &wall);
		after = rte_rdtsc_precise();
		if (after - before < best.doubt)
			best = (struct clock_reading){
				.cycles = before + (after - before) / 2,
				.doubt = after - before,
				.ns = (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec,
			};
	}
	return best;
}

uint64_t clock_measure(const struct clock_reading *early, const struct clock_reading *late)
{
	return (uint64_t)((double)(late->cycles - early->cycles) * 1e9 / (double)(late->ns - early->ns) + 0.5);
}

struct clock_check clock_compare(const struct clock_rate *rate, const struct clock_reading *early,
				 const struct clock_reading *late)
{
	double cycles = (double)(late->cycles - early->cycles), ns = (double)(late->ns - early->ns);
	/* The ns end a fraction before they are read, too: one at each end. */
	double doubt = ((double)early->doubt + (double)late->doubt) / cycles + 2 / ns;

	return (struct clock_check){
		.seconds = ns / 1e9,
		.error = fabs(cycles * 1e9 / ns / (double)rate->hz - 1) + doubt + ROUNDING,
	};
}
