/* SPDX-License-Identifier: Apache-2.0
 *
 * Moments of CLOCK_MONOTONIC in ns, and the sleep until one.
 */
#ifndef TAILRACE_INTERRUPTS_MOMENT_H
#define TAILRACE_INTERRUPTS_MOMENT_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

enum { MOMENT_SECOND = 1000000000 };

static inline uint64_t moment_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * MOMENT_SECOND + (uint64_t)now.tv_nsec;
}

static inline void moment_sleep_until(uint64_t due)
{
	const struct timespec until = {.tv_sec = (time_t)(due / MOMENT_SECOND), .tv_nsec = (long)(due % MOMENT_SECOND)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

#endif
