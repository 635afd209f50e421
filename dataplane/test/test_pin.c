/* SPDX-License-Identifier: Apache-2.0
 *
 * Replica groups as properties: a flow and its answer meet, a change moves the flows it must and no other, draining
 * keeps what is established, and fragments stay together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include "steer/pin.h"

enum { FLOWS = 20000 };

static const uint64_t now = UINT64_C(5) << FLOWS_TICK_SHIFT, tick = UINT64_C(1) << FLOWS_TICK_SHIFT;

static int start(void **state)
{
	*state = pin_memory_new(PIN_FLOW_SECONDS);
	return *state == NULL;
}

static int end(void **state)
{
	pin_memory_free(*state);
	return 0;
}

/* A group of the replicas named by the letters; capital ones drain. */
static struct pin_group *group_of(struct pin_memory *memory, const char *letters)
{
	struct pin_replica replicas[PIN_REPLICAS];
	char names[PIN_REPLICAS][2] = {0};
	struct pin_group *group;
	unsigned count = 0;

	for (; *letters != '\0'; letters++, count++) {
		const bool draining = *letters >= 'A' && *letters <= 'Z';

		names[count][0] = draining ? *letters - 'A' + 'a' : *letters;
		replicas[count] = (struct pin_replica){names[count], draining};
	}
	group = pin_group_new(memory, false, replicas, count);
	assert_non_null(group);
	return group;
}

static uint8_t pin_one(const struct pin_group *group, const struct headers *headers, uint64_t at)
{
	uint8_t replica;

	pin(group, headers, (const uint8_t[]){0}, 1, at, &replica);
	return replica;
}

/* By its name, since numbers are given anew. */
static char pin_letter(const struct pin_group *group, const struct headers *headers, uint64_t at)
{
	uint8_t replica = pin_one(group, headers, at);

	return replica == PIN_NOBODY ? '-' : group->memory->names[replica][0];
}

static void flow(struct headers *headers, unsigned number)
{
	struct frame frame;

	frame_udp4(&frame, 0x0a000000 + number / 7, 0xc0a80000 + number % 5, 1024 + number, 80);
	parse_frame(frame.bytes, frame.length, headers);
}

static void turn(struct headers *headers)
{
	const struct headers was = *headers;

	memcpy(headers->source, was.destination, 16);
	memcpy(headers->destination, was.source, 16);
	headers->source_port = was.destination_port;
	headers->destination_port = was.source_port;
}

static void random_headers(uint64_t *seed, struct headers *headers)
{
	struct frame frame;

	frame_macs(&frame, random64(seed), random64(seed));
	for (unsigned tags = random64(seed) % 3; tags > 0; tags--)
		frame_tag(&frame, 0x88a8, random64(seed));
	switch (random64(seed) % 3) {
	case 0:
		frame_ipv4(&frame, random64(seed), random64(seed), random64(seed), 8, 0, 0);
		break;
	case 1:
		frame_ipv6(&frame, random64(seed), random64(seed), 6, 8);
		break;
	default:
		frame_add16(&frame, 0x0806);
	}
	frame_ports(&frame, random64(seed), random64(seed));
	parse_frame(frame.bytes, frame.length, headers);
}

static void pins_a_flow_and_its_answer_to_one_replica(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");
	uint64_t seed = 1;

	for (unsigned i = 0; i < 400; i++) { /* forgetting reads the whole table */
		struct headers headers;
		uint8_t replica;

		random_headers(&seed, &headers);
		replica = pin_one(group, &headers, now);
		turn(&headers);
		assert_int_equal(pin_one(group, &headers, now), replica);
		/* Also without a memory of it, and in another VLAN. */
		headers.vlan ^= 0x1fff;
		headers.inner_vlan ^= 0x1fff;
		flows_forget(group->memory->flows, UINT64_C(1) << replica);
		assert_int_equal(pin_one(group, &headers, now), replica);
	}
	pin_group_free(group);
}

