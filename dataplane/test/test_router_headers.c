/* SPDX-License-Identifier: Apache-2.0
 *
 * Which frames a router may forward, which are the kernel's and which are dropped, and the arithmetic of one hop more.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include <stdlib.h>

#include "functions/router_headers.h"

static const uint8_t own[6] = {2, 0, 0, 0, 0, 1};

/* Exactly as large as the frame, so that the address sanitizer sees a byte too far. */
static enum router_verdict check(const struct frame *frame)
{
	uint8_t *bytes = malloc(frame->length);
	enum router_verdict verdict;

	memcpy(bytes, frame->bytes, frame->length);
	verdict = router_check(bytes, frame->length, frame->length, 14, router_mac(own));
	/* What is found from a few words is no other. */
	assert_int_equal(router_is_plain4(bytes, frame->length, frame->length, router_mac(own)),
			 verdict == ROUTER_IPV4);
	free(bytes);
	return verdict;
}

static struct rte_ipv4_hdr *header4(struct frame *frame)
{
	return (struct rte_ipv4_hdr *)(frame->bytes + 14);
}

/* A sound frame to the router from 10.0.0.2 to 192.0.2.1. */
static struct frame sound4(void)
{
	struct frame frame;

	frame_udp4(&frame, 0x0a000002, 0xc0000201, 1, 2);
	header4(&frame)->hdr_checksum = rte_ipv4_cksum(header4(&frame));
	return frame;
}

static struct frame between4(uint32_t source, uint32_t destination)
{
	struct frame frame = sound4();

	header4(&frame)->src_addr = htonl(source);
	header4(&frame)->dst_addr = htonl(destination);
	header4(&frame)->hdr_checksum = 0;
	header4(&frame)->hdr_checksum = rte_ipv4_cksum(header4(&frame));
	return frame;
}

static struct frame sound6(void)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, 17, 8);
	frame_ports(&frame, 1, 2);
	return frame;
}

static void forwards_what_is_sound(void **state)
{
	struct frame four = sound4(), six = sound6();

	assert_int_equal(check(&four), ROUTER_IPV4);
	assert_int_equal(check(&six), ROUTER_IPV6);
	/* Padding behind a short packet is none of its length. */
	frame_add32(&four, 0);
	frame_add32(&six, 0);
	assert_int_equal(check(&four), ROUTER_IPV4);
	assert_int_equal(check(&six), ROUTER_IPV6);
}

static void drops_every_frame_that_is_cut(void **state)
{
	struct frame four = sound4(), six = sound6();

	for (unsigned length = 0; length < four.length; length++) {
		struct frame cut = four;

		cut.length = length;
		assert_int_equal(check(&cut), length < 34 ? ROUTER_DROP_short : ROUTER_DROP_length);
	}
	for (unsigned length = 0; length < six.length; length++) {
		struct frame cut = six;

		cut.length = length;
		assert_int_equal(check(&cut), length < 54 ? ROUTER_DROP_short : ROUTER_DROP_length);
	}
}

static void drops_ipv4_that_is_not_sound(void **state)
{
	struct frame frame = sound4();

	frame.bytes[14] = 0x65;
	assert_int_equal(check(&frame), ROUTER_DROP_version);
	frame.bytes[14] = 0x44;
	assert_int_equal(check(&frame), ROUTER_DROP_length);
	frame = sound4();
	header4(&frame)->total_length = htons(19);
	assert_int_equal(check(&frame), ROUTER_DROP_length);
	frame = sound4();
	header4(&frame)->total_length = htons(29);
	assert_int_equal(check(&frame), ROUTER_DROP_length);
	for (unsigned bit = 0; bit < 8 * 20; bit++) {
		frame = sound4();
		frame.bytes[14 + bit / 8] ^= 1 << bit % 8;
		assert_true(check(&frame) >= ROUTER_DROP_short);
	}
}

static void drops_martians(void **state)
{
	static const uint32_t sources[] = {0, 0x00ffffff, 0x7f000001, 0xe0000001, 0xf0000000, 0xffffffff};
	static const uint32_t destinations[] = {0, 0x00000001, 0x7f000001, 0xf0000001, 0xfffffffe};
	struct frame frame;

	for (unsigned i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		frame = between4(sources[i], 0xc0000201);
		assert_int_equal(check(&frame), ROUTER_DROP_martian);
	}
	for (unsigned i = 0; i < sizeof(destinations) / sizeof(destinations[0]); i++) {
		frame = between4(0x0a000002, destinations[i]);
		assert_int_equal(check(&frame), ROUTER_DROP_martian);
	}
	frame = sound6();
	frame.bytes[22] = 0xff; /* the source */
	assert_int_equal(check(&frame), ROUTER_DROP_martian);
	for (unsigned last = 0; last < 2; last++)
		for (unsigned at = 22; at <= 38; at += 16) {
			frame = sound6();
			memset(frame.bytes + at, 0, 16);
			frame.bytes[at + 15] = (uint8_t)last;
			assert_int_equal(check(&frame), ROUTER_DROP_martian);
		}
	for (unsigned at = 22; at <= 38; at += 16) {
		frame = sound6();
		memset(frame.bytes + at, 0, 10);
		memset(frame.bytes + at + 10, 0xff, 2);
		assert_int_equal(check(&frame), ROUTER_DROP_martian);
		frame.bytes[at]++;
		assert_int_equal(check(&frame), ROUTER_IPV6);
	}
}

