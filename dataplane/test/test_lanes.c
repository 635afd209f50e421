/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues of a function that are handed over between its threads: evenly, few at a time, and each to one thread only.
 */
#include "test/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "functions/lanes.h"

enum { THREADS = 4, QUEUES = 7, CHANGES = 300 };

void forward_wake(const struct forward_thread *thread)
{
}

static struct forward *make(unsigned nb_queues)
{
	struct forward *forward = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct forward), 64));

	memset(forward, 0, sizeof(*forward));
	forward->nb_queues = nb_queues;
	for (unsigned i = 0; i < FUNCTION_QUEUES; i++) {
		forward->threads[i] = (struct forward_thread){.forward = forward, .number = i, .expects = true};
		forward->lanes[i].owner = forward->lanes[i].wanted = FORWARD_NOBODY;
	}
	return forward;
}

static void they_are_shared_out_evenly_and_few_move(void **state)
{
	struct forward *forward = make(FUNCTION_QUEUES);

	for (unsigned nb = 1; nb <= FUNCTION_QUEUES; nb++) {
		lanes_share_out(forward->lanes, nb, 1);
		for (unsigned threads = 1; threads <= nb; threads++) {
			unsigned have[FUNCTION_QUEUES] = {0};
			int before[FUNCTION_QUEUES];
			unsigned moved = 0, said;

			for (unsigned i = 0; i < nb; i++)
				before[i] = forward->lanes[i].wanted;
			said = lanes_share_out(forward->lanes, nb, threads);
			for (unsigned i = 0; i < nb; i++) {
				assert_in_range(forward->lanes[i].wanted, 0, threads - 1);
				have[forward->lanes[i].wanted]++;
				moved += forward->lanes[i].wanted != before[i];
			}
			for (unsigned i = 0; i < threads; i++)
				assert_in_range(have[i], nb / threads, (nb + threads - 1) / threads);
			assert_int_equal(moved, said);
			if (threads > 1)
				assert_true(moved <= (nb + threads - 1) / threads);
			assert_int_equal(lanes_share_out(forward->lanes, nb, threads), 0);
		}
	}
	free(forward);
}

static void a_queue_is_taken_when_it_was_let_go_of(void **state)
{
	struct forward *forward = make(2);
	struct forward_thread *first = &forward->threads[0], *second = &forward->threads[1];

	lanes_share_out(forward->lanes, 2, 1);
	assert_true(lanes_changed(first));
	lanes_follow(first, NULL, NULL);
	assert_int_equal(first->nb_queues, 2);
	assert_true(lanes_settled(forward->lanes, 2));
	assert_false(lanes_changed(first));

	assert_int_equal(lanes_share_out(forward->lanes, 2, 2), 1);
	forward->changes++;
	assert_false(lanes_settled(forward->lanes, 2));
	lanes_follow(second, NULL, NULL);
	assert_int_equal(second->nb_queues, 0);
	assert_true(lanes_changed(second)); /* it still expects one */
	lanes_follow(first, NULL, NULL);
	assert_int_equal(first->nb_queues, 1);
	assert_false(lanes_settled(forward->lanes, 2));
	lanes_follow(second, NULL, NULL);
	assert_int_equal(second->nb_queues, 1);
	assert_true(lanes_settled(forward->lanes, 2));
	assert_false(lanes_changed(second));
	free(forward);
}

/* ------- with threads ------- */

static _Atomic int users[FUNCTION_QUEUES];
static _Atomic bool together, end;
static uint64_t rounds[FUNCTION_QUEUES]; /* by queue; plain, as what a queue holds is */

static void *run(void *context)
{
	struct forward_thread *thread = context;

	while (!atomic_load(&end)) {
		if (lanes_changed(thread))
			lanes_follow(thread, NULL, NULL);
		for (unsigned i = 0; i < thread->nb_queues; i++) {
			if (atomic_fetch_add(&users[thread->queues[i]], 1) != 0)
				atomic_store(&together, true);
			rounds[thread->queues[i]]++;
			atomic_fetch_sub(&users[thread->queues[i]], 1);
		}
		sched_yield();
	}
	return NULL;
}

static void no_two_threads_ever_have_the_same(void **state)
{
	struct forward *forward = make(QUEUES);
	pthread_t threads[THREADS];

	lanes_share_out(forward->lanes, QUEUES, 1);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, &forward->threads[i]), 0);
	for (unsigned i = 0; i < CHANGES; i++) {
		lanes_share_out(forward->lanes, QUEUES, 1 + i * 5 % THREADS);
		atomic_fetch_add(&forward->changes, 1);
		/* Some changes come before the one before them is done. */
		while (i % 3 != 0 && !lanes_settled(forward->lanes, QUEUES))
			sched_yield();
	}
	while (!lanes_settled(forward->lanes, QUEUES))
		sched_yield();
	atomic_store(&end, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_false(together);
	for (unsigned i = 0; i < QUEUES; i++)
		assert_true(rounds[i] > 0);
	free(forward);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(they_are_shared_out_evenly_and_few_move),
		cmocka_unit_test(a_queue_is_taken_when_it_was_let_go_of),
		cmocka_unit_test(no_two_threads_ever_have_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
