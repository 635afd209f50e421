/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "interrupts/raise.h"
#include "interrupts/wakeups.h"

enum {
	LOST_SECONDS = 1,
	ANSWER_SECONDS = 60, /* of a machine that is emulated on a busy CPU */
	SAME_RATE = 20,	     /* millionths that two clocks of one rate may be apart, by what was measured */
	LOOK_NS = 100000,    /* between two looks for the last interrupt */
};

struct raiser {
	struct interrupts *interrupts;
	struct interrupts_run *run;
	uint64_t raised_at;
	bool waiting; /* for the last interrupt */
};

static void ring(const struct interrupts *interrupts, enum interrupts_path path)
{
	const uint64_t one = 1;

	if (path == INTERRUPTS_VRING) {
		/* Where it takes none, none arrives. */
		nic_raise(interrupts->nic, interrupts->number);
		return;
	}
	/* It fails only where that many wait already. */
	(void)!write(interrupts->call, &one, sizeof(one));
}

/* The last interrupt, if it has arrived: the time is the receiver's word, and is taken where it can be true. */
static void collect(struct raiser *raiser)
{
	struct interrupts *interrupts = raiser->interrupts;
	struct interrupts_run *run = raiser->run;
	uint64_t now = __rdtsc(), arrived_at, ns;
	struct slow_interrupt one;
	int64_t took;

	if (!raiser->waiting)
		return;
	if (atomic_load_explicit(&interrupts->page->arrived, memory_order_acquire) != interrupts->number) {
		if (now - raiser->raised_at > LOST_SECONDS * interrupts->rate.hz) {
			run->counts.lost++;
			raiser->waiting = false;
		}
		return;
	}
	raiser->waiting = false;
	arrived_at = atomic_load_explicit(&interrupts->page->arrived_at, memory_order_relaxed);
	now = clocks_now();
	took = (int64_t)(clocks_here(&run->before, arrived_at) - raiser->raised_at);
	if (took < -(int64_t)run->before.error || took > (int64_t)(now - raiser->raised_at + run->before.error)) {
		run->counts.wrong++;
		return;
	}
	took = took < 0 ? 0 : took;
	ns = clock_ns(&interrupts->rate, (uint64_t)took);
	histogram_record(&run->latency, ns);
	run->counts.over += ns > run->budget_ns;
	one = (struct slow_interrupt){interrupts->number, raiser->raised_at, raiser->raised_at + (uint64_t)took};
	slowest_note(&run->slowest, &one);
}

static void raise_one(struct raiser *raiser, uint64_t late_ns)
{
	struct interrupts *interrupts = raiser->interrupts;

	histogram_record(&raiser->run->late, late_ns);
	atomic_store_explicit(&interrupts->page->raised, ++interrupts->number, memory_order_release);
	raiser->waiting = true;
	raiser->run->counts.raised++;
	raiser->raised_at = __rdtsc();
	ring(interrupts, raiser->run->path);
}

/* What wake-ups were numbered is not used again. */
static void number_on(struct interrupts *interrupts)
{
	uint64_t arrived = atomic_load_explicit(&interrupts->page->arrived, memory_order_relaxed);

	if (arrived > interrupts->number)
		interrupts->number = arrived;
}

static void raise_all(struct raiser *raiser, const atomic_bool *stop)
{
	static const struct timespec look = {.tv_nsec = LOOK_NS};
	struct interrupts_run *run = raiser->run;
	uint64_t late_ns;
	bool due;

	grid_start(&run->grid);
	for (uint64_t tick = 0; tick < run->count && !atomic_load_explicit(stop, memory_order_relaxed); tick++) {
		due = grid_wait(&run->grid, &late_ns);
		collect(raiser);
		if (!due)
			run->counts.reset++;
		else if (raiser->waiting)
			run->counts.held++;
		else
			raise_one(raiser, late_ns);
		atomic_store_explicit(&run->ticks, tick + 1, memory_order_relaxed);
	}
	while (raiser->waiting) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &look, NULL);
		collect(raiser);
	}
}

/* The offset now.  If the receiver waits for an interrupt, one that is not counted has it look; and another after a
 * second without an answer, as that one may be lost, too. */
static int join(struct interrupts *interrupts, struct clocks *clocks)
{
	uint32_t was = atomic_exchange_explicit(&interrupts->page->phase, PHASE_CLOCK, memory_order_acq_rel);
	int error = -ETIMEDOUT;

	for (unsigned i = 0; i < ANSWER_SECONDS && error < 0; i++) {
		/* The receiver may have written there what it likes. */
		if (was == PHASE_WAIT)
			ring(interrupts, INTERRUPTS_CALL);
		else if (was == PHASE_FRAME && interrupts->nic != NULL)
			ring(interrupts, INTERRUPTS_VRING);
		error = clocks_join(interrupts->page, &interrupts->question, interrupts->rate.hz, clocks);
	}
	atomic_store_explicit(&interrupts->page->phase, PHASE_REST, memory_order_release);
	return error;
}

static void raise_joined(struct interrupts *interrupts, struct interrupts_run *run, const atomic_bool *stop)
{
	struct raiser raiser = {.interrupts = interrupts, .run = run};

	histogram_clear(&run->latency);
	histogram_clear(&run->late);
	run->fault = INTERRUPTS_NO_ANSWER;
	if (join(interrupts, &run->before) < 0)
		return;
	atomic_store_explicit(&run->joined, true, memory_order_release);
	if (run->path == INTERRUPTS_TIMER || run->path == INTERRUPTS_IPI) {
		wakeups_take(interrupts, run, ANSWER_SECONDS * interrupts->rate.hz, stop);
	} else {
		number_on(interrupts);
		atomic_store_explicit(&interrupts->page->phase,
				      run->path == INTERRUPTS_VRING ? PHASE_FRAME : PHASE_WAIT, memory_order_release);
		raise_all(&raiser, stop);
	}
	if (join(interrupts, &run->after) < 0)
		return;
	if (run->path == INTERRUPTS_IPI)
		run->ipis = atomic_load_explicit(&interrupts->page->ipis, memory_order_relaxed);
	else if (run->path != INTERRUPTS_TIMER)
		run->recording = atomic_load_explicit(&interrupts->page->recording, memory_order_relaxed);
	run->fault = clocks_agree(&run->before, &run->after, SAME_RATE) ? INTERRUPTS_WELL : INTERRUPTS_CLOCKS;
}

void interrupts_raise(struct interrupts *interrupts, struct interrupts_run *run, const atomic_bool *stop)
{
	if (interrupts->nic != NULL)
		nic_begin();
	raise_joined(interrupts, run, stop);
	if (interrupts->nic != NULL)
		nic_end();
}
