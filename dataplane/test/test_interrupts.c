/* SPDX-License-Identifier: Apache-2.0
 *
 * Interrupts between threads: each is accounted for, whatever the receiver does, and its clock is found.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#include "cmocka_all.h"
#include "interrupts/raise.h"

enum {
	COUNT = 50,
	PERIOD_NS = 200000,
	DELAY_NS = 50000,
};

#define AHEAD (-INT64_C(123456789012))

/* How a receiver behaves: as it should, but for what is said. */
struct receiver {
	struct interrupt_page *page;
	int event;
	int64_t ahead;	   /* of its clock */
	uint64_t delay_ns; /* before it notes the time */
	uint64_t budget_ns;
	bool deaf;     /* notes none */
	int64_t lies;  /* is added to each time of arrival */
	int64_t jumps; /* of its clock, once interrupts have come */
	int misses;    /* interrupts by which it should look at the page, and does not */
	_Atomic bool end;
	pthread_t thread;
};

static struct clock_rate rate;

static uint64_t its_clock(const struct receiver *receiver)
{
	return clocks_now() + (uint64_t)receiver->ahead;
}

static void note(struct receiver *receiver)
{
	struct interrupt_page *page = receiver->page;
	uint64_t number = page->raised, until = __rdtsc() + receiver->delay_ns * rate.hz / 1000000000;

	while (__rdtsc() < until)
		;
	if (receiver->deaf)
		return;
	page->arrived_at = its_clock(receiver) + (uint64_t)receiver->lies;
	page->arrived = number;
}

static void *receive(void *argument)
{
	struct receiver *receiver = argument;
	struct interrupt_page *page = receiver->page;
	bool waited = false, asleep = false;
	uint64_t count;

	while (!receiver->end) {
		if (!asleep && page->phase == PHASE_CLOCK && page->question != page->answer) {
			if (waited)
				receiver->ahead += receiver->jumps;
			waited = false;
			page->answered_at = its_clock(receiver);
			page->answer = page->question;
		} else if (asleep || page->phase == PHASE_WAIT) {
			waited = asleep = true;
			if (read(receiver->event, &count, sizeof(count)) != sizeof(count))
				continue;
			if (page->phase == PHASE_CLOCK && receiver->misses-- > 0)
				continue;
			asleep = false;
			note(receiver);
		}
		sched_yield();
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

/* What comes of interrupts with such a receiver. */
static struct interrupts_run *raise_to(struct receiver receiver)
{
	struct interrupts_run *run = calloc(1, sizeof(*run));
	struct interrupts interrupts = {.rate = rate};
	struct doorbell doorbell;
	const atomic_bool stop = false;

	assert_int_equal(doorbell_make(&doorbell), 0);
	receiver.page = mmap(NULL, INTERRUPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, doorbell.page, 0);
	assert_ptr_not_equal(receiver.page, MAP_FAILED);
	receiver.event = doorbell.call;
	interrupts.page = receiver.page;
	interrupts.call = doorbell.call;
	run->count = COUNT;
	run->budget_ns = receiver.budget_ns;
	run->grid = (struct grid){.clock = CLOCK_MONOTONIC, .period_ns = PERIOD_NS, .ahead = grid_ahead};
	assert_int_equal(pthread_create(&receiver.thread, NULL, receive, &receiver), 0);
	interrupts_raise(&interrupts, run, &stop);
	receiver.end = true;
	pthread_join(receiver.thread, NULL);
	munmap(receiver.page, INTERRUPT_PAGE_BYTES);
	close(doorbell.page);
	close(doorbell.call);
	assert_int_equal(run->counts.raised, run->latency.tally.count + run->counts.lost + run->counts.wrong);
	if (run->fault != INTERRUPTS_NO_ANSWER)
		assert_int_equal(run->counts.raised + run->counts.held, COUNT);
	return run;
}

static void every_interrupt_is_accounted_for(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = 0});

	assert_int_equal(run->fault, INTERRUPTS_WELL);
	assert_int_equal(run->before.offset, 0);
	assert_int_equal(run->counts.lost + run->counts.wrong, 0);
	assert_true(run->counts.raised > 0);
	assert_int_equal(run->late.tally.count, run->counts.raised);
	free(run);
}

