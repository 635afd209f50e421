/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits are kept exactly and nothing more is held back; shares divide what there is by weight, and leave nothing
 * unused.
 */
#include <stdlib.h>

#include "cmocka_all.h"
#include "steer/rate.h"

#define HZ     UINT64_C(2500000000)
#define SECOND HZ
#define START  (UINT64_C(1) << 40)
#define WITHIN(value, expected, part) \
	assert_in_range((uint64_t)(value), (uint64_t)((expected) * (1 - (part))), (uint64_t)((expected) * (1 + (part))))

/* ------- limits ------- */

struct passed {
	uint64_t bits, packets;
};

/* A sender that always has more, looked after every `step` cycles for a second. */
static struct passed greedy(const struct rate *rate, uint32_t length, uint64_t step)
{
	struct passed passed = {0};
	struct limit limit;
	uint32_t lengths[64];

	for (unsigned i = 0; i < 64; i++)
		lengths[i] = length;
	limit_set(&limit, rate, START, HZ);
	for (uint64_t now = START; now < START + SECOND; now += step) {
		unsigned count = limit_open(&limit, now) ? limit_pass(&limit, now, lengths, 64) : 0;

		passed.packets += count;
		passed.bits += (uint64_t)count * (length + RATE_FCS) * 8;
	}
	return passed;
}

static void bits_are_kept_whatever_the_frame_and_the_pace_of_looking(void **state)
{
	static const uint64_t rates[] = {1000000, 100000000, 3333333333, 40000000000};
	static const uint32_t lengths[] = {60, 1514, 9014};

	for (unsigned r = 0; r < 4; r++)
		for (unsigned l = 0; l < 3; l++)
			for (uint64_t step = 700; step <= 700000; step *= 10) {
				uint64_t most = SECOND / step * 64 * (lengths[l] + RATE_FCS) * 8;
				struct passed passed = greedy(&(struct rate){.bits = rates[r]}, lengths[l], step);
				uint64_t frame = (lengths[l] + RATE_FCS) * 8;

				assert_true(passed.bits <= rates[r] + frame);
				assert_true(passed.bits + frame >= (rates[r] < most / 2 ? rates[r] * 0.995 : most / 4));
			}
}

static void packets_are_kept(void **state)
{
	WITHIN(greedy(&(struct rate){.packets = 123457}, 60, 5000).packets, 123457, 0.0001);
	WITHIN(greedy(&(struct rate){.packets = 7}, 60, 5000).packets, 7, 0.15);
	/* Of two limits the tighter one holds. */
	WITHIN(greedy(&(struct rate){.bits = UINT64_C(1000000000), .packets = 1000}, 1514, 5000).packets, 1000, 0.001);
	WITHIN(greedy(&(struct rate){.bits = 1000000, .packets = 1000000}, 1514, 5000).bits, 1000000, 0.02);
}

static void no_limit_holds_nothing_back(void **state)
{
	assert_int_equal(greedy(&(struct rate){0}, 1514, SECOND / 1000).packets, 64000);
}

static void a_pause_saves_up_a_burst_and_no_more(void **state)
{
	const struct rate rate = {.packets = 100000};
	const uint64_t later = START + 3600 * SECOND;
	uint32_t lengths[4096] = {0};
	struct limit limit;

	limit_set(&limit, &rate, START, HZ);
	assert_true(limit_open(&limit, later));
	WITHIN(limit_pass(&limit, later, lengths, 4096), rate.packets * RATE_BURST_MS / 1000 + 1, 0.001);
	assert_false(limit_open(&limit, later));
	assert_false(limit_open(&limit, later + HZ / rate.packets - 10));
	assert_true(limit_open(&limit, later + HZ / rate.packets + 10));
}

static void a_limit_holds_over_days(void **state)
{
	const struct rate rate = {.bits = UINT64_C(10000000000)};
	uint64_t packets = 0, now = START;
	struct limit limit;

	limit_set(&limit, &rate, now, HZ);
	/* Ten milliseconds a step, as many frames as are open: the fractions add up over 10^10 frames. */
	for (unsigned i = 0; i < 1000000; i++, now += HZ / 100)
		while (limit_open(&limit, now)) {
			limit_spend(&limit, 1000 * 1514, 1000);
			packets += 1000;
		}
	WITHIN(packets, 10000.0 * (double)rate.bits / (1518 * 8), 0.0001);
}

/* ------- shares ------- */

