/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's TSC as ours.  The offset is measured: it is asked for its clock many times, and of the answer that
 * took the shortest it is known within half of that time.  This holds on any hypervisor, and shows whether the offset
 * changes while something is measured.
 */
#ifndef TAILRACE_INTERRUPTS_CLOCKS_H
#define TAILRACE_INTERRUPTS_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>

#include "interrupts/page.h"

struct clocks {
	int64_t offset; /* cycles that the receiver's is ahead */
	uint64_t error; /* cycles that this may be wrong by */
	uint64_t at;	/* when it was measured, by our TSC */
};

/* The TSC after all that was read before.  A CPU does not wait for these reads otherwise (Intel SDM volume 2, RDTSC),
 * and the time is then one at which what was seen had not happened. */
static inline uint64_t clocks_now(void)
{
	_mm_lfence();
	return __rdtsc();
}

/* Ask, while the page's phase is PHASE_CLOCK.  Returns 0, or -ETIMEDOUT if no answer has come within `patience` cycles;
 * of few answers the offset is known less closely. */
int clocks_join(struct interrupt_page *page, uint64_t *question, uint64_t patience, struct clocks *clocks);

/* Whether both clocks have run at the same rate, without a step, between two measurements of the offset: how far the
 * later one is from the earlier, less what both may be wrong by, is at most `parts` millionths of the time between. */
bool clocks_agree(const struct clocks *early, const struct clocks *late, uint64_t parts);

/* A time of the receiver's by our TSC. */
static inline uint64_t clocks_here(const struct clocks *clocks, uint64_t there)
{
	return there - (uint64_t)clocks->offset;
}

#endif
