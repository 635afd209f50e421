/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving frames between rings, and between rings and packet buffers: one copy each.
 * Called by the worker that owns the rings.
 */
#ifndef TAILRACE_VRING_HOP_H
#define TAILRACE_VRING_HOP_H

#include "vring/vring.h"

struct rte_mbuf;
struct rte_mempool;
struct packet;

/*
 * Guest to guest: move up to VRING_BURST frames with one copy, ring to ring, and notify both guests.
 * Returns how many frames left the sender's ring, dropped ones (counted by reason) included.  Frames that the
 * receiver has no buffer for stay where they are.  Of those that left, from->dropped says how many were dropped.
 */
unsigned vring_hop(struct virtqueue *from, struct virtqueue *to);

void vring_expect_now(struct virtqueue *to);

/*
 * There is nothing to do: fetch the lines that as many frames as came last will be written to, one step at each of two
 * calls, so that they are here when the next ones come.  Each was last written or read by the guest's core, and to get
 * them back is most of what a burst would wait for.
 */
static inline void vring_expect(struct virtqueue *to)
{
	if (unlikely(to->expected < 2 && to->last > 0))
		vring_expect_now(to);
}

/*
 * Guest to device: one packet as packet buffers from `pool`.  `transmits` says what the device does itself
 * (RTE_ETH_TX_OFFLOAD_...); the rest is done here, so one frame may take several buffers.  Returns the number of
 * buffers in `mbufs`, or -ENOSPC for too little room, -ENOBUFS for an empty pool, -EMSGSIZE for what cannot be sent at
 * all.  The packet may be written to others as well.
 */
int packet_to_mbufs(struct packet *packet, struct rte_mempool *pool, uint64_t transmits, struct rte_mbuf **mbufs,
		    unsigned room);

#endif
