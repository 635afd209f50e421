/* SPDX-License-Identifier: Apache-2.0
 *
 * What a frame says about itself, and that a frame which says nonsense is read no further than it goes.
 */
#include <stdlib.h>

#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include "steer/parse.h"
#include "vring/offload.h"

static const uint8_t no_address[16];

static void parse(const struct frame *frame, struct headers *headers)
{
	/* Exactly as large as the frame, so that the address sanitizer sees a byte too far. */
	uint8_t *bytes = malloc(frame->length + 1);

	memcpy(bytes + 1, frame->bytes, frame->length);
	parse_frame(bytes + 1, frame->length, headers);
	free(bytes);
}

static void reads_ipv4_and_its_ports(void **state)
{
	static const uint8_t protocols[] = {6, 17, 132, 136, 33};
	struct headers headers;
	struct frame frame;

	for (unsigned i = 0; i < sizeof(protocols); i++) {
		frame_macs(&frame, 1, 2);
		frame_ipv4(&frame, 0x0a000001, 0x0a000002, protocols[i], 8, 7, 0x4000);
		frame_ports(&frame, 1234, 80);
		parse(&frame, &headers);
		assert_int_equal(headers.family, HEADERS_IPV4);
		assert_int_equal(headers.ethertype, 0x0800);
		assert_int_equal(headers.protocol, protocols[i]);
		assert_memory_equal(headers.source, "\x0a\x00\x00\x01", 4);
		assert_memory_equal(headers.destination, "\x0a\x00\x00\x02", 4);
		assert_memory_equal(headers.source + 4, no_address, 12);
		assert_int_equal(headers.source_port, 1234);
		assert_int_equal(headers.destination_port, 80);
		assert_int_equal(headers.has_ports, 1);
		assert_int_equal(headers.fragment, FRAGMENT_NONE);
		assert_int_equal(headers.network, 14);
		assert_false(headers.malformed);
	}
}

static void reads_ports_behind_ipv4_options(void **state)
{
	struct headers headers;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, 17, 40 + 8, 0, 0);
	frame.bytes[14] = 0x4f;
	for (unsigned i = 0; i < 10; i++)
		frame_add32(&frame, 0x01010101);
	frame_ports(&frame, 5, 6);
	parse(&frame, &headers);
	assert_int_equal(headers.source_port, 5);
	assert_int_equal(headers.destination_port, 6);
}

static void reads_tags(void **state)
{
	static const uint16_t types[] = {0x8100, 0x88a8};
	struct headers headers;
	struct frame frame;

	for (unsigned tags = 0; tags <= PARSE_TAGS + 1; tags++) {
		frame_macs(&frame, 1, 2);
		for (unsigned i = 0; i < tags; i++)
			frame_tag(&frame, types[i % 2], 0xe000 | (100 + i));
		frame_ipv4(&frame, 1, 2, 17, 8, 0, 0);
		frame_ports(&frame, 5, 6);
		parse(&frame, &headers);
		assert_int_equal(headers.vlan, tags > 0 ? HEADERS_VLAN | 100 : 0);
		assert_int_equal(headers.inner_vlan, tags > 1 ? HEADERS_VLAN | 101 : 0);
		assert_int_equal(headers.source_port, tags <= PARSE_TAGS ? 5 : 0);
		assert_int_equal(headers.ethertype, tags <= PARSE_TAGS ? 0x0800 : 0x8100);
	}
}

static void reads_ipv6_behind_extension_headers(void **state)
{
	struct headers headers;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, 0, 8 + 16 + 12 + 8);
	frame_add8(&frame, 60); /* hop by hop, then destination options */
	frame_add8(&frame, 0);
	frame_add(&frame, no_address, 6);
	frame_add8(&frame, 51);
	frame_add8(&frame, 1);
	frame_add(&frame, no_address, 14);
	frame_add8(&frame, 6); /* authentication: its length counts words of 4, less 2 */
	frame_add8(&frame, 1);
	frame_add(&frame, no_address, 10);
	frame_ports(&frame, 443, 50000);
	parse(&frame, &headers);
	assert_int_equal(headers.family, HEADERS_IPV6);
	assert_int_equal(headers.protocol, 6);
	assert_int_equal(headers.source_port, 443);
	assert_int_equal(headers.destination_port, 50000);
	assert_memory_equal(headers.source, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
}

