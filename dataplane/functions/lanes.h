/* SPDX-License-Identifier: Apache-2.0
 *
 * How threads get their queues: each is one thread's at a time.
 *
 * Who changes it writes for each queue who is to have it, counts one change, and wakes all threads.  A thread that sees
 * the change between two rounds lets go of what is not to be its own, and takes what nobody has that is to be.  So a
 * queue is handed over with all that it holds, in order, without a lock in anybody's loop.
 */
#ifndef TAILRACE_FUNCTIONS_LANES_H
#define TAILRACE_FUNCTIONS_LANES_H

#include "forward.h"

/* Write who is to have each queue, for so many threads: as evenly as it can be, and as few moved as that takes. Returns
 * how many move. */
unsigned lanes_share_out(struct lane *lanes, unsigned nb_lanes, unsigned nb_threads);

/* Whether each queue is had by who is to have it. */
bool lanes_settled(const struct lane *lanes, unsigned nb_lanes);

/* Of a thread: whether it has to look, which costs a comparison. */
static inline bool lanes_changed(const struct forward_thread *thread)
{
	return thread->expects || atomic_load_explicit(&thread->forward->changes, memory_order_relaxed) != thread->seen;
}

/* Of a thread: let go of queues and take others.  `lets_go` and `takes` are called for each of them, while it is the
 * thread's; each may be NULL. */
void lanes_follow(struct forward_thread *thread, void (*lets_go)(struct forward_thread *thread, unsigned queue),
		  void (*takes)(struct forward_thread *thread, unsigned queue));

#endif
