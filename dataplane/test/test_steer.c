/* SPDX-License-Identifier: Apache-2.0
 *
 * Bursts between simulated guests: by rules, to replicas, over a bridge; and what a full, absent or busy receiver
 * costs.
 */
#include "test/cmocka_all.h"

#include "steer/steering.h"
#include "test/stations.h"

/* Station 0 sends; ports 1 and 2 are two chains to station 1, port 3 one to station 2. */
static void steers_by_rules_and_counts_each_hop(void **state)
{
	struct setting *setting = *state;
	struct hop_counters hops[3] = {0};
	const struct egress egresses[] = {egress_to(setting, 1, &hops[0]), egress_to(setting, 1, &hops[1]),
					  egress_to(setting, 2, &hops[2])};
	const struct step steps[] = {{.first = 0}, {.first = 1}, {.first = 2}};
	const struct rule rules[] = {to_port(1, 1, 0), to_port(2, 2, 1), to_port(3, 3, 2)};
	struct classifier *classifier = classifier_of(rules, 3);
	struct source source = source_of(setting, 0,
					 &(struct steering_config){.egresses = egresses,
								   .nb_egresses = 3,
								   .classifier = classifier,
								   .steps = steps,
								   .nb_steps = 3,
								   .otherwise = STEERING_DROP});
	static const uint16_t ports[] = {1, 3, 2, 4, 1, 3, 2, 1};
	struct frame frames[8];

	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[2], 8);
	for (unsigned i = 0; i < 8; i++) {
		frame_udp4(&frames[i], 1, 2, 1000 + i, ports[i]);
		send_frame(&setting->stations[0], &frames[i]);
	}
	assert_int_equal(source_poll(&source, &setting->round), 8);
	/* Each receiver has its frames in the order of sending, whatever chain they belong to. */
	for (unsigned i = 0; i < 8; i++)
		if (ports[i] != 4)
			expect_frame(&setting->stations[ports[i] == 3 ? 2 : 1], &frames[i]);
	expect_nothing(&setting->stations[1]);
	expect_nothing(&setting->stations[2]);
	assert_int_equal(hops[0].packets, 3);
	assert_int_equal(hops[1].packets, 2);
	assert_int_equal(hops[2].packets, 2);
	assert_int_equal(hops[0].bytes, 3 * frames[0].length);
	assert_int_equal(setting->stations[0].counters.drop_no_match, 1);
	assert_int_equal(setting->stations[0].counters.received_packets, 8);
	assert_int_equal(setting->stations[1].counters.sent_packets, 5);
	assert_int_equal(setting->stations[0].sends.ring.used->idx, 8);
	assert_int_equal(source_poll(&source, &setting->round), 0);
	steering_free(source.steering);
	free(classifier);
}

/* Each from a queue of its own, which decide by the same rules: they share what they know of fragments. */
static void sends_later_fragments_after_their_first(void **state)
{
	struct setting *setting = *state;
	const struct egress egresses[] = {egress_to(setting, 1, NULL), egress_to(setting, 2, NULL)};
	const struct step steps[] = {{.first = 0}, {.first = 1}};
	const struct rule rules[] = {to_port(1, 1, 0)};
	struct classifier *classifier = classifier_of(rules, 1);
	const struct steering_config config = {.egresses = egresses,
					       .nb_egresses = 2,
					       .classifier = classifier,
					       .fragments = steering_fragments_new(3),
					       .steps = steps,
					       .nb_steps = 2,
					       .otherwise = 1};
	struct source sources[] = {source_of(setting, 0, &config), source_of(setting, 3, &config)};

	assert_true(classifier_reads_transport(classifier));
	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[2], 8);
	for (unsigned i = 0; i < 6; i++) {
		struct frame frame;

		frame_macs(&frame, 1, 2);
		/* Two datagrams, to ports 1 and 2, three pieces each; a piece's payload is no ports. */
		frame_ipv4(&frame, 1, 2, 17, 8, i / 3, i % 3 < 2 ? 0x2000 | i % 3 : 2);
		frame_ports(&frame, 1000, i % 3 == 0 ? 1 + i / 3 : 9 - i);
		send_frame(&setting->stations[i % 3 == 1 ? 3 : 0], &frame);
	}
	assert_int_equal(source_poll(&sources[0], &setting->round), 4);
	assert_int_equal(source_poll(&sources[1], &setting->round), 2);
	assert_int_equal(setting->stations[1].counters.sent_packets, 3);
	assert_int_equal(setting->stations[2].counters.sent_packets, 3);
	for (unsigned i = 0; i < 2; i++)
		steering_free(sources[i].steering);
	flows_free(config.fragments);
	free(classifier);
}

