/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "common/log.h"
#include "inboxes.h"

int inboxes_open(struct forward *forward)
{
	for (unsigned queue = 0; queue < forward->nb_queues; queue++)
		for (unsigned in = 0; in < 2; in++) {
			char name[RTE_RING_NAMESIZE];

			snprintf(name, sizeof(name), "inbox %u.%u", queue, in);
			forward->lanes[queue].inboxes[in] = rte_ring_create(
				name, inboxes_room(forward->nb_queues), SOCKET_ID_ANY, RING_F_SC_DEQ | RING_F_EXACT_SZ);
			if (forward->lanes[queue].inboxes[in] == NULL) {
				log_error("no memory for queues between threads; use a larger --memory");
				return -ENOMEM;
			}
		}
	return 0;
}

void inboxes_close(struct forward *forward)
{
	for (unsigned queue = 0; queue < forward->nb_queues; queue++)
		for (unsigned in = 0; in < 2; in++) {
			struct lane *lane = &forward->lanes[queue];
			struct rte_mbuf *mbuf;

			if (lane->inboxes[in] == NULL)
				continue;
			while (rte_ring_sc_dequeue(lane->inboxes[in], (void **)&mbuf) == 0) {
				function_count(&lane->counters[in].drop_full, 1);
				rte_pktmbuf_free(mbuf);
			}
			rte_ring_free(lane->inboxes[in]);
			lane->inboxes[in] = NULL;
		}
}

/* There is room (inboxes_take_more()).  Whoever has the other queue may sleep. */
static void put(struct forward *forward, unsigned queue, uint16_t in, struct rte_mbuf **mbufs, unsigned nb_frames,
		struct forward_counters *counters)
{
	const unsigned nb_put = rte_ring_mp_enqueue_burst(forward->lanes[queue].inboxes[in], (void **)mbufs, nb_frames,
							  NULL);

	function_count(&counters->handed_on, nb_put);
	if (unlikely(nb_put < nb_frames)) {
		function_count(&counters->drop_full, nb_frames - nb_put);
		rte_pktmbuf_free_bulk(mbufs + nb_put, nb_frames - nb_put);
	}
	if (forward->interrupts)
		forward_wake_queue(forward, queue);
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
		put(forward, home, in, there, nb, &forward->lanes[queue].counters[in]);
	}
	return nb_kept;
}
