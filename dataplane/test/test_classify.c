/* SPDX-License-Identifier: Apache-2.0
 *
 * The classifier against rules read one after the other, and what a broken rule costs.
 */
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include "steer/classify.h"

enum { OTHERWISE = 9999 };

static uint32_t ask(const struct classifier *classifier, const struct headers *headers)
{
	uint32_t action;

	classify(classifier, headers, 1, &action);
	return action;
}

static struct classifier *build(const struct rule *rules, unsigned count)
{
	struct classifier *classifier = NULL;
	unsigned culprit;

	assert_int_equal(classifier_build(&classifier, rules, count, OTHERWISE, &culprit), 0);
	return classifier;
}

static void udp(struct headers *headers, uint32_t source, uint32_t destination, uint16_t source_port,
		uint16_t destination_port)
{
	struct frame frame;

	frame_udp4(&frame, source, destination, source_port, destination_port);
	parse_frame(frame.bytes, frame.length, headers);
}

static struct match_prefix prefix4(uint32_t address, unsigned length)
{
	struct match_prefix prefix = {.family = HEADERS_IPV4, .length = length};

	address = htonl(address);
	memcpy(prefix.address, &address, 4);
	return prefix;
}

/* ------- the reference: what a match means ------- */

static bool in_range(struct match_range range, unsigned value)
{
	return value >= range.first && value <= range.last;
}

static bool in_prefix(const struct match_prefix *prefix, const struct headers *headers, const uint8_t *address)
{
	if (headers->family != prefix->family)
		return false;
	for (unsigned bit = 0; bit < prefix->length; bit++)
		if ((prefix->address[bit / 8] ^ address[bit / 8]) & (0x80 >> bit % 8))
			return false;
	return true;
}

static bool matches(const struct match *match, const struct headers *headers)
{
	const unsigned fields = match->fields;

	if ((fields & MATCH_VLAN) && !in_range(match->vlan, headers->vlan & 0xfff))
		return false;
	if ((fields & MATCH_INNER_VLAN) && !in_range(match->inner_vlan, headers->inner_vlan & 0xfff))
		return false;
	if ((fields & MATCH_ETHERTYPE) && headers->ethertype != match->ethertype)
		return false;
	if ((fields & MATCH_PROTOCOL) && (headers->family == HEADERS_OTHER || headers->protocol != match->protocol))
		return false;
	if ((fields & MATCH_SOURCE) && !in_prefix(&match->source, headers, headers->source))
		return false;
	if ((fields & MATCH_DESTINATION) && !in_prefix(&match->destination, headers, headers->destination))
		return false;
	if ((fields & MATCH_SOURCE_PORT) &&
	    (!headers->has_ports || !in_range(match->source_port, headers->source_port)))
		return false;
	return !(fields & MATCH_DESTINATION_PORT) ||
	       (headers->has_ports && in_range(match->destination_port, headers->destination_port));
}

static uint32_t read_rules(const struct rule *rules, unsigned count, const struct headers *headers)
{
	for (unsigned i = 0; i < count; i++)
		if (matches(&rules[i].match, headers))
			return rules[i].action;
	return OTHERWISE;
}

/* Small numbers, so that rules overlap and frames meet them. */
static struct match_range random_range(uint64_t *seed, unsigned most)
{
	unsigned first = random64(seed) % most, last = random64(seed) % 3 == 0 ? first : random64(seed) % most;

	return first < last ? (struct match_range){first, last} : (struct match_range){last, first};
}

static struct match_prefix random_prefix(uint64_t *seed, bool six)
{
	struct match_prefix prefix = {.family = six ? HEADERS_IPV6 : HEADERS_IPV4};
	uint32_t last = htonl(random64(seed) % 64);

	if (six) {
		memcpy(prefix.address, "\x20\x01\x0d\xb8", 4);
		memcpy(prefix.address + 12, &last, 4);
		prefix.length = 120 + random64(seed) % 9;
	} else {
		memcpy(prefix.address, &last, 4);
		prefix.length = 24 + random64(seed) % 9;
	}
	if (random64(seed) % 8 == 0)
		prefix.length = 0;
	return prefix;
}

static uint8_t random_protocol(uint64_t *seed)
{
	static const uint8_t protocols[] = {0, 6, 17};

	return protocols[random64(seed) % RTE_DIM(protocols)];
}