/* 64 of each group of replicas that a port's chains lead to are more than 16 bits can tell apart. */
static void tells_any_number_of_targets_apart(void **state)
{
	enum { LAST = UINT16_MAX + 2 };
	struct setting *setting = *state;
	struct hop_counters hops[2] = {0};
	struct egress *egresses = calloc(LAST + 1, sizeof(egresses[0]));
	const struct step steps[] = {{.first = 1}, {.first = LAST}};
	const struct rule rules[] = {to_port(1, 1, 0), to_port(2, 2, 1)};
	struct classifier *classifier = classifier_of(rules, 2);
	struct source source;
	struct frame frame;

	egresses[1] = egress_to(setting, 1, &hops[0]);
	egresses[LAST] = egress_to(setting, 2, &hops[1]);
	source = source_of(setting, 0,
			   &(struct steering_config){.egresses = egresses,
						     .nb_egresses = LAST + 1,
						     .classifier = classifier,
						     .steps = steps,
						     .nb_steps = 2,
						     .otherwise = STEERING_DROP});
	offer_buffers(&setting->stations[2], 1);
	frame_udp4(&frame, 1, 2, 1000, 2);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_frame(&setting->stations[2], &frame);
	assert_int_equal(hops[0].packets, 0);
	assert_int_equal(hops[1].packets, 1);
	steering_free(source.steering);
	free(classifier);
	free(egresses);
}

static void gives_flows_to_replicas_and_drops_what_none_takes(void **state)
{
	struct setting *setting = *state;
	struct pin_memory *memory = pin_memory_new(300);
	const struct pin_replica active[] = {{"a", false}, {"b", false}}, draining[] = {{"a", true}, {"b", true}};
	struct pin_group *group = pin_group_new(memory, false, active, 2), *none;
	struct egress egresses[PIN_REPLICAS] = {0};
	struct step step = {.group = group};
	struct steering_config config = {
		.egresses = egresses, .nb_egresses = PIN_REPLICAS, .steps = &step, .nb_steps = 1, .otherwise = 0};
	struct source source;
	struct frame frame;

	egresses[0] = egress_to(setting, 1, NULL);
	egresses[1] = egress_to(setting, 2, NULL);
	source = source_of(setting, 0, &config);
	for (unsigned burst = 0; burst < 20; burst++) {
		offer_buffers(&setting->stations[1], 8);
		offer_buffers(&setting->stations[2], 8);
		for (unsigned i = 0; i < 8; i++) {
			frame_udp4(&frame, 1, 2, burst * 8 + i, 80);
			send_frame(&setting->stations[0], &frame);
		}
		assert_int_equal(source_poll(&source, &setting->round), 8);
		for (unsigned i = 1; i <= 2; i++)
			while (next_frame(&setting->stations[i], &frame)) {
				struct headers headers;
				uint8_t replica;

				parse_frame(frame.bytes, frame.length, &headers);
				pin(group, &headers, (const uint8_t[]){0}, 1, setting->round.now, &replica);
				assert_int_equal(replica, i - 1);
			}
		/* Start again with as many buffers as the ring has. */
		setting->stations[1].receives.ring.known = setting->stations[1].receives.ring.index;
		setting->stations[1].receives.added = setting->stations[1].receives.ring.index;
		setting->stations[2].receives.ring.known = setting->stations[2].receives.ring.index;
		setting->stations[2].receives.added = setting->stations[2].receives.ring.index;
	}
	assert_in_range(setting->stations[1].counters.sent_packets, 50, 110);
	assert_int_equal(setting->stations[1].counters.sent_packets + setting->stations[2].counters.sent_packets, 160);
	steering_free(source.steering);
	/* All drain: a new flow has nowhere to go. */
	none = pin_group_new(memory, false, draining, 2);
	step.group = none;
	source = source_of(setting, 0, &config);
	frame_udp4(&frame, 1, 2, 5000, 80);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_int_equal(setting->stations[0].counters.drop_no_replica, 1);
	steering_free(source.steering);
	pin_group_free(group);
	pin_group_free(none);
	pin_memory_free(memory);
}

/* ------- a bridge ------- */

static const uint16_t trunk[] = {10, 20};

static struct bridge *bridge_of(struct bridge_memory *memory, const struct bridge_port_config *ports)
{
	struct bridge *bridge = bridge_new(
		memory, &(struct bridge_config){.nb_ports = STATIONS, .ports = ports, .ageing = 300, .flood = 1000});

	assert_non_null(bridge);
	return bridge;
}

