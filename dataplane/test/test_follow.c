/* SPDX-License-Identifier: Apache-2.0
 *
 * What onlookers see of frames between simulated guests: given, or dropped and why.
 */
#include "test/cmocka_all.h"

#include "common/signature.h"
#include "steer/watch.h"
#include "test/stations.h"

enum { KEY = 77, SHORT_BUFFER = 100, RING_BYTES = 1 << 16, RECORDS = 64 };

/* A capture's ring. */
struct copies {
	struct capture *capture;
	struct capture_header *header;
};

/* What looks at the frames of station 0: a frame's steps, captures of what is offered and of what is given, hops. */
struct onlookers {
	struct note_ring notes;
	struct follow follow;
	struct hop_trace hops;
	struct hop_record records[RECORDS];
	uint64_t nb_records;
	struct copies offered, given;
	struct watch *watch;
	struct egress_watch *egresses[STATIONS];
};

static struct copies copies_new(void)
{
	struct copies copies = {aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct capture), 64)),
				aligned_alloc(4096, CAPTURE_DATA + RING_BYTES)};

	memset(copies.capture, 0, sizeof(*copies.capture));
	memset(copies.header, 0, CAPTURE_DATA + RING_BYTES);
	copies.capture->nb_rings = 1;
	copies.capture->rings[0] = (struct capture_ring){.header = copies.header,
							 .data = (uint8_t *)copies.header + CAPTURE_DATA,
							 .size = RING_BYTES,
							 .snaplen = 64};
	return copies;
}

static struct egress_watch *egress_watch_of(struct onlookers *onlookers, unsigned station)
{
	struct egress_watch *watch = calloc(1, sizeof(*watch) + 2 * sizeof(watch->taps[0]));

	watch->number = station;
	watch->nb_offered = 1;
	watch->nb_taps = 2;
	watch->taps[0].capture = onlookers->offered.capture;
	watch->taps[1].capture = onlookers->given.capture;
	return watch;
}

static struct onlookers *look_on(struct setting *setting)
{
	struct onlookers *onlookers = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct onlookers), 64));

	memset(onlookers, 0, sizeof(*onlookers));
	onlookers->follow.match = classifier_of(NULL, 0); /* an action that is not 0: all frames */
	onlookers->follow.rings[0] = &onlookers->notes;
	atomic_store(&onlookers->follow.left[0], FOLLOW_FRAMES);
	onlookers->hops.key = HOP_KEYED | KEY;
	onlookers->hops.sampled[0] = (struct hop_ring){&onlookers->nb_records, onlookers->records, RECORDS - 1};
	onlookers->offered = copies_new();
	onlookers->given = copies_new();
	onlookers->watch = calloc(1, sizeof(*onlookers->watch));
	onlookers->watch->hops = &onlookers->hops;
	onlookers->watch->followed.follow = &onlookers->follow;
	for (unsigned i = 0; i < STATIONS; i++) {
		onlookers->egresses[i] = egress_watch_of(onlookers, i);
		snprintf(setting->stations[i].port.name, sizeof(setting->stations[i].port.name), "%u", i);
	}
	return onlookers;
}

static void look_away(struct onlookers *onlookers)
{
	for (unsigned i = 0; i < STATIONS; i++)
		free(onlookers->egresses[i]);
	free(onlookers->watch);
	free(onlookers->offered.capture);
	free(onlookers->offered.header);
	free(onlookers->given.capture);
	free(onlookers->given.header);
	free(onlookers->follow.match);
	free(onlookers);
}

/* The next step that was noted is this one. */
static void expect_step(struct onlookers *onlookers, const char *text)
{
	const struct note *note = &onlookers->notes.notes[onlookers->notes.tail % FOLLOW_NOTES];

	assert_int_not_equal(onlookers->notes.tail, onlookers->notes.head);
	assert_string_equal(note->text, text);
	onlookers->notes.tail++;
}

static void expect_no_step(const struct onlookers *onlookers)
{
	assert_int_equal(onlookers->notes.tail, onlookers->notes.head);
}

