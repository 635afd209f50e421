/* SPDX-License-Identifier: Apache-2.0
 *
 * The time that frames wait for a receiver without room is noted, once, when they have left or are dropped no more.
 * For one that is awaited they wait for ever, and as long as for any other once it is there.
 */
#include "test/cmocka_all.h"

#include "common/gaps.h"
#include "steer/watch.h"
#include "test/stations.h"

enum { LIMIT = 100, FROM = 7, TO = 9 };

struct notes {
	uint64_t limit, nb_gaps, nb_waits;
	struct gap gaps[GAPS_LENGTH], waits[GAPS_LENGTH];
	struct gap_log log;
};

static struct notes *take_notes(struct setting *setting)
{
	struct notes *notes = calloc(1, sizeof(*notes));

	notes->limit = LIMIT;
	notes->log = (struct gap_log){.limit = &notes->limit,
				      .gaps = {&notes->nb_gaps, notes->gaps},
				      .waits = {&notes->nb_waits, notes->waits}};
	setting->round.gaps = &notes->log;
	setting->round.patience = UINT64_MAX;
	setting->stations[0].port.number = FROM;
	setting->stations[1].port.number = TO;
	return notes;
}

static void send_one(struct setting *setting)
{
	struct frame frame;

	frame_udp4(&frame, 1, 2, 1000, 2000);
	send_frame(&setting->stations[0], &frame);
}

/* The frame waits from now on, for so long. */
static void wait_for_room(struct setting *setting, struct source *source, uint64_t cycles)
{
	send_one(setting);
	assert_int_equal(source_poll(source, &setting->round), 0);
	setting->round.now += cycles / 2;
	assert_int_equal(source_poll(source, &setting->round), 0);
	setting->round.now += cycles - cycles / 2;
	offer_buffers(&setting->stations[1], 1);
	assert_int_equal(source_poll(source, &setting->round), 1);
}

static void check_waits(struct setting *setting, struct source *source)
{
	struct notes *notes = take_notes(setting);
	const uint64_t began = setting->round.now;

	wait_for_room(setting, source, LIMIT + 1);
	assert_int_equal(notes->nb_waits, 1);
	assert_int_equal(notes->waits[0].begin, began);
	assert_int_equal(notes->waits[0].end, began + LIMIT + 1);
	assert_int_equal(notes->waits[0].what, FROM << 16 | TO);
	/* A short one is not. */
	wait_for_room(setting, source, LIMIT);
	/* Nor is it a wait when there is room, nor when there is nothing to give. */
	offer_buffers(&setting->stations[1], 1);
	send_one(setting);
	assert_int_equal(source_poll(source, &setting->round), 1);
	setting->round.now += 2 * LIMIT;
	assert_int_equal(source_poll(source, &setting->round), 0);
	assert_int_equal(notes->nb_waits, 1);
	assert_int_equal(notes->nb_gaps, 0);
	/* Nobody notes anything where there are no notes. */
	setting->round.gaps = NULL;
	wait_for_room(setting, source, LIMIT + 1);
	assert_int_equal(notes->nb_waits, 1);
	free(notes);
}

static void waits_of_a_direct_hop_are_noted(void **state)
{
	struct setting *setting = *state;
	struct source source = {.from = &setting->stations[0].port, .egress = egress_to(setting, 1, NULL)};

	check_waits(setting, &source);
}

static void waits_of_a_watched_hop_are_noted(void **state)
{
	struct setting *setting = *state;
	struct watch watch = {0};
	struct source source = {.from = &setting->stations[0].port,
				.kind = SOURCE_WATCHED,
				.watch = &watch,
				.egress = egress_to(setting, 1, NULL)};

	check_waits(setting, &source);
}

static void check_awaited(struct setting *setting, struct source *source)
{
	struct station *sender = &setting->stations[0], *receiver = &setting->stations[1];
	enum { PATIENCE = 1000 };

	setting->round.patience = PATIENCE;
	atomic_store(&receiver->port.guest.awaited, true);
	atomic_store(&receiver->port.guest.live[GUEST_RECEIVES], NULL);
	for (unsigned i = 0; i < 8; i++)
		send_one(setting);
	for (unsigned i = 0; i < 10; i++, setting->round.now += PATIENCE)
		assert_int_equal(source_poll(source, &setting->round), 0);
	/* It is there, and has not made its buffers available yet; this worker was kept off its core before. */
	atomic_store(&receiver->port.guest.live[GUEST_RECEIVES], &receiver->receives.ring);
	setting->round.now += 2 * PATIENCE;
	assert_int_equal(source_poll(source, &setting->round), 0);
	setting->round.now += PATIENCE;
	assert_int_equal(source_poll(source, &setting->round), 0);
	offer_buffers(receiver, 7);
	assert_int_equal(source_poll(source, &setting->round), 7);
	assert_int_equal(sender->port.queues[0].blocked_since, 0);
	/* It is like any other by now: full for too long. */
	assert_int_equal(source_poll(source, &setting->round), 0);
	setting->round.now += PATIENCE + 1;
	assert_int_equal(source_poll(source, &setting->round), 1);
	assert_int_equal(receiver->counters.drop_receiver_full, 1);
	assert_int_equal(receiver->counters.drop_receiver_down, 0);
	/* And again, however long ago that was. */
	atomic_store(&receiver->port.guest.live[GUEST_RECEIVES], NULL);
	send_one(setting);
	assert_int_equal(source_poll(source, &setting->round), 0);
	atomic_store(&receiver->port.guest.awaited, false);
	assert_int_equal(source_poll(source, &setting->round), 1);
	assert_int_equal(receiver->counters.drop_receiver_down, 1);
}

static void frames_wait_for_one_who_is_awaited(void **state)
{
	struct setting *setting = *state;
	struct source source = {.from = &setting->stations[0].port, .egress = egress_to(setting, 1, NULL)};

	check_awaited(setting, &source);
}

static void frames_that_are_looked_at_wait_as_well(void **state)
{
	struct setting *setting = *state;
	struct watch watch = {0};
	struct source source = {.from = &setting->stations[0].port,
				.kind = SOURCE_WATCHED,
				.watch = &watch,
				.egress = egress_to(setting, 1, NULL)};

	check_awaited(setting, &source);
}

static void a_rest_is_noted_beside_waits(void **state)
{
	struct notes *notes = take_notes(*state);

	gaps_rested(&notes->log, 1000, 1000 + LIMIT);
	assert_int_equal(notes->nb_waits, 0);
	gaps_rested(&notes->log, 1000, 1001 + LIMIT);
	assert_int_equal(notes->nb_waits, 1);
	assert_int_equal(notes->waits[0].what, GAPS_REST);
	assert_int_equal(notes->nb_gaps, 0);
	free(notes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waits_of_a_direct_hop_are_noted, start, end),
		cmocka_unit_test_setup_teardown(waits_of_a_watched_hop_are_noted, start, end),
		cmocka_unit_test_setup_teardown(frames_wait_for_one_who_is_awaited, start, end),
		cmocka_unit_test_setup_teardown(frames_that_are_looked_at_wait_as_well, start, end),
		cmocka_unit_test_setup_teardown(a_rest_is_noted_beside_waits, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
