/* SPDX-License-Identifier: Apache-2.0
 *
 * The network device of a receiver's machine, by whose receive queue interrupts are raised: the vhost-user back end of
 * the switch (port/guest.h), with nobody behind it.  A frame is put into the queue for each interrupt, and the guest is
 * notified as it asks for that.
 *
 * One such device a process.  QEMU and the guest are not trusted: what they do to their rings costs them the ring.
 */
#ifndef TAILRACE_INTERRUPTS_NIC_H
#define TAILRACE_INTERRUPTS_NIC_H

#include "interrupts/frame.h"
#include "port/guest.h"
#include "vring/packet.h"

struct nic {
	struct guest guest;
	struct queue_counters counters;
	struct burst burst;
	struct interrupt_frame frame;
};

/* Once: keep connecting to QEMU, which listens at `path`.  Returns 0, or -errno with a line said. */
int nic_open(struct nic *nic, const char *path);

/* Whether its queue takes frames. */
bool nic_takes(const struct nic *nic);

/* In the thread that raises interrupts: before the first, and after the last. */
void nic_begin(void);
void nic_end(void);

/* Raise the interrupt of this number.  Returns whether the queue has taken it. */
bool nic_raise(struct nic *nic, uint64_t number);

#endif
