/* SPDX-License-Identifier: Apache-2.0
 *
 * Interval records on a clock that the test turns by hand: what they count, when a frame is lost, what happens when
 * nobody reads them; and that a trial which begins days on goes on as one that has run for days.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "tester/describe.h"
#include "tester/trial.h"

#define HZ	 UINT64_C(1000000000) /* a cycle is a nanosecond */
#define WRAP	 (UINT64_C(1) << SEQUENCE_BITS)
#define WINDOW	 UINT64_C(4096)
#define INTERVAL UINT64_C(1000000) /* cycles */
#define WAIT	 UINT64_C(100000)

static const struct clock_rate rate = {.hz = HZ, .ns_per_cycle = UINT64_C(1) << 32};

struct fixture {
	struct trial *trial;
	uint64_t now;
};

static void open_aged(struct fixture *fixture, uint64_t first, double age, double pps)
{
	struct trial *trial = trial_make(1);

	assert_non_null(trial);
	trial->record = (double)INTERVAL / HZ;
	trial->wait = (double)WAIT / HZ;
	trial->age = age;
	trial->duration = age + 10;
	trial->streams[0].next = first;
	trial->streams[0].pace = pace_plan(pps, trial->duration, 1e-3, HZ);
	trial->streams[0].frames.kinds[0].length = 60;
	assert_int_equal(sequence_open(&trial->streams[0].sequence, first, WINDOW), 0);
	assert_int_equal(trial_open_records(trial, &rate), 0);
	if (age > 0)
		trial_pretend_age(trial, &rate);
	fixture->trial = trial;
	fixture->now = trial_now(trial);
	trial->started = fixture->now - clock_cycles(&rate, age);
	trial_begin_records(trial, fixture->now);
}

static void open_fresh(struct fixture *fixture)
{
	open_aged(fixture, 0, 0, 1e6);
}

static void send_frames(struct fixture *fixture, uint64_t count)
{
	fixture->trial->streams[0].next += count;
	fixture->trial->streams[0].pace.sent += count;
}

/* Frames of the stream, counted from its first, arrive 2 µs after they were sent. */
static void receive_frames(struct fixture *fixture, uint64_t number, uint32_t count)
{
	struct stream *stream = &fixture->trial->streams[0];

	number = (stream->sequence.first + number) & SEQUENCE_MASK;
	stream->received += count;
	histogram_count(stream->counting, 2000, count);
	tally_add(&stream->counting->tally, 2000, count);
	records_count(&fixture->trial->records, 0, &stream->sequence, number, count);
}

static void pass(struct fixture *fixture, uint64_t cycles)
{
	fixture->now += cycles;
	trial_look_at_records(fixture->trial, fixture->now);
}

static uint64_t closed(const struct fixture *fixture)
{
	return atomic_load(&fixture->trial->records.closed);
}

static const struct record_stream *record(const struct fixture *fixture, uint64_t number)
{
	assert_true(number < closed(fixture));
	return &records_slot(&fixture->trial->records, number)->streams[0];
}

static void a_record_is_closed_once_its_frames_had_time_to_arrive(void **state)
{
	struct fixture fixture;

	open_fresh(&fixture);
	send_frames(&fixture, 10);
	receive_frames(&fixture, 0, 7);
	pass(&fixture, INTERVAL);
	assert_int_equal(closed(&fixture), 0);
	receive_frames(&fixture, 7, 3);
	pass(&fixture, WAIT - 1);
	assert_int_equal(closed(&fixture), 0);
	pass(&fixture, 1);
	assert_int_equal(closed(&fixture), 1);
	assert_int_equal(record(&fixture, 0)->counts.sent, 10);
	assert_int_equal(record(&fixture, 0)->counts.received, 7);
	assert_int_equal(record(&fixture, 0)->counts.lost, 0);
	assert_int_equal(record(&fixture, 0)->in_flight, 3);
	assert_int_equal(record(&fixture, 0)->latency.tally.count, 7);
	trial_free(fixture.trial);
}

