/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping: a worker that has found nothing for a while leaves its core until a guest kicks, a device interrupts, or
 * the control side changes something.  Sources that can say nothing are looked at every SLEEP_TIMED_US.
 *
 * No wake-up is missed:
 *  - A guest that makes frames available first writes its index and then reads whether we want a kick; we first state
 *    the wish and then read its index, with a full fence between (vring_arm()).  So one of the two sees the other: we
 *    do not sleep, or it kicks.  A kick before epoll_wait() is kept by the eventfd, and reported at once.
 *  - A device's queue is asked for an interrupt, and then looked at once more.  A PCI device's is looked at every
 *    SLEEP_TIMED_US until its first one: some drivers only say that they have interrupts.
 *  - Whoever changes programs or rings first makes the change, then counts it in `changes`, then writes the worker's
 * own eventfd, which stays readable until the worker has read it.  A worker that slept on what was there before wakes.
 *  - The set of descriptors was made at one count of changes and is made anew at any other, while the worker still
 *    holds up grace periods: a descriptor in it is never one that has been closed and given to another file.
 */
#ifndef TAILRACE_SWITCH_SLEEP_H
#define TAILRACE_SWITCH_SLEEP_H

#include "switch/worker.h"

enum {
	SLEEP_TIMED_US = 100,
	SLEEP_COUNTED_MS = 250, /* a sleep is counted when it ends: so long it may be missing from the counters */
};

/* Returns 0 or a negative errno. */
int sleeper_open(struct worker *worker);
void sleeper_close(struct worker *worker);

/* Any other thread, after a change of what the worker has to do: let it look, even if it sleeps. */
void sleeper_wake(struct worker *worker);

/* ------- the worker's ------- */

/*
 * Sleep, if none of the program's sources has anything; the program may have gone when this returns.
 * Returns false when there was something to do.
 */
bool worker_sleep(struct worker *worker, struct program *program, const struct round *round);

/* The worker has another program: the guests of its sources need not kick. */
void worker_disarm(struct program *program);

#endif
