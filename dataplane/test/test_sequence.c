/* SPDX-License-Identifier: Apache-2.0
 *
 * The accounting of order against RFC 4737 as its text has it: by hand, and at random beside a model that keeps
 * every number it has seen.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "tester/sequence.h"

#define WRAP (UINT64_C(1) << SEQUENCE_BITS)

struct expected {
	uint64_t unique, duplicate, out_of_sequence, beyond_window;
};

static void assert_counts(const struct sequence *sequence, struct expected expected)
{
	assert_int_equal(sequence->unique, expected.unique);
	assert_int_equal(sequence->duplicate, expected.duplicate);
	assert_int_equal(sequence->out_of_sequence, expected.out_of_sequence);
	assert_int_equal(sequence->beyond_window, expected.beyond_window);
	assert_int_equal(sequence->before_first, 0);
}

/* Record numbers relative to `first` in a window of 64. */
static void check(uint64_t first, const int64_t *numbers, size_t count, struct expected expected)
{
	struct sequence sequence;

	assert_int_equal(sequence_open(&sequence, first, 64), 0);
	for (size_t i = 0; i < count; i++)
		sequence_record(&sequence, (first + (uint64_t)numbers[i]) % WRAP, 1);
	assert_counts(&sequence, expected);
	sequence_close(&sequence);
}

/* Each case from the start, in the middle, and over the wrap of the number in the frame. */
#define CHECK(expected, ...)                                                                                        \
	do {                                                                                                        \
		const int64_t numbers[] = {__VA_ARGS__};                                                            \
		const uint64_t firsts[] = {0, 1, 62, 1000, WRAP / 2 - 2, WRAP - 1, WRAP - 3, WRAP - 64, WRAP - 66}; \
		for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++)                                     \
			check(firsts[f], numbers, sizeof(numbers) / sizeof(numbers[0]), expected);                  \
	} while (0)

#define EXPECT(...) ((struct expected){__VA_ARGS__})

static void in_order(void **state)
{
	CHECK(EXPECT(.unique = 5), 0, 1, 2, 3, 4);
}

static void a_gap_is_loss_and_not_reordering(void **state)
{
	CHECK(EXPECT(.unique = 3), 0, 3, 4);
}

static void a_loss_at_the_start(void **state)
{
	CHECK(EXPECT(.unique = 2), 2, 3);
}

static void a_late_frame_takes_its_loss_back(void **state)
{
	CHECK(EXPECT(.unique = 4, .out_of_sequence = 1), 0, 2, 3, 1);
}

static void several_late_frames(void **state)
{
	/* RFC 4737, section 3.3: each frame below NextExp is reordered, whatever its place among the late ones. */
	CHECK(EXPECT(.unique = 6, .out_of_sequence = 3), 0, 4, 5, 1, 2, 3);
	CHECK(EXPECT(.unique = 6, .out_of_sequence = 3), 0, 4, 5, 3, 2, 1);
}

static void a_swap(void **state)
{
	CHECK(EXPECT(.unique = 4, .out_of_sequence = 1), 0, 2, 1, 3);
	CHECK(EXPECT(.unique = 3, .out_of_sequence = 1), 1, 0, 2);
}

static void a_duplicate_is_not_reordered(void **state)
{
	CHECK(EXPECT(.unique = 3, .duplicate = 1), 0, 0, 1, 2);
	CHECK(EXPECT(.unique = 3, .duplicate = 2), 0, 1, 2, 0, 1);
}

static void an_older_duplicate_does_not_hide_a_loss(void **state)
{
	/* 1 is lost; the second 0 must not stand in for it. */
	CHECK(EXPECT(.unique = 3, .duplicate = 1), 0, 2, 0, 3);
}

static void a_duplicate_of_a_late_frame(void **state)
{
	CHECK(EXPECT(.unique = 3, .out_of_sequence = 1, .duplicate = 2), 0, 2, 1, 1, 1);
}