/* Where IPv6's extension headers are longer than what is looked at, the addresses are the flow, either way round. */
static void pins_by_addresses_what_nobody_has_read(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");
	unsigned chosen = 0;

	for (unsigned i = 0; i < 100; i++) {
		struct headers headers;
		struct frame frame;
		uint8_t replica = PIN_NOBODY;

		for (unsigned protocol = 0; protocol < 256; protocol += 5) {
			frame_macs(&frame, 1, 2);
			frame_ipv6(&frame, i, i + 1, 43, 88 + 8);
			frame_add16(&frame, protocol << 8 | 10); /* a routing header with five segments */
			while (frame.length < 14 + 40 + 88)
				frame_add8(&frame, 0);
			frame_ports(&frame, protocol, 80);
			parse_frame(frame.bytes, frame.length, &headers);
			if (protocol == 0)
				replica = pin_one(group, &headers, now);
			assert_int_equal(pin_one(group, &headers, now), replica);
			turn(&headers);
			assert_int_equal(pin_one(group, &headers, now), replica);
		}
		chosen |= 1u << replica;
	}
	assert_int_equal(chosen, 0x1f);
	pin_group_free(group);
}

static void pins_by_addresses_alone_where_asked(void **state)
{
	const struct pin_replica replicas[] = {{"a", false}, {"b", false}, {"c", false}};
	struct pin_group *group = pin_group_new(*state, true, replicas, 3);
	struct headers headers;
	uint8_t replica;

	flow(&headers, 1);
	replica = pin_one(group, &headers, now);
	for (unsigned port = 0; port < 1000; port++) {
		headers.source_port = port;
		headers.protocol = port;
		headers.fragment = port % 3;
		assert_int_equal(pin_one(group, &headers, now), replica);
		turn(&headers);
	}
	pin_group_free(group);
}

static void spreads_flows_evenly(void **state)
{
	for (unsigned n = 1; n <= 16; n++) {
		char letters[17] = "abcdefghijklmnop";
		unsigned counts[PIN_REPLICAS] = {0};
		struct pin_group *group;

		letters[n] = '\0';
		group = group_of(*state, letters);
		for (unsigned i = 0; i < FLOWS; i++) {
			struct headers headers;

			flow(&headers, i);
			counts[pin_one(group, &headers, now)]++;
		}
		for (unsigned i = 0; i < n; i++)
			assert_in_range(counts[i], FLOWS / n * 85 / 100, FLOWS / n * 115 / 100);
		pin_group_free(group);
	}
}

/* Between groups of n and n + 1: 1 / (n + 1) of the flows, to or from the one that is more. */
static void moves_the_share_of_the_one_that_comes_or_goes(void **state)
{
	for (unsigned n = 1; n <= 16; n++) {
		char few[18] = "abcdefghijklmnopq", many[18] = "abcdefghijklmnopq";
		struct pin_group *small, *large;
		unsigned moved = 0;

		few[n] = '\0';
		many[n + 1] = '\0';
		small = group_of(*state, few);
		large = group_of(*state, many);
		for (unsigned i = 0; i < FLOWS; i++) {
			struct headers headers;
			char before, after;

			flow(&headers, i);
			before = pin_letter(small, &headers, now);
			after = pin_letter(large, &headers, now);
			if (before != after) {
				moved++;
				assert_int_equal(after, many[n]);
			}
			assert_int_equal(pin_letter(small, &headers, now), before);
		}
		assert_in_range(moved, FLOWS / (n + 1) * 8 / 10, FLOWS / (n + 1) * 12 / 10);
		pin_group_free(small);
		pin_group_free(large);
	}
}

static void does_not_mind_the_order_of_configuration(void **state)
{
	struct pin_memory *other = pin_memory_new(PIN_FLOW_SECONDS);
	struct pin_group *one = group_of(*state, "abcdef"), *two = group_of(other, "fbadce");

	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		assert_int_equal(pin_letter(one, &headers, now), pin_letter(two, &headers, now));
	}
	pin_group_free(one);
	pin_group_free(two);
	pin_memory_free(other);
}

static void drains_without_moving_what_is_established(void **state)
{
	struct pin_group *before = group_of(*state, "abc"), *draining = group_of(*state, "aBc");
	char was[FLOWS];
	unsigned left = 0;
	uint64_t counts[FLOWS_REPLICAS];
	const int b = pin_memory_number(*state, "b");

	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		was[i] = pin_letter(before, &headers, now);
		left += was[i] == 'b';
	}
	flows_count(before->memory->flows, flows_tick(now), counts);
	assert_int_equal(counts[b], left);
	for (unsigned i = 0; i < 2 * FLOWS; i++) {
		struct headers headers;
		char replica;

		flow(&headers, i);
		replica = pin_letter(draining, &headers, now + tick);
		if (i < FLOWS)
			assert_int_equal(replica, was[i]);
		else
			assert_int_not_equal(replica, 'b');
	}
	/* Half of them end: not seen for as long as a flow is known. */
	const uint64_t later = now + (uint64_t)before->memory->flows->ageing * tick;

	for (unsigned i = 0; i < FLOWS / 2; i++) {
		struct headers headers;

		flow(&headers, i);
		assert_int_equal(pin_letter(draining, &headers, later), was[i]);
	}
	for (unsigned i = FLOWS / 2; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		assert_int_not_equal(pin_letter(draining, &headers, later + 2 * tick), 'b');
	}
	pin_group_free(before);
	pin_group_free(draining);
}

