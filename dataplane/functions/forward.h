/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop around a function: receive at one port, process, send at the other, both ways, on one thread or several.
 *
 * Polling, a thread never sleeps.  With interrupts it sleeps as soon as its queues are empty; to lose no wake-up it
 * looks once more after arming the interrupts and before sleeping.  Where a port has no interrupts (DPDK's drivers for
 * memif and AF_PACKET), it looks again after a short time instead.
 *
 * A function does not drop what the other port does not take: it holds the burst and receives no more on that side
 * until the port has taken it.  So a full receiver is felt at the beginning of a chain, however long the chain is.
 *
 * Queues.  Frames that come by a queue of one port leave by the same queue of the other.  Each queue has one thread at
 * a time, so that a flow, which stays in its queue, keeps its order.  A function may say that frames belong to another
 * queue than the one by which they came; then they are handed on to that one first (inboxes.h).  forward_use() has
 * threads hand queues over while frames move (lanes.h); the peer at the port does not notice.
 *
 * The threads are the workers that a grace period (common/grace.h) waits for: a function whose tables another thread
 * changes relies on that.
 */
#ifndef TAILRACE_FUNCTIONS_FORWARD_H
#define TAILRACE_FUNCTIONS_FORWARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/control.h"
#include "common/device.h"
#include "common/gaps.h"
#include "function.h"

struct forward_counters { /* of the frames that came in at one port; the thread that has the queue writes */
	_Atomic uint64_t received;
	_Atomic uint64_t sent;		/* at the other port */
	_Atomic uint64_t drop_function; /* freed by a function that keeps none; the others count it themselves */
	_Atomic uint64_t drop_full;	/* still held at the end: the other port did not take them */
	_Atomic uint64_t drop_busy;	/* the thread of the queue that they belong to had more than it could do */
	_Atomic uint64_t handed_on;	/* to the queue that they belong to, of a function with homes() */
};

enum { FORWARD_BURST = 32, FORWARD_NOBODY = -1 };

struct forward_held { /* frames from one port that the other one has not taken yet */
	struct rte_mbuf *frames[FUNCTION_ROOM];
	uint16_t first, nb_frames;
};

/* A queue of both ports.  It is its owner's; what it holds goes with it. */
struct lane {
	_Atomic int owner;  /* a thread's number, or FORWARD_NOBODY: handed over, and not taken yet */
	_Atomic int wanted; /* who is to have it; forward_use() writes */
	struct forward_held held[2];
	struct forward_counters counters[2];
	struct inboxes *inboxes; /* of what came in by other queues (inboxes.h); NULL: there are none */
} __rte_cache_aligned;

struct forward_thread {
	struct forward *forward;
	unsigned number;
	int wake_fd;		/* eventfd: ends a sleep */
	_Atomic int cpu;	/* where it is to run */
	_Atomic int runs;	/* where it does; -1: nowhere yet */
	_Atomic bool ends;	/* as soon as it has no queue */
	_Atomic bool to_wake;	/* it sleeps, or is about to */
	_Atomic uint64_t first; /* TSC when it had moved its first frames since it was started; 0: not yet */
	_Atomic uint64_t sleeps;
	struct gap_log gaps;

	/* The thread's own. */
	uint16_t queues[FUNCTION_QUEUES];
	unsigned nb_queues;
	unsigned seen;	/* of forward->changes */
	bool expects;	/* a queue that another thread has not handed over yet */
	bool no_events; /* a port has no interrupts */
} __rte_cache_aligned;

struct forward {
	const struct function *function;
	bool interrupts;
	unsigned nb_queues; /* of each port, and the most threads */
	struct device ports[2];
	struct rte_mempool *pool;
	struct lane lanes[FUNCTION_QUEUES];
	struct forward_thread threads[FUNCTION_QUEUES];
	_Atomic unsigned nb_threads;
	_Atomic unsigned changes; /* of who is to have what, and run where */
	_Atomic bool failed;	  /* a thread's interrupts */
	_Atomic bool quit;
	int wake_fd;		  /* eventfd of the function's own threads: ends a sleep of who has queue 0 */
	pthread_mutex_t changing; /* who starts and ends threads */
};

/* `nb_queues` and the CPUs of the first threads, one each, are set.  Returns 0, or -errno after logging. */
int forward_open(struct forward *forward, const int *cpus, unsigned nb_cpus);

/*
 * Leave a real-time priority that the program was started with to the polling threads alone; call before any
 * port is opened.  Otherwise DPDK's interrupt thread, which looks at a vhost-user socket again and again while an
 * answer lies in it, would keep the core from the main thread that is to read the answer, for ever.
 * Returns 0, or -errno after logging.
 */
int forward_confine_priority(unsigned nb_threads);

/* Start the first threads: the ports are open. */
void forward_start(struct forward *forward);

/* Whether all threads run that should. */
bool forward_runs(struct forward *forward);

/*
 * From another thread: have the queues on one thread for each of these CPUs from now on, threads that stay on their
 * CPU first.  Returns, when all queues are handed over and threads that are too many have ended, what was done:
 * `queues_moved`, `handed_over_us`, `first_frame_us` (when the last of the new threads had moved its first frames; null
 * where none came within `wait_ms`) and `ended_us` (null: none had to).  NULL with the error filled in: it is as
 * before.
 */
json_t *forward_use(struct forward *forward, const int *cpus, unsigned nb_cpus, unsigned wait_ms,
		    struct control_error *error);

/* End all threads, and drop and count what they hold.  Returns 0, or -EIO if one had failed. */
int forward_end(struct forward *forward);

/* ------- forward.c, of a thread ------- */

/* The thread's function, for rte_eal_remote_launch(). */
int forward_run(void *thread);

/* End a thread's sleep. */
void forward_wake(const struct forward_thread *thread);

/* From any thread: end the sleep of who has a queue, after something was put there for it.  Costs a system call only if
 * that one sleeps. */
void forward_wake_queue(struct forward *forward, unsigned queue);

#endif
