/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>
#include <x86intrin.h>

#include "interrupts/wake.h"

enum { NS = 1000000000 };

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NS + (uint64_t)time->tv_nsec;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ns_of(&now);
}

static void sleep_until(uint64_t due)
{
	const struct timespec until = {.tv_sec = (time_t)(due / NS), .tv_nsec = (long)(due % NS)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

void wake_up(struct interrupt_page *page)
{
	uint64_t period = atomic_load_explicit(&page->period_ns, memory_order_relaxed);
	uint64_t number = atomic_load_explicit(&page->raised, memory_order_relaxed);
	uint64_t due = now_ns(), at, late;

	while (atomic_load_explicit(&page->phase, memory_order_acquire) == PHASE_TIMER) {
		struct interrupt_wakeup *one = &page->wakeups[++number % INTERRUPT_PAGE_WAKEUPS];

		due += period;
		sleep_until(due);
		at = __rdtsc();
		late = now_ns() - due;
		atomic_store_explicit(&one->at, at, memory_order_relaxed);
		atomic_store_explicit(&one->late_ns, late, memory_order_relaxed);
		atomic_store_explicit(&page->arrived, number, memory_order_release);
		due += late / period * period;
	}
}