static void the_window_ends_where_it_says(void **state)
{
	/* With next = 65, the window of 64 reaches down to 1. */
	CHECK(EXPECT(.unique = 3, .out_of_sequence = 1), 0, 64, 1);
	CHECK(EXPECT(.unique = 2, .beyond_window = 1), 0, 64, 0);
	CHECK(EXPECT(.unique = 2, .beyond_window = 2), 0, 200, 0, 100);
}

static void a_jump_forgets_what_it_leaps_over(void **state)
{
	/* 70 has the bit that 6 had: it did not arrive because 6 did. */
	CHECK(EXPECT(.unique = 4, .out_of_sequence = 1), 0, 6, 72, 70);
	/* Jumps of a window less one, one window, one more, and many. */
	CHECK(EXPECT(.unique = 3, .out_of_sequence = 1), 0, 63, 1);
	CHECK(EXPECT(.unique = 4, .out_of_sequence = 2), 0, 65, 64, 2);
	CHECK(EXPECT(.unique = 4, .out_of_sequence = 2), 0, 66, 65, 3);
	CHECK(EXPECT(.unique = 5, .out_of_sequence = 3), 0, 100000, 99999, 99998, 99937);
	CHECK(EXPECT(.unique = 3, .out_of_sequence = 1, .duplicate = 1), 0, 100000, 99999, 99999);
}

static void a_number_before_the_first_is_told_apart(void **state)
{
	const uint64_t firsts[] = {0, 5, WRAP - 1};

	for (size_t i = 0; i < 3; i++) {
		struct sequence sequence;

		assert_int_equal(sequence_open(&sequence, firsts[i], 64), 0);
		sequence_record(&sequence, firsts[i], 1);
		sequence_record(&sequence, (firsts[i] + WRAP - 1) % WRAP, 1);
		sequence_record(&sequence, (firsts[i] + WRAP - 5000) % WRAP, 1);
		assert_int_equal(sequence.before_first, 2);
		assert_int_equal(sequence.unique, 1);
		assert_int_equal(sequence.duplicate + sequence.out_of_sequence + sequence.beyond_window, 0);
		sequence_close(&sequence);
	}
}

static void bad_windows_are_refused(void **state)
{
	struct sequence sequence;

	assert_int_equal(sequence_open(&sequence, 0, 0), -EINVAL);
	assert_int_equal(sequence_open(&sequence, 0, 32), -EINVAL);
	assert_int_equal(sequence_open(&sequence, 0, 100), -EINVAL);
	assert_int_equal(sequence_open(&sequence, WRAP, 64), -EINVAL);
}

/* Runs of numbers that follow each other count as the same numbers one by one, over wraps and jumps too. */
static void runs_count_as_their_frames(void **state)
{
	struct sequence alone, in_runs;
	uint64_t number = 0;

	srand48(7);
	assert_int_equal(sequence_open(&alone, WRAP - 5000, 256), 0);
	assert_int_equal(sequence_open(&in_runs, WRAP - 5000, 256), 0);
	for (int i = 0; i < 20000; i++) {
		uint32_t count = 1 + (uint32_t)(drand48() * 100);
		uint64_t first = (WRAP - 5000 + number) % WRAP;

		for (uint32_t j = 0; j < count; j++)
			sequence_record(&alone, (first + j) % WRAP, 1);
		sequence_record(&in_runs, first, count);
		assert_memory_equal(alone.seen, in_runs.seen, 256 / 8);
		number += count;
		if (drand48() < 0.1) /* some again, some lost */
			number += (uint64_t)(drand48() * 600) - (number > 400 ? 300 : 0);
	}
	assert_int_equal(alone.next, in_runs.next);
	assert_int_equal(alone.unique, in_runs.unique);
	assert_int_equal(alone.duplicate, in_runs.duplicate);
	assert_int_equal(alone.out_of_sequence, in_runs.out_of_sequence);
	assert_int_equal(alone.beyond_window, in_runs.beyond_window);
	assert_true(alone.duplicate > 1000 && alone.out_of_sequence > 1000 && alone.beyond_window > 100);
	sequence_close(&alone);
	sequence_close(&in_runs);
}

/* ------- extents ------- */

