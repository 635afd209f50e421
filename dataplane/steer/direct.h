/* SPDX-License-Identifier: Apache-2.0
 *
 * Steering, compiled from the configuration to one small program for each receive queue.  `direct` is the
 * program of a chain hop: the next port is known, and no header is read.
 *
 * A full receiver: the frames stay in the sender's ring (back pressure) until the receiver has been full
 * for the hop's patience; from then on they are dropped, counted at the receiver, until it takes one again.
 */
#ifndef TAILRACE_STEER_DIRECT_H
#define TAILRACE_STEER_DIRECT_H

#include <stdint.h>

#include "port/port.h"

struct direct {
	struct port *from;
	struct port *to;	/* NULL: the port is in no chain, its frames are dropped */
	uint64_t blocked_since; /* TSC; 0 while the receiver takes frames */
};

/*
 * Move one burst.  `now` and `patience` are TSC cycles.  Returns how many frames left their sender, whether
 * they arrived or were dropped (and counted).
 */
unsigned direct_poll(struct direct *direct, uint64_t now, uint64_t patience);

#endif