static void moves_only_the_drained_flows_on_removal(void **state)
{
	struct pin_group *draining = group_of(*state, "aBc"), *without;
	char was[FLOWS];

	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		was[i] = pin_letter(draining, &headers, now);
		assert_int_not_equal(was[i], 'b');
	}
	without = group_of(*state, "ac");
	pin_group_free(draining);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		assert_int_equal(pin_letter(without, &headers, now), was[i]);
	}
	/* The number is free for another, which inherits nothing. */
	assert_int_equal(pin_memory_number(*state, "d"), 1);
	pin_group_free(without);
}

static void gives_new_flows_to_nobody_when_all_drain(void **state)
{
	struct pin_group *before = group_of(*state, "ab"), *draining = group_of(*state, "AB");
	struct headers headers;
	char was;

	flow(&headers, 1);
	was = pin_letter(before, &headers, now);
	assert_int_equal(pin_letter(draining, &headers, now), was);
	flow(&headers, 2);
	assert_int_equal(pin_letter(draining, &headers, now), '-');
	pin_group_free(before);
	pin_group_free(draining);
}

static void numbers_no_more_than_there_is_room_for(void **state)
{
	struct pin_replica replica = {"last", false};
	char name[16];

	for (unsigned i = 0; i < PIN_REPLICAS; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		assert_int_equal(pin_memory_number(*state, name), i);
	}
	assert_null(pin_group_new(*state, false, &replica, 1));
}

static void gives_back_the_numbers_of_a_group_that_is_not_used(void **state)
{
	struct pin_group *used = group_of(*state, "ab");
	struct pin_replica others[PIN_REPLICAS - 1];
	char names[PIN_REPLICAS - 1][16];
	struct pin_group *fits;

	for (unsigned i = 0; i < PIN_REPLICAS - 1; i++) {
		snprintf(names[i], sizeof(names[i]), "r%u", i);
		others[i] = (struct pin_replica){names[i], false};
	}
	assert_null(pin_group_new(*state, false, others, PIN_REPLICAS - 1));
	fits = pin_group_new(*state, false, others + 1, PIN_REPLICAS - 2);
	assert_non_null(fits);
	assert_string_equal(used->memory->names[0], "a");
	pin_group_free(fits);
	pin_group_free(used);
}

/* Who counts, sweeps or steers has read the clock, and then another worker sees the flow, a tick later. */
static void knows_a_flow_that_was_seen_since_the_clock_was_read(void **state)
{
	struct pin_memory *memory = *state;
	struct pin_group *before = group_of(memory, "ab"), *draining = group_of(memory, "aB");
	const int b = pin_memory_number(memory, "b");
	uint64_t counts[FLOWS_REPLICAS];
	unsigned there = 0;

	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		there += pin_letter(before, &headers, now + tick) == 'b';
	}
	assert_int_not_equal(there, 0);
	for (unsigned part = 0; part < 256; part++)
		pin_memory_sweep(memory, now);
	flows_count(memory->flows, flows_tick(now), counts);
	assert_int_equal(counts[b], there);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct headers headers;

		flow(&headers, i);
		there -= pin_letter(draining, &headers, now) == 'b';
	}
	assert_int_equal(there, 0);
	pin_group_free(before);
	pin_group_free(draining);
}

/* The ticks that an entry has come round after some hours. */
static void does_not_take_what_is_long_gone_for_fresh(void **state)
{
	struct pin_memory *memory = *state;
	struct pin_group *group = group_of(memory, "a");
	const uint64_t aged = now + 100 * tick;
	uint64_t counts[FLOWS_REPLICAS];

	for (unsigned i = 0; i < 100; i++) {
		struct headers headers;

		flow(&headers, i);
		pin_one(group, &headers, i < 40 ? now : aged);
	}
	for (unsigned part = 0; part < 256; part++)
		pin_memory_sweep(memory, aged);
	flows_count(memory->flows, flows_tick(now + (tick << 16)), counts);
	assert_int_equal(counts[0], 0);
	flows_count(memory->flows, flows_tick(aged), counts);
	assert_int_equal(counts[0], 60);
	pin_group_free(group);
}

