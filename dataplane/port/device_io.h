/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames from and to a device, in bursts (vring/packet.h): what vring_read(), vring_write() and vring_read_done() are
 * for a guest's ring.  A frame from one device to another, and to nobody else, is handed over; every other is copied
 * once. What the sender left to be done (a checksum, cutting a long TCP segment) is done by the device if it can,
 * otherwise here.
 *
 * For the worker that takes frames from the queue, and for whoever holds the queue that frames leave by (port.h).
 */
#ifndef TAILRACE_PORT_DEVICE_IO_H
#define TAILRACE_PORT_DEVICE_IO_H

#include "port/port.h"
#include "vring/packet.h"

/* Read up to `limit` frames of a device's queue.  Returns how many; device_read_done() must follow, also after 0. */
unsigned device_read(struct port *from, uint16_t queue, struct burst *burst, unsigned limit);

/* How many frames wait to be read, as far as the driver reports. */
unsigned device_waiting(const struct port *from, uint16_t queue);

/*
 * Turn the packets with the numbers which[0..n) into buffers for the device, in this order.  It is given them by
 * device_flush(), once their sender has got them back: a switch that is killed in between never sends one twice.
 * `only`: none of them goes anywhere else, before or after.  Returns how many were dealt with, those that were dropped
 * (and counted at the device) included; for the others it has no room now, or (`lacks_buffers`) its pool no buffer.
 */
unsigned device_write(struct port *to, uint16_t queue, struct burst *burst, const uint8_t *which, unsigned n,
		      bool only);

/*
 * The packets from number `first` on have gone nowhere: they are read again, before any other.  Nothing of them has
 * been edited.
 */
void device_unread(struct port *from, uint16_t queue, struct burst *burst, unsigned first);

/* Drop those, and the rest of a long segment: nobody reads from the queue any more. */
void device_forget_unread(struct port *from, uint16_t queue);

/* Count the frames, give back their buffers, and show each guest what was written to it. */
void device_read_done(struct port *from, uint16_t queue, struct burst *burst);

/*
 * Send what was written, and what the device had no room for before.  To be called in every round by who gives it
 * frames.  Returns whether nothing is left, so that it may have more.
 */
bool device_flush(struct port *to, uint16_t queue);

/* Drop that instead.  Returns how many frames it was; the caller counts them. */
unsigned device_forget(struct port *to, uint16_t queue);

#endif
