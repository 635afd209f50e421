/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that a device, its driver or the kernel lost, which no worker ever sees: reported by totals that somebody else
 * counts, counted at the port from the moment that the device was opened.  Called with the device lock held.
 */
#ifndef TAILRACE_PORT_DEVICE_LOSSES_H
#define TAILRACE_PORT_DEVICE_LOSSES_H

#include "port/device.h"

/* The totals as they are now: as they were last if they cannot be read. */
struct device_losses device_losses_read(const struct device_port *port);

/*
 * Count at the port what has been lost since `before`, which becomes `now`.  A total that is less than it was has begun
 * anew, and from where is not known.
 */
void device_losses_count(struct queue_counters *counters, struct device_losses *before,
			 const struct device_losses *now);

/* Read one of the kernel's statistics of a Linux interface, by its name in /sys.  Returns 0 if there is none. */
uint64_t device_kernel_statistic(unsigned interface, const char *name);

#endif