/* The station has buffers for short frames. */
static void offer_short_buffers(struct station *station, unsigned count)
{
	struct simulated_guest *guest = &station->receives;

	guest->ring.mergeable = false;
	for (unsigned i = 0; i < count; i++)
		guest_offer(guest, guest_desc(guest, BUFFERS + guest->next_desc % RING * BUFFER, SHORT_BUFFER,
					      VRING_DESC_F_WRITE));
}

/* A test frame of this run, to everybody. */
static void send_signed(struct setting *setting, uint64_t sequence, unsigned length)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	memset(frame.bytes, 0xff, 6);
	frame_add16(&frame, 0x0900);
	memset(frame.bytes + frame.length, 0, length - frame.length);
	frame.length = length;
	signature_write(frame.bytes + length - SIGNATURE_SIZE, KEY, 0, sequence, 1);
	send_frame(&setting->stations[0], &frame);
}

/* Of three frames the second is too long for the receiver's buffers. */
static void expect_two_of_three(struct setting *setting, struct onlookers *onlookers)
{
	for (unsigned i = 0; i < 3; i++)
		expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "leaves by port 1");
	expect_step(onlookers, "dropped: port 1 takes no frame so long (drop_receiver_too_small)");
	expect_step(onlookers, "leaves by port 1");
	expect_no_step(onlookers);
	assert_int_equal(onlookers->offered.header->frames, 3);
	assert_int_equal(onlookers->given.header->frames, 2);
	assert_int_equal(onlookers->nb_records, 2);
	assert_int_equal(onlookers->records[0].frame, 1);
	assert_int_equal(onlookers->records[1].frame, 3);
	assert_int_equal(setting->stations[1].counters.drop_receiver_too_small, 1);
}

static void send_three(struct setting *setting)
{
	offer_short_buffers(&setting->stations[1], 3);
	for (unsigned i = 1; i <= 3; i++)
		send_signed(setting, i, i == 2 ? 200 : 60);
}

static void a_frame_too_long_is_dropped_for_those_who_look_at_a_direct_hop(void **state)
{
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct source source = {.from = &setting->stations[0].port,
				.kind = SOURCE_WATCHED,
				.egress = egress_to(setting, 1, NULL),
				.watch = onlookers->watch};

	source.egress.watch = onlookers->egresses[1];
	send_three(setting);
	assert_int_equal(source_poll(&source, &setting->round), 3);
	expect_two_of_three(setting, onlookers);
	look_away(onlookers);
}

static void a_frame_too_long_is_dropped_for_those_who_look_at_a_steered_hop(void **state)
{
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct hop_counters hop = {0};
	struct egress egress = egress_to(setting, 1, &hop);
	const struct step step = {.first = 0};
	struct source source;

	egress.watch = onlookers->egresses[1];
	source = source_of(
		setting, 0,
		&(struct steering_config){.egresses = &egress, .nb_egresses = 1, .steps = &step, .nb_steps = 1});
	source.watch = onlookers->watch;
	send_three(setting);
	assert_int_equal(source_poll(&source, &setting->round), 3);
	expect_two_of_three(setting, onlookers);
	assert_int_equal(hop.packets, 2);
	assert_int_equal(hop.drop_receiver_too_small, 1);
	steering_free(source.steering);
	look_away(onlookers);
}

