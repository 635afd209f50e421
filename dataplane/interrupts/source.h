/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a receiver's page and interrupts come from: a process takes both from who raises them; in a machine they are a
 * region and the first MSI-X vector of a PCI device, which VFIO gives to user space.  Beside that one a machine may
 * have those of a network device, which Linux's own driver has: a packet socket waits for frames.
 */
#ifndef TAILRACE_INTERRUPTS_SOURCE_H
#define TAILRACE_INTERRUPTS_SOURCE_H

#include "interrupts/page.h"

struct source {
	struct interrupt_page *page;
	int event;  /* an eventfd that counts its interrupts */
	int frames; /* a packet socket, or -1: what comes begins with the number of an interrupt */
};

/* From the Unix socket at `path`.  Returns 0, or -errno with a line said. */
int source_open_socket(const char *path, struct source *source);

/* Of the PCI device at `address`, which vfio-pci has.  Returns 0, or -errno with a line said. */
int source_open_device(const char *address, struct source *source);

/* Of the network device at this PCI address: frames only.  Returns 0, or -errno with a line said. */
int source_open_nic(const char *address, struct source *source);

#endif
