/* SPDX-License-Identifier: Apache-2.0
 *
 * What a bridge learns, forgets and refuses, and which VLANs its ports carry.  Without DPDK's clock a second has no
 * cycles: stations age after one tick, and one cycle pays for one flooded frame.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include "steer/bridge.h"
#include "steer/stations.h"

enum { ALL = 0xff };

static const uint64_t now = UINT64_C(1000) << STATIONS_TICK_SHIFT, tick = UINT64_C(1) << STATIONS_TICK_SHIFT;

struct setting {
	struct bridge_memory *memory;
	struct bridge *bridge;
	uint64_t flaps;
};

static const uint16_t ten_and_twenty[] = {10, 20};

/* Plain, plain, access 10, access 20, trunk, trunk with native 10. */
enum { PLAIN, PLAIN_TOO, ACCESS_10, ACCESS_20, TRUNK, NATIVE_10, PORTS };

static const struct bridge_port_config ports[] = {
	[PLAIN] = {.name = "p0"},
	[PLAIN_TOO] = {.name = "p1"},
	[ACCESS_10] = {.name = "a10", .access = 10},
	[ACCESS_20] = {.name = "a20", .access = 20},
	[TRUNK] = {.name = "t", .trunk = ten_and_twenty, .nb_trunk = 2},
	[NATIVE_10] = {.name = "n", .trunk = ten_and_twenty, .nb_trunk = 2, .native = 10},
};

static void configure(struct setting *setting, const struct bridge_port_config *some, unsigned count)
{
	const struct bridge_config config = {.nb_ports = count, .ports = some, .ageing = 300, .flood = 1000};

	setting->bridge = bridge_new(setting->memory, &config);
	assert_non_null(setting->bridge);
}

static void configure_and_keep(struct setting *setting)
{
	configure(setting, ports, PORTS);
	bridge_share(setting->bridge);
}

static int start(void **state)
{
	struct setting *setting = calloc(1, sizeof(*setting));

	setting->memory = bridge_memory_new(64);
	configure_and_keep(setting);
	*state = setting;
	return 0;
}

static int end(void **state)
{
	struct setting *setting = *state;

	bridge_free(setting->bridge);
	bridge_memory_free(setting->memory);
	free(setting);
	return 0;
}

/* A frame from station `source` to `destination` (ALL: everybody); `vlan` -1: without a tag. */
static struct bridge_decision send_from(struct setting *setting, unsigned port, uint8_t source, uint8_t destination,
					int vlan, uint64_t at)
{
	struct bridge_decision decision;
	struct bridge_frame view;
	struct frame frame;

	frame_macs(&frame, destination, source);
	if (destination == ALL)
		memset(frame.bytes, 0xff, 6);
	if (vlan >= 0)
		frame_tag(&frame, 0x8100, 0xe000 | vlan);
	frame_add16(&frame, 0x0806);
	view = (struct bridge_frame){frame.bytes, frame.length};
	bridge_decide(setting->bridge, port, &view, 1, at, &decision, &setting->flaps);
	return decision;
}

static void expect(struct bridge_decision decision, enum bridge_outcome outcome, unsigned port)
{
	assert_int_equal(decision.outcome, outcome);
	if (outcome == BRIDGE_FORWARD)
		assert_int_equal(decision.port, port);
}

