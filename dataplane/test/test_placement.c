/* SPDX-License-Identifier: Apache-2.0
 *
 * Where receive queues are polled: decided from figures, so tested with figures.
 */
#include "test/cmocka_all.h"

#include "switch/placement.h"

enum { WORKERS = 3 };

static struct placement_queue queue(unsigned worker, double load)
{
	return (struct placement_queue){.worker = worker, .is_placed = true, .load = load, .rested = 60};
}

static void places_new_queues_where_fewest_are(void **state)
{
	struct placement_worker workers[WORKERS] = {{0}};
	struct placement_queue queues[7] = {queue(1, 0), {.load = 0}};
	unsigned counts[WORKERS] = {0};

	placement_place(queues, 7, workers, WORKERS);
	for (unsigned i = 0; i < 7; i++) {
		assert_true(queues[i].is_placed);
		counts[queues[i].worker]++;
	}
	assert_int_equal(queues[0].worker, 1);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_in_range(counts[i], 2, 3);
}

static void places_nothing_new_on_a_saturated_worker(void **state)
{
	struct placement_worker workers[2] = {{.busy = 0.95}, {.busy = 0.5}};
	struct placement_queue queues[3] = {queue(1, 0.2), queue(1, 0.3), {.load = 0}};

	placement_place(queues, 3, workers, 2);
	assert_int_equal(queues[2].worker, 1);
}

static void moves_the_queue_that_helps_most(void **state)
{
	struct placement_worker workers[WORKERS] = {{.busy = 0.99}, {.busy = 0.5}, {.busy = 0.1}};
	struct placement_queue queues[4] = {queue(0, 0.15), queue(0, 0.44), queue(0, 0.4), queue(1, 0.5)};
	struct placement_move move;

	assert_true(placement_move(queues, 4, workers, WORKERS, &move));
	assert_int_equal(move.queue, 1);
	assert_int_equal(move.from, 0);
	assert_int_equal(move.to, 2);
}

static void rests_while_nobody_is_saturated(void **state)
{
	struct placement_worker workers[2] = {{.busy = 0.89}, {.busy = 0.0}};
	struct placement_queue queues[2] = {queue(0, 0.5), queue(0, 0.39)};
	struct placement_move move;

	assert_false(placement_move(queues, 2, workers, 2, &move));
}

static void moves_nothing_to_where_it_is_no_better(void **state)
{
	/* A queue that saturates a worker by itself would saturate any other. */
	struct placement_worker alone[2] = {{.busy = 0.99}, {.busy = 0.0}};
	struct placement_queue one[1] = {queue(0, 0.99)};
	struct placement_worker full[2] = {{.busy = 0.99}, {.busy = 0.7}};
	struct placement_queue two[2] = {queue(0, 0.5), queue(0, 0.49)};
	struct placement_move move;

	assert_false(placement_move(one, 1, alone, 2, &move));
	assert_false(placement_move(two, 2, full, 2, &move));
}

static void leaves_pinned_and_just_moved_queues(void **state)
{
	struct placement_worker workers[2] = {{.busy = 0.99}, {.busy = 0.0}};
	struct placement_queue queues[2] = {queue(0, 0.5), queue(0, 0.49)};
	struct placement_move move;

	queues[0].pinned = true;
	queues[1].rested = PLACEMENT_REST - 1;
	assert_false(placement_move(queues, 2, workers, 2, &move));
	queues[1].rested = PLACEMENT_REST;
	assert_true(placement_move(queues, 2, workers, 2, &move));
	assert_int_equal(move.queue, 1);
}

/* Whatever the load, moving comes to an end: each move makes the busiest of two less busy. */
static void comes_to_rest(void **state)
{
	for (unsigned seed = 1; seed < 200; seed++) {
		struct placement_worker workers[WORKERS] = {{0}};
		struct placement_queue queues[12];
		struct placement_move move;
		unsigned moves = 0, random = seed * 2654435761u;

		for (unsigned i = 0; i < 12; i++) {
			random = random * 1664525 + 1013904223;
			queues[i] = queue(0, (double)(random >> 16 & 0xff) / 1024);
			workers[0].busy += queues[i].load;
		}
		while (placement_move(queues, 12, workers, WORKERS, &move)) {
			workers[move.from].busy -= queues[move.queue].load;
			workers[move.to].busy += queues[move.queue].load;
			queues[move.queue].worker = move.to;
			assert_true(workers[move.to].busy <= PLACEMENT_ROOM);
			assert_in_range(++moves, 1, 12);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_new_queues_where_fewest_are),
		cmocka_unit_test(places_nothing_new_on_a_saturated_worker),
		cmocka_unit_test(moves_the_queue_that_helps_most),
		cmocka_unit_test(rests_while_nobody_is_saturated),
		cmocka_unit_test(moves_nothing_to_where_it_is_no_better),
		cmocka_unit_test(leaves_pinned_and_just_moved_queues),
		cmocka_unit_test(comes_to_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
