/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that came in by one queue and belong to another one (struct function, homes()): they go through the inbox of
 * that queue, of each port, and are taken by who has it, in the order in which they came.  No thread waits for another
 * one: if an inbox is full, frames are dropped and counted.
 */
#ifndef TAILRACE_FUNCTIONS_INBOXES_H
#define TAILRACE_FUNCTIONS_INBOXES_H

#include <rte_ring.h>

#include "forward.h"

enum {
	INBOX_ROOM = 256,		 /* frames */
	INBOX_TAKEN = FORWARD_BURST / 2, /* at once, so that those that come in go on too */
};

/* Of a function with homes() and several queues, once it is open.  Returns 0, or -ENOMEM after logging. */
int inboxes_open(struct forward *forward);

/* Free what they hold, and count it as what no port took; no thread runs. */
void inboxes_close(struct forward *forward);

/* Frames of a burst that belong to other queues go there.  Returns how many stay, at its front, in order. */
uint16_t inboxes_hand_on(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst,
			 uint16_t nb_frames);

/* Take frames that came in elsewhere, INBOX_TAKEN at most; returns how many. */
static inline uint16_t inboxes_take(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst)
{
	return (uint16_t)rte_ring_sc_dequeue_burst(forward->lanes[queue].inboxes[in], (void **)burst, INBOX_TAKEN,
						   NULL);
}

static inline bool inboxes_hold(const struct lane *lane)
{
	return lane->inboxes[0] != NULL && !(rte_ring_empty(lane->inboxes[0]) && rte_ring_empty(lane->inboxes[1]));
}

#endif
