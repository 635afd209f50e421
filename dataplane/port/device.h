/* SPDX-License-Identifier: Apache-2.0
 *
 * A device port: any DPDK ethdev (a NIC, a virtual function, AF_PACKET on a Linux interface, ...), opened by
 * common/device.h.  Packets lie in the device's packet buffers.
 */
#ifndef TAILRACE_PORT_DEVICE_H
#define TAILRACE_PORT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"

enum { DEVICE_BURST = 32 };

struct device_queue {
	uint16_t port_id;	  /* DPDK's number of the device, beside what the worker needs */
	struct rte_mempool *pool; /* buffers for frames that guests send out by it */

	/* The worker's: frames that the device had no room for, sent before any other. */
	unsigned nb_held;
	struct rte_mbuf *held[DEVICE_BURST];

	struct device device;
	char uri[128];
};

/*
 * Open the device that `uri` names.  Returns 0, or a negative errno after writing what failed, and what to
 * do, into `why`.
 */
int device_queue_open(struct device_queue *queue, const char *uri, char *why, unsigned why_size);

/* Has the device a link? */
bool device_queue_up(const struct device_queue *queue);

/* Stop and close the device; no worker's program may name it any more. */
void device_queue_close(struct device_queue *queue);

#endif
