/* SPDX-License-Identifier: Apache-2.0
 *
 * Wake-ups by a receiver's own timer: each moment is accounted for, whatever the receiver writes into the page.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <x86intrin.h>

#include "cmocka_all.h"
#include "interrupts/ipi.h"
#include "interrupts/wake.h"
#include "interrupts/wakeups.h"

enum {
	COUNT = 50,
	PERIOD_NS = 200000,
	DEAF_MS = 100,	     /* for a receiver that notes nothing, */
	PATIENCE_MS = 60000, /* and for others: they may get a CPU late */
	NOTE_US = 50,
};

/* What a receiver notes; the real one, unless something is said. */
struct receiver {
	bool lies, deaf;
	bool ipi;
	int64_t ahead;	  /* of the time that it wakes at */
	uint64_t late_ns; /* of PHASE_IPI cycles */
	uint64_t held;	  /* of PHASE_IPI */
	uint64_t step;	  /* from one number to the next */
	struct interrupt_page *page;
	_Atomic bool end;
};

static struct clock_rate rate;

static void *receive(void *argument)
{
	struct receiver *receiver = argument;
	struct interrupt_page *page = receiver->page;
	unsigned notes = 0; /* no more than are taken: none is overwritten while who takes them gets no CPU */

	while (!receiver->end) {
		if ((page->phase != PHASE_TIMER && page->phase != PHASE_IPI) || receiver->deaf || notes == COUNT) {
			usleep(NOTE_US);
		} else if (!receiver->lies && receiver->ipi) {
			ipi_receive(page, sched_getcpu());
		} else if (!receiver->lies) {
			wake_up(page);
		} else {
			uint64_t number = page->arrived + receiver->step;
			struct interrupt_wakeup *one = &page->wakeups[number % INTERRUPT_PAGE_WAKEUPS];

			usleep(NOTE_US);
			notes++;
			one->at = __rdtsc() + (uint64_t)receiver->ahead;
			one->late = receiver->late_ns;
			one->held = receiver->held;
			page->arrived = number;
		}
	}
	return NULL;
}

static int set_up(void **state)
{
	struct clock_reading began = clock_read(), now;

	usleep(20000);
	now = clock_read();
	rate = clock_rate(clock_measure(&began, &now));
	return 0;
}

/* What comes of wake-ups of such a receiver, the invariants checked. */
static struct interrupts_run *taken_from(struct receiver receiver)
{
	struct interrupts_run *run = calloc(1, sizeof(*run));
	struct interrupts interrupts = {.rate = rate};
	const atomic_bool stop = false;
	pthread_t thread;

	receiver.page = aligned_alloc(INTERRUPT_PAGE_LINE, sizeof(*receiver.page));
	memset(receiver.page, 0, sizeof(*receiver.page));
	interrupts.page = receiver.page;
	run->count = COUNT;
	run->budget_ns = UINT64_MAX;
	run->path = receiver.ipi ? INTERRUPTS_IPI : INTERRUPTS_TIMER;
	run->grid = (struct grid){.clock = CLOCK_MONOTONIC, .period_ns = PERIOD_NS, .ahead = grid_ahead};
	histogram_clear(&run->latency);
	assert_int_equal(pthread_create(&thread, NULL, receive, &receiver), 0);
	wakeups_take(&interrupts, run, (receiver.deaf ? DEAF_MS : PATIENCE_MS) * rate.hz / 1000, &stop);
	receiver.page->phase = PHASE_REST;
	receiver.end = true;
	pthread_join(thread, NULL);
	free(receiver.page);
	assert_int_equal(run->counts.raised, run->latency.tally.count + run->counts.lost + run->counts.wrong);
	assert_int_equal(run->counts.raised + run->counts.held, COUNT);
	assert_int_equal(run->ticks, COUNT);
	return run;
}

static void check_accounted(struct receiver receiver)
{
	struct interrupts_run *run = taken_from(receiver);
	struct slow_interrupt one;
	uint64_t count = 0;

	assert_int_equal(run->counts.wrong, 0);
	assert_true(run->latency.tally.count > 0);
	while (slowest_take(&run->slowest, &one)) {
		assert_true(one.arrived >= one.raised);
		count++;
	}
	assert_int_equal(count, run->latency.tally.count);
	free(run);
}

static void every_moment_is_accounted_for(void **state)
{
	check_accounted((struct receiver){.lies = false});
}

