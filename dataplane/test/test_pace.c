/* SPDX-License-Identifier: Apache-2.0
 *
 * When frames are due, and which are given up, on a clock that the test turns by hand.
 */
#include "cmocka_all.h"
#include "tester/clock.h"
#include "tester/pace.h"

#define HZ UINT64_C(2600000000)

/* Send what is allowed, at once. */
static uint32_t send(struct pace *pace, uint64_t elapsed, uint32_t limit)
{
	uint32_t allowed = pace_allow(pace, elapsed, limit);

	pace->sent += allowed;
	return allowed;
}

static void the_first_frame_is_due_at_once_and_the_next_a_period_later(void **state)
{
	struct pace pace = pace_plan(1000, 1, 1e-3, HZ);
	const uint64_t period = HZ / 1000;

	assert_int_equal(send(&pace, 0, 32), 1);
	assert_int_equal(send(&pace, 1, 32), 0);
	assert_int_equal(send(&pace, period - 1, 32), 0);
	assert_int_equal(send(&pace, period + 1, 32), 1);
	assert_int_equal(pace.unsent, 0);
}

static void rate_times_duration_frames_are_offered(void **state)
{
	const double rates[] = {1, 7, 1000, 333333.3, 1e6, 14880952.4};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct pace pace = pace_plan(rates[i], 2, 1e-3, HZ);
		uint64_t elapsed = 0;

		while (!pace_finished(&pace, elapsed) && elapsed < 3 * HZ) {
			send(&pace, elapsed, 32);
			elapsed += 2000;
		}
		assert_int_equal(pace.sent, (uint64_t)(rates[i] * 2 + 0.5));
		assert_int_equal(pace.unsent, 0);
		assert_true(elapsed <= 2 * HZ + 2000);
	}
}

static void a_sender_held_up_gives_up_what_is_overdue_and_catches_up_the_rest_in_bursts(void **state)
{
	struct pace pace = pace_plan(1e6, 1, 1e-3, HZ);
	uint64_t stall = HZ / 100; /* 10 ms: 10000 frames, of which 1000 are not yet too late */
	uint32_t caught_up = 0, burst;

	assert_int_equal(send(&pace, 0, 32), 1);
	while ((burst = send(&pace, stall, 32)) > 0) {
		assert_true(burst <= 32);
		caught_up += burst;
	}
	assert_in_range(pace.unsent, 8998, 9001);
	assert_in_range(caught_up, 999, 1001);
	assert_int_equal(pace.sent + pace.unsent, pace_due(&pace, stall));
}

static void a_full_ring_makes_frames_unsent_and_ends_in_time(void **state)
{
	struct pace pace = pace_plan(1e5, 1, 1e-3, HZ);
	uint64_t elapsed = 0;

	while (!pace_finished(&pace, elapsed)) {
		pace_allow(&pace, elapsed, 32); /* and nothing is sent */
		elapsed += 1000;
	}
	assert_int_equal(pace.sent, 0);
	assert_int_equal(pace.unsent, 100000);
	assert_true(elapsed <= HZ + HZ / 1000 + 1000);
}

static void without_a_rate_every_frame_is_due_until_the_end(void **state)
{
	struct pace pace = pace_plan(0, 1, 1e-3, HZ);

	for (uint64_t elapsed = 0; elapsed < HZ; elapsed += HZ / 100)
		assert_int_equal(send(&pace, elapsed, 32), 32);
	assert_int_equal(send(&pace, HZ, 32), 0);
	assert_true(pace_finished(&pace, HZ));
	assert_int_equal(pace.unsent, 0);
}

static void a_burst_is_over_when_its_frames_are_sent(void **state)
{
	struct pace pace = pace_plan(0, 1, 1e-3, HZ);

	pace.total = 100;
	for (uint64_t elapsed = 0; elapsed < 3; elapsed++)
		assert_int_equal(send(&pace, elapsed, 32), 32);
	assert_false(pace_finished(&pace, 3));
	assert_int_equal(send(&pace, 3, 32), 4);
	assert_int_equal(send(&pace, 4, 32), 0);
	assert_true(pace_finished(&pace, 4));
	assert_int_equal(pace.unsent, 0);
}

static void a_40_hour_run_is_paced_to_the_frame(void **state)
{
	const double seconds = 40 * 3600, rate = 1e7;
	struct pace pace = pace_plan(rate, seconds, 1e-3, HZ);
	uint64_t almost = (uint64_t)(seconds * (double)HZ) - HZ / 1000; /* 1 ms before the end: 10000 frames to go */

	assert_int_equal(pace.total, (uint64_t)(rate * seconds));
	assert_in_range(pace.total - pace_due(&pace, almost), 9998, 10001);
}

static void cycles_become_nanoseconds(void **state)
{
	const uint64_t frequencies[] = {250000000, 1000000000, 2600000000, 5200000123};

	for (size_t i = 0; i < sizeof(frequencies) / sizeof(frequencies[0]); i++) {
		struct clock_rate rate = clock_rate(frequencies[i]);

		for (uint64_t cycles = 1; cycles < UINT64_C(1) << 47; cycles = cycles * 3 + 1) {
			double exact = (double)cycles * 1e9 / (double)frequencies[i];
			double error = (double)clock_ns(&rate, cycles) - exact;

			assert_true(error <= 1e-9 * exact + 1 && error >= -1e-9 * exact - 1);
		}
	}
}

/* Frames due after 40 hours are those that the rate says, to within one: nothing adds up on the way. */
static void a_rate_does_not_drift_in_forty_hours(void **state)
{
	const double rates[] = {1, 333333.3, 1e7, 14880952.4};
	const uint64_t clocks[] = {HZ, UINT64_C(2599999123), UINT64_C(3700000007)};
	const double seconds = 144000;

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		for (size_t k = 0; k < sizeof(clocks) / sizeof(clocks[0]); k++) {
			struct pace pace = pace_plan(rates[i], seconds + 1, 1e-3, clocks[k]);
			double due = (double)pace_due(&pace, clocks[k] * (uint64_t)seconds);

			assert_true(due - rates[i] * seconds <= 1.01 && due - rates[i] * seconds >= -0.01);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rate_does_not_drift_in_forty_hours),
		cmocka_unit_test(the_first_frame_is_due_at_once_and_the_next_a_period_later),
		cmocka_unit_test(rate_times_duration_frames_are_offered),
		cmocka_unit_test(a_sender_held_up_gives_up_what_is_overdue_and_catches_up_the_rest_in_bursts),
		cmocka_unit_test(a_full_ring_makes_frames_unsent_and_ends_in_time),
		cmocka_unit_test(without_a_rate_every_frame_is_due_until_the_end),
		cmocka_unit_test(a_burst_is_over_when_its_frames_are_sent),
		cmocka_unit_test(a_40_hour_run_is_paced_to_the_frame),
		cmocka_unit_test(cycles_become_nanoseconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
