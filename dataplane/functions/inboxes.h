/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that came in by one queue and belong to another one (struct function, homes()): they go through the inbox that
 * the latter has for the former, of each port, and are taken by who has it, in the order in which they came.  An inbox
 * has one writer and one reader, so that neither waits for a third one, which may be kept off its CPU.
 *
 * Who receives a burst first looks whether each inbox has room for all of it.  Where one has not, because its reader
 * does not run or waits for its other port, nothing is received there for now: so that is felt at the beginning of the
 * chain, as with one queue.  But another thread that runs and has had more than it can do for 1 ms, or a reader that
 * has stood still for 10 ms, is not waited for: what finds its inbox full is dropped and counted, and flows of other
 * queues go on.
 */
#ifndef TAILRACE_FUNCTIONS_INBOXES_H
#define TAILRACE_FUNCTIONS_INBOXES_H

#include <rte_ring.h>

#include "forward.h"

enum {
	INBOXES_LEAST = 256,		 /* frames, in those of a queue and port together */
	INBOX_LEAST = 2 * FORWARD_BURST, /* and in each */
	INBOX_TAKEN = FORWARD_BURST / 2, /* before others are received, so that those go on too */
};

/* What a writer saw when it last found an inbox without room for a burst. */
struct inbox_look {
	uint64_t full;	/* TSC then; 0: it never did */
	uint64_t since; /* TSC when the reader was found to have taken some, or not to have */
	uint64_t began; /* TSC when it was found full for the first time of a row of looks without a pause */
	uint32_t taken; /* how far the reader had got */
	bool runs;	/* the reader has taken some since then */
};

struct inboxes {				     /* of a queue */
	struct rte_ring *from[2][FUNCTION_QUEUES];   /* by port, and by the queue where frames came in */
	struct inbox_look looks[2][FUNCTION_QUEUES]; /* at those that other queues have for this one */
	bool waits[2];				     /* for room in these, and so receives nothing at that port */
	uint8_t turn[2];			     /* whose frames are taken first */
};

/* Frames for which there is room in each, with so many queues. */
static inline unsigned inbox_room(unsigned nb_queues)
{
	return RTE_MAX(INBOXES_LEAST / RTE_MAX(nb_queues - 1, 1u), (unsigned)INBOX_LEAST);
}

/* And in all those of a queue together. */
static inline unsigned inboxes_room(unsigned nb_queues)
{
	return 2 * (nb_queues - 1) * inbox_room(nb_queues);
}

/* Of a function with homes() and several queues, once it is open.  Returns 0, or -ENOMEM after logging. */
int inboxes_open(struct forward *forward);

/* Free what they hold, and count it as what no port took; no thread runs any more. */
void inboxes_close(struct forward *forward);

/* Whether a burst may be received at a port by a queue now, at `tsc`. */
bool inboxes_take_more(struct forward *forward, uint16_t queue, uint16_t in, uint64_t tsc);

/* Frames of a burst that belong to other queues go there, or are dropped.  Returns how many stay, at its front, in
 * order. */
uint16_t inboxes_hand_on(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst,
			 uint16_t nb_frames);

/* Take frames that came in elsewhere, so many at most; returns how many. */
uint16_t inboxes_take(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst, uint16_t most);

/* Whether a queue's inboxes hold frames, or it waits for room in those of others. */
bool inboxes_waited_for(const struct forward *forward, uint16_t queue);

#endif
