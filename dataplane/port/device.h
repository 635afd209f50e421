/* SPDX-License-Identifier: Apache-2.0
 *
 * A device port: any DPDK ethdev (a NIC, a virtual function, AF_PACKET on a Linux interface, ...), opened by
 * common/device.h.  Packets lie in the device's packet buffers.
 *
 * A link that is lost and a device that is taken away are events: a thread of this module notices them, says so once,
 * and brings back what can come back (a link, an interface of the same name, a vhost-user back end, a memif peer).
 * Workers ask device_sends() and device_receives() before they touch the device; while it is being opened again they
 * have been seen to have let go of it (common/grace.h).
 */
#ifndef TAILRACE_PORT_DEVICE_H
#define TAILRACE_PORT_DEVICE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/device.h"
#include "common/log.h"
#include "vring/counters.h"

enum {
	DEVICE_BURST = 32,
	DEVICE_HELD =
		384, /* a burst of long segments, cut: 256 KiB of 1448 bytes each, and two more (vring/packet.h) */
};

struct bond;

enum device_state {
	DEVICE_UP,
	DEVICE_DOWN,	/* no link; what it has received may still be taken */
	DEVICE_REMOVED, /* not there, or just being opened again: not to be touched */
};

/* Totals of frames that did not reach a worker, or not the wire: device_losses.h. */
struct device_losses {
	uint64_t missed, errors, no_buffer, refused;
};

struct device_port {
	/* What workers read. */
	uint16_t port_id;	  /* DPDK's number of the device */
	bool arms;		  /* it interrupts only when it has been asked to: device_arm() */
	atomic_int state;	  /* enum device_state */
	struct rte_mempool *pool; /* buffers for frames that guests send out by it */
	struct device device;
	struct bond *bond;			/* NULL: the device is none, or not open */
	atomic_bool interrupted[DEVICE_QUEUES]; /* see device_interrupts() */

	/* The monitor's. */
	atomic_bool taken_away;		      /* the driver has said so */
	atomic_bool was_reset;		      /* the same: by its physical function */
	_Atomic time_t since;		      /* of the state */
	struct device_losses losses;	      /* as last counted */
	time_t counted_at;		      /* when that was: once a second */
	bool card_was_reset;		      /* it was opened anew for that, and has had no link since */
	struct log_budget log;		      /* for what its peer can cause to be logged */
	unsigned ticks;			      /* since it was last tried to be brought back */
	int waits_on[DEVICE_QUEUES];	      /* see device_wait_fd() */
	struct queue_counters *counters;      /* of the port's first queue */
	uint64_t kernel_sent, kernel_dropped; /* of the Linux interface, when it was opened */
	struct device_error problem;	      /* why it could not be opened again */
	struct device_port *next;

	/* Fixed. */
	uint16_t queues;
	char uri[256];
};

struct device_port_options {
	const char *uri;
	unsigned queues;		 /* 1 to DEVICE_QUEUES */
	struct queue_counters *counters; /* of the first queue: frames that the device loses */
	bool awaited;			 /* it was there before: if it is not now, it is brought back when it is */
};

/*
 * Open the device that the URI names.  Returns 0, or a negative errno after writing what failed, and what to do, into
 * `why`.
 */
int device_port_open(struct device_port *port, const struct device_port_options *options, char *why, unsigned why_size);

/* Of MiB that are wanted, and that are left. */
#define DEVICE_NO_MEMORY                                                                                             \
	"packet buffers take %zu MiB, and of the memory set aside for such %zu MiB are left; start the switch with " \
	"more (--memory; `fabric: {memory: ...}` in a spec), or ask for fewer queues"

/*
 * Bytes of packet buffers that so many queues of this device take, at least, and how many DPDK's memory has left: that
 * is set aside once, when the program starts.
 */
size_t device_port_memory(const char *uri, unsigned queues);
size_t device_memory_left(void);

/* Bytes of so many packet buffers, with room for so many bytes each. */
size_t device_buffers_memory(unsigned count, unsigned room);

/* Stop and close the device; no worker's program may name it any more. */
void device_port_close(struct device_port *port);

/* Whether there ever was a device whose driver wakes a peer by a descriptor, which the peer can make block. */
bool device_had_peers(void);

/* Whether the URI names a device, or a bond of several, as device_check() says of a device. */
int device_port_check(const char *uri, struct device_error *error);

/* Have `changed` called, in the monitor's thread, after any device's state has changed.  Once, before any port. */
void device_on_change(void (*changed)(void));

/*
 * What an operator may want to know, as members of a JSON object: kind, device, state, since when (seconds since 1970),
 * reason, offloads that it has; for a PCI device its address (mac); for a Linux interface also what the kernel has
 * counted since it was opened, by whomever it was sent.
 */
void device_port_describe(const struct device_port *port, json_t *into);

/*
 * For a worker that wants to sleep: a descriptor that becomes readable when the receive queue has frames, or -1 when
 * the queue can only be polled.  It holds until the device's state changes.
 */
int device_wait_fd(const struct device_port *port, unsigned which);

/*
 * Whether that descriptor alone will do.  A PCI device's driver may take a wish for interrupts, and none come: until
 * the queue's first, it has to be looked at as well.
 */
bool device_interrupts(struct device_port *port, unsigned which);

/* ------- for workers ------- */

/*
 * Ask for an interrupt when the queue has frames, where the driver has to be asked, or take that wish back.  A frame
 * that came before device_arm() gives none, and has to be looked for afterwards.
 */
void device_arm(const struct device_port *port, unsigned which);
void device_disarm(const struct device_port *port, unsigned which);

static inline bool device_sends(const struct device_port *port)
{
	return atomic_load_explicit(&port->state, memory_order_acquire) == DEVICE_UP;
}

static inline bool device_receives(const struct device_port *port)
{
	return atomic_load_explicit(&port->state, memory_order_acquire) != DEVICE_REMOVED;
}

#endif
