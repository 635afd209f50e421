/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one thread on one core that runs a program, the list of receive queues it owns with what to do with each.
 * It makes no system call but to wake a guest or to sleep, takes no lock that it would wait for, allocates nothing and
 * logs nothing.
 */
#ifndef TAILRACE_SWITCH_WORKER_H
#define TAILRACE_SWITCH_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/gaps.h"
#include "steer/source.h"

/* As Open vSwitch counts: a round that moved frames is busy with all its cycles, one that found none is idle. */
#define WORKER_COUNTERS(X)                                                            \
	X(busy_cycles, "TSC cycles of rounds that moved frames")                      \
	X(idle_cycles, "TSC cycles of rounds that found none, those asleep included") \
	X(busy_polls, "rounds that moved frames")                                     \
	X(idle_polls, "rounds that found none")                                       \
	X(packets, "frames moved or dropped")                                         \
	X(timed_cycles, "TSC cycles of polls that moved frames, of one round in 64")  \
	X(timed_packets, "frames that they moved or dropped")                         \
	X(timed_empty_cycles, "TSC cycles of polls that found none, of these rounds") \
	X(timed_empty_polls, "polls that found none, of these rounds")                \
	X(asleep_cycles, "TSC cycles asleep")                                         \
	X(sleeps, "times it went to sleep")                                           \
	X(wakeups, "times it was woken before its time")                              \
	X(burst_1, "bursts of one frame")                                             \
	X(burst_2, "bursts of 2 or 3 frames")                                         \
	X(burst_4, "of 4 to 7")                                                       \
	X(burst_8, "of 8 to 15")                                                      \
	X(burst_16, "of 16 to 31")                                                    \
	X(burst_32, "of 32 to 63")                                                    \
	X(burst_64, "of 64 frames")

enum { WORKER_BURSTS = 7 };

struct worker_counters {
#define WORKER_COUNTER_FIELD(name, text) uint64_t name;
	WORKER_COUNTERS(WORKER_COUNTER_FIELD)
#undef WORKER_COUNTER_FIELD
};

/* What a worker does when it has found no frames for a while. */
enum worker_idle {
	WORKER_POLL,  /* look again at once */
	WORKER_PAUSE, /* let the core rest for about a microsecond each round */
	WORKER_SLEEP, /* leave the core until a guest or a device has something */
};

struct sleeper; /* sleep.h */

struct worker {
	struct program *_Atomic program; /* never NULL while the worker runs */
	atomic_bool stop;
	atomic_bool asleep;
	atomic_int thread; /* Linux's thread id, 0 before the first round */
	pthread_t pthread; /* set before `thread` */
	enum worker_idle idle;
	uint64_t patience;     /* TSC cycles that frames wait for a full receiver */
	uint64_t idle_cycles;  /* without frames, before it pauses or sleeps */
	uint64_t pause_cycles; /* of a pause */
	unsigned number;
	unsigned lcore;
	int cpu;
	struct sleeper *sleeper;
	struct worker_counters *counters;
	struct gap_log gaps;
};

/* The worker's thread.  `argument` is the struct worker.  Returns 0 when it has been stopped. */
int worker_run(void *argument);

#endif
