/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving a guest's rings to the workers, and taking them back before anything that they point at changes.
 */
#ifndef TAILRACE_PORT_GUEST_PUBLISH_H
#define TAILRACE_PORT_GUEST_PUBLISH_H

#include "port/guest_backend.h"

enum { GUEST_ALL_RINGS = -1 };

/* Take these rings (a bit each) from the workers; afterwards nothing of them is in use. */
void guest_withdraw(struct guest_backend *backend, uint32_t rings);

/* Give the workers what may be served now and is not. */
void guest_publish(struct guest_backend *backend);

/* The time is over for which the guest's rings were kept stopped: those that it has set up meanwhile are served. */
void guest_end_bar(struct guest_backend *backend);

/* Send a frame in the guest's name as soon as its first queue is served, or again if one is still to be sent. */
void guest_announce(struct guest_backend *backend, const struct rte_ether_addr *mac);

/* A worker may have sent what was announced: then the guest's own ring is in its place again. */
void guest_announced(struct guest_backend *backend);

/* Stop a ring: it is as if the front end had never started it, but for its size, place and position. */
void guest_ring_stop(struct guest_backend *backend, unsigned ring);

/* Stop a ring and return its base, to be reported to the front end: from now on what that says of it is right. */
uint16_t guest_ring_report(struct guest_backend *backend, unsigned ring);

/* The front end has gone: nothing of what it said holds any more. */
void guest_forget(struct guest_backend *backend);

#endif
