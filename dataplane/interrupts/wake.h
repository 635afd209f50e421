/* SPDX-License-Identifier: Apache-2.0
 *
 * A receiver that is waked by its own system's timer, at each whole period, as cyclictest is: it notes in the page how
 * late that was.
 */
#ifndef TAILRACE_INTERRUPTS_WAKE_H
#define TAILRACE_INTERRUPTS_WAKE_H

#include "interrupts/page.h"

/* While the page's phase is PHASE_TIMER.  Moments that have passed when it wakes are left out: who reads the page knows
 * how many by how late it was. */
void wake_up(struct interrupt_page *page);

#endif