static void gives_the_kernel_what_is_not_for_the_fast_path(void **state)
{
	struct frame frame = between4(0x0a000002, 0xe0000005);

	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	frame = between4(0x0a000002, 0xffffffff);
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	/* ARP, to everybody and to us; and a tag, which the kernel's VLAN interfaces take. */
	frame_macs(&frame, 1, 2);
	frame_add16(&frame, 0x0806);
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	memset(frame.bytes, 0xff, 6);
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	frame_macs(&frame, 1, 2);
	frame_tag(&frame, 0x8100, 5);
	frame_add16(&frame, 0x0800);
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	/* Options: four bytes of them. */
	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 0x0a000002, 0xc0000201, 17, 4 + 8, 0, 0);
	frame.bytes[14] = 0x46;
	frame_add32(&frame, 0x01010101);
	frame_ports(&frame, 1, 2);
	header4(&frame)->hdr_checksum = ~rte_raw_cksum(header4(&frame), 24);
	assert_int_equal(check(&frame), ROUTER_OTHERS);
	frame = sound6();
	frame.bytes[20] = 0; /* options for every hop */
	assert_int_equal(check(&frame), ROUTER_OTHERS);
	frame = sound6();
	frame.bytes[38] = 0xff;
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
	frame = sound6();
	frame.bytes[22] = 0xfe;
	frame.bytes[23] = 0x80;
	assert_int_equal(check(&frame), ROUTER_NEIGHBOURS);
}

static void leaves_other_stations_their_frames(void **state)
{
	struct frame frame = sound4();

	frame.bytes[5] = 9;
	assert_int_equal(check(&frame), ROUTER_DROP_station);
}

static void the_checksum_stays_right(void **state)
{
	uint64_t seed = 1;

	for (unsigned i = 0; i < 200000; i++) {
		struct frame frame = between4((uint32_t)random64(&seed), (uint32_t)random64(&seed));
		struct rte_ipv4_hdr *header = header4(&frame);

		header->packet_id = (uint16_t)random64(&seed);
		header->time_to_live = 2 + random64(&seed) % 254;
		header->hdr_checksum = 0;
		header->hdr_checksum = rte_ipv4_cksum(header);
		router_decrease_ttl(header);
		assert_int_equal(rte_raw_cksum(header, sizeof(*header)), 0xffff);
	}
}

/* Of fields that nothing else looks at: the identification and the source address. */
static void a_checksum_that_is_wrong_by_a_bit_is_seen(void **state)
{
	uint64_t seed = 3;

	for (unsigned i = 0; i < 20000; i++) {
		struct frame frame = between4((uint32_t)random64(&seed), 0xc0000201);
		const uint32_t bit = random64(&seed) % 48;
		struct rte_ipv4_hdr *header = header4(&frame);

		header->packet_id = (uint16_t)random64(&seed);
		header->hdr_checksum = 0;
		header->hdr_checksum = rte_ipv4_cksum(header);
		assert_int_not_equal(check(&frame), ROUTER_DROP_checksum);
		frame.bytes[14 + (bit < 16 ? 4 : 10) + bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check(&frame), ROUTER_DROP_checksum);
	}
}

static void fragments_go_one_way(void **state)
{
	struct frame first = sound4(), later, other = sound4();
	uint32_t flow;

	header4(&first)->fragment_offset = htons(0x2000);
	later = first;
	header4(&later)->fragment_offset = htons(0x0100);
	later.bytes[34] ^= 0xff;
	flow = router_flow4(header4(&first), first.length - 14);
	assert_int_equal(router_flow4(header4(&later), later.length - 14), flow);
	assert_int_not_equal(router_flow4(header4(&other), other.length - 14), flow);
	flow = router_flow4(header4(&other), other.length - 14);
	other.bytes[34] ^= 1; /* another port, another flow */
	assert_int_not_equal(router_flow4(header4(&other), other.length - 14), flow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forwards_what_is_sound),
		cmocka_unit_test(drops_every_frame_that_is_cut),
		cmocka_unit_test(drops_ipv4_that_is_not_sound),
		cmocka_unit_test(drops_martians),
		cmocka_unit_test(gives_the_kernel_what_is_not_for_the_fast_path),
		cmocka_unit_test(leaves_other_stations_their_frames),
		cmocka_unit_test(the_checksum_stays_right),
		cmocka_unit_test(a_checksum_that_is_wrong_by_a_bit_is_seen),
		cmocka_unit_test(fragments_go_one_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
