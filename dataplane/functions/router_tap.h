/* SPDX-License-Identifier: Apache-2.0
 *
 * The router's slow path: a thread of its own, which moves frames between the forwarding threads and a TAP interface
 * for each port, where the kernel's stack of this network namespace takes them, and which keeps the router's table as
 * the kernel's.  The forwarding threads make no system call, but one to wake this thread.
 *
 * Both directions have queues of a fixed size.  To the kernel each class has its own, and all get their turn.  From the
 * kernel frames wait in the TAP's own queue where there is no room.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_TAP_H
#define TAILRACE_FUNCTIONS_ROUTER_TAP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "router_asked.h"
#include "router_kernel.h"
#include "router_prompt.h"

enum { ROUTER_QUEUE = 512 }; /* frames, in each of ROUTER_CLASSES + ROUTER_PORTS queues */

struct router_tap {
	int fds[ROUTER_PORTS];
	struct rte_ring *to_kernel[ROUTER_CLASSES];
	struct rte_ring *from_kernel[ROUTER_PORTS];
	struct rte_mempool *pool;
	struct router_kernel kernel;
	struct router_prompt prompt;
	struct router_asked asked;
	_Atomic uint64_t taken[ROUTER_PORTS], given[ROUTER_PORTS], refused[ROUTER_PORTS]; /* refused by the kernel */
	_Atomic uint64_t unasked[ROUTER_PORTS]; /* dropped: for one more neighbour than may be looked for */
	int wake_fd;				/* ends this thread's sleep */
	int forward_fd;				/* ends that of who has queue 0 */
	_Atomic bool sleeps, quit;
	bool runs;
	pthread_t thread;
};

/*
 * Open the TAP interfaces port0 and port1, which are made if they are not there and this program may make them, learn
 * the kernel's tables, and start the thread.  Returns 0, or -errno after logging; then too close.
 */
int router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd);

/* End the thread, and free what waits.  Harmless if it is not open. */
void router_tap_close(struct router_tap *tap);

/* Of a forwarding thread: hand a frame that came in at a port (mbuf->port) to the kernel.  Returns false if there is
 * no room; the frame stays the caller's. */
bool router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class);

/* Of a forwarding thread: have the kernel notice that a neighbour is in use.  Returns false if that has to wait. */
bool router_tap_prompt(struct router_tap *tap, uint32_t neighbour);

/* Of the forwarding thread that has queue 0: what the kernel sends by a port. */
static inline unsigned router_tap_take(struct router_tap *tap, unsigned port, struct rte_mbuf **mbufs, unsigned most)
{
	return rte_ring_sc_dequeue_burst(tap->from_kernel[port], (void **)mbufs, most, NULL);
}

/* From any thread. */
void router_tap_describe(const struct router_tap *tap, json_t *into);

#endif
