/* SPDX-License-Identifier: Apache-2.0
 *
 * Where packets enter and leave.  A guest port's packets lie in guest memory (guest.h), a device port's in
 * packet buffers (device.h).  The control thread makes and ends ports; workers see them through programs
 * (steer/) and let go of them within a grace period.
 */
#ifndef TAILRACE_PORT_PORT_H
#define TAILRACE_PORT_PORT_H

#include "port/device.h"
#include "port/guest.h"
#include "vring/counters.h"

enum { PORT_NAME = 48 };

enum port_kind { PORT_GUEST, PORT_DEVICE };

struct port {
	enum port_kind kind;
	struct queue_counters *counters; /* on the page; the worker's to write */
	union {
		struct guest guest;
		struct device_queue device;
	};
	char name[PORT_NAME];
};

#endif