/* What one port of a bridge was given another may have had no room for, whichever comes first. */
static void each_port_of_a_flood_is_told_apart(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"}, {.name = "1"}, {.name = "2"}, {.name = "3"}};
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_new(
		memory, &(struct bridge_config){.nb_ports = STATIONS, .ports = ports, .ageing = 300, .flood = 1000});
	struct egress egresses[STATIONS] = {{0}};
	struct source source;

	for (unsigned i = 1; i < STATIONS; i++) {
		egresses[i] = egress_to(setting, i, NULL);
		egresses[i].watch = onlookers->egresses[i];
	}
	source = source_of(
		setting, 0,
		&(struct steering_config){
			.egresses = egresses, .nb_egresses = STATIONS, .otherwise = STEERING_DROP, .bridge = bridge});
	source.watch = onlookers->watch;
	offer_short_buffers(&setting->stations[1], 1);
	offer_buffers(&setting->stations[2], 1);
	offer_short_buffers(&setting->stations[3], 1);
	send_signed(setting, 1, 200);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "bridge, VLAN 0: to every port of its VLAN but its own");
	expect_step(onlookers, "dropped: port 1 takes no frame so long (drop_receiver_too_small)");
	expect_step(onlookers, "leaves by port 2");
	expect_step(onlookers, "dropped: port 3 takes no frame so long (drop_receiver_too_small)");
	expect_no_step(onlookers);
	assert_int_equal(onlookers->given.header->frames, 1);
	assert_int_equal(onlookers->nb_records, 1);
	assert_int_equal(onlookers->records[0].to, 2);
	/* It has gone on to a port. */
	assert_int_equal(setting->stations[0].counters.received_bytes, 200);
	steering_free(source.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
	look_away(onlookers);
}

/* Steered frames that end without having been given to anybody say why. */
static void a_frame_for_nobody_says_so(void **state)
{
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	const struct egress nowhere = {0};
	const struct step step = {.first = 0};
	const struct steering_config configs[] = {
		{.egresses = &nowhere, .nb_egresses = 1, .steps = &step, .nb_steps = 1}, {.otherwise = STEERING_DROP}};

	for (unsigned i = 0; i < 2; i++) {
		struct source source = source_of(setting, 0, &configs[i]);

		source.watch = onlookers->watch;
		send_signed(setting, 1, 60);
		assert_int_equal(source_poll(&source, &setting->round), 1);
		expect_step(onlookers, "enters by port 0");
		expect_step(onlookers, "dropped: port 0 is in no chain (drop_no_chain)");
		expect_no_step(onlookers);
		assert_int_equal(setting->stations[0].counters.drop_no_chain, i + 1);
		steering_free(source.steering);
	}
	look_away(onlookers);
}

#define TOO_SHORT "dropped: it is shorter than an Ethernet header (drop_frame_too_short)"

/* What cannot be read has its steps too, unless something is asked of the frames that are followed. */
static void a_frame_that_cannot_be_read_says_so(void **state)
{
	const struct rule any_port = to_port(0, 65535, 1);
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct source source = {.from = &setting->stations[0].port,
				.kind = SOURCE_WATCHED,
				.egress = egress_to(setting, 1, NULL),
				.watch = onlookers->watch};
	struct frame short_frame = {.length = 4};
	uint32_t marks[2];

	offer_buffers(&setting->stations[1], 4);
	setting->stations[0].counters.drop_frame_too_short = 7; /* from before */
	for (unsigned i = 0; i < 2; i++)
		send_frame(&setting->stations[0], &short_frame);
	assert_int_equal(source_poll(&source, &setting->round), 2);
	for (unsigned i = 0; i < 2; i++) {
		marks[i] = onlookers->notes.notes[onlookers->notes.tail].mark;
		expect_step(onlookers, "enters by port 0");
		expect_step(onlookers, TOO_SHORT);
	}
	expect_no_step(onlookers);
	assert_int_not_equal(marks[0], marks[1]);
	assert_int_equal(onlookers->follow.left[0], FOLLOW_FRAMES - 2);
	free(onlookers->follow.match);
	assert_int_equal(classifier_build(&onlookers->follow.match, &any_port, 1, 0, &(unsigned){0}), 0);
	send_frame(&setting->stations[0], &short_frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_no_step(onlookers);
	look_away(onlookers);
}

/* A burst that stays is decided on again: what was decided before is nobody's. */
static void what_stays_with_its_sender_has_no_steps_yet(void **state)
{
	const struct rule rule = to_port(1, 1, 0);
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct classifier *classifier = classifier_of(&rule, 1);
	struct egress egress = egress_to(setting, 1, NULL);
	const struct step step = {.first = 0};
	struct source source;
	struct frame frame;

	egress.locked = true;
	egress.watch = onlookers->egresses[1];
	source = source_of(setting, 0,
			   &(struct steering_config){.egresses = &egress,
						     .nb_egresses = 1,
						     .classifier = classifier,
						     .steps = &step,
						     .nb_steps = 1,
						     .otherwise = STEERING_DROP});
	source.watch = onlookers->watch;
	atomic_store(&onlookers->follow.left[0], 2);
	offer_buffers(&setting->stations[1], 2);
	for (unsigned port = 1; port <= 2; port++) {
		frame_udp4(&frame, 1, 2, 9, port);
		send_frame(&setting->stations[0], &frame);
	}
	rte_spinlock_lock(&setting->stations[1].port.queues[0].lock);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(source_poll(&source, &setting->round), 0);
	expect_no_step(onlookers);
	rte_spinlock_unlock(&setting->stations[1].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 2);
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "dropped: no chain's match fits (drop_no_match)");
	expect_step(onlookers, "leaves by port 1");
	expect_no_step(onlookers);
	steering_free(source.steering);
	free(classifier);
	look_away(onlookers);
}

