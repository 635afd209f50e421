/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers do with frames for a guest that moves: which are put aside, which wait with their sender, and in which
 * order the guest gets them.
 */
#include "test/cmocka_all.h"

#include "steer/watch.h"
#include "test/stations.h"

enum { GUEST = 1, PORT = 2000 };

/* A source whose egress leads to a guest that moves. */
struct moving {
	struct setting *setting;
	struct park park;
	struct shaper shaper;
	struct watch *watch;
	struct egress_watch *to;
	struct source source;
	uint32_t sent, came;
};

static struct moving *moving_of(struct setting *setting, struct hop_counters *hop)
{
	struct moving *moving = calloc(1, sizeof(*moving));

	moving->setting = setting;
	assert_true(park_open(&moving->park, false));
	assert_true(shaper_open(&moving->shaper));
	moving->shaper.limits = shaper_limits_of(0, 0, SHAPER_LATENCY_US, 1, 1);
	moving->watch = calloc(1, sizeof(*moving->watch));
	moving->to = calloc(1, sizeof(*moving->to));
	moving->to->park = &moving->park;
	moving->source = (struct source){.from = &setting->stations[0].port,
					 .kind = SOURCE_WATCHED,
					 .watch = moving->watch,
					 .egress = egress_to(setting, GUEST, hop)};
	moving->source.egress.watch = moving->to;
	setting->round.patience = UINT64_MAX;
	return moving;
}

static void free_moving(struct moving *moving)
{
	park_close(&moving->park);
	shaper_close(&moving->shaper);
	free(moving->watch);
	free(moving->to);
	free(moving);
}

static void stop_guest(struct moving *moving)
{
	atomic_store(&moving->setting->stations[GUEST].port.guest.live[GUEST_RECEIVES], NULL);
}

static void start_guest(struct moving *moving)
{
	struct station *station = &moving->setting->stations[GUEST];

	atomic_store(&station->port.guest.live[GUEST_RECEIVES], &station->receives.ring);
}

static void make_frame(struct frame *frame, uint32_t number)
{
	frame_udp4(frame, 1, 2, (uint16_t)(1000 + number), PORT);
}

static void send_next(struct moving *moving, unsigned count)
{
	struct frame frame;

	for (unsigned i = 0; i < count; i++) {
		make_frame(&frame, moving->sent++);
		send_frame(&moving->setting->stations[0], &frame);
	}
}

static unsigned poll(struct moving *moving)
{
	return source_poll(&moving->source, &moving->setting->round);
}

static void expect_next(struct moving *moving, unsigned count)
{
	struct frame frame;

	for (unsigned i = 0; i < count; i++) {
		make_frame(&frame, moving->came++);
		expect_frame(&moving->setting->stations[GUEST], &frame);
	}
	expect_nothing(&moving->setting->stations[GUEST]);
}

static void what_comes_while_others_wait_stays_with_its_sender(void **state)
{
	struct moving *moving = moving_of(*state, NULL);

	stop_guest(moving);
	for (unsigned i = 0; i < 3; i++) {
		send_next(moving, 10);
		assert_int_equal(poll(moving), 10);
	}
	assert_int_equal(park_waiting(&moving->park), 30);
	start_guest(moving);
	send_next(moving, 5);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(poll(moving), 0);
		offer_buffers(&moving->setting->stations[GUEST], 10);
		/* With the last of what was put aside, there is still no room for others. */
		assert_int_equal(poll(moving), 0);
		assert_int_equal(park_waiting(&moving->park), 20 - 10 * i);
		expect_next(moving, 10);
	}
	offer_buffers(&moving->setting->stations[GUEST], 10);
	assert_int_equal(poll(moving), 5);
	expect_next(moving, 5);
	assert_int_equal(moving->park.counts.parked, 30);
	free_moving(moving);
}