static void floods_what_it_does_not_know_and_learns(void **state)
{
	expect(send_from(*state, PLAIN, 1, 2, -1, now), BRIDGE_FLOOD, 0);
	expect(send_from(*state, PLAIN_TOO, 2, 1, -1, now), BRIDGE_FORWARD, PLAIN);
	expect(send_from(*state, PLAIN, 1, 2, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
	expect(send_from(*state, PLAIN, 1, ALL, -1, now), BRIDGE_FLOOD, 0);
}

static void sends_no_frame_back_to_its_port(void **state)
{
	send_from(*state, PLAIN, 1, ALL, -1, now);
	expect(send_from(*state, PLAIN, 3, 1, -1, now), BRIDGE_DROP_SAME_PORT, 0);
	expect(send_from(*state, PLAIN, 1, 1, -1, now), BRIDGE_DROP_SAME_PORT, 0);
}

static void forgets_a_station_that_is_not_seen(void **state)
{
	struct setting *setting = *state;

	send_from(setting, PLAIN, 1, ALL, -1, now);
	expect(send_from(setting, PLAIN_TOO, 2, 1, -1, now + tick), BRIDGE_FORWARD, PLAIN);
	expect(send_from(setting, PLAIN_TOO, 2, 1, -1, now + 2 * tick), BRIDGE_FLOOD, 0);
	/* Seen again, it is known again; being sent to does not count. */
	send_from(setting, PLAIN, 1, ALL, -1, now + 2 * tick);
	send_from(setting, PLAIN, 1, ALL, -1, now + 3 * tick);
	expect(send_from(setting, PLAIN_TOO, 2, 1, -1, now + 4 * tick), BRIDGE_FORWARD, PLAIN);
	assert_int_equal(stations_figures(setting->memory, stations_tick(now + 9 * tick), 1).learned, 0);
}

static void keeps_vlans_apart(void **state)
{
	send_from(*state, PLAIN, 1, ALL, 10, now);
	/* The same address in another VLAN is another station. */
	expect(send_from(*state, TRUNK, 9, 1, 10, now), BRIDGE_FORWARD, PLAIN);
	expect(send_from(*state, TRUNK, 9, 1, 20, now), BRIDGE_FLOOD, 0);
	expect(send_from(*state, ACCESS_10, 5, 1, -1, now), BRIDGE_FORWARD, PLAIN);
	expect(send_from(*state, ACCESS_20, 6, 1, -1, now), BRIDGE_FLOOD, 0);
	expect(send_from(*state, NATIVE_10, 7, 1, -1, now), BRIDGE_FORWARD, PLAIN);
	expect(send_from(*state, PLAIN_TOO, 8, 1, -1, now), BRIDGE_FLOOD, 0);
}

static void takes_only_the_vlans_of_its_port(void **state)
{
	static const struct {
		unsigned port;
		int vlan;
		bool taken;
	} cases[] = {
		{PLAIN, -1, true},     {PLAIN, 0, true},       {PLAIN, 4094, true},    {ACCESS_10, -1, true},
		{ACCESS_10, 0, true},  {ACCESS_10, 10, false}, {ACCESS_10, 20, false}, {TRUNK, -1, false},
		{TRUNK, 0, false},     {TRUNK, 10, true},      {TRUNK, 30, false},     {NATIVE_10, -1, true},
		{NATIVE_10, 20, true}, {NATIVE_10, 10, true},  {NATIVE_10, 11, false},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect(send_from(*state, cases[i].port, 1, ALL, cases[i].vlan, now + i * 100),
		       cases[i].taken ? BRIDGE_FLOOD : BRIDGE_DROP_VLAN, 0);
}

static void knows_who_carries_and_tags_a_vlan(void **state)
{
	static const struct {
		unsigned port;
		uint16_t vlan;
		bool carries, tags;
	} cases[] = {
		{PLAIN, 0, true, false},       {PLAIN, 10, true, true},	     {ACCESS_10, 10, true, false},
		{ACCESS_10, 20, false, false}, {ACCESS_10, 0, false, false}, {TRUNK, 10, true, true},
		{TRUNK, 30, false, true},      {TRUNK, 0, false, true},	     {NATIVE_10, 10, true, false},
		{NATIVE_10, 20, true, true},
	};
	struct setting *setting = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(bridge_carries(setting->bridge, cases[i].port, cases[i].vlan), cases[i].carries);
		if (cases[i].carries)
			assert_int_equal(bridge_tags(setting->bridge, cases[i].port, cases[i].vlan, false),
					 cases[i].tags);
	}
}

static void floods_what_its_receiver_can_no_longer_carry(void **state)
{
	struct setting *setting = *state;
	struct bridge *before = setting->bridge;
	struct bridge_port_config changed[PORTS];

	memcpy(changed, ports, sizeof(ports));
	send_from(setting, TRUNK, 1, ALL, 20, now);
	expect(send_from(setting, PLAIN, 2, 1, 20, now), BRIDGE_FORWARD, TRUNK);
	changed[TRUNK].nb_trunk = 1;
	configure(setting, changed, PORTS);
	bridge_free(before);
	expect(send_from(setting, PLAIN, 2, 1, 20, now), BRIDGE_FLOOD, 0);
}

static void refuses_what_is_no_station(void **state)
{
	static const uint8_t sources[][6] = {{1, 0, 0x5e, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0}};
	struct setting *setting = *state;
	struct bridge_decision decision;
	struct bridge_frame view;
	struct frame frame;

	for (unsigned i = 0; i < 3; i++) {
		frame_macs(&frame, 1, 2);
		memcpy(frame.bytes + 6, sources[i], 6);
		frame_add16(&frame, 0x0806);
		view = (struct bridge_frame){frame.bytes, frame.length};
		bridge_decide(setting->bridge, PLAIN, &view, 1, now, &decision, &setting->flaps);
		assert_int_equal(decision.outcome, BRIDGE_DROP_SOURCE);
	}
	view.length = 13;
	bridge_decide(setting->bridge, PLAIN, &view, 1, now, &decision, &setting->flaps);
	assert_int_equal(decision.outcome, BRIDGE_DROP_SOURCE);
	assert_int_equal(bridge_figures(setting->bridge).learned, 0);
}

static void keeps_what_is_for_bridges(void **state)
{
	struct setting *setting = *state;

	for (unsigned last = 0; last < 20; last++) {
		struct bridge_decision decision;
		struct bridge_frame view;
		struct frame frame;

		frame_macs(&frame, 1, 2);
		memcpy(frame.bytes, "\x01\x80\xc2\0\0", 5);
		frame.bytes[5] = last;
		frame_add16(&frame, 0x88cc);
		view = (struct bridge_frame){frame.bytes, frame.length};
		bridge_decide(setting->bridge, PLAIN, &view, 1, now, &decision, &setting->flaps);
		assert_int_equal(decision.outcome, last < 16 ? BRIDGE_DROP_RESERVED : BRIDGE_FLOOD);
	}
}

static void limits_what_a_port_sends_to_all(void **state)
{
	unsigned flooded = 0;

	for (unsigned i = 0; i < 1000; i++)
		flooded += send_from(*state, PLAIN, 1, i % 2 ? ALL : 77, -1, now).outcome == BRIDGE_FLOOD;
	assert_in_range(flooded, BRIDGE_BURST, BRIDGE_BURST + 1);
	assert_int_equal(send_from(*state, PLAIN, 1, ALL, -1, now).outcome, BRIDGE_DROP_FLOOD_LIMITED);
	/* Another port has its own, and a known receiver is not limited. */
	expect(send_from(*state, PLAIN_TOO, 2, ALL, -1, now), BRIDGE_FLOOD, 0);
	expect(send_from(*state, PLAIN, 1, 2, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
	flooded = 0;
	for (unsigned i = 0; i < 100; i++)
		flooded += send_from(*state, PLAIN, 1, ALL, -1, now + 10).outcome == BRIDGE_FLOOD;
	assert_int_equal(flooded, 10);
}

static void floods_nothing_at_a_limit_of_0(void **state)
{
	const struct bridge_config config = {.nb_ports = PORTS, .ports = ports, .ageing = 300, .flood = 0};
	struct setting *setting = *state;

	bridge_free(setting->bridge);
	setting->bridge = bridge_new(setting->memory, &config);
	expect(send_from(setting, PLAIN, 1, ALL, -1, now), BRIDGE_DROP_FLOOD_LIMITED, 0);
}

static void distinguishes_a_move_from_a_flap(void **state)
{
	struct setting *setting = *state;
	struct bridge_flap flaps[BRIDGE_FLAPS];

	/* A virtual machine that moves once is no flap. */
	send_from(setting, PLAIN, 1, ALL, -1, now);
	send_from(setting, PLAIN_TOO, 1, ALL, -1, now + tick);
	expect(send_from(setting, TRUNK, 2, 1, 10, now + tick), BRIDGE_FLOOD, 0);
	expect(send_from(setting, ACCESS_10, 3, 1, -1, now + tick), BRIDGE_FLOOD, 0);
	assert_int_equal(setting->flaps, 0);
	assert_int_equal(bridge_flaps(setting->bridge, flaps), 0);
	/* Back, and there again, within a tick. */
	send_from(setting, PLAIN, 1, ALL, -1, now + tick);
	send_from(setting, PLAIN_TOO, 1, ALL, -1, now + 2 * tick);
	assert_int_equal(setting->flaps, 2);
	assert_int_equal(bridge_flaps(setting->bridge, flaps), 1);
	assert_string_equal(flaps[0].from, "p0");
	assert_string_equal(flaps[0].to, "p1");
	assert_int_equal(flaps[0].moves, 3);
	assert_memory_equal(flaps[0].mac, "\2\0\0\0\0\1", 6);
	assert_true(flaps[0].first == now + tick && flaps[0].last == now + 2 * tick);
	assert_int_equal(bridge_figures(setting->bridge).moves, 3);
}

/* One port claims far more addresses than there is room for. */
static void leaves_every_port_its_share(void **state)
{
	struct setting *setting = *state;
	const unsigned share = 64 / 2 / PORTS;

	for (unsigned round = 0; round < 2; round++)
		for (unsigned station = 1; station < 200; station++)
			send_from(setting, PLAIN, station, ALL, -1, now);
	/* Its share, and the common half. */
	assert_int_equal(stations_figures(setting->memory, stations_tick(now), 1).learned, 32 + share);
	assert_true(stations_figures(setting->memory, stations_tick(now), 1).unlearned > 0);
	for (unsigned i = 0; i < share; i++)
		send_from(setting, PLAIN_TOO, 200 + i, ALL, -1, now);
	for (unsigned i = 0; i < share; i++)
		expect(send_from(setting, PLAIN, 1, 200 + i, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
	/* When they have aged there is room again. */
	for (unsigned i = 0; i < share; i++)
		send_from(setting, ACCESS_20, 220 + i, ALL, -1, now + 5 * tick);
	assert_int_equal(stations_figures(setting->memory, stations_tick(now + 5 * tick), 1).learned, share);
}

static void remembers_across_a_change_and_forgets_with_the_port(void **state)
{
	struct setting *setting = *state;
	struct bridge *before = setting->bridge;

	send_from(setting, PLAIN, 1, ALL, -1, now);
	send_from(setting, PLAIN_TOO, 2, ALL, -1, now);
	configure(setting, ports + 1, PORTS - 1);
	/* Before the old ones are forgotten, too, nothing is sent to a port that is not there. */
	expect(send_from(setting, PLAIN_TOO - 1, 2, 1, -1, now), BRIDGE_FLOOD, 0);
	bridge_free(before);
	assert_int_equal(stations_figures(setting->memory, stations_tick(now), 1).learned, 1);
	expect(send_from(setting, ACCESS_10 - 1, 5, 2, -1, now), BRIDGE_FLOOD, 0);
	before = setting->bridge;
	configure_and_keep(setting);
	bridge_free(before);
	expect(send_from(setting, PLAIN, 1, 2, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
}

static void forgets_what_was_learned_from_a_port_and_not_the_port(void **state)
{
	struct setting *setting = *state;
	const bool gone[BRIDGE_PORTS] = {[PLAIN] = true};

	for (uint8_t station = 1; station <= 4; station++) {
		send_from(setting, PLAIN, station, ALL, -1, now);
		send_from(setting, PLAIN_TOO, 100 + station, ALL, -1, now);
	}
	assert_int_equal(stations_figures(setting->memory, stations_tick(now), 1).learned, 8);
	bridge_forget(setting->bridge, gone);
	assert_int_equal(stations_figures(setting->memory, stations_tick(now), 1).learned, 4);
	expect(send_from(setting, PLAIN_TOO, 101, 1, -1, now), BRIDGE_FLOOD, 0);
	expect(send_from(setting, PLAIN, 2, 102, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
	/* It is learned anew, behind that port or another, and has not moved. */
	send_from(setting, PLAIN_TOO, 1, ALL, -1, now);
	expect(send_from(setting, PLAIN, 2, 1, -1, now), BRIDGE_FORWARD, PLAIN_TOO);
	expect(send_from(setting, PLAIN_TOO, 1, 2, -1, now), BRIDGE_FORWARD, PLAIN);
	assert_int_equal(stations_figures(setting->memory, stations_tick(now), 1).moves, 0);
}

struct learner {
	struct setting *setting;
	unsigned port;
	uint64_t flaps, wrong;
};

/* Its stations are its own, and those of the other are never to be found behind anything but the other. */
static void *learn(void *argument)
{
	struct learner *learner = argument;
	uint64_t seed = learner->port;

	for (unsigned i = 0; i < 300000; i++) {
		struct bridge_frame view;
		struct bridge_decision decision;
		struct frame frame;
		const uint8_t mine = learner->port * 100 + random64(&seed) % 40,
			      other = !learner->port * 100 + random64(&seed) % 40;

		frame_macs(&frame, other, mine);
		frame_add16(&frame, 0x0806);
		view = (struct bridge_frame){frame.bytes, frame.length};
		bridge_decide(learner->setting->bridge, learner->port, &view, 1, now + i / 64 * tick, &decision,
			      &learner->flaps);
		learner->wrong += decision.outcome == BRIDGE_DROP_SAME_PORT ||
				  (decision.outcome == BRIDGE_FORWARD && decision.port == learner->port);
	}
	return NULL;
}

/* Two workers that learn, move on in time and so make each other's stations age, in a table with too little room. */
static void survives_two_workers_at_once(void **state)
{
	struct learner learners[2] = {{*state, 0, 0, 0}, {*state, 1, 0, 0}};
	pthread_t threads[2];

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, learn, &learners[i]), 0);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(learners[i].wrong, 0);
		assert_int_equal(learners[i].flaps, 0);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(floods_what_it_does_not_know_and_learns),
		TEST(sends_no_frame_back_to_its_port),
		TEST(forgets_a_station_that_is_not_seen),
		TEST(keeps_vlans_apart),
		TEST(takes_only_the_vlans_of_its_port),
		TEST(knows_who_carries_and_tags_a_vlan),
		TEST(floods_what_its_receiver_can_no_longer_carry),
		TEST(refuses_what_is_no_station),
		TEST(keeps_what_is_for_bridges),
		TEST(limits_what_a_port_sends_to_all),
		TEST(floods_nothing_at_a_limit_of_0),
		TEST(distinguishes_a_move_from_a_flap),
		TEST(leaves_every_port_its_share),
		TEST(remembers_across_a_change_and_forgets_with_the_port),
		TEST(forgets_what_was_learned_from_a_port_and_not_the_port),
		TEST(survives_two_workers_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