static struct source bridged(struct setting *setting, unsigned station, const struct bridge *bridge)
{
	struct egress egresses[STATIONS];

	for (unsigned i = 0; i < STATIONS; i++)
		egresses[i] = i == station ? (struct egress){0} : egress_to(setting, i, NULL);
	return source_of(setting, station,
			 &(struct steering_config){.egresses = egresses,
						   .nb_egresses = STATIONS,
						   .otherwise = STEERING_DROP,
						   .bridge = bridge,
						   .bridge_port = station});
}

static void to_all(struct frame *frame, int tag, uint16_t type)
{
	frame_macs(frame, 1, 2);
	memset(frame->bytes, 0xff, 6);
	if (tag >= 0)
		frame_tag(frame, 0x8100, tag);
	frame_add16(frame, type);
	while (frame->length < 200)
		frame_add8(frame, frame->length);
}

static void floods_past_a_receiver_that_is_full_and_one_that_is_gone(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"}, {.name = "1"}, {.name = "2"}, {.name = "3"}};
	struct setting *setting = *state;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source source = bridged(setting, 0, bridge);
	struct frame frames[10];

	offer_buffers(&setting->stations[1], 16);
	offer_buffers(&setting->stations[2], 3); /* the slow one */
	atomic_store(&setting->stations[3].port.guest.live[GUEST_RECEIVES], NULL);
	for (unsigned i = 0; i < 10; i++) {
		to_all(&frames[i], -1, 0x0900 + i);
		send_frame(&setting->stations[0], &frames[i]);
	}
	assert_int_equal(source_poll(&source, &setting->round), 10);
	for (unsigned i = 0; i < 10; i++)
		expect_frame(&setting->stations[1], &frames[i]);
	for (unsigned i = 0; i < 3; i++)
		expect_frame(&setting->stations[2], &frames[i]);
	expect_nothing(&setting->stations[2]);
	assert_int_equal(setting->stations[1].counters.drop_receiver_full, 0);
	assert_int_equal(setting->stations[2].counters.drop_receiver_full, 7);
	assert_int_equal(setting->stations[3].counters.drop_receiver_down, 10);
	assert_int_equal(setting->stations[0].counters.received_packets, 10);
	steering_free(source.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

static void gives_each_port_its_form_of_a_tag(void **state)
{
	/* Access 10, trunk, trunk with native 10, access 20. */
	static const struct bridge_port_config ports[] = {{.name = "0", .access = 10},
							  {.name = "1", .trunk = trunk, .nb_trunk = 2},
							  {.name = "2", .trunk = trunk, .nb_trunk = 2, .native = 10},
							  {.name = "3", .access = 20}};
	struct setting *setting = *state;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source access = bridged(setting, 0, bridge), tagged = bridged(setting, 1, bridge);
	struct frame plain, priority, ten, ten_high, twenty;

	for (unsigned i = 0; i < STATIONS; i++)
		offer_buffers(&setting->stations[i], 16);
	to_all(&plain, -1, 0x0900);
	to_all(&ten, 10, 0x0900);
	ten.length = plain.length + 4;
	to_all(&ten_high, 0xe00a, 0x0900);
	to_all(&priority, 0xe000, 0x0900);
	to_all(&twenty, 20, 0x0900);
	/* The bytes behind the type are as in the plain frame. */
	memcpy(ten.bytes + 16, plain.bytes + 12, plain.length - 12);

	send_frame(&setting->stations[0], &plain);
	assert_int_equal(source_poll(&access, &setting->round), 1);
	expect_frame(&setting->stations[1], &ten);
	expect_frame(&setting->stations[2], &plain);
	expect_nothing(&setting->stations[3]);

	/* A tag that only says how urgent it is keeps that, and gets the VLAN where there is one to name. */
	send_frame(&setting->stations[0], &priority);
	assert_int_equal(source_poll(&access, &setting->round), 1);
	expect_frame(&setting->stations[1], &ten_high);

	send_frame(&setting->stations[1], &ten);
	assert_int_equal(source_poll(&tagged, &setting->round), 1);
	expect_frame(&setting->stations[0], &plain);
	assert_true(next_frame(&setting->stations[2], &priority));
	expect_frame(&setting->stations[2], &plain);
	expect_nothing(&setting->stations[3]);

	send_frame(&setting->stations[1], &twenty);
	assert_int_equal(source_poll(&tagged, &setting->round), 1);
	expect_frame(&setting->stations[2], &twenty);
	assert_true(next_frame(&setting->stations[3], &plain));
	assert_int_equal(plain.length, twenty.length - 4);
	expect_nothing(&setting->stations[0]);
	steering_free(access.steering);
	steering_free(tagged.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

/* A tag with VLAN 0, whose priority and drop eligibility are all that it says. */
static void hands_on_a_priority_where_there_are_no_vlans(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"},
							  {.name = "1"},
							  {.name = "2", .trunk = trunk, .nb_trunk = 2, .native = 10},
							  {.name = "3", .access = 10}};
	static const uint16_t tags[] = {0xc000, 0, 0x1000, 0xf000};
	struct setting *setting = *state;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source plain = bridged(setting, 0, bridge), native = bridged(setting, 2, bridge);
	struct frame frame, wanted;

	for (unsigned i = 0; i < STATIONS; i++)
		offer_buffers(&setting->stations[i], 16);
	for (unsigned i = 0; i < RTE_DIM(tags); i++) {
		to_all(&frame, tags[i], 0x8892);
		send_frame(&setting->stations[0], &frame);
		assert_int_equal(source_poll(&plain, &setting->round), 1);
		expect_frame(&setting->stations[1], &frame);
	}
	/* Another tag behind it stays behind it. */
	to_all(&frame, 0xc000, 0x8100);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&plain, &setting->round), 1);
	expect_frame(&setting->stations[1], &frame);
	expect_nothing(&setting->stations[2]);
	expect_nothing(&setting->stations[3]);

	/* Where its port has a VLAN the frame is in that, and has a priority where it has a tag. */
	to_all(&frame, 0xc000, 0x8892);
	send_frame(&setting->stations[2], &frame);
	assert_int_equal(source_poll(&native, &setting->round), 1);
	to_all(&wanted, 0xc00a, 0x8892);
	expect_frame(&setting->stations[0], &wanted);
	expect_frame(&setting->stations[1], &wanted);
	assert_true(next_frame(&setting->stations[3], &wanted));
	assert_int_equal(wanted.length, frame.length - 4);
	assert_memory_equal(wanted.bytes, frame.bytes, 12);
	assert_memory_equal(wanted.bytes + 12, frame.bytes + 16, wanted.length - 12);
	steering_free(plain.steering);
	steering_free(native.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

static void names_every_reason_of_a_bridge(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0", .access = 10},
							  {.name = "1", .access = 10},
							  {.name = "2", .access = 10},
							  {.name = "3", .access = 20}};
	struct setting *setting = *state;
	const struct queue_counters *counters = &setting->stations[0].counters;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source source = bridged(setting, 0, bridge), alone = bridged(setting, 3, bridge);
	struct frame frame;

	to_all(&frame, -1, 0x0900);
	send_frame(&setting->stations[3], &frame);
	assert_int_equal(source_poll(&alone, &setting->round), 1);
	assert_int_equal(setting->stations[3].counters.drop_no_chain, 1);
	to_all(&frame, 20, 0x0900);
	send_frame(&setting->stations[0], &frame);
	to_all(&frame, -1, 0x0900);
	memset(frame.bytes + 6, 0, 6);
	send_frame(&setting->stations[0], &frame);
	to_all(&frame, -1, 0x0900);
	memcpy(frame.bytes, "\x01\x80\xc2\0\0\x0e", 6);
	send_frame(&setting->stations[0], &frame);
	frame_macs(&frame, 2, 2);
	frame_add16(&frame, 0x0900);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 4);
	assert_int_equal(counters->drop_vlan, 1);
	assert_int_equal(counters->drop_source_address, 1);
	assert_int_equal(counters->drop_reserved_address, 1);
	assert_int_equal(counters->drop_same_port, 1);
	/* Without a clock a burst's worth may be flooded at once. */
	for (unsigned sent = 0; sent < 80; sent += 16) {
		for (unsigned i = 0; i < 16; i++) {
			to_all(&frame, -1, 0x0900);
			send_frame(&setting->stations[0], &frame);
		}
		assert_int_equal(source_poll(&source, &setting->round), 16);
	}
	assert_int_equal(counters->drop_flood_limited, 80 - BRIDGE_BURST);
	steering_free(source.steering);
	steering_free(alone.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

/* A port that could not be opened again after a change. */
static void counts_what_a_bridge_has_for_a_port_that_is_not_there(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"}, {.name = "1"}, {.name = "2"}, {.name = "3"}};
	struct setting *setting = *state;
	const struct queue_counters *counters = &setting->stations[0].counters;
	const struct egress egresses[STATIONS] = {[1] = egress_to(setting, 1, NULL), [3] = egress_to(setting, 3, NULL)};
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source source = source_of(
		setting, 0,
		&(struct steering_config){
			.egresses = egresses, .nb_egresses = STATIONS, .otherwise = STEERING_DROP, .bridge = bridge});
	struct bridge_decision decision;
	uint64_t flaps = 0;
	struct frame frame;

	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[3], 8);
	to_all(&frame, -1, 0x0900);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	expect_frame(&setting->stations[1], &frame);
	expect_frame(&setting->stations[3], &frame);
	assert_int_equal(counters->drop_no_chain, 1);
	/* Station 9 has been heard there before. */
	frame_macs(&frame, 1, 9);
	frame_add16(&frame, 0x0900);
	bridge_decide(bridge, 2, &(struct bridge_frame){frame.bytes, frame.length}, 1, setting->round.now, &decision,
		      &flaps);
	frame_macs(&frame, 9, 1);
	frame_add16(&frame, 0x0900);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_int_equal(counters->drop_no_chain, 2);
	expect_nothing(&setting->stations[1]);
	expect_nothing(&setting->stations[3]);
	steering_free(source.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

/* ------- several workers ------- */

static void a_burst_that_has_to_stay_is_flooded_once(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"}, {.name = "1"}, {.name = "2"}, {.name = "3"}};
	struct setting *setting = *state;
	rte_spinlock_t *lock = &setting->stations[1].port.queues[0].lock;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_of(memory, ports);
	struct source source = bridged(setting, 0, bridge);
	struct frame frame;

	for (unsigned i = 0; i < source.steering->nb_outlets; i++)
		source.steering->outlets[i].egress.locked = true;
	for (unsigned i = 0; i < RING; i++) {
		to_all(&frame, -1, 0x0900);
		send_frame(&setting->stations[0], &frame);
	}
	offer_buffers(&setting->stations[1], RING);
	rte_spinlock_lock(lock);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(source_poll(&source, &setting->round), 0);
	rte_spinlock_unlock(lock);
	assert_int_equal(source_poll(&source, &setting->round), RING);
	assert_int_equal(setting->stations[1].counters.sent_packets, RING);
	assert_int_equal(setting->stations[0].counters.drop_flood_limited, 0);
	steering_free(source.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

static void leaves_a_burst_where_it_is_while_an_outlet_is_busy(void **state)
{
	struct setting *setting = *state;
	struct egress egresses[] = {egress_to(setting, 1, NULL), egress_to(setting, 2, NULL)};
	const struct step steps[] = {{.first = 0}, {.first = 1}};
	const struct rule rules[] = {to_port(1, 1, 0), to_port(2, 2, 1)};
	struct classifier *classifier = classifier_of(rules, 2);
	struct source source;
	struct frame frame;

	egresses[0].locked = egresses[1].locked = true;
	source = source_of(setting, 0,
			   &(struct steering_config){.egresses = egresses,
						     .nb_egresses = 2,
						     .classifier = classifier,
						     .steps = steps,
						     .nb_steps = 2,
						     .otherwise = STEERING_DROP});
	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[2], 8);
	for (unsigned i = 0; i < 6; i++) {
		frame_udp4(&frame, 1, 2, i, 1 + i % 3);
		send_frame(&setting->stations[0], &frame);
	}
	rte_spinlock_lock(&setting->stations[2].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 0);
	assert_int_equal(setting->stations[0].counters.drop_no_match, 0);
	expect_nothing(&setting->stations[1]);
	rte_spinlock_unlock(&setting->stations[2].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 6);
	assert_int_equal(setting->stations[1].counters.sent_packets, 2);
	assert_int_equal(setting->stations[2].counters.sent_packets, 2);
	assert_int_equal(setting->stations[0].counters.drop_no_match, 2);
	assert_true(rte_spinlock_trylock(&setting->stations[1].port.queues[0].lock));
	assert_true(rte_spinlock_trylock(&setting->stations[2].port.queues[0].lock));
	steering_free(source.steering);
	free(classifier);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(steers_by_rules_and_counts_each_hop),
		TEST(sends_later_fragments_after_their_first),
		TEST(tells_any_number_of_targets_apart),
		TEST(gives_flows_to_replicas_and_drops_what_none_takes),
		TEST(floods_past_a_receiver_that_is_full_and_one_that_is_gone),
		TEST(gives_each_port_its_form_of_a_tag),
		TEST(hands_on_a_priority_where_there_are_no_vlans),
		TEST(names_every_reason_of_a_bridge),
		TEST(counts_what_a_bridge_has_for_a_port_that_is_not_there),
		TEST(a_burst_that_has_to_stay_is_flooded_once),
		TEST(leaves_a_burst_where_it_is_while_an_outlet_is_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