static void bounds_extension_headers(void **state)
{
	struct headers headers;
	struct frame frame;

	for (unsigned count = PARSE_EXTENSIONS - 1; count <= PARSE_EXTENSIONS + 1; count++) {
		frame_macs(&frame, 1, 2);
		frame_ipv6(&frame, 1, 2, 60, 8 * count + 8);
		for (unsigned i = 0; i < count; i++) {
			frame_add8(&frame, i + 1 < count ? 60 : 17);
			frame_add8(&frame, 0);
			frame_add(&frame, no_address, 6);
		}
		frame_ports(&frame, 5, 6);
		/* More than are looked at do not fit into what is looked at, either. */
		parse(&frame, &headers);
		assert_int_equal(headers.has_ports,
				 14 + 40 + 8 * count + 4 <= PARSE_BYTES && count <= PARSE_EXTENSIONS);
	}
}

/* An IPv6 header, extension headers of these types and lengths, and UDP, 8 bytes of it. */
static void behind(struct frame *frame, unsigned tags, const uint8_t *types, const unsigned *lengths, unsigned count)
{
	unsigned payload = 8;

	for (unsigned i = 0; i < count; i++)
		payload += lengths[i];
	frame_macs(frame, 1, 2);
	for (unsigned i = 0; i < tags; i++)
		frame_tag(frame, 0x8100, 10 + i);
	frame_ipv6(frame, 1, 2, count > 0 ? types[0] : 17, payload);
	for (unsigned i = 0; i < count; i++) {
		frame_add8(frame, i + 1 < count ? types[i + 1] : 17);
		frame_add8(frame, types[i] == 51 ? lengths[i] / 4 - 2 : types[i] == 44 ? 0 : lengths[i] / 8 - 1);
		for (unsigned done = 2; done < lengths[i]; done++)
			frame_add8(frame, types[i] == 44 && done == 3); /* a fragment's: the first of several */
	}
	frame_ports(frame, 443, 50000);
}

/* As SRv6 has them: 8 bytes and an address for each segment (RFC 8754). */
static void reads_ports_behind_routes_as_long_as_it_looks(void **state)
{
	const uint8_t routing = 43;

	for (unsigned tags = 0; tags < 3; tags++)
		for (unsigned segments = 1; segments < 8; segments++) {
			const unsigned length = 8 + 16 * segments;
			const bool seen = 14 + 4 * tags + 40 + length + 4 <= PARSE_BYTES;
			struct headers headers;
			struct frame frame;

			behind(&frame, tags, &routing, &length, 1);
			parse(&frame, &headers);
			assert_int_equal(headers.family, HEADERS_IPV6);
			assert_int_equal(headers.has_ports, seen);
			assert_int_equal(headers.source_port, seen ? 443 : 0);
			/* What follows is known by the routing header itself. */
			assert_int_equal(headers.protocol, 17);
			assert_int_equal(headers.unread, !seen);
			assert_int_equal(headers.fragment, FRAGMENT_NONE);
			if (tags == 0)
				assert_int_equal(seen, segments <= 3);
		}
}

