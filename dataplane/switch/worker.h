/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one thread on one core that runs a program, the list of queues it owns with what to do with
 * each.  It makes no system call, takes no lock, allocates nothing and logs nothing.
 */
#ifndef TAILRACE_SWITCH_WORKER_H
#define TAILRACE_SWITCH_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "steer/direct.h"

/* As Open vSwitch counts: a round that moved frames is busy with all its cycles, one that found none is idle. */
#define WORKER_COUNTERS(X)                                       \
	X(busy_cycles, "TSC cycles of rounds that moved frames") \
	X(idle_cycles, "TSC cycles of rounds that found none")   \
	X(busy_polls, "rounds that moved frames")                \
	X(idle_polls, "rounds that found none")                  \
	X(packets, "frames moved or dropped")

struct worker_counters {
#define WORKER_COUNTER_FIELD(name, text) uint64_t name;
	WORKER_COUNTERS(WORKER_COUNTER_FIELD)
#undef WORKER_COUNTER_FIELD
};

struct program {
	unsigned nb_directs;
	struct direct directs[];
};

enum worker_idle {
	WORKER_POLL,  /* look again at once */
	WORKER_PAUSE, /* after a while without frames, let the core rest for about a microsecond each round */
};

struct worker {
	struct program *_Atomic program; /* never NULL while the worker runs */
	atomic_bool stop;
	atomic_int thread; /* Linux's thread id, 0 before the first round */
	pthread_t watch;   /* 0: none */
	pthread_t watched; /* set before `thread` */
	enum worker_idle idle;
	uint64_t patience; /* TSC cycles that frames wait for a full receiver */
	unsigned number;
	struct worker_counters *counters;
};

/*
 * Watch over a worker from a thread of its own, until worker_stop().  The one system call a worker makes is to wake
 * a guest, by a descriptor that the guest can make blocking and fill; a worker that has finished no round for a while
 * is then interrupted, and stops that guest's ring.  Returns 0 or a negative errno.
 */
int worker_watch(struct worker *worker);

/* Have the worker and its watch end. */
void worker_stop(struct worker *worker);

/* The worker's thread.  `argument` is the struct worker.  Returns 0 when it has been stopped. */
int worker_run(void *argument);

/* Give the worker another program and return the old one when the worker no longer uses it. */
struct program *worker_swap(struct worker *worker, struct program *program);

#endif
