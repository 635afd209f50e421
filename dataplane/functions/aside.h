/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread of a function's own, beside those that forward: it gets frames of theirs through a ring, and sleeps until
 * there is one, or until something is due.
 */
#ifndef TAILRACE_FUNCTIONS_ASIDE_H
#define TAILRACE_FUNCTIONS_ASIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

struct aside {
	/* What it does at a time in ms: takes what is in the ring, and does what is due.  Returns in how many ms it is
	 * to do so again. */
	uint32_t (*step)(void *context, uint64_t now);
	void *context;
	struct rte_ring *frames; /* the function's */
	int wake_fd;
	_Atomic bool sleeps, quit;
	bool runs;
	pthread_t thread;
};

/* Start it, with step, context and frames as they are.  Returns 0, or -errno after logging. */
int aside_open(struct aside *aside);

/* It has ended when this returns.  It may never have been opened. */
void aside_close(struct aside *aside);

/* From a forwarding thread: a frame for it.  Returns false without room. */
bool aside_give(struct aside *aside, struct rte_mbuf *mbuf);

/* It is to look, whatever is due. */
void aside_wake(const struct aside *aside);

/* End the sleep of who waits for this eventfd. */
void aside_notify(int wake_fd);

#endif
