/* SPDX-License-Identifier: Apache-2.0
 *
 * The histogram against exact values: every count's edges, and every rank of random samples that were kept.
 */
#include <math.h>
#include <stdlib.h>

#include "cmocka_all.h"
#include "common/histogram.h"

static struct histogram histogram;

static int clear(void **state)
{
	histogram_clear(&histogram);
	return 0;
}

static void counts_cover_all_values_without_gap_or_overlap(void **state)
{
	uint64_t next = 0;

	for (uint32_t index = 0; index < HISTOGRAM_SIZE; index++) {
		assert_int_equal(histogram_lowest_at(index), next);
		assert_int_equal(histogram_index(histogram_lowest_at(index)), index);
		assert_int_equal(histogram_index(histogram_highest_at(index)), index);
		next = histogram_highest_at(index) + 1;
	}
	assert_int_equal(next, HISTOGRAM_HIGHEST + 1);
}

/* The layout that the results' readers rely on, computed the way HdrHistogram does. */
static void layout_is_that_of_hdr_histogram(void **state)
{
	const uint64_t values[] = {0, 1, 255, 256, 257, 511, 512, 1000, 65535, 65536, 1000000, 9999999999, 10000000000};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		uint64_t value = values[i];
		int bucket = 64 - __builtin_clzll(value | 255) - 8;
		int sub_bucket = (int)(value >> bucket);
		int index = ((bucket + 1) << 7) + (sub_bucket - 128);

		assert_int_equal(histogram_index(value), index);
	}
}

static void error_is_at_most_one_percent_from_100_ns_to_10_s(void **state)
{
	for (double exact = 100; exact <= 1e10; exact *= 1.00037) {
		uint64_t value = (uint64_t)exact;
		uint32_t index = histogram_index(value);

		assert_true((double)(histogram_highest_at(index) - value) <= 0.01 * (double)value);
		assert_true((double)(value - histogram_lowest_at(index)) <= 0.01 * (double)value);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* How values are drawn: what latencies look like, and what they do not. */
static uint64_t wide(void)
{
	return (uint64_t)pow(10, 2 + 8 * drand48()); /* 100 ns to 10 s */
}

static uint64_t narrow(void)
{
	return 5000 + (uint64_t)(400 * (drand48() + drand48() + drand48()));
}

static uint64_t two_peaks(void)
{
	return drand48() < 0.999 ? narrow() : 2000000 + (uint64_t)(1e5 * drand48());
}

static uint64_t long_tail(void)
{
	return (uint64_t)(1000 * pow(1 - drand48(), -1.5)) & HISTOGRAM_HIGHEST;
}

static uint64_t at_edges(void)
{
	return (UINT64_C(1) << lrand48() % HISTOGRAM_VALUE_BITS) - (uint64_t)(lrand48() % 2);
}

static uint64_t always_the_same(void)
{
	return 123457;
}

/* At every rank, so at every percentile there is: never below the exact value, and at most 1/128 of it above. */
static void every_percentile_is_within_the_stated_error(void **state)
{
	uint64_t (*const draw[])(void) = {wide, narrow, two_peaks, long_tail, at_edges, always_the_same};
	const size_t counts[] = {1, 2, 3, 100, 1000, 20000};
	static uint64_t samples[20000];

	srand48(1);
	for (size_t kind = 0; kind < sizeof(draw) / sizeof(draw[0]); kind++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
			uint64_t sum = 0;

			histogram_clear(&histogram);
			for (size_t i = 0; i < counts[c]; i++) {
				samples[i] = draw[kind]();
				sum += samples[i];
				histogram_record(&histogram, samples[i]);
			}
			qsort(samples, counts[c], sizeof(*samples), compare);
			assert_int_equal(histogram.tally.count, counts[c]);
			assert_int_equal(histogram.tally.min, samples[0]);
			assert_int_equal(histogram.tally.max, samples[counts[c] - 1]);
			assert_int_equal(histogram.tally.sum, sum);
			for (size_t rank = 1; rank <= counts[c]; rank++) {
				uint64_t exact = samples[rank - 1], found = histogram_at_rank(&histogram, rank);

				assert_in_range(found, exact, exact + exact / 128);
			}
			assert_int_equal(histogram_at_rank(&histogram, counts[c]), samples[counts[c] - 1]);
			assert_int_equal(histogram_at_rank(&histogram, counts[c] + 1), 0);
		}
}

static void a_value_above_the_range_is_counted_and_its_maximum_true(void **state)
{
	histogram_record(&histogram, HISTOGRAM_HIGHEST);
	assert_int_equal(histogram.overflow, 0);
	histogram_record(&histogram, HISTOGRAM_HIGHEST + 1);
	histogram_record(&histogram, UINT64_C(1) << 47);
	assert_int_equal(histogram.overflow, 2);
	assert_int_equal(histogram.counts[HISTOGRAM_SIZE - 1], 3);
	assert_int_equal(histogram.tally.max, UINT64_C(1) << 47);
	assert_int_equal(histogram_at_rank(&histogram, 3), UINT64_C(1) << 47);
}

static void an_empty_histogram_has_no_values(void **state)
{
	assert_int_equal(histogram.tally.count, 0);
	assert_int_equal(histogram_at_rank(&histogram, 1), 0);
}

static void merged_tallies_are_the_tally_of_all(void **state)
{
	struct tally all = TALLY_EMPTY, odd = TALLY_EMPTY, even = TALLY_EMPTY, none = TALLY_EMPTY;

	for (uint64_t value = 5; value < 100; value++) {
		tally_add(&all, value, 1);
		tally_add(value % 2 ? &odd : &even, value, 1);
	}
	tally_merge(&odd, &even);
	tally_merge(&odd, &none);
	assert_memory_equal(&odd, &all, sizeof(all));
}

/* 40 hours at 10 Mpps, each frame as late as can be told: the sum is beyond 64 bits. */
static void a_long_run_does_not_wrap(void **state)
{
	struct histogram *histogram = malloc(sizeof(*histogram)), *total = malloc(sizeof(*total));
	const uint64_t frames = UINT64_C(1440000000000);

	histogram_clear(histogram);
	histogram_clear(total);
	histogram_count(histogram, HISTOGRAM_HIGHEST, frames);
	tally_add(&histogram->tally, HISTOGRAM_HIGHEST, frames);
	histogram_merge(total, histogram);
	histogram_merge(total, histogram);
	assert_int_equal(total->tally.count, 2 * frames);
	assert_int_equal(total->counts[HISTOGRAM_SIZE - 1], 2 * frames);
	assert_true(total->tally.sum / (2 * frames) == HISTOGRAM_HIGHEST && total->tally.sum % (2 * frames) == 0);
	free(histogram);
	free(total);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_cover_all_values_without_gap_or_overlap),
		cmocka_unit_test(layout_is_that_of_hdr_histogram),
		cmocka_unit_test(error_is_at_most_one_percent_from_100_ns_to_10_s),
		cmocka_unit_test(every_percentile_is_within_the_stated_error),
		cmocka_unit_test_setup(a_value_above_the_range_is_counted_and_its_maximum_true, clear),
		cmocka_unit_test_setup(an_empty_histogram_has_no_values, clear),
		cmocka_unit_test(merged_tallies_are_the_tally_of_all),
		cmocka_unit_test(a_long_run_does_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
