/* SPDX-License-Identifier: Apache-2.0
 *
 * What priority a virtual CPU is to have by what its machine says, and whether the machine is to be believed at all.
 * Decides, and sets nothing.
 */
#ifndef TAILRACE_PRIORITY_FOLLOW_H
#define TAILRACE_PRIORITY_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

enum { FOLLOW_SILENT_MS = 3000 }; /* after which an agent that does not count on is taken to have ended */

/* SCHED_FIFO priorities; 0: none, an ordinary task. */
struct follow_bounds {
	int least, most;
};

/*
 * The priority of a virtual CPU by the word of its machine, always within the bounds.  One that is idle has the
 * highest: it takes nobody's time while it sleeps, and an interrupt finds it there.  One that runs ordinary work has
 * the lowest, but for `open`: then an interrupt that has come meanwhile is taken, and a real-time task that it wakes
 * says so.  A word that means nothing is that of ordinary work, without that.
 */
int follow_priority(const struct follow_bounds *bounds, uint32_t runs, bool open);

/* Whether a virtual CPU is to be raised for a moment now and then. */
bool follow_opens(const struct follow_bounds *bounds, uint32_t runs);

struct follow_life {
	uint64_t beat, since_ns; /* the last, and when it was first seen */
	bool believed;
};

/* Whether the page is that of an agent that lives, by what has been read of it now.  All zeros at first. */
bool follow_lives(struct follow_life *life, uint64_t magic, uint64_t beat, uint64_t now_ns);

#endif
