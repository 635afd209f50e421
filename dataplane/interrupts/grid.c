/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupts/grid.h"

enum {
	STEP_NS = 2000000, /* Linux slews by at most 500 millionths: half a ms within the longest period */
	CLOSE_NS = 2000,   /* two readings of a clock are beside each other */
	TRIES = 8,
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int64_t grid_ahead(clockid_t clock)
{
	uint64_t before, there, after, closest = UINT64_MAX;
	int64_t ahead = 0;

	if (clock == CLOCK_MONOTONIC)
		return 0;
	for (unsigned i = 0; i < TRIES && closest > CLOSE_NS; i++) {
		before = now_ns(CLOCK_MONOTONIC);
		there = now_ns(clock);
		after = now_ns(CLOCK_MONOTONIC);
		if (after - before >= closest)
			continue;
		closest = after - before;
		ahead = (int64_t)(there - before - closest / 2);
	}
	return ahead;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec until = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		;
}

void grid_start(struct grid *grid)
{
	uint64_t now;

	grid->was_ahead = grid->ahead(grid->clock);
	now = now_ns(CLOCK_MONOTONIC) + (uint64_t)grid->was_ahead;
	grid->due = now - now % grid->period_ns;
}

bool grid_wait(struct grid *grid, uint64_t *late_ns)
{
	int64_t ahead, late;

	grid->due += grid->period_ns;
	sleep_until(grid->due - (uint64_t)grid->was_ahead);
	ahead = grid->ahead(grid->clock);
	if (ahead - grid->was_ahead > STEP_NS || grid->was_ahead - ahead > STEP_NS) {
		grid_start(grid);
		return false;
	}
	grid->was_ahead = ahead;
	late = (int64_t)(now_ns(CLOCK_MONOTONIC) + (uint64_t)ahead - grid->due);
	*late_ns = late < 0 ? 0 : (uint64_t)late; /* a clock that was slewed back */
	return true;
}
