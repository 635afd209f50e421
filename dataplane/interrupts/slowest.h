/* SPDX-License-Identifier: Apache-2.0
 *
 * The slowest interrupts so far.  Each is told to another thread as soon as it is one of them, so that it is looked up
 * why before that is forgotten.
 *
 * slowest_note() is of the thread that raises interrupts: it never waits, and its work is bounded.  slowest_take() is
 * of one other thread.
 */
#ifndef TAILRACE_INTERRUPTS_SLOWEST_H
#define TAILRACE_INTERRUPTS_SLOWEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SLOWEST_KEPT = 100,
	SLOWEST_TOLD = 1024, /* at most, between two looks */
};

struct slow_interrupt {
	uint64_t number;
	uint64_t raised, arrived; /* by our TSC */
};

/* All zero: none so far. */
struct slowest {
	/* Of who raises them. */
	uint64_t took[SLOWEST_KEPT]; /* cycles */
	unsigned count, least;	     /* which of them is the fastest */
	_Atomic uint64_t head, missed;

	_Atomic uint64_t tail; /* of who takes them */
	struct slow_interrupt told[SLOWEST_TOLD];
};

/* An interrupt that has arrived.  Where it is one of the slowest and cannot be told, it is in `missed`. */
void slowest_note(struct slowest *slowest, const struct slow_interrupt *one);

/* Returns whether there was another one. */
bool slowest_take(struct slowest *slowest, struct slow_interrupt *one);

#endif
