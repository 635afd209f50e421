/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a receiver's page and interrupt come from: a process takes both from who raises it; in a machine they are a
 * region and the first MSI-X vector of a PCI device, which VFIO gives to user space.
 */
#ifndef TAILRACE_INTERRUPTS_SOURCE_H
#define TAILRACE_INTERRUPTS_SOURCE_H

#include "interrupts/page.h"

struct source {
	struct interrupt_page *page;
	int event; /* an eventfd that counts its interrupts */
};

/* From the Unix socket at `path`.  Returns 0, or -errno with a line said. */
int source_open_socket(const char *path, struct source *source);

/* Of the PCI device at `address`, which vfio-pci has.  Returns 0, or -errno with a line said. */
int source_open_device(const char *address, struct source *source);

#endif