/* ------- fragments ------- */

static void fragment(struct headers *headers, unsigned number, uint16_t id, unsigned offset)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 0x0a000000, 0x0a000001, 17, 8, id, 0x2000 | offset);
	frame_ports(&frame, number, 80);
	parse_frame(frame.bytes, frame.length, headers);
}

/* Two hosts number their datagrams by themselves, and may come to the same number at the same time. */
static void keeps_datagrams_of_both_ways_apart(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");
	unsigned different = 0;

	for (unsigned i = 0; i < 500; i++) {
		struct headers there, back, later;
		uint8_t first, second;

		fragment(&there, i, i, 0);
		fragment(&back, i + 1000, i, 0);
		headers_mirror(&back);
		first = pin_one(group, &there, now);
		second = pin_one(group, &back, now);
		different += first != second;
		fragment(&later, i, i, 100);
		assert_int_equal(pin_one(group, &later, now), first);
		headers_mirror(&later);
		assert_int_equal(pin_one(group, &later, now), second);
	}
	assert_true(different > 100);
	pin_group_free(group);
}

static void sends_fragments_where_the_first_goes(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");
	bool seen[PIN_REPLICAS] = {false};
	unsigned different = 0;

	for (unsigned i = 0; i < 2000; i++) {
		struct headers whole, headers;
		uint8_t replica;

		fragment(&whole, i, 0, 0);
		whole.fragment = FRAGMENT_NONE;
		replica = pin_one(group, &whole, now);
		/* The same identifiers over and over: the last datagram's must not count. */
		fragment(&headers, i, i % 16, 0);
		assert_int_equal(pin_one(group, &headers, now), replica);
		for (unsigned offset = 1; offset < 4; offset++) {
			fragment(&headers, i, i % 16, offset);
			assert_int_equal(pin_one(group, &headers, now), replica);
		}
		different += !seen[replica];
		seen[replica] = true;
	}
	assert_int_equal(different, 5);
	pin_group_free(group);
}

static void keeps_fragments_together_that_come_before_the_first(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");

	for (unsigned i = 0; i < 2000; i++) {
		struct headers headers;
		uint8_t replica;

		fragment(&headers, i, i, 7);
		replica = pin_one(group, &headers, now);
		fragment(&headers, i, i, 0);
		assert_int_equal(pin_one(group, &headers, now), replica);
		fragment(&headers, i, i, 3);
		assert_int_equal(pin_one(group, &headers, now), replica);
	}
	pin_group_free(group);
}

static void follows_the_flow_of_an_icmp_error(void **state)
{
	struct pin_group *group = group_of(*state, "abcde");

	for (unsigned i = 0; i < 500; i++) {
		struct headers headers, error;
		struct frame frame, about;
		uint8_t replica;

		frame_udp4(&about, 1, 2, i, 80);
		parse_frame(about.bytes, about.length, &headers);
		replica = pin_one(group, &headers, now);
		frame_macs(&frame, 1, 2);
		frame_ipv4(&frame, 9, 1, 1, 8 + 28, 0, 0);
		frame_add32(&frame, 0x03040000);
		frame_add32(&frame, 1400);
		frame_add(&frame, about.bytes + 14, 28);
		parse_frame(frame.bytes, frame.length, &error);
		parse_embedded(frame.bytes, frame.length, &error);
		assert_int_equal(pin_one(group, &error, now), replica);
	}
	pin_group_free(group);
}

/* ------- the bound ------- */