static void knows_of_long_chains_what_it_has_read(void **state)
{
	static const struct {
		unsigned count, lengths[3];
		uint8_t types[3], protocol;
		bool has_ports, unread;
		uint8_t fragment;
	} cases[] = {
		{1, {56}, {0}, 17, true, false, FRAGMENT_NONE},
		{1, {72}, {0}, 17, false, true, FRAGMENT_NONE},
		{1, {144}, {60}, 17, false, true, FRAGMENT_NONE},
		{1, {44}, {51}, 17, true, false, FRAGMENT_NONE}, /* authentication, of 4 bytes more than a multiple of 8
								  */
		{1, {76}, {51}, 17, false, true, FRAGMENT_NONE},
		{2, {8, 40}, {0, 43}, 17, true, false, FRAGMENT_NONE},
		{2, {8, 72}, {0, 43}, 17, false, true, FRAGMENT_NONE},
		{2, {72, 8}, {43, 60}, 60, false, true, FRAGMENT_NONE}, /* the second begins too late */
		{2, {64, 8}, {60, 60}, 17, false, true, FRAGMENT_NONE},
		{3, {24, 8, 24}, {43, 44, 60}, 17, true, false, FRAGMENT_FIRST},
		{3, {24, 8, 88}, {43, 44, 60}, 17, false, true, FRAGMENT_FIRST},
		{2, {72, 8}, {43, 44}, 44, false, true, FRAGMENT_NONE}, /* nobody sees that it is one */
		{2, {64, 8}, {43, 44}, 17, false, true, FRAGMENT_FIRST},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct headers headers;
		struct frame frame;

		behind(&frame, 0, cases[i].types, cases[i].lengths, cases[i].count);
		parse(&frame, &headers);
		if (headers.protocol != cases[i].protocol || headers.has_ports != cases[i].has_ports ||
		    headers.unread != cases[i].unread || headers.fragment != cases[i].fragment)
			fail_msg("case %u: protocol %u, ports %u, unread %u, fragment %u", i, headers.protocol,
				 headers.has_ports, headers.unread, headers.fragment);
	}
}

static void distinguishes_fragments(void **state)
{
	struct headers headers;
	struct frame frame;

	for (unsigned offset = 0; offset < 3; offset++)
		for (unsigned more = 0; more < 2; more++) {
			enum headers_fragment expected = offset > 0 ? FRAGMENT_LATER
							 : more	    ? FRAGMENT_FIRST
								    : FRAGMENT_NONE;

			frame_macs(&frame, 1, 2);
			frame_ipv4(&frame, 1, 2, 17, 8, 0xbeef, more << 13 | offset);
			frame_ports(&frame, 5, 6);
			parse(&frame, &headers);
			assert_int_equal(headers.fragment, expected);
			assert_int_equal(headers.has_ports, offset == 0);
			assert_int_equal(headers.fragment_id, expected == FRAGMENT_NONE ? 0 : 0xbeef);

			frame_macs(&frame, 1, 2);
			frame_ipv6(&frame, 1, 2, 44, 8 + 8);
			frame_add8(&frame, 17);
			frame_add8(&frame, 0);
			frame_add16(&frame, offset << 3 | more);
			frame_add32(&frame, 0xdeadbeef);
			frame_ports(&frame, 5, 6);
			parse(&frame, &headers);
			assert_int_equal(headers.fragment, expected);
			assert_int_equal(headers.protocol, 17);
			assert_int_equal(headers.has_ports, offset == 0);
			assert_int_equal(headers.fragment_id, expected == FRAGMENT_NONE ? 0 : 0xdeadbeef);
		}
}

static void gives_echo_and_its_reply_the_same_number(void **state)
{
	static const struct {
		uint8_t type;
		bool six, number;
	} cases[] = {{8, false, true},	{0, false, true},  {3, false, false},
		     {128, true, true}, {129, true, true}, {135, true, false}};
	struct headers headers;
	struct frame frame;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		frame_macs(&frame, 1, 2);
		if (cases[i].six)
			frame_ipv6(&frame, 1, 2, 58, 8);
		else
			frame_ipv4(&frame, 1, 2, 1, 8, 0, 0);
		frame_add8(&frame, cases[i].type);
		frame_add8(&frame, 0);
		frame_add16(&frame, 0);
		frame_add16(&frame, 77);
		frame_add16(&frame, 1);
		parse(&frame, &headers);
		assert_int_equal(headers.source_port, cases[i].number ? 77 : 0);
		assert_int_equal(headers.destination_port, cases[i].number ? 77 : 0);
		assert_int_equal(headers.has_ports, 0);
	}
}