struct sender {
	uint32_t length;
	double demand; /* frames a round; those it cannot give wait, or are dropped */
	bool drops;
	double waiting; /* frames */
	uint64_t given, offered;
};

/*
 * Senders served in turn, round by round, by a receiver whose ring of 256 slots is emptied by `drain` bytes a round;
 * or that is limited, and then has room always.
 */
static void serve(struct shares *shares, struct sender *senders, unsigned nb_senders, double drain, unsigned rounds)
{
	const uint64_t round = HZ / 100000; /* 10 us */
	const bool limited = shares_limited(shares);
	double slots = 256, freed = 0, mean = 1500;
	uint64_t now = START;

	for (unsigned r = 0; r < rounds; r++, now += round) {
		freed += drain / mean;
		while (freed >= 1 && slots < 256)
			freed--, slots++;
		for (unsigned i = 0; i < nb_senders; i++) {
			struct sender *sender = &senders[i];
			uint32_t lengths[64];
			unsigned have, pass, take;

			sender->waiting += sender->demand;
			have = sender->waiting < 64 ? (unsigned)sender->waiting : 64;
			if (have == 0) {
				if (!limited)
					shares_spend(shares, i, &(struct share_use){0}, now);
				continue;
			}
			sender->offered += have;
			for (unsigned k = 0; k < have; k++)
				lengths[k] = sender->length;
			if (!shares_open(shares, i, now)) {
				if (sender->drops)
					sender->waiting = 0;
				continue;
			}
			pass = shares_pass(shares, i, lengths, have);
			take = limited || pass < slots ? pass : (unsigned)slots;
			if (!limited) {
				slots -= take;
				mean += (sender->length - mean) * take / 1000;
			}
			sender->given += (uint64_t)take * (sender->length + RATE_FCS);
			shares_spend(
				shares, i,
				&(struct share_use){(uint64_t)take * sender->length, take, take < have, take < pass},
				now);
			sender->waiting = sender->drops ? 0 : sender->waiting - take;
		}
	}
}

static const struct rate gigabit = {.bits = 1000000000};

/* A worker that finds another one at the account does not wait, and nothing is given away by that. */
static void what_is_owed_is_spent_with_what_comes_next(void **state)
{
	const uint32_t weights[] = {1, 1};
	const struct share_use use = {.bytes = 1514, .packets = 1};
	struct shares *at_once = shares_make(&gigabit, weights, 2, START, HZ);
	struct shares *later = shares_make(&gigabit, weights, 2, START, HZ);
	uint64_t bytes = 5;
	uint32_t packets = 6;

	for (unsigned i = 0; i < 3; i++)
		shares_spend(at_once, 1, &use, START);
	shares_owe(later, 1, &use);
	shares_owe(later, 1, &use);
	assert_int_not_equal(later->members[1].credit, at_once->members[1].credit);
	shares_spend(later, 1, &use, START);
	assert_int_equal(later->members[1].credit, at_once->members[1].credit);
	assert_int_equal(later->members[0].credit, at_once->members[0].credit);
	owed_take(&later->members[1].owed, &bytes, &packets);
	assert_int_equal(bytes, 5);
	assert_int_equal(packets, 6);
	free(at_once);
	free(later);
}

static void a_limit_is_divided_by_weight(void **state)
{
	for (unsigned drops = 0; drops < 2; drops++) {
		const uint32_t weights[] = {3, 1};
		struct shares *shares = shares_make(&gigabit, weights, 2, START, HZ);
		struct sender senders[] = {{.length = 1514, .demand = 20, .drops = drops},
					   {.length = 60, .demand = 60, .drops = drops}};

		serve(shares, senders, 2, 0, 100000); /* a second */
		WITHIN(senders[0].given * 8, 750000000, 0.02);
		WITHIN(senders[1].given * 8, 250000000, 0.02);
		free(shares);
	}
}

static void what_one_does_not_use_the_others_get(void **state)
{
	const uint32_t weights[] = {1, 1, 2};
	struct shares *shares = shares_make(&gigabit, weights, 3, START, HZ);
	/* The second wants 10 %, less than its quarter, and loses nothing; the rest goes 1 : 2. */
	struct sender senders[] = {{.length = 1514, .demand = 20, .drops = true},
				   {.length = 1514, .demand = 0.0823, .drops = true},
				   {.length = 1514, .demand = 20, .drops = true}};

	serve(shares, senders, 3, 0, 100000);
	WITHIN(senders[1].given, senders[1].offered * 1518, 0.0001);
	WITHIN(senders[0].given * 8, 300000000, 0.02);
	WITHIN(senders[2].given * 8, 600000000, 0.02);
	free(shares);
}

