/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the TSC may be used as a clock, how its rate is found, and how far it may be wrong.
 */
#include "cmocka_all.h"
#include "tester/clock.h"

static bool too_old(uint32_t leaf, uint32_t *edx)
{
	return false;
}

static bool varying(uint32_t leaf, uint32_t *edx)
{
	assert_int_equal(leaf, 0x80000007);
	*edx = ~(1u << 8);
	return true;
}

static bool invariant(uint32_t leaf, uint32_t *edx)
{
	*edx = 1u << 8;
	return true;
}

static void only_an_invariant_counter_is_a_clock(void **state)
{
	assert_false(clock_is_invariant(too_old));
	assert_false(clock_is_invariant(varying));
	assert_true(clock_is_invariant(invariant));
}

/* 2.5 GHz for 100 ms, each reading within 50 cycles. */
static const struct clock_reading early = {.cycles = 7000000000, .doubt = 50, .ns = 1000000000};
static const struct clock_reading late = {.cycles = 7250000000, .doubt = 50, .ns = 1100000000};

static void the_rate_is_that_between_two_readings(void **state)
{
	assert_int_equal(clock_measure(&early, &late), 2500000000);
}

static void the_error_is_bounded_by_what_is_not_known(void **state)
{
	const struct clock_rate right = clock_rate(2500000000), wrong = clock_rate(2500250000);
	struct clock_check check = clock_compare(&right, &early, &late);

	/* 100 cycles of 250 million, 2 ns of 100 ms, and the rounding. */
	assert_true(check.seconds == 0.1);
	assert_true(check.error > 0.42e-6 && check.error < 0.4212e-6);
	/* A rate that is 100 ppm too high is reported as such. */
	check = clock_compare(&wrong, &early, &late);
	assert_true(check.error > 100.4e-6 && check.error < 100.5e-6);
}

static void cycles_become_nanoseconds_within_the_rounding(void **state)
{
	const uint64_t rates[] = {250000001, 1000000000, 2445406000, 5999999999};

	for (int i = 0; i < 4; i++) {
		struct clock_rate rate = clock_rate(rates[i]);

		for (uint64_t cycles = 1; cycles < UINT64_C(1) << 47; cycles = cycles * 3 + 1) {
			long double exact = (long double)cycles * 1e9L / (long double)rates[i];

			assert_true((long double)clock_ns(&rate, cycles) <= exact * (1 + 1e-9L));
			assert_true((long double)clock_ns(&rate, cycles) >= exact * (1 - 1e-9L) - 1);
		}
	}
}

static void this_machines_readings_agree(void **state)
{
	struct clock_reading one = clock_read(), two;
	struct clock_check check;
	struct clock_rate rate;

	do
		two = clock_read();
	while (two.ns - one.ns < 20000000);
	rate = clock_rate(clock_measure(&one, &two));
	check = clock_compare(&rate, &one, &two);
	assert_true(two.cycles > one.cycles);
	assert_true(check.error < 1e-2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_an_invariant_counter_is_a_clock),
		cmocka_unit_test(the_rate_is_that_between_two_readings),
		cmocka_unit_test(the_error_is_bounded_by_what_is_not_known),
		cmocka_unit_test(cycles_become_nanoseconds_within_the_rounding),
		cmocka_unit_test(this_machines_readings_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