static void what_is_sent_after_its_end_is_not_missed(void **state)
{
	struct fixture fixture;

	open_fresh(&fixture);
	send_frames(&fixture, 10);
	receive_frames(&fixture, 0, 8); /* 8 and 9 are lost */
	pass(&fixture, INTERVAL);
	send_frames(&fixture, 5);
	receive_frames(&fixture, 10, 2);
	receive_frames(&fixture, 11, 1); /* again: a duplicate stands in for nothing */
	pass(&fixture, WAIT);
	assert_int_equal(record(&fixture, 0)->counts.lost, 2);
	assert_int_equal(record(&fixture, 0)->in_flight, 0);
	fixture.trial->ended = fixture.now + 10;
	trial_end_records(fixture.trial);
	assert_int_equal(record(&fixture, 1)->counts.lost, 5); /* and 12, 13, 14 */
	assert_int_equal(record(&fixture, 1)->counts.duplicate, 1);
	assert_int_equal(record(&fixture, 1)->latency.tally.count, 3);
	trial_free(fixture.trial);
}

static void a_dead_device_loses_all_at_once(void **state)
{
	struct fixture fixture;

	open_fresh(&fixture);
	send_frames(&fixture, 10);
	pass(&fixture, INTERVAL);
	pass(&fixture, WAIT);
	assert_int_equal(record(&fixture, 0)->counts.lost, 10);
	assert_int_equal(record(&fixture, 0)->latency.tally.count, 0);
	trial_free(fixture.trial);
}

static void a_frame_that_comes_later_still_takes_its_loss_back(void **state)
{
	struct fixture fixture;

	open_fresh(&fixture);
	send_frames(&fixture, 10);
	receive_frames(&fixture, 1, 9);
	pass(&fixture, INTERVAL);
	pass(&fixture, WAIT);
	assert_int_equal(record(&fixture, 0)->counts.lost, 1);
	receive_frames(&fixture, 0, 1);
	pass(&fixture, INTERVAL);
	pass(&fixture, WAIT);
	assert_int_equal(record(&fixture, 1)->counts.lost, 0);
	assert_int_equal(record(&fixture, 1)->counts.out_of_sequence, 1);
	trial_free(fixture.trial);
}

static void unread_records_grow_longer_and_lose_nothing(void **state)
{
	struct fixture fixture;
	uint64_t counted = 0;

	open_fresh(&fixture);
	for (uint64_t i = 0; i < 3 * RECORDS; i++) {
		send_frames(&fixture, 1);
		receive_frames(&fixture, i, 1);
		pass(&fixture, INTERVAL - WAIT);
		pass(&fixture, WAIT);
	}
	assert_int_equal(closed(&fixture), RECORDS - 1);
	trial_release_records(fixture.trial, RECORDS - 1);
	pass(&fixture, INTERVAL);
	pass(&fixture, WAIT);
	assert_int_equal(closed(&fixture), RECORDS);
	assert_true(records_slot(&fixture.trial->records, RECORDS - 1)->end -
			    records_slot(&fixture.trial->records, RECORDS - 1)->start >
		    2 * RECORDS * INTERVAL);
	counted = record(&fixture, RECORDS - 1)->latency.tally.count;
	assert_int_equal(counted, 3 * RECORDS - (RECORDS - 1));
	trial_merge_records(fixture.trial);
	assert_int_equal(fixture.trial->streams[0].latency.tally.count, 3 * RECORDS);
	trial_free(fixture.trial);
}

static void a_thousand_records_add_up(void **state)
{
	struct fixture fixture;
	uint64_t number = 0, kept = 0, counted = 0, end = 0;

	srand48(3);
	open_fresh(&fixture);
	for (int i = 0; i < 1000; i++) {
		uint32_t count = (uint32_t)(drand48() * 30);

		send_frames(&fixture, count);
		receive_frames(&fixture, number, count);
		number += count;
		pass(&fixture, WAIT);
		pass(&fixture, INTERVAL - WAIT);
		for (; kept < closed(&fixture); kept++) {
			counted += record(&fixture, kept)->latency.tally.count;
			assert_int_equal(record(&fixture, kept)->counts.received, counted);
			assert_int_equal(record(&fixture, kept)->counts.lost, 0);
			assert_int_equal(records_slot(&fixture.trial->records, kept)->start, end);
			end = records_slot(&fixture.trial->records, kept)->end;
		}
		trial_release_records(fixture.trial, kept);
	}
	fixture.trial->ended = fixture.now;
	trial_end_records(fixture.trial);
	trial_merge_records(fixture.trial);
	assert_int_equal(fixture.trial->streams[0].latency.tally.count, number);
	trial_free(fixture.trial);
}