static void what_waits_for_the_rate_at_the_pause_is_put_aside_first(void **state)
{
	struct moving *moving = moving_of(*state, NULL);
	struct station *guest = &moving->setting->stations[GUEST];

	moving->to->shaper = &moving->shaper;
	for (unsigned i = 0; i < 100; i++) {
		struct frame frame;
		struct vring_piece pieces[1];
		struct packet packet = {.head = frame.bytes, .pieces = pieces, .nb_pieces = 1};

		make_frame(&frame, moving->sent++);
		packet.head_length = (uint16_t)frame.length;
		packet.length = packet.received = frame.length;
		assert_true(shaper_put(&moving->shaper, &packet));
	}
	stop_guest(moving);
	send_next(moving, 8);
	assert_int_equal(poll(moving), 8);
	assert_false(shaper_waiting(&moving->shaper));
	assert_int_equal(park_waiting(&moving->park), 108);
	assert_int_equal(guest->counters.parked_packets, 108);
	start_guest(moving);
	for (unsigned i = 0; i < 9; i++) {
		offer_buffers(guest, 12);
		assert_int_equal(poll(moving), 0);
		expect_next(moving, 12);
	}
	assert_int_equal(park_waiting(&moving->park), 0);
	assert_int_equal(guest->counters.drop_receiver_down + guest->counters.drop_parked, 0);
	free_moving(moving);
}

/* Behind the first that finds no room, so that none overtakes it; at the direct hop, and at one of several chains'. */
static void what_finds_no_room_is_dropped_and_counted_at_its_hop(void **state)
{
	struct setting *setting = *state;
	const struct step steps[] = {{.first = 0}};
	const struct rule rules[] = {to_port(PORT, PORT, 0)};
	struct classifier *classifier = classifier_of(rules, 1);

	for (unsigned steered = 0; steered < 2; steered++) {
		struct hop_counters hop = {0};
		struct moving *moving = moving_of(setting, &hop);
		struct queue_counters *counters = &setting->stations[GUEST].counters;

		*counters = (struct queue_counters){0};
		if (steered) {
			moving->source = source_of(setting, 0,
						   &(struct steering_config){.egresses = &moving->source.egress,
									     .nb_egresses = 1,
									     .classifier = classifier,
									     .steps = steps,
									     .nb_steps = 1,
									     .otherwise = STEERING_DROP});
			moving->source.watch = moving->watch;
		}
		moving->park.own.limits.packets = 6;
		stop_guest(moving);
		send_next(moving, 10);
		assert_int_equal(poll(moving), 10);
		assert_int_equal(counters->parked_packets, 6);
		assert_int_equal(counters->drop_parked, 4);
		assert_int_equal(hop.drop_receiver_down, 4);
		assert_int_equal(moving->park.counts.parked, 6);
		assert_int_equal(moving->park.counts.dropped, 4);
		start_guest(moving);
		offer_buffers(&setting->stations[GUEST], 6);
		assert_int_equal(poll(moving), 0);
		expect_next(moving, 6);
		if (steered)
			steering_free(moving->source.steering);
		free_moving(moving);
	}
	free(classifier);
}

/* The guest has got it at the other switch: it is not one that was put aside. */
static void what_is_forgotten_does_not_count_as_put_aside(void **state)
{
	struct moving *moving = moving_of(*state, NULL);
	struct station *guest = &moving->setting->stations[GUEST];
	struct vring_piece pieces[1];
	struct frame frame;
	struct packet packet = {.head = frame.bytes, .pieces = pieces, .nb_pieces = 1};

	make_frame(&frame, 0);
	packet.head_length = (uint16_t)frame.length;
	packet.length = packet.received = frame.length;
	assert_true(park_give(&moving->park, &packet, 1));
	stop_guest(moving);
	send_next(moving, 3);
	assert_int_equal(poll(moving), 3);
	assert_int_equal(guest->counters.parked_packets, 2);
	assert_int_equal(park_waiting(&moving->park), 3);
	start_guest(moving);
	for (unsigned i = 0; i < 2; i++) {
		offer_buffers(guest, 4);
		poll(moving);
	}
	expect_next(moving, 3);
	free_moving(moving);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_comes_while_others_wait_stays_with_its_sender, start, end),
		cmocka_unit_test_setup_teardown(what_waits_for_the_rate_at_the_pause_is_put_aside_first, start, end),
		cmocka_unit_test_setup_teardown(what_finds_no_room_is_dropped_and_counted_at_its_hop, start, end),
		cmocka_unit_test_setup_teardown(what_is_forgotten_does_not_count_as_put_aside, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
