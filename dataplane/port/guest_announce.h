/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame in a guest's name, by which bridges learn where it is after a migration (VHOST_USER_SEND_RARP): the guest
 * cannot send it itself, because its driver does not know that it has moved.
 *
 * The frame lies in a ring of ours that takes the place of the one by which the guest sends on its first queue, until
 * a worker has taken it from there.  So it goes the way of every frame of the guest, with nothing that a worker would
 * have to look at while there is none, and waits with the guest's own.  Belongs to the thread that speaks the protocol.
 */
#ifndef TAILRACE_PORT_GUEST_ANNOUNCE_H
#define TAILRACE_PORT_GUEST_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>

#include "vring/vring.h"

enum { GUEST_ANNOUNCE_FRAME = 60 };

struct guest_announcement; /* a frame, with its ring */

/* The request of RFC 903 by which QEMU and DPDK announce a station, too. */
void guest_announce_frame(const struct rte_ether_addr *mac, uint8_t frame[GUEST_ANNOUNCE_FRAME]);

/* Put a frame before what the guest sends by `ring`.  Returns NULL, and leaves the ring, when there is no memory. */
struct guest_announcement *guest_announce_before(struct virtqueue *ring, const struct rte_ether_addr *mac, int wake_fd);

/* What workers are given in the place of the guest's ring.  It writes to `wake_fd` when the frame has been taken. */
struct virtqueue *guest_announce_ring(struct guest_announcement *announcement);

/* Has a worker taken the frame?  It may still use the ring. */
bool guest_announce_taken(const struct guest_announcement *announcement);

/* Workers have let go of it: forget it.  Returns the guest's ring. */
struct virtqueue *guest_announce_end(struct guest_announcement *announcement);

#endif