static void finds_the_flow_that_an_icmp_error_is_about(void **state)
{
	struct headers headers;
	struct frame frame;

	/* The router 9 tells 1 that its datagram to 2 cannot go on. */
	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 9, 1, 1, 8 + 28, 0, 0);
	frame_add32(&frame, 0x03040000);
	frame_add32(&frame, 1400);
	frame_ipv4(&frame, 1, 2, 17, 1000, 0, 0x4000);
	/* Without the type that frame_ipv4() writes before the header. */
	memmove(frame.bytes + 42, frame.bytes + 44, frame.length - 44);
	frame.length -= 2;
	frame_ports(&frame, 5, 6);
	parse(&frame, &headers);
	assert_int_equal(headers.protocol, 1);
	assert_int_equal(headers.embedded, 42);
	parse_embedded(frame.bytes, frame.length, &headers);
	assert_int_equal(headers.protocol, 17);
	assert_int_equal(headers.source_port, 5);
	assert_int_equal(headers.destination_port, 6);
	assert_memory_equal(headers.source, "\0\0\0\1", 4);
	assert_memory_equal(headers.destination, "\0\0\0\2", 4);
}

static void does_not_take_padding_for_ports(void **state)
{
	struct headers headers;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, 17, 2, 0, 0);
	frame_ports(&frame, 5, 6);
	parse(&frame, &headers);
	assert_int_equal(headers.has_ports, 0);
	assert_int_equal(headers.source_port, 0);
}

static void knows_a_frame_that_is_not_ip_by_its_macs(void **state)
{
	struct headers headers;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_add16(&frame, 0x0806);
	parse(&frame, &headers);
	assert_int_equal(headers.family, HEADERS_OTHER);
	assert_int_equal(headers.ethertype, 0x0806);
	assert_memory_equal(headers.destination, "\2\0\0\0\0\1", 6);
	assert_memory_equal(headers.source, "\2\0\0\0\0\2", 6);
	assert_int_equal(headers.network, 0);
}

static void treats_a_malformed_ip_header_as_none(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} cases[] = {{14, 0x44}, {14, 0x65}, {14, 0x4f}, {17, 19}};
	struct headers headers;
	struct frame frame;

	for (unsigned i = 0; i < 4; i++) {
		frame_udp4(&frame, 1, 2, 3, 4);
		frame.bytes[cases[i].at] = cases[i].value;
		parse(&frame, &headers);
		assert_int_equal(headers.has_ports, 0);
		assert_true(headers.malformed);
		assert_int_equal(headers.family, HEADERS_OTHER);
		assert_memory_equal(headers.source, "\2\0\0\0\0\2", 6);
	}
}

static void reads_a_frame_cut_off_anywhere(void **state)
{
	struct headers whole, headers;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_tag(&frame, 0x88a8, 10);
	frame_tag(&frame, 0x8100, 20);
	frame_ipv6(&frame, 1, 2, 44, 8 + 8);
	frame_add32(&frame, 0x11000001);
	frame_add32(&frame, 99);
	frame_ports(&frame, 5, 6);
	parse(&frame, &whole);
	assert_int_equal(whole.has_ports, 1);
	for (unsigned length = frame.length; length-- > 0;) {
		frame.length = length;
		parse(&frame, &headers);
		assert_int_equal(headers.has_ports, length >= 74);
		assert_int_equal(headers.family, length >= 62 ? HEADERS_IPV6 : HEADERS_OTHER);
		assert_int_equal(headers.vlan, length >= 18 ? HEADERS_VLAN | 10 : 0);
	}
}

