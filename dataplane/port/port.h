/* SPDX-License-Identifier: Apache-2.0
 *
 * Where packets enter and leave.  A guest port's packets lie in guest memory (guest.h), a device port's in
 * packet buffers (device.h).  The control thread makes and ends ports; workers see them through programs
 * (steer/) and let go of them within a grace period.
 *
 * What has to survive a change of programs lies here, by queue: one worker takes frames from a queue, and whoever
 * gives frames to it holds its lock if there may be several.
 */
#ifndef TAILRACE_PORT_PORT_H
#define TAILRACE_PORT_PORT_H

#include <rte_spinlock.h>

#include "port/device.h"
#include "port/device_finish.h"
#include "port/guest.h"
#include "vring/counters.h"

enum { PORT_NAME = 48, PORT_QUEUES = GUEST_PAIRS };

enum port_kind { PORT_GUEST, PORT_DEVICE };

struct port_queue {
	/* For the worker that takes frames from the queue. */
	struct queue_counters *counters; /* on the page */
	uint64_t blocked_since;		 /* TSC; 0 while its frames' receiver takes them */
	uint64_t patient_since;		 /* TSC: when their patience began; 0: it has not */
	bool kept_off;			 /* another worker had its frames' receiver when last polled */
	unsigned nb_unread;		 /* frames of a device that nobody has taken: they are read before any other */
	struct device_cut cut;		 /* the rest of a device's frame: it comes next */
	struct rte_mbuf *unread[VRING_BURST];

	/* For whoever gives frames to it. */
	rte_spinlock_t lock __rte_cache_aligned;
	unsigned nb_held;    /* frames that a device has not taken: they are sent before any other */
	bool unoffered;	     /* they were written just now, and the device was not asked to take them: device_flush() */
	bool lacks_buffers;  /* what was written last ended where the pool did */
	uint64_t held_since; /* TSC; 0: it has taken some since this was asked */
	struct rte_mbuf *held[DEVICE_HELD];
} __rte_cache_aligned;

struct port {
	enum port_kind kind;
	uint16_t nb_queues; /* configured: 1 to PORT_QUEUES */
	uint16_t number;    /* no other open port has it; the lowest that was free */
	union {
		struct guest guest;
		struct device_port device;
	};
	struct port_queue queues[PORT_QUEUES];
	char name[PORT_NAME];
};

/* The guest's ring for frames towards it; NULL while nobody is attached or the ring is stopped. */
static inline struct virtqueue *port_receiver(const struct port *port, unsigned queue)
{
	struct virtqueue *vring = atomic_load_explicit(&port->guest.live[GUEST_VRINGS_EACH * queue + GUEST_RECEIVES],
						       memory_order_acquire);

	return vring != NULL && vring->fault == VRING_FAULT_NONE ? vring : NULL;
}

/*
 * For who has found no receiver: is it missing only for the moment, or there again?  Then frames for it wait.  In this
 * order: the ring is given back before the pause ends.
 */
static inline bool port_pauses(const struct port *port, unsigned queue)
{
	return guest_paused(&port->guest) || port_receiver(port, queue) != NULL;
}

/* Has the guest a ring there that is stopped because of what it has done?  It may last. */
static inline bool port_receiver_faulted(const struct port *port, unsigned queue)
{
	const struct virtqueue *vring = atomic_load_explicit(
		&port->guest.live[GUEST_VRINGS_EACH * queue + GUEST_RECEIVES], memory_order_acquire);

	return vring != NULL && vring->fault != VRING_FAULT_NONE;
}

/* The guest's ring of frames from it; NULL while nobody is attached. */
static inline struct virtqueue *port_sender(const struct port *port, unsigned queue)
{
	return atomic_load_explicit(&port->guest.live[GUEST_VRINGS_EACH * queue + GUEST_SENDS], memory_order_acquire);
}

#endif
