/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device loses is counted from the moment that it was opened, whatever its totals were and become.
 */
#include "test/cmocka_all.h"

#include "port/device_losses.h"

static void only_what_is_new_is_counted_and_each_by_its_name(void **state)
{
	struct device_losses before = {.missed = 100, .errors = 20, .no_buffer = 3, .refused = 1}, now = before;
	struct queue_counters counters = {0};

	device_losses_count(&counters, &before, &now);
	assert_int_equal(counters.drop_device_missed + counters.drop_device_errors + counters.drop_device_no_buffer +
				 counters.drop_device_refused,
			 0);
	now = (struct device_losses){.missed = 107, .errors = 25, .no_buffer = 6, .refused = 3};
	for (unsigned i = 0; i < 2; i++)
		device_losses_count(&counters, &before, &now);
	assert_int_equal(counters.drop_device_missed, 7);
	assert_int_equal(counters.drop_device_errors, 5);
	assert_int_equal(counters.drop_device_no_buffer, 3);
	assert_int_equal(counters.drop_device_refused, 2);
}

static void a_total_that_begins_anew_takes_nothing_back(void **state)
{
	struct device_losses before = {.missed = UINT64_C(1) << 40}, now = {.missed = 5};
	struct queue_counters counters = {.drop_device_missed = 9};

	device_losses_count(&counters, &before, &now);
	assert_int_equal(counters.drop_device_missed, 9);
	now.missed = 8;
	device_losses_count(&counters, &before, &now);
	assert_int_equal(counters.drop_device_missed, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_new_is_counted_and_each_by_its_name),
		cmocka_unit_test(a_total_that_begins_anew_takes_nothing_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