/* Of a burst some may leave: the others, which wait for room, have no steps yet. */
static void of_a_burst_in_part_given_the_rest_has_no_steps_yet(void **state)
{
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct source source = {.from = &setting->stations[0].port,
				.kind = SOURCE_WATCHED,
				.egress = egress_to(setting, 1, NULL),
				.watch = onlookers->watch};

	source.egress.watch = onlookers->egresses[1];
	setting->round.patience = UINT64_MAX;
	/* More buffers than frames, but the second frame takes three of them, and two are left. */
	offer_short_buffers(&setting->stations[1], 3);
	setting->stations[1].receives.ring.mergeable = true;
	send_signed(setting, 1, 60);
	send_signed(setting, 2, 200);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "leaves by port 1");
	expect_no_step(onlookers);
	assert_int_equal(onlookers->follow.left[0], FOLLOW_FRAMES - 1);
	offer_buffers(&setting->stations[1], 1); /* a large one */
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "leaves by port 1");
	expect_no_step(onlookers);
	look_away(onlookers);
}

/* Beside a frame that was dropped on reading a burst cannot wait for an outlet that another worker has. */
static void a_frame_whose_receiver_is_busy_says_so(void **state)
{
	struct setting *setting = *state;
	struct onlookers *onlookers = look_on(setting);
	struct egress egress = egress_to(setting, 1, NULL);
	const struct step step = {.first = 0};
	struct frame short_frame = {.length = 4};
	struct source source;

	egress.locked = true;
	egress.watch = onlookers->egresses[1];
	source = source_of(
		setting, 0,
		&(struct steering_config){.egresses = &egress, .nb_egresses = 1, .steps = &step, .nb_steps = 1});
	source.watch = onlookers->watch;
	offer_buffers(&setting->stations[1], 2);
	send_signed(setting, 1, 60);
	send_frame(&setting->stations[0], &short_frame);
	rte_spinlock_lock(&setting->stations[1].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 2);
	rte_spinlock_unlock(&setting->stations[1].port.queues[0].lock);
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, "enters by port 0");
	expect_step(onlookers, TOO_SHORT);
	expect_step(onlookers, "dropped: another worker kept port 1 too long (drop_receiver_busy)");
	expect_no_step(onlookers);
	assert_int_equal(setting->stations[0].counters.drop_receiver_busy, 1);
	steering_free(source.steering);
	look_away(onlookers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_frame_too_long_is_dropped_for_those_who_look_at_a_direct_hop),
		TEST(a_frame_too_long_is_dropped_for_those_who_look_at_a_steered_hop),
		TEST(each_port_of_a_flood_is_told_apart),
		TEST(a_frame_for_nobody_says_so),
		TEST(a_frame_that_cannot_be_read_says_so),
		TEST(what_stays_with_its_sender_has_no_steps_yet),
		TEST(of_a_burst_in_part_given_the_rest_has_no_steps_yet),
		TEST(a_frame_whose_receiver_is_busy_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