static struct match random_match(uint64_t *seed)
{
	const bool six = random64(seed) & 1;

	return (struct match){
		.fields = random64(seed) & random64(seed) & 0xff,
		.vlan = random_range(seed, 8),
		.inner_vlan = random_range(seed, 8),
		.ethertype = six ? 0x86dd : 0x0800,
		.protocol = random_protocol(seed),
		.source = random_prefix(seed, six),
		.destination = random_prefix(seed, six),
		.source_port = random_range(seed, 64),
		.destination_port = random_range(seed, 64),
	};
}

static void random_frame(uint64_t *seed, struct headers *headers)
{
	const uint8_t protocol = random_protocol(seed);
	const uint16_t fragment = random64(seed) % 8 == 0 ? 1 : 0;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	for (unsigned tags = random64(seed) % 3; tags > 0; tags--)
		frame_tag(&frame, 0x8100, random64(seed) % 8);
	if (random64(seed) % 8 == 0)
		frame_add16(&frame, 0x0806);
	else if (random64(seed) & 1)
		frame_ipv4(&frame, random64(seed) % 64, random64(seed) % 64, protocol, 8, 0, fragment);
	else
		frame_ipv6(&frame, random64(seed) % 64, random64(seed) % 64, protocol, 8);
	frame_ports(&frame, random64(seed) % 64, random64(seed) % 64);
	parse_frame(frame.bytes, frame.length, headers);
}

static void decides_as_rules_read_in_order(void **state)
{
	uint64_t seed = 7;

	for (unsigned round = 0; round < 300; round++) {
		const unsigned count = random64(&seed) % 40;
		struct rule rules[40];
		struct classifier *classifier;

		for (unsigned i = 0; i < count; i++)
			rules[i] = (struct rule){random_match(&seed), i};
		classifier = build(rules, count);
		for (unsigned burst = 0; burst < 10; burst++) {
			const unsigned frames = 1 + random64(&seed) % CLASSIFY_BURST;
			struct headers headers[CLASSIFY_BURST];
			uint32_t actions[CLASSIFY_BURST];

			for (unsigned i = 0; i < frames; i++)
				random_frame(&seed, &headers[i]);
			classify(classifier, headers, frames, actions);
			for (unsigned i = 0; i < frames; i++)
				assert_int_equal(actions[i], read_rules(rules, count, &headers[i]));
		}
		free(classifier);
	}
}

static void mirrors_a_match(void **state)
{
	uint64_t seed = 8;

	for (unsigned round = 0; round < 20000; round++) {
		struct match match = random_match(&seed), mirrored = match;
		struct headers headers, answer;

		match_mirror(&mirrored);
		random_frame(&seed, &headers);
		answer = headers;
		memcpy(answer.source, headers.destination, 16);
		memcpy(answer.destination, headers.source, 16);
		answer.source_port = headers.destination_port;
		answer.destination_port = headers.source_port;
		assert_int_equal(matches(&match, &headers), matches(&mirrored, &answer));
	}
}

static void cuts_every_range_exactly(void **state)
{
	static const struct match_range ranges[] = {{0, 0},	  {0, 65535}, {1, 65534}, {65535, 65535},
						    {1023, 1025}, {80, 80},   {1, 2},	  {32767, 32768}};

	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		const struct rule rule = {{.fields = MATCH_DESTINATION_PORT, .destination_port = ranges[i]}, 1};
		struct classifier *classifier = build(&rule, 1);
		struct headers headers;

		udp(&headers, 1, 2, 3, 4);
		for (unsigned port = 0; port < 65536; port++) {
			headers.destination_port = port;
			assert_int_equal(ask(classifier, &headers), in_range(ranges[i], port) ? 1 : OTHERWISE);
		}
		free(classifier);
	}
}

static void distinguishes_a_thousand_rules(void **state)
{
	struct classifier *classifier;
	struct rule rules[1000];
	struct headers headers;

	for (unsigned i = 0; i < 1000; i++)
		rules[i] = (struct rule){{.fields = MATCH_SOURCE, .source = prefix4(0x0a000000 + (i << 8), 24)}, i};
	classifier = build(rules, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		udp(&headers, 0x0a000000 + (i << 8) + i % 256, 2, 3, 4);
		assert_int_equal(ask(classifier, &headers), i);
	}
	udp(&headers, 0x0b000000, 2, 3, 4);
	assert_int_equal(ask(classifier, &headers), OTHERWISE);
	free(classifier);
}

