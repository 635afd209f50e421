/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest port: a vhost-user back end for one virtual machine or container.  DPDK's rte_vhost speaks the
 * protocol and maps the guest's memory; the rings themselves are ours (vring/).
 *
 * Workers reach the rings through two pointers that are there while the guest may be served and NULL
 * otherwise.  Before anything that may move or unmap what a ring points at, that is before every message of
 * the front end that changes something, the pointers are withdrawn and a grace period is waited for; after
 * it, new snapshots are published.  All of this happens in rte_vhost's own thread.
 */
#ifndef TAILRACE_PORT_GUEST_H
#define TAILRACE_PORT_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>

#include "vring/vring.h"

/* The guest's receive queue is vring 0 and its transmit queue vring 1 (virtio 1.1, section 5.1.2). */
enum { GUEST_RECEIVES, GUEST_SENDS, GUEST_VRINGS };

enum guest_state {
	GUEST_WAITING,	   /* no front end, or it has not set up its rings */
	GUEST_UP,	   /* rings are served */
	GUEST_QUARANTINED, /* a ring was malformed and is not served until the guest resets it */
};

struct guest {
	/* What workers read. */
	struct virtqueue *_Atomic live[GUEST_VRINGS];

	/* rte_vhost's thread. */
	struct guest_memory *memory;
	struct queue_counters *counters;
	bool memory_valid; /* the front end's last memory table was taken whole */
	bool running;
	bool enabled[GUEST_VRINGS];
	atomic_int vid; /* rte_vhost's device, -1 when no front end is connected */

	/* enum vring_fault; set by a worker or a snapshot, cleared when the guest resets its rings. */
	int fault[GUEST_VRINGS];

	/* Fixed. */
	bool client; /* connect to the front end's socket, and again after a loss, instead of listening */
	char path[108];
	struct guest *next;
};

/*
 * From here on an access to guest memory whose file the guest has cut short (SIGBUS) stops that guest's rings, and
 * nothing else.  Once, before any port.  Returns 0 or -errno.
 */
int guest_survive_cuts(void);

/*
 * Listen at, or keep connecting to, `path`.  `counters` must outlive the port.
 * Returns 0, or a negative errno: -EADDRINUSE when somebody listens there, -ENAMETOOLONG.
 */
int guest_open(struct guest *guest, const char *path, bool client, struct queue_counters *counters);

/* Disconnect and forget the port; no worker's program may name it any more. */
void guest_close(struct guest *guest);

/* How it is.  For a quarantined port `*fault` says what was malformed. */
enum guest_state guest_state(const struct guest *guest, enum vring_fault *fault);

#endif
