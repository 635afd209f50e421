/* SPDX-License-Identifier: Apache-2.0
 *
 * Which queue a frame belongs to, of a function that keeps something of flows for each queue: by a hash of what both
 * directions of a flow say.  Fragments belong where the first one of their datagram does, and an ICMP error where what
 * it quotes does.  What says nothing of a flow belongs where it came in.  Of nearly all frames only the ends are read,
 * not whether all of the header holds: what does not is dropped by who has that queue.
 *
 * Frames come in nearly all where they belong, because the switch spreads them by such a hash.  Fragments do not, as
 * later ones have no ports, nor do frames of whoever else is at the port.  A later fragment finds its first one only if
 * both came in by the same queue: the switch has all of a datagram come by one, as it spreads them by their addresses.
 * One of another sender that does not is of a datagram that nobody knows.
 *
 * Owned by who has the queue where frames come in.
 */
#ifndef TAILRACE_FUNCTIONS_HOMES_H
#define TAILRACE_FUNCTIONS_HOMES_H

#include <rte_mbuf.h>

#include "fragments.h"
#include "passing.h"
#include "plain.h"

struct homes { /* of the frames that come in by a queue */
	unsigned nb_queues;
	struct fragments fragments; /* those whose first one came in; the mark is the queue */
};

/* Returns 0, or -ENOMEM after logging. */
int homes_open(struct homes *homes, unsigned nb_queues);

void homes_close(struct homes *homes);

/* How a function knows them; `queue` is where a frame came in. */
struct homes_by {
	unsigned (*plain)(const struct plain *words, uint16_t in, unsigned queue, unsigned nb_queues);
	/* Of a frame with a flow that is not plain; or `quoted`: of what an ICMP error quotes. */
	unsigned (*any)(const struct headers *headers, bool quoted, uint16_t in, unsigned queue, unsigned nb_queues);
};

/* Of a frame that is not plain: its queue, or `queue`. */
unsigned homes_find_any(struct homes *homes, const struct rte_mbuf *mbuf, uint16_t in, unsigned queue,
			const struct homes_by *by);

/* Of a burst that came in by a queue: function.h's homes(). */
static __rte_always_inline void homes_find(struct homes *homes, struct rte_mbuf *const *mbufs, uint16_t nb_frames,
					   uint16_t in, unsigned queue, const struct homes_by *by, uint8_t *found)
{
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct plain words;

		found[i] = (uint8_t)(likely(plain_ends(mbufs[i], &words))
					     ? by->plain(&words, in, queue, homes->nb_queues)
					     : homes_find_any(homes, mbufs[i], in, queue, by));
	}
}

#endif