static void does_not_take_a_later_fragment_for_port_0(void **state)
{
	const struct rule rule = {{.fields = MATCH_SOURCE_PORT, .source_port = {0, 65535}}, 1};
	struct classifier *classifier = build(&rule, 1);
	struct headers headers;
	struct frame frame;

	assert_true(classifier_reads_transport(classifier));
	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, 17, 8, 5, 1);
	frame_ports(&frame, 1, 1);
	parse_frame(frame.bytes, frame.length, &headers);
	assert_int_equal(ask(classifier, &headers), OTHERWISE);
	free(classifier);
}

static void any_ipv4_is_not_any_ipv6(void **state)
{
	const struct rule rules[] = {{{.fields = MATCH_SOURCE, .source = {.family = HEADERS_IPV6}}, 6},
				     {{.fields = MATCH_SOURCE, .source = {.family = HEADERS_IPV4}}, 4}};
	struct classifier *classifier = build(rules, 2);
	struct headers headers;
	struct frame frame;

	udp(&headers, 1, 2, 3, 4);
	assert_int_equal(ask(classifier, &headers), 4);
	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, 59, 0);
	parse_frame(frame.bytes, frame.length, &headers);
	assert_int_equal(ask(classifier, &headers), 6);
	assert_false(classifier_reads_transport(classifier));
	free(classifier);
	/* What IPv6 carries only the first fragment may tell. */
	classifier = build(&(struct rule){{.fields = MATCH_PROTOCOL, .protocol = 17}, 1}, 1);
	assert_true(classifier_reads_transport(classifier));
	free(classifier);
}

static void answers_with_no_rules_and_with_one_for_everything(void **state)
{
	const struct rule all = {.action = 3};
	struct classifier *none = build(NULL, 0), *one = build(&all, 1);
	struct headers headers;

	udp(&headers, 1, 2, 3, 4);
	assert_int_equal(ask(none, &headers), OTHERWISE);
	assert_int_equal(ask(one, &headers), 3);
	free(none);
	free(one);
}

/* A frame of the ARP's type with up to two tags; a tag's priority is 6. */
static void arp(struct headers *headers, unsigned tags, uint16_t outer_type, uint16_t outer, uint16_t inner)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	if (tags > 0)
		frame_tag(&frame, outer_type, 6 << 13 | outer);
	if (tags > 1)
		frame_tag(&frame, 0x8100, 6 << 13 | inner);
	frame_add16(&frame, 0x0806);
	parse_frame(frame.bytes, frame.length, headers);
}

static void takes_frames_without_a_vlan_for_vlan_0(void **state)
{
	enum { NONE = 1 << 0, NONE_TO_10 = 1 << 1, INNER_NONE = 1 << 2, FIVE_ALONE = 1 << 3, SOME = 1 << 4 };
	static const struct match matches[] = {
		{.fields = MATCH_VLAN, .vlan = {0, 0}},
		{.fields = MATCH_VLAN, .vlan = {0, 10}},
		{.fields = MATCH_INNER_VLAN, .inner_vlan = {0, 0}},
		{.fields = MATCH_VLAN | MATCH_INNER_VLAN, .vlan = {5, 5}, .inner_vlan = {0, 0}},
		{.fields = MATCH_VLAN, .vlan = {1, 4094}},
	};
	static const struct {
		unsigned tags;
		uint16_t type, outer, inner;
		unsigned matched;
	} frames[] = {
		{0, 0, 0, 0, NONE | NONE_TO_10 | INNER_NONE},
		{1, 0x8100, 0, 0, NONE | NONE_TO_10 | INNER_NONE},
		{1, 0x88a8, 0, 0, NONE | NONE_TO_10 | INNER_NONE},
		{1, 0x8100, 5, 0, NONE_TO_10 | INNER_NONE | FIVE_ALONE | SOME},
		{1, 0x8100, 10, 0, NONE_TO_10 | INNER_NONE | SOME},
		{1, 0x8100, 11, 0, INNER_NONE | SOME},
		{2, 0x88a8, 0, 7, NONE | NONE_TO_10},
		{2, 0x88a8, 5, 0, NONE_TO_10 | INNER_NONE | FIVE_ALONE | SOME},
		{2, 0x88a8, 5, 7, NONE_TO_10 | SOME},
	};

	for (unsigned m = 0; m < RTE_DIM(matches); m++) {
		const struct rule rule = {matches[m], 1};
		struct classifier *classifier = build(&rule, 1);

		for (unsigned i = 0; i < RTE_DIM(frames); i++) {
			struct headers headers;

			arp(&headers, frames[i].tags, frames[i].type, frames[i].outer, frames[i].inner);
			assert_int_equal(ask(classifier, &headers), frames[i].matched >> m & 1 ? 1 : OTHERWISE);
		}
		free(classifier);
	}
}