/* A frame that begins well and is then broken anywhere, of 160 bytes. */
static void random_frame(uint64_t *seed, struct frame *frame)
{
	static const uint8_t extensions[] = {0, 43, 44, 51, 60, 60, 60, 6, 17, 58};

	frame_macs(frame, 1, 2);
	for (unsigned tags = random64(seed) % 6; tags > 0; tags--)
		frame_tag(frame, random64(seed) & 1 ? 0x8100 : 0x88a8, random64(seed));
	if (random64(seed) & 1)
		frame_ipv4(frame, 1, 2, random64(seed), 64, 1, random64(seed) & 1 ? 0 : 0x2000);
	else
		frame_ipv6(frame, 1, 2, random64(seed) & 1 ? 60 : random64(seed), 64);
	for (unsigned i = random64(seed) % 10; i > 0; i--) {
		frame_add8(frame, extensions[random64(seed) % sizeof(extensions)]);
		frame_add8(frame, random64(seed) % 2);
		frame_add16(frame, random64(seed));
		frame_add32(frame, random64(seed));
	}
	while (frame->length < 160)
		frame_add8(frame, random64(seed));
	for (unsigned broken = random64(seed) % 8; broken > 0; broken--)
		frame->bytes[12 + random64(seed) % 116] = random64(seed);
}

/*
 * What a sender leaves to be written later, and chooses the value of, is nothing that frames are told apart by.  And it
 * may lie anywhere behind the ports.
 */
static void lets_no_checksum_be_left_in_what_it_reads(void **state)
{
	uint64_t seed = 43;
	unsigned taken = 0;

	for (unsigned i = 0; i < 200000; i++) {
		struct headers headers, embedded, again;
		struct virtio_net_hdr offload;
		struct frame frame;
		unsigned field;

		random_frame(&seed, &frame);
		field = 14 + random64(&seed) % 145;
		offload = (struct virtio_net_hdr){
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
			.csum_start = 14 + random64(&seed) % (field - 13),
		};
		offload.csum_offset = field - offload.csum_start;
		if (!offload_check(&offload, OFFLOAD_CHECKSUM, frame.bytes, OFFLOAD_STEERED, frame.length)) {
			assert_true(field < PARSE_BYTES);
			continue;
		}
		taken += field < PARSE_BYTES;
		parse(&frame, &headers);
		embedded = headers;
		parse_embedded(frame.bytes, frame.length, &embedded);
		for (unsigned j = 0; j < 2; j++)
			frame.bytes[field + j] ^= 1 + random64(&seed) % 255;
		parse(&frame, &again);
		assert_memory_equal(&headers, &again, sizeof(headers));
		parse_embedded(frame.bytes, frame.length, &again);
		assert_memory_equal(&embedded, &again, sizeof(embedded));
	}
	assert_true(taken > 10000);
}

static void reads_random_bytes(void **state)
{
	uint64_t seed = 42;

	for (unsigned i = 0; i < 200000; i++) {
		struct headers headers, again;
		struct frame frame;

		random_frame(&seed, &frame);
		frame.length = random64(&seed) % 160;
		parse(&frame, &headers);
		parse(&frame, &again);
		assert_memory_equal(&headers, &again, sizeof(headers));
		assert_true(headers.family == 0 || headers.family == 4 || headers.family == 6);
		assert_true(headers.network < PARSE_BYTES && headers.embedded <= PARSE_BYTES);
		assert_true(!headers.has_ports || headers.fragment != FRAGMENT_LATER);
		parse_embedded(frame.bytes, frame.length, &headers);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_ipv4_and_its_ports),
		cmocka_unit_test(reads_ports_behind_ipv4_options),
		cmocka_unit_test(reads_tags),
		cmocka_unit_test(reads_ipv6_behind_extension_headers),
		cmocka_unit_test(bounds_extension_headers),
		cmocka_unit_test(reads_ports_behind_routes_as_long_as_it_looks),
		cmocka_unit_test(knows_of_long_chains_what_it_has_read),
		cmocka_unit_test(distinguishes_fragments),
		cmocka_unit_test(gives_echo_and_its_reply_the_same_number),
		cmocka_unit_test(finds_the_flow_that_an_icmp_error_is_about),
		cmocka_unit_test(does_not_take_padding_for_ports),
		cmocka_unit_test(knows_a_frame_that_is_not_ip_by_its_macs),
		cmocka_unit_test(treats_a_malformed_ip_header_as_none),
		cmocka_unit_test(reads_a_frame_cut_off_anywhere),
		cmocka_unit_test(lets_no_checksum_be_left_in_what_it_reads),
		cmocka_unit_test(reads_random_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
