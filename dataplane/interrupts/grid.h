/* SPDX-License-Identifier: Apache-2.0
 *
 * The moments of a period: the whole multiples of it by a clock that may be slewed, or set, while they are waited for.
 * So two machines whose clocks are one (CLOCK_TAI, disciplined by PTP) have the same moments.
 *
 * The wait itself is by CLOCK_MONOTONIC, which nobody sets; how far the other clock is ahead of it is read anew at each
 * moment.
 */
#ifndef TAILRACE_INTERRUPTS_GRID_H
#define TAILRACE_INTERRUPTS_GRID_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct grid {
	/* What is asked for.  `ahead` says how many ns a clock is ahead of CLOCK_MONOTONIC: grid_ahead, but in tests.
	 */
	clockid_t clock;
	uint64_t period_ns;
	int64_t (*ahead)(clockid_t clock);

	uint64_t due;	   /* the last moment, by the clock */
	int64_t was_ahead; /* when that was waited for */
};

int64_t grid_ahead(clockid_t clock);

void grid_start(struct grid *grid);

/* Wait for the next moment.  Returns whether it is that; `*late_ns` is how much later it is then.  If the clock was set
 * meanwhile, by more than it can be slewed, false: the moments begin anew from there. */
bool grid_wait(struct grid *grid, uint64_t *late_ns);

#endif