static void extents_are_those_of_the_rfc(void **state)
{
	/* RFC 4737, section 7: 7 overtakes 4, 5 and 6, and 8 to 10 follow: extents of 4, 5 and 6. */
	const uint64_t numbers[] = {1, 2, 3, 7, 8, 9, 10, 4, 5, 6};
	struct sequence sequence;

	assert_int_equal(sequence_open(&sequence, 1, 64), 0);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sequence_record(&sequence, numbers[i], 1);
	assert_int_equal(sequence.out_of_sequence, 3);
	assert_int_equal(sequence.extents.tally.count, 3);
	assert_int_equal(sequence.extents.tally.min, 4);
	assert_int_equal(sequence.extents.tally.max, 6);
	assert_int_equal(sequence.extents.tally.sum, 4 + 5 + 6);
	sequence_close(&sequence);
}

/* By the definition: i - j, with j the first arrival of a greater number, among first copies. */
static void extents_agree_with_the_definition(void **state)
{
	enum { ARRIVALS = 3000 };
	static uint64_t arrived[ARRIVALS];
	static bool seen[2 * ARRIVALS];
	const uint64_t first = WRAP - 1000;

	for (long seed = 0; seed < 10; seed++) {
		uint64_t next = 0, count = 0, sum = 0, most = 0, late = 0;
		struct sequence sequence;

		srand48(seed);
		memset(seen, 0, sizeof(seen));
		assert_int_equal(sequence_open(&sequence, first, 4096), 0);
		for (int i = 0; i < ARRIVALS; i++) {
			uint64_t number = next + (uint64_t)(drand48() < 0.2 ? drand48() * 4 : 0);

			if (drand48() < 0.3 && next > 0)
				number = (uint64_t)(drand48() * (double)next);
			if (number >= 2 * ARRIVALS)
				break;
			sequence_record(&sequence, (first + number) % WRAP, 1);
			if (seen[number])
				continue;
			seen[number] = true;
			arrived[count++] = number;
			if (number < next) {
				uint64_t j = 0;

				while (arrived[j] < number)
					j++;
				late++;
				sum += count - 1 - j;
				most = count - 1 - j > most ? count - 1 - j : most;
			} else {
				next = number + 1;
			}
		}
		assert_true(late > 100);
		assert_int_equal(sequence.out_of_sequence, late);
		assert_int_equal(sequence.extents.tally.count, late);
		assert_int_equal(sequence.extents.tally.sum, sum);
		assert_int_equal(sequence.extents.tally.max, most);
		assert_int_equal(sequence.extent_unknown, 0);
		sequence_close(&sequence);
	}
}

static void what_was_forgotten_is_said(void **state)
{
	struct sequence sequence;

	/* Every other number is missing, so each that comes leaves a gap; the first gap is one too old. */
	assert_int_equal(sequence_open(&sequence, 0, 1 << 20), 0);
	for (uint64_t i = 0; i <= SEQUENCE_GAPS; i++)
		sequence_record(&sequence, 2 * i + 1, 1);
	sequence_record(&sequence, 0, 1);
	assert_int_equal(sequence.out_of_sequence, 1);
	assert_int_equal(sequence.extent_unknown, 1);
	sequence_record(&sequence, 2, 1);
	assert_int_equal(sequence.out_of_sequence, 2);
	assert_int_equal(sequence.extent_unknown, 1);
	assert_int_equal(sequence.extents.tally.count, 1);
	assert_int_equal(sequence.extents.tally.max, SEQUENCE_GAPS + 1);
	sequence_close(&sequence);

	/* The latest frame beyond the window, of several. */
	assert_int_equal(sequence_open(&sequence, 0, 64), 0);
	sequence_record(&sequence, 999, 1);
	sequence_record(&sequence, 900, 1);
	sequence_record(&sequence, 10, 1);
	sequence_record(&sequence, 500, 1);
	assert_int_equal(sequence.beyond_window, 3);
	assert_int_equal(sequence.latest, 990);
	sequence_close(&sequence);
}