/* 40 hours at 10 Mpps, and right before the end of 32 bits and of the 48 bits of a number in a frame. */
static void an_aged_trial_is_as_one_that_has_run_so_long(void **state)
{
	const struct {
		uint64_t first;
		double age, pps;
	} cases[] = {
		{0, 144000, 1e7},
		{0, 4294.967290, 1e6},
		{WRAP - UINT64_C(1440000000010), 144000, 1e7},
		{WRAP - 3, 144000, 1e7},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t before = (uint64_t)(cases[i].age * cases[i].pps + 0.5) + 1;
		struct fixture fixture;
		const struct stream *stream;

		open_aged(&fixture, cases[i].first, cases[i].age, cases[i].pps);
		stream = &fixture.trial->streams[0];
		assert_in_range(stream->pace.sent, before - 1, before);
		before = stream->pace.sent;
		assert_int_equal(stream->pace.unsent, 0);
		assert_int_equal(stream->latency.counts[histogram_index(1000)], before);
		assert_int_equal(stream->sent_bytes, before * 64);
		/* The pace neither gives up nor hurries: the next frames are due when they would have been. */
		assert_true(pace_allow(&fixture.trial->streams[0].pace, clock_cycles(&rate, cases[i].age), 32) <= 1);
		assert_int_equal(stream->pace.unsent, 0);

		send_frames(&fixture, 20);
		receive_frames(&fixture, before, 12);
		receive_frames(&fixture, before + 14, 6);
		receive_frames(&fixture, before + 13, 1);
		receive_frames(&fixture, before - 5, 1); /* had come before the test began */
		pass(&fixture, INTERVAL);
		pass(&fixture, WAIT);
		assert_int_equal(record(&fixture, 0)->counts.sent, before + 20);
		assert_int_equal(record(&fixture, 0)->counts.received, before + 20);
		assert_int_equal(record(&fixture, 0)->counts.lost, 1);
		assert_int_equal(record(&fixture, 0)->counts.out_of_sequence, 1);
		assert_int_equal(record(&fixture, 0)->counts.duplicate, 1);
		assert_int_equal(record(&fixture, 0)->latency.tally.count, 20);
		trial_free(fixture.trial);
	}
}

static void a_sum_is_told_exactly_however_large(void **state)
{
	static const struct {
		unsigned __int128 sum;
		const char *text; /* NULL: a number */
	} cases[] = {
		{0, NULL},
		{INT64_MAX, NULL},
		{(unsigned __int128)INT64_MAX + 1, "9223372036854775808"},
		{~(unsigned __int128)0, "340282366920938463463374607431768211455"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *described = describe_sum(cases[i].sum);

		if (cases[i].text != NULL)
			assert_string_equal(json_string_value(described), cases[i].text);
		else
			assert_int_equal(json_integer_value(described), cases[i].sum);
		json_decref(described);
	}
}

static void how_far_beyond_the_window_the_latest_was_is_in_its_record(void **state)
{
	struct fixture fixture;

	open_fresh(&fixture);
	send_frames(&fixture, WINDOW + 10);
	receive_frames(&fixture, 5, WINDOW + 5);
	receive_frames(&fixture, 3, 1);
	pass(&fixture, INTERVAL);
	pass(&fixture, WAIT);
	assert_int_equal(record(&fixture, 0)->counts.beyond_window, 1);
	assert_int_equal(record(&fixture, 0)->counts.latest, WINDOW + 10 - 3);
	trial_free(fixture.trial);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_is_closed_once_its_frames_had_time_to_arrive),
		cmocka_unit_test(what_is_sent_after_its_end_is_not_missed),
		cmocka_unit_test(a_dead_device_loses_all_at_once),
		cmocka_unit_test(a_frame_that_comes_later_still_takes_its_loss_back),
		cmocka_unit_test(unread_records_grow_longer_and_lose_nothing),
		cmocka_unit_test(a_thousand_records_add_up),
		cmocka_unit_test(an_aged_trial_is_as_one_that_has_run_so_long),
		cmocka_unit_test(a_sum_is_told_exactly_however_large),
		cmocka_unit_test(how_far_beyond_the_window_the_latest_was_is_in_its_record),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
