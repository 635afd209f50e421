/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving frames of a burst to the port that an exit leads to, counted there and at the exit's hop.  For the worker that
 * has taken the exit's queue (exit_take()).
 */
#ifndef TAILRACE_STEER_GIVE_H
#define TAILRACE_STEER_GIVE_H

#include "steer/source.h"
#include "vring/packet.h"

/*
 * Write the packets which[0..n) to the port, in order.  Returns how many were dealt with; for the others it has no room
 * now, or nobody is attached: exit_drop_rest() knows which.
 * `only`: nobody wants any of them afterwards, so that what a device has received may be handed over to a device.
 */
unsigned exit_write(const struct exit *exit, struct burst *burst, const uint8_t *which, unsigned n, bool only);

/*
 * The same, and which of them this port was given: bit i of `*delivered` is which[i]'s.  Those that were dealt with
 * otherwise are dropped and counted.  Whether the packets count as delivered is left as it was.
 */
unsigned exit_write_noting(const struct exit *exit, struct burst *burst, const uint8_t *which, unsigned n, bool only,
			   uint64_t *delivered);

/* Count `n` frames that exit_write() left as dropped. */
void exit_drop_rest(const struct exit *exit, unsigned n);

/* Is there somebody who could be given frames? */
bool exit_up(const struct exit *exit);

/* Of frames that exit_write() left: is it not the device that has no room for them, but the switch no buffers? */
bool exit_lacks_buffers(const struct exit *exit);

/*
 * No more frames come for now: notify the guest of the last ones, or send what the device had no room for.  Returns
 * whether nothing is left to do: a device that stays full keeps its frames for the time that frames are kept waiting,
 * and then they are dropped.
 */
bool exit_flush(const struct exit *exit, const struct round *round);

/*
 * Send what a device had no room for before, or drop it if the device has lost its link.  In every round.  Returns
 * whether the exit may have more.
 */
bool exit_send_held(const struct exit *exit);

#endif
