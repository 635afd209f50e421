/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving frames of a burst to the port that an egress leads to, counted there and at the egress's hop.  For the worker
 * that has taken the egress's queue (egress_take()).
 */
#ifndef TAILRACE_STEER_EGRESS_H
#define TAILRACE_STEER_EGRESS_H

#include "steer/source.h"
#include "vring/packet.h"

/*
 * Write the packets which[0..n) to the port, in order.  Returns how many were dealt with; for the others it has no room
 * now, or nobody is attached: egress_drop_rest() knows which.
 * `only`: nobody wants any of them afterwards, so that what a device has received may be handed over to a device.
 */
unsigned egress_write(const struct egress *egress, struct burst *burst, const uint8_t *which, unsigned n, bool only);

/*
 * The same, and which of them this port was given: bit i of `*delivered` is which[i]'s.  Those that were dealt with
 * otherwise are dropped and counted.  Whether the packets count as delivered is left as it was.
 */
unsigned egress_write_noting(const struct egress *egress, struct burst *burst, const uint8_t *which, unsigned n,
			     bool only, uint64_t *delivered);

/* Count `n` frames that egress_write() left as dropped. */
void egress_drop_rest(const struct egress *egress, unsigned n);

/* Is there somebody who could be given frames? */
bool egress_up(const struct egress *egress);

/* Of frames that egress_write() left: is it not the device that has no room for them, but the switch no buffers? */
bool egress_lacks_buffers(const struct egress *egress);

/*
 * No more frames come for now: notify the guest of the last ones, or send what the device had no room for.  Returns
 * whether nothing is left to do: a device that stays full keeps its frames for the time that frames are kept waiting,
 * and then they are dropped.
 */
bool egress_flush(const struct egress *egress, const struct round *round);

/*
 * Send what a device had no room for before, or drop it if the device has lost its link.  In every round.  Returns
 * whether the egress may have more.
 */
bool egress_send_held(const struct egress *egress);

#endif
