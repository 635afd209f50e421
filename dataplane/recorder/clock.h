/* SPDX-License-Identifier: Apache-2.0
 *
 * From CLOCK_MONOTONIC, which the kernel stamps events with, to the TSC, which everything else here is measured by.
 * Both are read together, the one between two readings of the other, before and after what is converted: between two
 * such readings, some milliseconds apart, the clock is a straight line but for what NTP changes of its rate meanwhile,
 * and a time is known to half the time that a reading took.
 */
#ifndef TAILRACE_RECORDER_CLOCK_H
#define TAILRACE_RECORDER_CLOCK_H

#include <stdint.h>
#include <time.h>

struct clock_reading {
	uint64_t tsc, ns;
	uint64_t error; /* cycles */
};

/* The best of some readings of a clock, taken now. */
struct clock_reading clock_read(clockid_t clock);

/* A time of the clock as TSC, by a reading before it and one after it. */
static inline uint64_t clock_tsc(const struct clock_reading *before, const struct clock_reading *after, uint64_t ns)
{
	const __int128 cycles = (__int128)(int64_t)(ns - before->ns) * (int64_t)(after->tsc - before->tsc);
	const uint64_t span = after->ns - before->ns;

	return span == 0 ? before->tsc : before->tsc + (uint64_t)(int64_t)(cycles / (int64_t)span);
}

#endif
