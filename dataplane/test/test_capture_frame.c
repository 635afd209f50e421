/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured frames made ready to be sent: the signature stands where a router keeps it, in a frame whose lengths and
 * checksums hold, by DPDK's own functions for these.
 */
#include <stdlib.h>
#include <string.h>

#include <rte_ip.h>

#include "cmocka_all.h"
#include "frame_builder.h"
#include "tester/capture_frame.h"

enum { KEY = 77 };

static struct capture_frame frame;
static uint8_t sent[512];
static int changes;

static void udp(struct frame *built, unsigned payload, uint16_t checksum)
{
	frame_add16(built, 1000);
	frame_add16(built, 2000);
	frame_add16(built, 8 + payload);
	frame_add16(built, checksum);
	for (unsigned i = 0; i < payload; i++)
		frame_add8(built, i);
}

/* With so many bytes of options and of data. */
static void tcp(struct frame *built, unsigned options, unsigned payload)
{
	frame_add16(built, 1000);
	frame_add16(built, 2000);
	frame_add32(built, 1);
	frame_add32(built, 2);
	frame_add16(built, (20 + options) / 4 << 12 | 0x10);
	frame_add16(built, 500);
	frame_add32(built, 0xbeef0000);
	for (unsigned i = 0; i < options + payload; i++)
		frame_add8(built, 1);
}

/* Make it and sign it; the signature reads back, and nothing is written beyond what may be. */
static void make(const struct frame *built)
{
	const uint16_t room = (built->length > CAPTURE_SHORTEST ? built->length : CAPTURE_SHORTEST) + CAPTURE_GROWTH;
	uint8_t *bytes = malloc(built->length), *to = malloc(room);
	struct signature signature;

	memcpy(bytes, built->bytes, built->length);
	changes = capture_frame_make(bytes, (uint16_t)built->length, to, &frame);
	if (changes >= 0) {
		assert_true(frame.length >= CAPTURE_SHORTEST && frame.length <= room);
		capture_frame_sign(&frame, to, KEY, 3, 1234567, 7654321);
		assert_true(signature_read(to + frame.signature_at, KEY, &signature));
		assert_int_equal(signature.sequence, 1234567);
		memcpy(sent, to, frame.length);
	}
	free(bytes);
	free(to);
}

/* The transport checksum is what DPDK makes of the datagram. */
#define check_checksum(header, at, make)                  \
	do {                                              \
		uint16_t is;                              \
		memcpy(&is, sent + frame.checksum_at, 2); \
		memset(sent + frame.checksum_at, 0, 2);   \
		assert_int_equal(is, make(header, at));   \
		memcpy(sent + frame.checksum_at, &is, 2); \
	} while (0)

/* What is sent: so many bytes, with an IP datagram that begins at `ip`, ends with the signature and is sound. */
static void check_ipv4(unsigned ip, unsigned length, int expected, bool with_checksum)
{
	const struct rte_ipv4_hdr *header = (const void *)(sent + ip);
	const unsigned end = ip + rte_be_to_cpu_16(header->total_length);

	assert_int_equal(changes, expected);
	assert_int_equal(frame.length, length);
	assert_int_equal(frame.signature_at + SIGNATURE_SIZE, end);
	assert_int_equal(capture_datagram_end(sent, frame.length), end);
	assert_int_equal(rte_raw_cksum(header, rte_ipv4_hdr_len(header)), 0xffff);
	if (with_checksum)
		check_checksum(header, (const uint8_t *)header + rte_ipv4_hdr_len(header), rte_ipv4_udptcp_cksum);
}

static void ipv4(struct frame *built, uint8_t protocol, unsigned payload, uint16_t fragment)
{
	frame_macs(built, 2, 1);
	frame_ipv4(built, 0xc6120102, 0xc6130102, protocol, payload, 5, fragment);
}

static void the_last_bytes_of_a_datagram_are_the_signature(void **state)
{
	for (unsigned payload = 18; payload < 60; payload++) {
		struct frame built;

		ipv4(&built, IPPROTO_UDP, 8 + payload, 0);
		udp(&built, payload, 0xffff);
		make(&built);
		check_ipv4(14, 42 + payload, CAPTURE_AS_IT_WAS, true);
		/* The rest is as it was. */
		assert_memory_equal(sent + 42, built.bytes + 42, payload - 18);
		ipv4(&built, IPPROTO_TCP, 32 + payload, 0);
		tcp(&built, 12, payload);
		make(&built);
		check_ipv4(14, 66 + payload, CAPTURE_AS_IT_WAS, true);
		assert_memory_equal(sent + 34, built.bytes + 34, 16);
	}
}

