/* SPDX-License-Identifier: Apache-2.0
 *
 * Maglev's hashing: how even the shares of ends are (the paper: 1 % between them at most, with 100 places for each),
 * and how many places change hands when some go.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include <stdlib.h>

#include "functions/maglev.h"

static uint16_t before[MAGLEV_PLACES], after[MAGLEV_PLACES];

static void make(struct maglev_end *ends, unsigned nb, uint64_t seed)
{
	for (unsigned i = 0; i < nb; i++)
		ends[i] = (struct maglev_end){.hash = random64(&seed), .weight = 1, .number = (uint16_t)(i + 1)};
}

static unsigned share(const uint16_t *places, uint16_t number)
{
	unsigned found = 0;

	for (unsigned i = 0; i < MAGLEV_PLACES; i++)
		found += places[i] == number;
	return found;
}

/* 3.4: each end has a turn after each other one. */
static void ends_of_one_weight_have_even_shares(void **state)
{
	struct maglev_end ends[MAGLEV_ENDS];

	for (unsigned nb = 1; nb <= MAGLEV_ENDS; nb = nb * 3 + 1) {
		make(ends, nb, nb);
		maglev_fill(before, ends, nb);
		for (unsigned i = 0; i < nb; i++) {
			const unsigned has = share(before, (uint16_t)(i + 1));

			assert_true(has == MAGLEV_PLACES / nb || has == MAGLEV_PLACES / nb + 1);
		}
	}
}

static void shares_are_as_weights(void **state)
{
	struct maglev_end ends[4];
	const unsigned weights[] = {1, 2, 5, MAGLEV_WEIGHT};
	unsigned all = 0;

	make(ends, 4, 1);
	for (unsigned i = 0; i < 4; i++)
		all += ends[i].weight = weights[i];
	maglev_fill(before, ends, 4);
	for (unsigned i = 0; i < 4; i++) {
		const double expected = (double)MAGLEV_PLACES * weights[i] / all,
			     has = share(before, (uint16_t)(i + 1));

		assert_true(has > expected - 2 && has < expected + 2);
	}
}

static void the_order_of_ends_changes_nothing(void **state)
{
	struct maglev_end ends[100], other[100];

	make(ends, 100, 1);
	for (unsigned i = 0; i < 100; i++)
		other[i] = ends[99 - i];
	maglev_fill(before, ends, 100);
	maglev_fill(after, other, 100);
	assert_memory_equal(before, after, sizeof(before));
}

/* Places that change hands beyond those of the ends that went: a share of all. */
static double disruption(unsigned nb, unsigned gone, uint64_t seed)
{
	struct maglev_end ends[MAGLEV_ENDS];
	unsigned moved = 0;

	make(ends, nb, seed);
	maglev_fill(before, ends, nb);
	make(ends, nb, seed);
	maglev_fill(after, ends, nb - gone); /* the last ones, whose numbers are the largest */
	for (unsigned i = 0; i < MAGLEV_PLACES; i++)
		moved += before[i] <= nb - gone && before[i] != after[i];
	return (double)moved / MAGLEV_PLACES;
}

/*
 * Of a consistent hash without any disruption these are 0; of `hash modulo number of ends` nearly all places move. What
 * Maglev pays for even shares grows with the number of ends that go.
 */
static void few_places_change_hands_when_ends_go(void **state)
{
	static const struct {
		unsigned nb, gone;
		double most;
	} cases[] = {{10, 1, 0.01}, {100, 1, 0.01}, {256, 1, 0.015}, {256, 13, 0.03}};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double all = 0;

		for (uint64_t seed = 1; seed <= 10; seed++)
			all += disruption(cases[i].nb, cases[i].gone, seed);
		print_message("# %u of %u ends go: %.2f %% of places change hands besides\n", cases[i].gone,
			      cases[i].nb, all * 10);
		assert_true(all / 10 <= cases[i].most);
	}
}

static void without_ends_nobody_has_a_place(void **state)
{
	memset(before, 1, sizeof(before));
	maglev_fill(before, NULL, 0);
	assert_int_equal(share(before, 0), MAGLEV_PLACES);
	assert_int_equal(maglev_place(0), 0);
	assert_int_equal(maglev_place(UINT64_MAX), MAGLEV_PLACES - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_of_one_weight_have_even_shares),
		cmocka_unit_test(shares_are_as_weights),
		cmocka_unit_test(the_order_of_ends_changes_nothing),
		cmocka_unit_test(few_places_change_hands_when_ends_go),
		cmocka_unit_test(without_ends_nobody_has_a_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
