/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <x86intrin.h>

#include "interrupts/wakeups.h"

enum {
	NS = 1000000000,
	LOOK_NS_LEAST = 100000, /* between two looks at the page */
	LOOK_NS_MOST = 1000000,
	LOOK_WAKEUPS = INTERRUPT_PAGE_WAKEUPS / 4, /* that come meanwhile */
};

struct taker {
	struct interrupts *interrupts;
	struct interrupts_run *run;
	uint64_t began;
};

static uint64_t left(const struct taker *taker)
{
	return taker->run->count - taker->run->counts.raised - taker->run->counts.held;
}

/* Whether the note of a wake-up could not be overwritten while it was read: the receiver may write the one after the
 * last already. */
static bool is_whole(const struct interrupts *interrupts, uint64_t number)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&interrupts->page->arrived, memory_order_relaxed) - number <
	       INTERRUPT_PAGE_WAKEUPS - 1;
}

/* One wake-up: its time and how late it was are the receiver's word, and are taken where they can be true. */
static void take(struct taker *taker, uint64_t number)
{
	struct interrupts *interrupts = taker->interrupts;
	struct interrupts_run *run = taker->run;
	const struct interrupt_wakeup *one = &interrupts->page->wakeups[number % INTERRUPT_PAGE_WAKEUPS];
	uint64_t at = atomic_load_explicit(&one->at, memory_order_relaxed);
	uint64_t noted = atomic_load_explicit(&one->late, memory_order_relaxed), late_ns = noted;
	uint64_t held = atomic_load_explicit(&one->held, memory_order_relaxed);
	uint64_t here = clocks_here(&run->before, at);
	unsigned __int128 late = noted;
	int64_t since = (int64_t)(here - taker->began), most = (int64_t)(clocks_now() - taker->began);
	int64_t doubt = (int64_t)run->before.error;

	if (run->path == INTERRUPTS_TIMER)
		late = late * interrupts->rate.hz / NS;
	run->counts.raised++;
	if (!is_whole(interrupts, number)) {
		run->counts.lost++;
		return;
	}
	if (since < -doubt || since > most + doubt || late > (unsigned __int128)(since + doubt)) {
		run->counts.wrong++;
		return;
	}
	if (run->path == INTERRUPTS_TIMER)
		held = late_ns / run->grid.period_ns;
	else
		late_ns = clock_ns(&interrupts->rate, noted);
	run->counts.held += held < left(taker) ? held : left(taker);
	histogram_record(&run->latency, late_ns);
	run->counts.over += late_ns > run->budget_ns;
	slowest_note(&run->slowest, &(struct slow_interrupt){number, here - (uint64_t)late, here});
}

static void take_all(struct taker *taker)
{
	struct interrupts *interrupts = taker->interrupts;
	struct interrupts_counts *counts = &taker->run->counts;
	uint64_t come = atomic_load_explicit(&interrupts->page->arrived, memory_order_acquire) - interrupts->number;
	uint64_t gone;

	if (come > INTERRUPT_PAGE_WAKEUPS) {
		gone = come - INTERRUPT_PAGE_WAKEUPS;
		interrupts->number += gone;
		come -= gone;
		gone = gone < left(taker) ? gone : left(taker);
		counts->raised += gone;
		counts->lost += gone;
	}
	for (; come > 0 && left(taker) > 0; come--)
		take(taker, ++interrupts->number);
}

void wakeups_take(struct interrupts *interrupts, struct interrupts_run *run, uint64_t patience, const atomic_bool *stop)
{
	struct taker taker = {interrupts, run, __rdtsc()};
	uint64_t period = run->grid.period_ns, pause = period * LOOK_WAKEUPS, most;
	struct timespec look;

	pause = pause < LOOK_NS_LEAST ? LOOK_NS_LEAST : pause > LOOK_NS_MOST ? LOOK_NS_MOST : pause;
	look = (struct timespec){.tv_nsec = (long)pause};
	most = patience + clock_cycles(&interrupts->rate, (double)run->count * (double)period / NS);
	interrupts->number = atomic_load_explicit(&interrupts->page->arrived, memory_order_acquire);
	atomic_store_explicit(&interrupts->page->raised, interrupts->number, memory_order_relaxed);
	atomic_store_explicit(&interrupts->page->period_ns, period, memory_order_relaxed);
	atomic_store_explicit(&interrupts->page->phase, run->path == INTERRUPTS_TIMER ? PHASE_TIMER : PHASE_IPI,
			      memory_order_release);
	while (left(&taker) > 0 && !atomic_load_explicit(stop, memory_order_relaxed)) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &look, NULL);
		take_all(&taker);
		if (__rdtsc() - taker.began > most) {
			run->counts.lost += left(&taker);
			run->counts.raised += left(&taker);
		}
		atomic_store_explicit(&run->ticks, run->count - left(&taker), memory_order_relaxed);
	}
}