/* One bucket: eight flows that last, then a flood of others. */
static void keeps_what_lasts_in_a_full_bucket(void **state)
{
	struct flows *flows = flows_new(1, 10);
	const uint16_t at = 100;

	for (unsigned i = 1; i <= 4; i++)
		flows_add(flows, flows->buckets, flow_entry(i, at, 1, FLOW_LASTING), at, 0);
	for (unsigned i = 5; i < 100000; i++)
		flows_add(flows, flows->buckets, flow_entry(i, at, 2, 0), at, 0);
	for (unsigned i = 1; i <= 4; i++)
		assert_non_null(flows_find(flows->buckets, i));
	assert_int_equal(flows->crowded, 100000 - 5 - 4);
	/* Of a replica that drains, not one gives way. */
	for (unsigned i = 1; i <= 8; i++)
		flows_add(flows, flows->buckets, flow_entry(i, at, 3, 0), at, UINT64_C(1) << 1 | UINT64_C(1) << 3);
	for (unsigned i = 200; i < 300; i++)
		flows_add(flows, flows->buckets, flow_entry(i, at, 2, 0), at, UINT64_C(1) << 1 | UINT64_C(1) << 3);
	for (unsigned i = 1; i <= 4; i++)
		assert_non_null(flows_find(flows->buckets, i));
	assert_null(flows_find(flows->buckets, 299));
	/* What has aged gives way first. */
	flows_add(flows, flows->buckets, flow_entry(500, at + flows->ageing + 1, 2, 0), at + flows->ageing + 1, 0);
	assert_non_null(flows_find(flows->buckets, 500));
	flows_free(flows);
}

/* As many flows as the table has entries do not spread evenly over its buckets, so that many find theirs full. */
static void counts_flows_that_found_no_slot(void **state)
{
	struct pin_group *group = group_of(*state, "ab");
	const unsigned entries = PIN_FLOW_BUCKETS * FLOWS_BUCKET;
	struct headers headers;

	flow(&headers, 1);
	pin_one(group, &headers, now);
	assert_int_equal(pin_crowded(group), 0);
	for (unsigned i = 0; i < entries; i++) {
		headers.source_port = (uint16_t)i;
		headers.destination_port = (uint16_t)(i >> 16);
		pin_one(group, &headers, now);
	}
	assert_in_range(pin_crowded(group), entries / 20, entries / 5);
	/* It is the table's, which outlives a change of the group. */
	pin_group_free(group);
	group = group_of(*state, "abc");
	assert_in_range(pin_crowded(group), entries / 20, entries / 5);
	pin_group_free(group);
}

/* A worker that took the faults would stand still for a large page's zeroing: tens of ms for the flows of a start. */
static void has_all_of_its_memory_from_the_start(void **state)
{
	struct pin_memory *memory = *state;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = PIN_FLOW_BUCKETS * sizeof(struct flow_bucket);
	uint8_t *there = malloc(size / page);

	assert_non_null(there);
	assert_int_equal(mincore(memory->flows->buckets, size, there), 0);
	for (size_t i = 0; i < size / page; i++)
		assert_true(there[i] & 1);
	free(there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pins_a_flow_and_its_answer_to_one_replica, start, end),
		cmocka_unit_test_setup_teardown(pins_by_addresses_what_nobody_has_read, start, end),
		cmocka_unit_test_setup_teardown(pins_by_addresses_alone_where_asked, start, end),
		cmocka_unit_test_setup_teardown(spreads_flows_evenly, start, end),
		cmocka_unit_test_setup_teardown(moves_the_share_of_the_one_that_comes_or_goes, start, end),
		cmocka_unit_test_setup_teardown(does_not_mind_the_order_of_configuration, start, end),
		cmocka_unit_test_setup_teardown(drains_without_moving_what_is_established, start, end),
		cmocka_unit_test_setup_teardown(moves_only_the_drained_flows_on_removal, start, end),
		cmocka_unit_test_setup_teardown(gives_new_flows_to_nobody_when_all_drain, start, end),
		cmocka_unit_test_setup_teardown(numbers_no_more_than_there_is_room_for, start, end),
		cmocka_unit_test_setup_teardown(gives_back_the_numbers_of_a_group_that_is_not_used, start, end),
		cmocka_unit_test_setup_teardown(knows_a_flow_that_was_seen_since_the_clock_was_read, start, end),
		cmocka_unit_test_setup_teardown(does_not_take_what_is_long_gone_for_fresh, start, end),
		cmocka_unit_test_setup_teardown(sends_fragments_where_the_first_goes, start, end),
		cmocka_unit_test_setup_teardown(keeps_datagrams_of_both_ways_apart, start, end),
		cmocka_unit_test_setup_teardown(keeps_fragments_together_that_come_before_the_first, start, end),
		cmocka_unit_test_setup_teardown(follows_the_flow_of_an_icmp_error, start, end),
		cmocka_unit_test(keeps_what_lasts_in_a_full_bucket),
		cmocka_unit_test_setup_teardown(counts_flows_that_found_no_slot, start, end),
		cmocka_unit_test_setup_teardown(has_all_of_its_memory_from_the_start, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
