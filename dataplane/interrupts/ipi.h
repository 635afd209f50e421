/* SPDX-License-Identifier: Apache-2.0
 *
 * A receiver that is waked by a thread on another CPU of its own system, at each whole period: the one's system sends
 * the other CPU an interprocessor interrupt (IPI), unless that one looks for work anyhow.  Both times are of this
 * system's TSC; the receiver notes in the page how long it took.
 */
#ifndef TAILRACE_INTERRUPTS_IPI_H
#define TAILRACE_INTERRUPTS_IPI_H

#include "interrupts/page.h"

/* While the page's phase is PHASE_IPI, from a thread on the CPU `from`, which has the priority of the caller.  None is
 * waked for while the one before has not come.  The page also gets how many such interrupts the system has counted of
 * the CPU that this runs on.  Returns 0 or -errno. */
int ipi_receive(struct interrupt_page *page, int from);

/* How many interprocessor interrupts, of those that wake threads, `text` says of a CPU: /proc/interrupts. */
uint64_t ipi_counted(const char *text, unsigned cpu);

#endif
