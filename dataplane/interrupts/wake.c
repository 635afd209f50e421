/* SPDX-License-Identifier: Apache-2.0 */
#include <x86intrin.h>

#include "interrupts/moment.h"
#include "interrupts/wake.h"

void wake_up(struct interrupt_page *page)
{
	uint64_t period = atomic_load_explicit(&page->period_ns, memory_order_relaxed);
	uint64_t number = atomic_load_explicit(&page->raised, memory_order_relaxed);
	uint64_t due = moment_now(), at, late;

	while (atomic_load_explicit(&page->phase, memory_order_acquire) == PHASE_TIMER) {
		struct interrupt_wakeup *one = &page->wakeups[++number % INTERRUPT_PAGE_WAKEUPS];

		due += period;
		moment_sleep_until(due);
		/* In this order: however long lies between, none was late for longer than until it was here. */
		late = moment_now() - due;
		at = __rdtsc();
		atomic_store_explicit(&one->at, at, memory_order_relaxed);
		atomic_store_explicit(&one->late, late, memory_order_relaxed);
		atomic_store_explicit(&page->arrived, number, memory_order_release);
		due += late / period * period;
	}
}