static void another_clock_is_found(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = AHEAD});
	int64_t off = run->before.offset - AHEAD;

	assert_int_equal(run->fault, INTERRUPTS_WELL);
	assert_true((uint64_t)llabs(off) <= run->before.error);
	assert_int_equal(run->counts.wrong, 0);
	free(run);
}

static void a_delay_is_in_every_latency(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = AHEAD, .delay_ns = DELAY_NS});
	uint64_t doubt = clock_ns(&rate, run->before.error);

	assert_true(run->latency.tally.min + doubt >= DELAY_NS);
	free(run);
}

static void the_slowest_are_told_with_their_times(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = AHEAD, .delay_ns = DELAY_NS});
	uint64_t most = 0, last = 0, count = 0, ns;
	struct slow_interrupt one;

	while (slowest_take(&run->slowest, &one)) {
		assert_true(one.number > last);
		last = one.number;
		count++;
		ns = clock_ns(&rate, one.arrived - one.raised);
		most = ns > most ? ns : most;
	}
	assert_int_equal(count, run->latency.tally.count); /* fewer than are kept */
	assert_int_equal(most, run->latency.tally.max);
	free(run);
}

static void who_is_no_slower_than_those_kept_is_not_told(void **state)
{
	struct slowest *slowest = calloc(1, sizeof(*slowest));
	struct slow_interrupt one;
	unsigned count = 0;

	for (uint64_t i = 1; i <= SLOWEST_KEPT; i++)
		slowest_note(slowest, &(struct slow_interrupt){.number = i, .raised = 1000, .arrived = 2000 + i});
	while (slowest_take(slowest, &one))
		assert_int_equal(one.number, ++count);
	assert_int_equal(count, SLOWEST_KEPT);
	slowest_note(slowest, &(struct slow_interrupt){.number = 200, .raised = 5000, .arrived = 6001});
	assert_false(slowest_take(slowest, &one));
	/* It takes the place of the fastest, and the next one has to be slower than the second fastest. */
	slowest_note(slowest, &(struct slow_interrupt){.number = 201, .raised = 5000, .arrived = 9000});
	assert_true(slowest_take(slowest, &one));
	assert_int_equal(one.number, 201);
	slowest_note(slowest, &(struct slow_interrupt){.number = 202, .raised = 5000, .arrived = 6002});
	assert_false(slowest_take(slowest, &one));
	assert_int_equal(slowest->missed, 0);
	free(slowest);
}

static void the_slowest_that_nobody_takes_are_counted(void **state)
{
	struct slowest *slowest = calloc(1, sizeof(*slowest));
	struct slow_interrupt one;

	for (uint64_t i = 0; i < SLOWEST_TOLD + 7; i++)
		slowest_note(slowest, &(struct slow_interrupt){.number = i, .raised = 0, .arrived = i + 1});
	assert_int_equal(slowest->missed, 7);
	for (uint64_t i = 0; i < SLOWEST_TOLD; i++) {
		assert_true(slowest_take(slowest, &one));
		assert_int_equal(one.number, i);
	}
	assert_false(slowest_take(slowest, &one));
	free(slowest);
}

static void what_comes_later_than_the_budget_is_counted(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.delay_ns = DELAY_NS, .budget_ns = DELAY_NS / 2});

	assert_int_equal(run->counts.over, run->latency.tally.count);
	free(run);
	run = raise_to((struct receiver){.delay_ns = DELAY_NS, .budget_ns = UINT64_MAX});
	assert_true(run->latency.tally.count > 0);
	assert_int_equal(run->counts.over, 0);
	free(run);
}

