/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that came in by one queue and belong to another one (struct function, homes()): they go through the inbox of
 * that queue, of each port, and are taken by who has it, in the order in which they came.
 *
 * No frame is dropped for that.  Who receives a burst looks first whether each inbox has room for one of every queue;
 * if not, it receives nothing at that port for now.  So a thread that stands still, or whose other port is full, is
 * felt at the beginning of the chain, as with one queue.
 */
#ifndef TAILRACE_FUNCTIONS_INBOXES_H
#define TAILRACE_FUNCTIONS_INBOXES_H

#include <rte_ring.h>

#include "forward.h"

enum {
	INBOX_LEAST = 256,		 /* frames */
	INBOX_TAKEN = FORWARD_BURST / 2, /* at once, so that those that come in go on too */
};

/* Frames for which there is room in each, with so many queues. */
static inline unsigned inboxes_room(unsigned nb_queues)
{
	return RTE_MAX((unsigned)INBOX_LEAST, 2 * FORWARD_BURST * nb_queues);
}

/* Of a function with homes() and several queues, once it is open.  Returns 0, or -ENOMEM after logging. */
int inboxes_open(struct forward *forward);

/* Free what they hold, and count it as what no port took; no thread runs any more. */
void inboxes_close(struct forward *forward);

/* Whether a burst may be received at a port. */
static inline bool inboxes_take_more(const struct forward *forward, uint16_t in)
{
	for (unsigned queue = 0; queue < forward->nb_queues; queue++)
		if (unlikely(rte_ring_free_count(forward->lanes[queue].inboxes[in]) <
			     FORWARD_BURST * forward->nb_queues))
			return false;
	return true;
}

/* Frames of a burst that belong to other queues go there.  Returns how many stay, at its front, in order. */
uint16_t inboxes_hand_on(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst,
			 uint16_t nb_frames);

/* Take frames that came in elsewhere, INBOX_TAKEN at most; returns how many. */
static inline uint16_t inboxes_take(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst)
{
	return (uint16_t)rte_ring_sc_dequeue_burst(forward->lanes[queue].inboxes[in], (void **)burst, INBOX_TAKEN,
						   NULL);
}

/* Whether a queue's inboxes hold frames, or it waits for room in others. */
static inline bool inboxes_waited_for(const struct lane *lane)
{
	if (lane->inboxes[0] == NULL)
		return false;
	return lane->waits[0] || lane->waits[1] || !rte_ring_empty(lane->inboxes[0]) ||
	       !rte_ring_empty(lane->inboxes[1]);
}

#endif
