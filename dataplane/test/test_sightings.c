/* SPDX-License-Identifier: Apache-2.0
 *
 * The slowest frames are kept, whatever their order, one of those that were held up together; a sample covers a trial
 * of any length evenly.
 */
#include <stdlib.h>

#include "cmocka_all.h"
#include "tester/sightings.h"

static void the_slowest_are_kept_slowest_first(void **state)
{
	static struct worst worst;
	struct sighting frames[WORST];
	uint64_t added = 0;

	/* Every delay from 1 to 10007, once, in an order that jumps. */
	for (uint64_t i = 0; i < 10007; i++) {
		uint64_t delay = 1 + i * 5003 % 10007;
		struct sighting frame = {.sequence = delay, .sent = 100000 * i, .received = 100000 * i + delay};

		if (delay > worst.least) {
			worst_add(&worst, &frame);
			added++;
		}
	}
	assert_true(added < 2000);
	assert_int_equal(worst_read(&worst, frames), WORST);
	for (uint32_t i = 0; i < WORST; i++) {
		assert_int_equal(frames[i].sequence, 10007 - i);
		assert_int_equal(sighting_delay(&frames[i]), 10007 - i);
	}
}

static void few_frames_are_all_kept(void **state)
{
	struct worst worst = {0};
	struct sighting frames[WORST];

	assert_int_equal(worst_read(&worst, frames), 0);
	for (uint64_t i = 1; i <= 3; i++)
		worst_add(&worst, &(struct sighting){.sent = 10 * i, .received = 10 * i + i});
	assert_int_equal(worst_read(&worst, frames), 3);
	assert_int_equal(frames[0].received, 33);
}

/* A stop of 5000: all that were sent meanwhile are received together, the first of them the slowest. */
static void of_frames_held_up_together_the_slowest_is_kept(void **state)
{
	static struct worst worst;
	struct sighting frames[WORST];

	for (uint64_t stop = 0; stop < 3; stop++)
		for (uint64_t i = 0; i < 1000; i++)
			for (uint16_t way = 0; way < 2; way++) {
				uint64_t began = 1000000 * (stop + 1), sent = began + 5 * i;
				struct sighting frame = {.sequence = 1000 * stop + i,
							 .way = way,
							 .stream = way,
							 .sent = sent,
							 .received = began + 5000 + 10 * stop};

				worst_add(&worst, &frame);
			}
	assert_int_equal(worst_read(&worst, frames), 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(frames[i].sequence, 1000 * (2 - i / 2));
		assert_int_equal(sighting_delay(&frames[i]), 5000 + 10 * (2 - i / 2));
	}
	assert_int_not_equal(frames[0].way, frames[1].way);
}

static void a_slower_one_takes_the_place_of_those_it_was_held_up_with(void **state)
{
	static struct worst worst;
	struct sighting frames[WORST];

	worst_add(&worst, &(struct sighting){.sequence = 1, .sent = 100, .received = 150});
	worst_add(&worst, &(struct sighting){.sequence = 2, .sent = 120, .received = 190});
	worst_add(&worst, &(struct sighting){.sequence = 3, .sent = 150, .received = 200});
	assert_int_equal(worst_read(&worst, frames), 1);
	assert_int_equal(frames[0].sequence, 2);
}

static void a_sample_is_every_nth_frame_however_they_come(void **state)
{
	struct samples samples = {.every = 8, .frames = calloc(SAMPLES, sizeof(struct sighting))};
	uint64_t sequence = 0;

	for (uint32_t count = 1; sequence < 10000; sequence += count, count = count % 70 + 1)
		samples_add(&samples, &(struct sighting){.sequence = sequence, .sent = 1, .received = 2}, count);
	assert_int_equal(samples.count, (sequence + 7) / 8);
	for (uint32_t i = 0; i < samples.count; i++)
		assert_int_equal(samples.frames[i].sequence, 8 * i);
	free(samples.frames);
}

static void a_sample_thins_out_when_it_is_full(void **state)
{
	struct samples samples = {.every = 1, .frames = calloc(SAMPLES, sizeof(struct sighting))};
	const uint64_t total = 5 * SAMPLES;

	for (uint64_t sequence = 0; sequence < total; sequence += 64)
		samples_add(&samples, &(struct sighting){.sequence = sequence}, 64);
	assert_int_equal(samples.every, 8);
	assert_int_equal(samples.count, total / 8);
	for (uint32_t i = 0; i < samples.count; i++)
		assert_int_equal(samples.frames[i].sequence, 8 * i);
	free(samples.frames);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_slowest_are_kept_slowest_first),
		cmocka_unit_test(few_frames_are_all_kept),
		cmocka_unit_test(of_frames_held_up_together_the_slowest_is_kept),
		cmocka_unit_test(a_slower_one_takes_the_place_of_those_it_was_held_up_with),
		cmocka_unit_test(a_sample_is_every_nth_frame_however_they_come),
		cmocka_unit_test(a_sample_thins_out_when_it_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