static void one_alone_gets_all(void **state)
{
	const uint32_t weights[] = {1, 1000};
	struct shares *shares = shares_make(&gigabit, weights, 2, START, HZ);
	struct sender senders[] = {{.length = 1514, .demand = 20}, {.length = 60}};

	serve(shares, senders, 2, 0, 100000);
	WITHIN(senders[0].given * 8, 1000000000, 0.02);
	free(shares);
	shares = shares_make(NULL, weights, 2, START, HZ);
	senders[0] = (struct sender){.length = 1514, .demand = 20};
	serve(shares, senders, 2, 15000, 100000);
	WITHIN(senders[0].given, 1500000000, 0.02);
	free(shares);
}

static void a_limit_in_frames_is_divided_by_frames(void **state)
{
	const uint32_t weights[] = {1, 1};
	struct shares *shares = shares_make(&(struct rate){.packets = 100000}, weights, 2, START, HZ);
	struct sender senders[] = {{.length = 1514, .demand = 20}, {.length = 60, .demand = 20}};

	serve(shares, senders, 2, 0, 100000);
	WITHIN(senders[0].given / 1518, 50000, 0.02);
	WITHIN(senders[1].given / 64, 50000, 0.02);
	free(shares);
}

static void a_full_receiver_is_divided_by_weight(void **state)
{
	for (unsigned drops = 0; drops < 2; drops++) {
		const uint32_t weights[] = {1, 3, 4};
		struct shares *shares = shares_make(NULL, weights, 3, START, HZ);
		struct sender senders[] = {{.length = 1514, .demand = 30, .drops = drops},
					   {.length = 1514, .demand = 30, .drops = drops},
					   {.length = 300, .demand = 60, .drops = drops}};
		uint64_t total = 0;

		serve(shares, senders, 3, 6000, 400000);
		for (unsigned i = 0; i < 3; i++)
			total += senders[i].given;
		for (unsigned i = 0; i < 3; i++)
			WITHIN(senders[i].given * 8, total * weights[i], 0.05);
		free(shares);
	}
}

static void senders_without_weights_are_alike(void **state)
{
	enum { SENDERS = 12 };
	uint32_t weights[SENDERS];
	struct sender senders[SENDERS];
	struct shares *shares;
	uint64_t total = 0;

	for (unsigned i = 0; i < SENDERS; i++) {
		weights[i] = 1;
		senders[i] = (struct sender){.length = 100 + 120 * i, .demand = 30};
	}
	shares = shares_make(NULL, weights, SENDERS, START, HZ);
	serve(shares, senders, SENDERS, 20000, 400000);
	for (unsigned i = 0; i < SENDERS; i++)
		total += senders[i].given;
	for (unsigned i = 0; i < SENDERS; i++)
		WITHIN(senders[i].given * SENDERS, total, 0.05);
	free(shares);
}

static void a_receiver_with_room_holds_nobody_back(void **state)
{
	const uint32_t weights[] = {1, 1000};
	struct shares *shares = shares_make(NULL, weights, 2, START, HZ);
	struct sender senders[] = {{.length = 1514, .demand = 8, .drops = true},
				   {.length = 60, .demand = 8, .drops = true}};

	serve(shares, senders, 2, 60000, 100000);
	assert_int_equal(senders[0].given, senders[0].offered * 1518);
	assert_int_equal(senders[1].given, senders[1].offered * 64);
	free(shares);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_kept_whatever_the_frame_and_the_pace_of_looking),
		cmocka_unit_test(packets_are_kept),
		cmocka_unit_test(no_limit_holds_nothing_back),
		cmocka_unit_test(a_pause_saves_up_a_burst_and_no_more),
		cmocka_unit_test(a_limit_holds_over_days),
		cmocka_unit_test(what_is_owed_is_spent_with_what_comes_next),
		cmocka_unit_test(a_limit_is_divided_by_weight),
		cmocka_unit_test(what_one_does_not_use_the_others_get),
		cmocka_unit_test(one_alone_gets_all),
		cmocka_unit_test(a_limit_in_frames_is_divided_by_frames),
		cmocka_unit_test(a_full_receiver_is_divided_by_weight),
		cmocka_unit_test(senders_without_weights_are_alike),
		cmocka_unit_test(a_receiver_with_room_holds_nobody_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
