/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <x86intrin.h>

#include "recorder/clock.h"

enum { CLOCK_TRIES = 16 };

struct clock_reading clock_read(clockid_t clock)
{
	struct clock_reading best = {.error = UINT64_MAX};

	for (unsigned i = 0; i < CLOCK_TRIES; i++) {
		struct timespec time;
		uint64_t before = __rdtsc(), after;

		clock_gettime(clock, &time);
		after = __rdtsc();
		if ((after - before + 1) / 2 >= best.error)
			continue;
		best.error = (after - before + 1) / 2;
		best.tsc = before + (after - before) / 2;
		best.ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	}
	return best;
}
