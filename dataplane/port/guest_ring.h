/* SPDX-License-Identifier: Apache-2.0
 *
 * One ring, made from what the front end has said of it.
 */
#ifndef TAILRACE_PORT_GUEST_RING_H
#define TAILRACE_PORT_GUEST_RING_H

#include "port/guest_backend.h"

/* A front end that knows nothing of the protocol's features has no message to enable a ring. */
static inline bool guest_ring_enabled(const struct guest_backend *backend, unsigned ring)
{
	return backend->rings[ring].enabled || !(backend->features & 1ULL << GUEST_F_PROTOCOL_FEATURES);
}

/* A snapshot of one ring as the front end has set it up, or NULL while it is not whole. */
struct virtqueue *guest_ring_snapshot(struct guest_backend *backend, unsigned ring);

/* The ring's position is reported to the front end: what the ring says of it itself holds no more. */
void guest_ring_forget_position(struct guest_backend *backend, unsigned ring);

#endif