/* Every arrival of up to 6 frames out of 4, with any repetition: 4 + 4^2 + ... + 4^6 cases, against the text. */
static void every_short_arrival(void **state)
{
	for (int length = 1; length <= 6; length++)
		for (int code = 0; code < 1 << 2 * length; code++) {
			struct expected expected = {0};
			bool seen[4] = {0};
			int next = 0;
			struct sequence sequence;

			assert_int_equal(sequence_open(&sequence, WRAP - 2, 64), 0);
			for (int i = 0; i < length; i++) {
				int number = code >> 2 * i & 3;

				sequence_record(&sequence, (WRAP - 2 + (uint64_t)number) % WRAP, 1);
				if (seen[number]) {
					expected.duplicate++;
					continue;
				}
				seen[number] = true;
				expected.unique++;
				if (number >= next)
					next = number + 1;
				else
					expected.out_of_sequence++;
			}
			assert_counts(&sequence, expected);
			sequence_close(&sequence);
		}
}

/* The model: one byte for each number there is. */
static void random_arrivals(uint64_t seed, uint64_t window, uint64_t first)
{
	enum { NUMBERS = 1 << 22, ARRIVALS = 300000 };
	uint8_t *seen = calloc(NUMBERS, 1);
	struct expected expected = {0};
	struct sequence sequence;
	uint64_t next = 0;

	srand48((long)seed);
	assert_int_equal(sequence_open(&sequence, first, window), 0);
	for (int i = 0; i < ARRIVALS; i++) {
		double kind = drand48();
		uint64_t number = next;

		if (kind < 0.02) /* loss */
			number = next + (uint64_t)(drand48() * 5);
		else if (kind < 0.02 + 20.0 / ARRIVALS) /* an outage, often longer than the window */
			number = next + (uint64_t)(drand48() * 3 * (double)window);
		else if (kind < 0.3) /* late or again, mostly near */
			number = next - (uint64_t)(drand48() * drand48() * drand48() * 1.5 * (double)window);
		if ((int64_t)number < 0)
			number = 0;
		if (number >= NUMBERS)
			break;

		sequence_record(&sequence, (first + number) % WRAP, 1);
		if (number + window < next) {
			expected.beyond_window++;
		} else if (seen[number]) {
			expected.duplicate++;
		} else {
			seen[number] = 1;
			expected.unique++;
			expected.out_of_sequence += number < next;
		}
		if (number >= next)
			next = number + 1;
	}
	assert_true(expected.duplicate > 0 && expected.out_of_sequence > 0);
	assert_counts(&sequence, expected);
	sequence_close(&sequence);
	free(seen);
}

static void random_arrivals_agree_with_the_model(void **state)
{
	for (uint64_t seed = 0; seed < 30; seed++) {
		random_arrivals(seed, 64, seed * 12345);
		random_arrivals(seed, 256, WRAP - 1000);
		random_arrivals(seed, 4096, WRAP - 1 - (seed << 8));
		random_arrivals(seed, 1 << 16, seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(a_gap_is_loss_and_not_reordering),
		cmocka_unit_test(a_loss_at_the_start),
		cmocka_unit_test(a_late_frame_takes_its_loss_back),
		cmocka_unit_test(several_late_frames),
		cmocka_unit_test(a_swap),
		cmocka_unit_test(a_duplicate_is_not_reordered),
		cmocka_unit_test(an_older_duplicate_does_not_hide_a_loss),
		cmocka_unit_test(a_duplicate_of_a_late_frame),
		cmocka_unit_test(the_window_ends_where_it_says),
		cmocka_unit_test(a_jump_forgets_what_it_leaps_over),
		cmocka_unit_test(a_number_before_the_first_is_told_apart),
		cmocka_unit_test(bad_windows_are_refused),
		cmocka_unit_test(runs_count_as_their_frames),
		cmocka_unit_test(extents_are_those_of_the_rfc),
		cmocka_unit_test(extents_agree_with_the_definition),
		cmocka_unit_test(what_was_forgotten_is_said),
		cmocka_unit_test(every_short_arrival),
		cmocka_unit_test(random_arrivals_agree_with_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