static void a_datagram_without_room_becomes_longer(void **state)
{
	struct frame built;

	for (unsigned payload = 0; payload < 18; payload++) {
		ipv4(&built, IPPROTO_TCP, 20 + payload, 0);
		tcp(&built, 0, payload);
		make(&built);
		check_ipv4(14, 72, CAPTURE_GROWN, true);
		ipv4(&built, IPPROTO_UDP, 8 + payload, 0);
		udp(&built, payload, 1);
		make(&built);
		check_ipv4(14, 60, CAPTURE_GROWN, true);
		assert_int_equal(sent[14 + 20 + 5], 8 + 18);
	}
	/* As it came off the wire, padded to the shortest: what a router does not send on is not sent. */
	ipv4(&built, IPPROTO_TCP, 20, 0);
	tcp(&built, 0, 0);
	for (int i = 0; i < 6; i++)
		frame_add8(&built, 0);
	make(&built);
	check_ipv4(14, 72, CAPTURE_GROWN | CAPTURE_CUT, true);
}

static void what_lies_behind_a_datagram_is_not_sent(void **state)
{
	struct frame built;

	ipv4(&built, IPPROTO_UDP, 8 + 40, 0);
	udp(&built, 40, 9);
	for (int i = 0; i < 4; i++)
		frame_add8(&built, 0xfc);
	make(&built);
	check_ipv4(14, 82, CAPTURE_CUT, true);
}

static void a_udp_checksum_that_is_none_stays_none(void **state)
{
	struct frame built;

	ipv4(&built, IPPROTO_UDP, 8 + 20, 0);
	udp(&built, 20, 0);
	make(&built);
	check_ipv4(14, 62, CAPTURE_AS_IT_WAS, false);
	assert_int_equal(frame.checksum_at, 0);
	assert_int_equal(sent[40] | sent[41], 0);
}

static void tags_stay(void **state)
{
	struct frame built;

	frame_macs(&built, 2, 1);
	frame_tag(&built, 0x88a8, 100);
	frame_tag(&built, 0x8100, 200);
	frame_ipv4(&built, 1, 2, IPPROTO_TCP, 21, 5, 0x4000);
	tcp(&built, 0, 1);
	make(&built);
	check_ipv4(22, 80, CAPTURE_GROWN, true);
}

static void an_echo_has_a_checksum_without_addresses(void **state)
{
	struct frame built;

	ipv4(&built, IPPROTO_ICMP, 8 + 33, 0);
	frame_add16(&built, 0x0800);
	frame_add16(&built, 0xdead);
	frame_add32(&built, 0x00010002);
	for (int i = 0; i < 33; i++)
		frame_add8(&built, i);
	make(&built);
	check_ipv4(14, 75, CAPTURE_AS_IT_WAS, false);
	assert_true(frame.odd);
	assert_int_equal(rte_raw_cksum(sent + 34, 41), 0xffff);
}

static void ipv6_is_no_different(void **state)
{
	for (unsigned payload = 0; payload < 40; payload++) {
		const unsigned larger = payload < 18 ? 18 : payload;
		const struct rte_ipv6_hdr *header = (const void *)(sent + 14);
		struct frame built;

		frame_macs(&built, 2, 1);
		frame_ipv6(&built, 1, 2, IPPROTO_TCP, 20 + payload);
		tcp(&built, 0, payload);
		make(&built);
		assert_int_equal(changes, payload < 18 ? CAPTURE_GROWN : CAPTURE_AS_IT_WAS);
		assert_int_equal(frame.length, 74 + larger);
		assert_int_equal(frame.signature_at, 74 + larger - 18);
		assert_int_equal(rte_be_to_cpu_16(header->payload_len), 20 + larger);
		check_checksum(header, sent + 54, rte_ipv6_udptcp_cksum);
		/* Behind extension headers: hop by hop, then destination options. */
		frame_macs(&built, 2, 1);
		frame_ipv6(&built, 1, 2, IPPROTO_HOPOPTS, 16 + 8 + payload);
		frame_add32(&built, (uint32_t)IPPROTO_DSTOPTS << 24 | 0x000104);
		frame_add32(&built, 0);
		frame_add32(&built, (uint32_t)IPPROTO_UDP << 24 | 0x000104);
		frame_add32(&built, 0);
		udp(&built, payload, 3);
		make(&built);
		assert_int_equal(frame.length, 14 + 40 + 16 + 8 + larger);
		assert_int_equal(frame.checksum_at, 14 + 40 + 16 + 6);
		assert_int_equal(sent[14 + 40 + 16 + 5], 8 + larger);
	}
}

