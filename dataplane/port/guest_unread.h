/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether frames that a guest was given still lie in its rings: of one that polls this alone says how busy it is, as
 * its CPU time is always all that it gets.  For the thread that speaks the protocol, which also takes rings from the
 * workers: so what is looked at stays where it is, and the workers know nothing of it.
 *
 * A ring says how many buffers it has for frames to come.  A guest that has taken what it was given puts as many back,
 * but not always at once: some drivers wait until there are many (Linux's, and DPDK's vector ones, up to 32).  So what
 * counts is not the ring's size but what it had when last nothing was left to take: when neither side had moved for
 * several looks, or more than was ever seen.
 */
#ifndef TAILRACE_PORT_GUEST_UNREAD_H
#define TAILRACE_PORT_GUEST_UNREAD_H

#include <stdbool.h>
#include <stdint.h>

struct guest_backend;
struct virtqueue;

/* On average between two looks; each a random part of it sooner or later, so as not to fall in step with traffic. */
enum { GUEST_UNREAD_US = 800 };

/* What is known of a ring by which a guest is given frames.  All zeros: nothing. */
struct guest_unread {
	uint16_t position, buffers; /* at the last look */
	uint16_t empty;		    /* buffers when nothing was left to take */
	uint8_t still;		    /* looks since either moved */
	bool known;
};

/* How many buffers the guest has made available from the ring's position on: a look that changes nothing. */
uint16_t guest_unread_buffers(const struct virtqueue *vring);

/* Look at a ring.  Returns whether frames wait in it. */
bool guest_unread_look(struct guest_unread *unread, const struct virtqueue *vring);

/* Look at the rings of a guest if that is wanted of it (guest_count_unread()), and count.  Returns whether it is. */
bool guest_unread_count(struct guest_backend *backend);

#endif
