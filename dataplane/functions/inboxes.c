/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "common/log.h"
#include "inboxes.h"

enum {
	/* us in which a reader that runs takes some: a round, of all queues at their fullest */
	ROUND = 100,
	/* us after which a reader that takes nothing, or has not been seen with a full inbox, begins anew */
	PAUSE = 300,
	/* us for which one that runs has to have had too much: a burst that it can take later is not more */
	TOO_LONG = 1000,
	/* us for which one that takes nothing is waited for: until it has its CPU again, or its port some room */
	PATIENCE = 10000,
};

static struct rte_ring *open_inbox(unsigned nb_queues, unsigned queue, unsigned from, unsigned in)
{
	char name[3 * 12 + 8];

	snprintf(name, sizeof(name), "inbox %u %u %u", queue, from, in);
	return rte_ring_create(name, inbox_room(nb_queues), SOCKET_ID_ANY,
			       RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
}

static int open_queue(struct forward *forward, unsigned queue)
{
	struct inboxes *inboxes = rte_zmalloc("inboxes", sizeof(*inboxes), RTE_CACHE_LINE_SIZE);

	forward->lanes[queue].inboxes = inboxes;
	if (inboxes == NULL)
		return -ENOMEM;
	for (unsigned in = 0; in < 2; in++)
		for (unsigned from = 0; from < forward->nb_queues; from++) {
			if (from == queue)
				continue;
			inboxes->from[in][from] = open_inbox(forward->nb_queues, queue, from, in);
			if (inboxes->from[in][from] == NULL)
				return -ENOMEM;
		}
	return 0;
}

int inboxes_open(struct forward *forward)
{
	for (unsigned queue = 0; queue < forward->nb_queues; queue++)
		if (open_queue(forward, queue) != 0) {
			log_error("no memory for queues between threads; use a larger --memory");
			return -ENOMEM;
		}
	return 0;
}

static void close_inbox(struct rte_ring *inbox, struct forward_counters *counters)
{
	struct rte_mbuf *mbuf;

	while (inbox != NULL && rte_ring_sc_dequeue(inbox, (void **)&mbuf) == 0) {
		function_count(&counters->drop_full, 1);
		rte_pktmbuf_free(mbuf);
	}
	rte_ring_free(inbox);
}

void inboxes_close(struct forward *forward)
{
	for (unsigned queue = 0; queue < forward->nb_queues; queue++) {
		struct lane *lane = &forward->lanes[queue];

		for (unsigned at = 0; lane->inboxes != NULL && at < 2 * forward->nb_queues; at++)
			close_inbox(lane->inboxes->from[at % 2][at / 2], &lane->counters[at % 2]);
		rte_free(lane->inboxes);
		lane->inboxes = NULL;
	}
}

/* ------- who reads ------- */

uint16_t inboxes_take(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **burst, uint16_t most)
{
	struct inboxes *inboxes = forward->lanes[queue].inboxes;
	unsigned from = inboxes->turn[in], nb = 0;

	inboxes->turn[in] = (uint8_t)((from + 1) % forward->nb_queues);
	for (unsigned i = 0; i < forward->nb_queues && nb < most; i++, from = (from + 1) % forward->nb_queues)
		if (from != queue)
			nb += rte_ring_sc_dequeue_burst(inboxes->from[in][from], (void **)(burst + nb), most - nb,
							NULL);
	return (uint16_t)nb;
}

bool inboxes_waited_for(const struct forward *forward, uint16_t queue)
{
	const struct inboxes *inboxes = forward->lanes[queue].inboxes;

	if (inboxes == NULL)
		return false;
	for (unsigned from = 0; from < forward->nb_queues; from++)
		if (from != queue &&
		    (!rte_ring_empty(inboxes->from[0][from]) || !rte_ring_empty(inboxes->from[1][from])))
			return true;
	return inboxes->waits[0] || inboxes->waits[1];
}

/* ------- who writes ------- */

static uint64_t cycles(uint64_t us)
{
	return rte_get_tsc_hz() / 1000000 * us;
}

/* Whether who reads a full inbox is not to be waited for; `alike`: it is this thread, which has both queues. */
static bool goes_without(const struct rte_ring *inbox, struct inbox_look *look, uint64_t tsc, bool alike)
{
	const uint32_t taken = __atomic_load_n(&inbox->cons.tail, __ATOMIC_RELAXED);
	const bool moved = taken != look->taken;
	const bool anew = look->full == 0 ||
			  (moved && (tsc - look->full > cycles(PAUSE) || tsc - look->since > cycles(PAUSE)));

	look->full = tsc;
	if (anew)
		look->began = tsc;
	if (anew || moved) {
		look->since = tsc;
		look->runs = !anew;
		look->taken = taken;
	}
	if (tsc - look->since > cycles(PATIENCE))
		return true;
	return look->runs && !alike && tsc - look->since <= cycles(ROUND) && tsc - look->began > cycles(TOO_LONG);
}

bool inboxes_take_more(struct forward *forward, uint16_t queue, uint16_t in, uint64_t tsc)
{
	struct inboxes *own = forward->lanes[queue].inboxes;

	own->waits[in] = false;
	for (unsigned to = 0; to < forward->nb_queues; to++) {
		const struct rte_ring *inbox = forward->lanes[to].inboxes->from[in][queue];

		if (to != queue && unlikely(rte_ring_free_count(inbox) < FORWARD_BURST) &&
		    !goes_without(inbox, &own->looks[in][to], tsc,
				  forward->lanes[to].owner == forward->lanes[queue].owner))
			own->waits[in] = true;
	}
	return !own->waits[in];
}

/* Whoever has the other queue may sleep. */
static void put(struct forward *forward, unsigned from, unsigned to, uint16_t in, struct rte_mbuf **mbufs,
		unsigned nb_frames)
{
	struct forward_counters *counters = &forward->lanes[from].counters[in];
	const unsigned nb_put = rte_ring_sp_enqueue_burst(forward->lanes[to].inboxes->from[in][from], (void **)mbufs,
							  nb_frames, NULL);

	function_count(&counters->handed_on, nb_put);
	if (unlikely(nb_put < nb_frames)) {
		function_count(&counters->drop_busy, nb_frames - nb_put);
		rte_pktmbuf_free_bulk(mbufs + nb_put, nb_frames - nb_put);
	}
	forward_wake_queue(forward, to);
}

uint16_t inboxes_hand_on(struct forward *forward, uint16_t queue, uint16_t in, struct rte_mbuf **mbufs,
			 uint16_t nb_frames)
{
	struct rte_mbuf *others[FORWARD_BURST], *there[FORWARD_BURST];
	uint8_t homes[FORWARD_BURST], of_others[FORWARD_BURST];
	uint16_t nb_kept = 0, nb_others = 0;
	uint32_t elsewhere = 0;

	forward->function->homes(mbufs, nb_frames, in, queue, homes);
	for (uint16_t i = 0; i < nb_frames; i++) {
		if (likely(homes[i] == queue)) {
			mbufs[nb_kept++] = mbufs[i];
			continue;
		}
		elsewhere |= UINT32_C(1) << homes[i];
		of_others[nb_others] = homes[i];
		others[nb_others++] = mbufs[i];
	}
	for (; unlikely(elsewhere != 0); elsewhere &= elsewhere - 1) {
		const unsigned home = (unsigned)__builtin_ctz(elsewhere);
		unsigned nb = 0;

		for (uint16_t i = 0; i < nb_others; i++)
			if (of_others[i] == home)
				there[nb++] = others[i];
		put(forward, queue, home, in, there, nb);
	}
	return nb_kept;
}