/* 0 is a number of IP's, and what is not IP has none. */
static void takes_only_ip_for_protocol_0(void **state)
{
	const struct rule rule = {{.fields = MATCH_PROTOCOL}, 1};
	struct classifier *classifier = build(&rule, 1);
	struct headers headers;
	struct frame frame;

	arp(&headers, 0, 0, 0, 0);
	assert_int_equal(ask(classifier, &headers), OTHERWISE);
	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, 0, 8, 0, 0);
	parse_frame(frame.bytes, frame.length, &headers);
	assert_int_equal(ask(classifier, &headers), 1);
	free(classifier);
}

static void knows_nothing_of_what_was_not_read(void **state)
{
	const struct rule rules[] = {{{.fields = MATCH_VLAN}, 1},
				     {{.fields = MATCH_PROTOCOL}, 2},
				     {{.fields = MATCH_ETHERTYPE}, 3},
				     {{0}, 4}};
	struct classifier *some = build(rules, 3), *all = build(rules, 4), *none = build(NULL, 0);

	assert_int_equal(classify_unread(some), OTHERWISE);
	assert_int_equal(classify_unread(all), 4);
	assert_int_equal(classify_unread(none), OTHERWISE);
	free(some);
	free(all);
	free(none);
}

static void refuses_rules_that_match_nothing(void **state)
{
	const struct rule wrong[] = {
		{{.fields = MATCH_SOURCE | MATCH_DESTINATION,
		  .source = {.family = HEADERS_IPV4},
		  .destination = {.family = HEADERS_IPV6}},
		 0},
		{{.fields = MATCH_VLAN, .vlan = {10, 9}}, 0},
		{{.fields = MATCH_INNER_VLAN, .inner_vlan = {10, 4096}}, 0},
		{{.fields = MATCH_SOURCE_PORT, .source_port = {10, 9}}, 0},
		{{.fields = MATCH_DESTINATION_PORT, .destination_port = {10, 9}}, 0},
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct rule rules[] = {{.action = 1}, wrong[i]};
		struct classifier *classifier;
		unsigned culprit;

		assert_int_equal(classifier_build(&classifier, rules, 2, OTHERWISE, &culprit), -EINVAL);
		assert_int_equal(culprit, 1);
	}
}

static void bounds_what_ranges_are_cut_into(void **state)
{
	const struct rule rule = {{.fields = MATCH_VLAN | MATCH_INNER_VLAN | MATCH_SOURCE_PORT | MATCH_DESTINATION_PORT,
				   .vlan = {1, 4094},
				   .inner_vlan = {1, 4094},
				   .source_port = {1, 65534},
				   .destination_port = {1, 65534}},
				  1};
	struct classifier *classifier;
	unsigned culprit;

	assert_int_equal(classifier_build(&classifier, &rule, 1, OTHERWISE, &culprit), -E2BIG);
	assert_int_equal(culprit, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decides_as_rules_read_in_order),
		cmocka_unit_test(mirrors_a_match),
		cmocka_unit_test(cuts_every_range_exactly),
		cmocka_unit_test(distinguishes_a_thousand_rules),
		cmocka_unit_test(takes_frames_without_a_vlan_for_vlan_0),
		cmocka_unit_test(takes_only_ip_for_protocol_0),
		cmocka_unit_test(knows_nothing_of_what_was_not_read),
		cmocka_unit_test(does_not_take_a_later_fragment_for_port_0),
		cmocka_unit_test(any_ipv4_is_not_any_ipv6),
		cmocka_unit_test(answers_with_no_rules_and_with_one_for_everything),
		cmocka_unit_test(refuses_rules_that_match_nothing),
		cmocka_unit_test(bounds_what_ranges_are_cut_into),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
