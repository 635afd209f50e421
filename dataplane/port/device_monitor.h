/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of a device port: opening, and the monitor of what is open.
 */
#ifndef TAILRACE_PORT_DEVICE_MONITOR_H
#define TAILRACE_PORT_DEVICE_MONITOR_H

#include "port/device.h"

/* Held by whoever opens or closes a device. */
void device_lock(void);
void device_unlock(void);

/* Have the monitor look after an open device, or no more; with the lock held.  Returns 0 or -errno. */
int device_monitor_add(struct device_port *port);
void device_monitor_remove(struct device_port *port);

/*
 * Open the device of a port whose options are set, quietly if it is tried again and again; with the lock held.
 * Returns 0 or -errno with the error filled in.
 */
int device_port_start(struct device_port *port, bool quietly, struct device_error *error);
void device_port_stop(struct device_port *port);

/* Whether frames can pass. */
bool device_port_link_up(const struct device_port *port);

/* From now on DPDK's own thread unmaps nothing that a worker may be using. */
void device_guard_unmapping(void);

#endif