enum { SLEWED_NS = 300 }; /* in a period: more than Linux would */
static int64_t clock_ahead;

static int64_t slewed(clockid_t clock)
{
	return clock_ahead += SLEWED_NS;
}

static int64_t set_meanwhile(clockid_t clock)
{
	const int64_t is = clock_ahead;

	clock_ahead = 1000000000;
	return is;
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void moments_are_whole_periods_of_a_clock_that_is_slewed(void **state)
{
	struct grid grid = {.clock = CLOCK_TAI, .period_ns = PERIOD_NS, .ahead = slewed};
	uint64_t late, due;

	clock_ahead = 123456;
	grid_start(&grid);
	for (unsigned i = 0; i < COUNT; i++) {
		due = grid.due + PERIOD_NS;
		assert_true(grid_wait(&grid, &late));
		assert_int_equal(grid.due, due);
		assert_int_equal(grid.due % PERIOD_NS, 0);
		assert_true(monotonic_ns() + (uint64_t)clock_ahead >= grid.due + late);
	}
}

static void moments_begin_anew_when_the_clock_is_set(void **state)
{
	struct grid grid = {.clock = CLOCK_TAI, .period_ns = PERIOD_NS, .ahead = set_meanwhile};
	uint64_t late;

	clock_ahead = 0;
	grid_start(&grid);
	assert_false(grid_wait(&grid, &late));
	assert_int_equal(grid.due % PERIOD_NS, 0);
	assert_true(grid.due <= monotonic_ns() + 1000000000 && grid.due > 1000000000);
	assert_true(grid_wait(&grid, &late));
	assert_true(monotonic_ns() + 1000000000 >= grid.due + late);
}

static void what_does_not_arrive_is_lost(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.deaf = true});

	assert_int_equal(run->latency.tally.count, 0);
	assert_int_equal(run->counts.lost, 1);
	assert_int_equal(run->counts.held, COUNT - 1); /* none is raised while one is under way */
	free(run);
}

static void times_that_cannot_be_are_counted_and_used_for_nothing(void **state)
{
	static const int64_t lies[] = {INT64_MIN, -INT64_C(1000000000000), INT64_C(1000000000000), INT64_MAX};

	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct interrupts_run *run = raise_to((struct receiver){.lies = lies[i]});

		assert_int_equal(run->latency.tally.count, 0);
		assert_int_equal(run->counts.wrong, run->counts.raised);
		free(run);
	}
}

static void a_clock_that_is_set_meanwhile_is_a_fault(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = AHEAD, .jumps = 1000000000});

	assert_int_equal(run->fault, INTERRUPTS_CLOCKS);
	free(run);
}

static void a_receiver_that_missed_the_interrupt_to_look_by_is_sent_another(void **state)
{
	struct interrupts_run *run = raise_to((struct receiver){.ahead = AHEAD, .misses = 1});

	assert_int_equal(run->fault, INTERRUPTS_WELL);
	free(run);
}

static void clocks_of_other_rates_do_not_agree(void **state)
{
	const struct clocks early = {.offset = 1000, .error = 10, .at = 0};
	struct clocks late = {.offset = 1000 + 20 + 100, .error = 10, .at = 10000000};

	assert_true(clocks_agree(&early, &late, 20));
	late.offset += 101;
	assert_false(clocks_agree(&early, &late, 20));
	late.offset = INT64_MIN;
	assert_false(clocks_agree(&early, &late, 20));
}

static void few_answers_are_enough(void **state)
{
	struct interrupt_page page = {.magic = INTERRUPT_PAGE_MAGIC, .answer = 1, .answered_at = __rdtsc()};
	struct clocks clocks;
	uint64_t question = 0;

	assert_int_equal(clocks_join(&page, &question, rate.hz / 1000, &clocks), 0);
	assert_int_equal(question, 2);
}

