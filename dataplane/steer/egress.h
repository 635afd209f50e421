/* SPDX-License-Identifier: Apache-2.0
 *
 * An egress: a queue that frames leave by.  Giving it frames of a burst, counted at its port and hop, is for the worker
 * that has taken the queue (egress_take()).
 */
#ifndef TAILRACE_STEER_EGRESS_H
#define TAILRACE_STEER_EGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_spinlock.h>

#include "port/port.h"
#include "steer/counters.h"
#include "vring/packet.h"

struct egress_watch; /* watch.h */
struct round;	     /* source.h */

/* A queue that frames leave by, seen from one place that frames come from. */
struct egress {
	struct port *port; /* NULL: nowhere; the frames are dropped */
	uint16_t queue;
	bool locked;		    /* another worker may give frames to the queue too */
	bool shared;		    /* another worker may count at the hop too */
	struct hop_counters *hop;   /* one direction of a chain's hop; NULL: outside any chain */
	struct egress_watch *watch; /* NULL: nothing but moving frames; else the source has a watch too */
};

/*
 * Take the queue that frames leave by.  Returns false when another worker has it: the frames stay where they are and
 * the caller goes on to its other sources, so that no worker ever waits for one that is kept off its core.
 */
static inline bool egress_take(const struct egress *egress)
{
	return likely(!egress->locked) || rte_spinlock_trylock(&egress->port->queues[egress->queue].lock);
}

static inline void egress_release(const struct egress *egress)
{
	if (unlikely(egress->locked))
		rte_spinlock_unlock(&egress->port->queues[egress->queue].lock);
}

/* The counters of the queue that frames leave by; for whoever has taken it. */
static inline struct queue_counters *egress_counters(const struct egress *egress)
{
	return egress->port->queues[egress->queue].counters;
}

/* Count at the egress's hop, if it is in a chain: EGRESS_COUNT(egress, packets, n). */
#define EGRESS_COUNT(egress, field, count)                                                              \
	do {                                                                                            \
		if ((egress)->hop == NULL)                                                              \
			break;                                                                          \
		if (unlikely((egress)->shared))                                                         \
			__atomic_fetch_add(&(egress)->hop->field, (uint64_t)(count), __ATOMIC_RELAXED); \
		else                                                                                    \
			(egress)->hop->field += (count);                                                \
	} while (0)

/*
 * Write the packets which[0..n) to the port, in order; a device sends them at egress_send().  Returns how many were
 * dealt with; for the others it has no room now, or nobody is attached: egress_drop_rest() knows which.
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

/* Is there nobody, and are frames not to wait until there is? */
bool egress_gone(const struct egress *egress);

/*
 * Send what a device had no room for before, or drop it if the device has lost its link.  In every round.  Returns
 * whether the egress may have more.
 */
bool egress_send_held(const struct egress *egress);

/*
 * Send what was written to a device, now that its sender has got it back: after vring_read_done(), device_read_done()
 * or burst_show(), and before egress_release().
 */
static inline void egress_send(const struct egress *egress)
{
	if (egress->port->kind == PORT_DEVICE && egress->port->queues[egress->queue].unoffered)
		egress_send_held(egress);
}

/* Of frames that egress_write() left: is it not the device that has no room for them, but the switch no buffers? */
bool egress_lacks_buffers(const struct egress *egress);

/*
 * No more frames come for now: notify the guest of the last ones, or send what the device had no room for.  Returns
 * whether nothing is left to do: a device that stays full keeps its frames for the time that frames are kept waiting,
 * and then they are dropped.
 */
bool egress_flush(const struct egress *egress, const struct round *round);

#endif