static void moments_that_it_slept_through_are_held(void **state)
{
	struct interrupts_run *run = taken_from(
		(struct receiver){.lies = true, .step = 1, .late_ns = 3 * PERIOD_NS + PERIOD_NS / 2});

	assert_true(run->latency.tally.count > 0 && run->counts.held > 0);
	assert_true(run->counts.held <= 3 * run->latency.tally.count);
	assert_int_equal(run->latency.tally.min, 3 * PERIOD_NS + PERIOD_NS / 2);
	free(run);
}

static void every_moment_between_cpus_is_accounted_for(void **state)
{
	check_accounted((struct receiver){.ipi = true});
}

static void moments_of_which_another_cpu_was_not_waked_are_held(void **state)
{
	struct interrupts_run *run = taken_from(
		(struct receiver){.ipi = true, .lies = true, .step = 1, .late_ns = rate.hz / 1000, .held = 2});

	assert_true(run->latency.tally.count > 0);
	assert_true(run->counts.held >= run->latency.tally.count && run->counts.held <= 2 * run->latency.tally.count);
	assert_in_range(run->latency.tally.min, 999999, 1000001);
	free(run);
	run = taken_from((struct receiver){.ipi = true, .lies = true, .step = 1, .held = UINT64_MAX});
	assert_true(run->counts.held > 0);
	free(run);
}

static void interrupts_of_a_cpu_are_found_in_what_the_kernel_says(void **state)
{
	static const char text[] = "            CPU0       CPU2       CPU11\n"
				   "  1:          9          8          7   IO-APIC   1-edge\n"
				   "LOC:        100        200        300   Local timer interrupts\n"
				   "RES:          1         20        300   Rescheduling interrupts\n"
				   "CAL:          4         50        600   Function call interrupts\n"
				   "ERR:          0\n";

	assert_int_equal(ipi_counted(text, 0), 5);
	assert_int_equal(ipi_counted(text, 2), 70);
	assert_int_equal(ipi_counted(text, 11), 900);
	assert_int_equal(ipi_counted(text, 1), 0);
	assert_int_equal(ipi_counted("", 0), 0);
	assert_int_equal(ipi_counted("CPU0\nRES:", 0), 0);
	assert_int_equal(ipi_counted("     CPU0 CPU1\nRES:  7\n", 1), 0);
}

static void notes_that_cannot_be_are_counted_and_used_for_nothing(void **state)
{
	static const struct receiver lies[] = {
		{.lies = true, .step = 1, .late_ns = UINT64_MAX},
		{.lies = true, .step = 1, .late_ns = UINT64_C(1000000000000)},
		{.lies = true, .step = 1, .ahead = INT64_C(1000000000000)},
		{.lies = true, .step = 1, .ahead = -INT64_C(1000000000000)},
		{.lies = true, .step = 1, .ahead = INT64_MIN},
		{.lies = true, .step = 1, .ahead = INT64_MAX},
	};

	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct interrupts_run *run = taken_from(lies[i]);

		assert_int_equal(run->latency.tally.count, 0);
		assert_int_equal(run->counts.held, 0);
		assert_true(run->counts.wrong > 0);
		free(run);
	}
}

static void what_was_overwritten_is_lost(void **state)
{
	static const uint64_t steps[] = {10 * INTERRUPT_PAGE_WAKEUPS, UINT64_MAX / 2, UINT64_MAX};

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct interrupts_run *run = taken_from((struct receiver){.lies = true, .step = steps[i]});

		assert_true(run->counts.lost > 0);
		free(run);
	}
}

static void what_does_not_come_is_lost(void **state)
{
	struct interrupts_run *run = taken_from((struct receiver){.deaf = true});

	assert_int_equal(run->counts.lost, COUNT);
	free(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_moment_is_accounted_for),
		cmocka_unit_test(moments_that_it_slept_through_are_held),
		cmocka_unit_test(every_moment_between_cpus_is_accounted_for),
		cmocka_unit_test(moments_of_which_another_cpu_was_not_waked_are_held),
		cmocka_unit_test(interrupts_of_a_cpu_are_found_in_what_the_kernel_says),
		cmocka_unit_test(notes_that_cannot_be_are_counted_and_used_for_nothing),
		cmocka_unit_test(what_was_overwritten_is_lost),
		cmocka_unit_test(what_does_not_come_is_lost),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