static void who_answers_nothing_is_waited_for_in_vain(void **state)
{
	struct interrupt_page page = {.magic = INTERRUPT_PAGE_MAGIC};
	struct clocks clocks;
	uint64_t question = 0;

	assert_int_equal(clocks_join(&page, &question, rate.hz / 1000, &clocks), -ETIMEDOUT);
}

static void *take(void *path)
{
	static struct doorbell taken;

	return doorbell_take(path, &taken) < 0 ? NULL : &taken;
}

/* What is taken is what was given: a write to the one is seen in the other. */
static void page_and_interrupt_go_over_a_socket(void **state)
{
	char folder[] = "/tmp/tailrace-test-XXXXXX", path[64];
	struct doorbell given, *taken;
	uint64_t one = 1, count = 0;
	int listening, client;
	struct stat file;
	pthread_t thread;
	char byte = 'x';

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/doorbell", folder);
	assert_int_equal(doorbell_make(&given), 0);
	listening = doorbell_listen(path);
	assert_true(listening >= 0);
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode, S_IFSOCK | 0666); /* whatever the umask */
	pthread_create(&thread, NULL, take, path);
	while ((client = accept(listening, NULL, NULL)) < 0)
		usleep(100);
	assert_int_equal(doorbell_give(&given, client), 0);
	pthread_join(thread, (void **)&taken);
	assert_non_null(taken);
	assert_int_equal(pwrite(given.page, &byte, 1, 5), 1);
	byte = 0;
	assert_int_equal(pread(taken->page, &byte, 1, 5), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(write(given.call, &one, sizeof(one)), sizeof(one));
	assert_int_equal(read(taken->call, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	assert_int_equal(ftruncate(taken->page, 0), -1); /* nobody cuts it */
	close(client);
	close(listening);
	unlink(path);
	rmdir(folder);
}

static void who_speaks_another_protocol_gives_nothing(void **state)
{
	char folder[] = "/tmp/tailrace-test-XXXXXX", path[64];
	static const uint64_t words[] = {7, 1, 2, 3};
	int listening, client;
	pthread_t thread;
	void *taken = path;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/doorbell", folder);
	listening = doorbell_listen(path);
	pthread_create(&thread, NULL, take, path);
	while ((client = accept(listening, NULL, NULL)) < 0)
		usleep(100);
	assert_int_equal(write(client, words, sizeof(words)), sizeof(words));
	pthread_join(thread, &taken);
	assert_null(taken);
	close(client);
	close(listening);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_interrupt_is_accounted_for),
		cmocka_unit_test(another_clock_is_found),
		cmocka_unit_test(a_delay_is_in_every_latency),
		cmocka_unit_test(the_slowest_are_told_with_their_times),
		cmocka_unit_test(who_is_no_slower_than_those_kept_is_not_told),
		cmocka_unit_test(the_slowest_that_nobody_takes_are_counted),
		cmocka_unit_test(what_comes_later_than_the_budget_is_counted),
		cmocka_unit_test(moments_are_whole_periods_of_a_clock_that_is_slewed),
		cmocka_unit_test(moments_begin_anew_when_the_clock_is_set),
		cmocka_unit_test(what_does_not_arrive_is_lost),
		cmocka_unit_test(times_that_cannot_be_are_counted_and_used_for_nothing),
		cmocka_unit_test(a_clock_that_is_set_meanwhile_is_a_fault),
		cmocka_unit_test(a_receiver_that_missed_the_interrupt_to_look_by_is_sent_another),
		cmocka_unit_test(clocks_of_other_rates_do_not_agree),
		cmocka_unit_test(few_answers_are_enough),
		cmocka_unit_test(who_answers_nothing_is_waited_for_in_vain),
		cmocka_unit_test(page_and_interrupt_go_over_a_socket),
		cmocka_unit_test(who_speaks_another_protocol_gives_nothing),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
