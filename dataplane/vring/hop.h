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

/*
 * Guest to guest: move up to VRING_BURST frames with one copy, ring to ring, and tell both guests.
 * Returns how many frames left the sender's ring, dropped ones (counted by reason) included.  Frames that the
 * receiver has no buffer for stay where they are.
 */
unsigned vring_hop(struct virtqueue *from, struct virtqueue *to);

/*
 * Guest to device: copy up to `count` frames into packet buffers from `pool` and give the chains back to the
 * guest.  Returns how many frames left the guest's ring, dropped ones (counted) included; `*filled` of them
 * are in `mbufs`, for the caller to send or free.
 */
unsigned vring_to_mbufs(struct virtqueue *from, struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count,
			unsigned *filled);

/*
 * Device to guest: copy the frames into the guest's receive buffers and tell the guest.
 * Returns how many of them are dealt with, dropped ones included; the caller keeps and frees all buffers.
 */
unsigned vring_from_mbufs(struct virtqueue *to, struct rte_mbuf **mbufs, unsigned count);

#endif
