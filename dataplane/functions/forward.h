/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop around a function: receive at one port, process, send at the other, both ways, on one thread.
 *
 * Polling, the thread never sleeps.  With interrupts it sleeps as soon as both ports are empty; to lose no
 * wake-up it looks once more after arming the interrupts and before sleeping.  Where a port has no interrupts (DPDK's
 * drivers for memif and AF_PACKET), it looks again after a short time instead.
 *
 * A function does not drop what the other port does not take: it holds the burst and receives no more on that side
 * until the port has taken it.  So a full receiver is felt at the beginning of a chain, however long the chain is.
 *
 * The thread is the only worker that a grace period (common/grace.h) waits for: a function whose tables another thread
 * changes relies on that.
 */
#ifndef TAILRACE_FUNCTIONS_FORWARD_H
#define TAILRACE_FUNCTIONS_FORWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "common/gaps.h"
#include "function.h"

struct forward_counters { /* of the frames that came in at one port; the forwarding thread writes */
	_Atomic uint64_t received;
	_Atomic uint64_t sent;		/* at the other port */
	_Atomic uint64_t drop_function; /* freed by a function that keeps none; the others count it themselves */
	_Atomic uint64_t drop_full;	/* still held at the end: the other port did not take them */
};

enum { FORWARD_BURST = 32 };

struct forward_held { /* frames from one port that the other one has not taken yet */
	struct rte_mbuf *frames[FUNCTION_ROOM];
	uint16_t first, nb_frames;
};

struct forward {
	const struct function *function;
	bool interrupts;
	struct device ports[2];
	struct forward_counters counters[2];
	struct forward_held held[2];
	_Atomic uint64_t sleeps;
	struct gap_log gaps;
	int wake_fd; /* eventfd: ends a sleep; forward_quit() and the function's own threads write */
	_Atomic bool quit;
};

/* Returns 0, or -errno after logging. */
int forward_open(struct forward *forward);

/*
 * Leave a real-time priority that the program was started with to the polling thread alone; call before any
 * port is opened.  Otherwise DPDK's interrupt thread, which looks at a vhost-user socket again and again while an
 * answer lies in it, would keep the core from the main thread that is to read the answer, for ever.
 * Returns 0, or -errno after logging.
 */
int forward_confine_priority(void);

/* The forwarding thread's function; returns 0 after forward_quit(), or -errno if interrupts fail. */
int forward_run(void *forward);

/* From another thread. */
void forward_quit(struct forward *forward);

#endif
