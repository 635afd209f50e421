/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether frames that a guest was given still lie in its rings: of one that polls this alone says how busy it is, as
 * its CPU time is always all that it gets.  For the thread that speaks the protocol, which also takes rings from the
 * workers: so what is looked at stays where it is, and the workers know nothing of it.
 *
 * A ring says how many buffers it has for frames to come.  A guest that has taken what it was given puts as many back,
 * but not always at once: drivers wait until there are many (Linux's, and DPDK's, for up to 32).  So frames are taken
 * to wait where the ring has none left, or lacks more than a quarter of its size (in one of less than 128, than half of
 * it or 32, whichever is less) of the most that it ever had.
 */
#ifndef TAILRACE_PORT_GUEST_UNREAD_H
#define TAILRACE_PORT_GUEST_UNREAD_H

#include <stdbool.h>
#include <stdint.h>

struct guest_backend;
struct virtqueue;

/* On average between two looks; each a random part of it sooner or later, so as not to fall in step with traffic. */
enum { GUEST_UNREAD_US = 800 };

/* No more rings are looked at in one turn, so that others do not wait long for the thread.  A port's at least. */
enum { GUEST_UNREAD_RINGS = 32 };

/* What is known of a ring by which a guest is given frames.  All zeros: nothing. */
struct guest_unread {
	uint16_t most; /* buffers that it ever had */
};

/* How many buffers the guest has made available from the ring's position on: a look that changes nothing.  It ends
 * early at a page of the guest's that was missing (vring_pages_made), and is then too few. */
uint16_t guest_unread_buffers(const struct virtqueue *vring);

/* Look at a ring.  Returns whether frames wait in it. */
bool guest_unread_look(struct guest_unread *unread, const struct virtqueue *vring);

/*
 * Look at the rings of a guest if that is wanted of it (guest_count_unread()), and count; up to the first page of its
 * that was missing.  Returns how many rings it has, 0 where it is not wanted.
 */
unsigned guest_unread_count(struct guest_backend *backend);

#endif