static void a_fragment_keeps_its_checksum(void **state)
{
	struct frame built;

	ipv4(&built, IPPROTO_UDP, 8 + 40, 0x2000); /* the first one */
	udp(&built, 40, 0x1234);
	make(&built);
	check_ipv4(14, 82, CAPTURE_AS_IT_WAS, false);
	assert_int_equal(frame.checksum_at, 0);
	assert_int_equal(sent[40] << 8 | sent[41], 0x1234);
	ipv4(&built, IPPROTO_UDP, 8, 3); /* the last one may become longer */
	udp(&built, 0, 0);
	make(&built);
	check_ipv4(14, 60, CAPTURE_GROWN | CAPTURE_PADDED, false);
	assert_int_equal(frame.signature_at, 34);
	ipv4(&built, IPPROTO_UDP, 16, 0x2003); /* one in the middle has a multiple of eight bytes */
	udp(&built, 8, 0);
	make(&built);
	assert_int_equal(changes, -1);
}

static void a_frame_of_anything_else_is_signed_at_its_end(void **state)
{
	static const uint16_t types[] = {0x0806, 0x88cc, 0x8847, 0x0026, 0x0800, 0x86dd};

	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		for (unsigned length = 14; length < 100; length++) {
			struct frame built;

			frame_macs(&built, 2, 1);
			frame_add16(&built, types[i]);
			while (built.length < length)
				frame_add8(&built, 0xee); /* neither version 4 nor 6 */
			make(&built);
			assert_int_equal(changes, length < 60 ? CAPTURE_PADDED : CAPTURE_AS_IT_WAS);
			assert_int_equal(frame.length, length < 60 ? 60 : length);
			assert_int_equal(frame.signature_at, frame.length - 18);
			assert_int_equal(frame.checksum_at, 0);
		}
}

/* A header that says more than there is makes no datagram; nothing is read beyond the frame (the sanitizer looks). */
static void headers_that_contradict_themselves_are_left_alone(void **state)
{
	struct frame whole;

	frame_macs(&whole, 2, 1);
	frame_tag(&whole, 0x8100, 1);
	frame_ipv6(&whole, 1, 2, IPPROTO_ROUTING, 24 + 20 + 18);
	frame_add32(&whole, (uint32_t)IPPROTO_TCP << 24 | 0x020401);
	for (int i = 0; i < 5; i++)
		frame_add32(&whole, 0);
	tcp(&whole, 0, 18);
	make(&whole);
	assert_int_equal(frame.checksum_at, 0); /* it is of another destination */
	for (unsigned length = 0; length < whole.length; length++) {
		struct frame cut = whole;

		cut.length = length;
		make(&cut);
		assert_int_equal(frame.length, length < 60 ? 60 : length);
		assert_int_equal(frame.signature_at, frame.length - 18);
	}
	for (unsigned seed = 0; seed < 100000; seed++) {
		struct frame odd = whole;

		srand(seed);
		odd.length = 14 + rand() % (whole.length - 14);
		for (int i = 0; i < 4; i++)
			odd.bytes[12 + rand() % (whole.length - 12)] = (uint8_t)rand();
		make(&odd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_bytes_of_a_datagram_are_the_signature),
		cmocka_unit_test(a_datagram_without_room_becomes_longer),
		cmocka_unit_test(what_lies_behind_a_datagram_is_not_sent),
		cmocka_unit_test(a_udp_checksum_that_is_none_stays_none),
		cmocka_unit_test(tags_stay),
		cmocka_unit_test(an_echo_has_a_checksum_without_addresses),
		cmocka_unit_test(ipv6_is_no_different),
		cmocka_unit_test(a_fragment_keeps_its_checksum),
		cmocka_unit_test(a_frame_of_anything_else_is_signed_at_its_end),
		cmocka_unit_test(headers_that_contradict_themselves_are_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
