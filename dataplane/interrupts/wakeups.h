/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads how late a receiver was waked by its own timer (wake.h) or by a thread on another of its CPUs (ipi.h), and
 * accounts for each moment: it was waked, or the moment before was still under way, or what it noted is lost or cannot
 * be true.
 *
 * The receiver is not trusted: whatever stands in the page, this ends and counts no more than was asked for.
 */
#ifndef TAILRACE_INTERRUPTS_WAKEUPS_H
#define TAILRACE_INTERRUPTS_WAKEUPS_H

#include "interrupts/raise.h"

/* Until all moments are accounted for, or `stop` is set.  `patience` are the cycles beyond their time after which those
 * that have not come are lost. */
void wakeups_take(struct interrupts *interrupts, struct interrupts_run *run, uint64_t patience,
		  const atomic_bool *stop);

#endif
