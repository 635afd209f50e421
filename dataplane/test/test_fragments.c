/* SPDX-License-Identifier: Apache-2.0
 *
 * By what the fragments of a datagram are known for one: whatever headers lie behind the fragment header of IPv6, and
 * never together with those of another datagram.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include <rte_common.h>

#include "steer/pin.h"

enum { UDP = 17, FRAGMENT = 44, AUTHENTICATION = 51, NO_NEXT = 59, OPTIONS = 60, MOBILITY = 135, MORE = 1 };

static const struct flows fragments = {.secret = {0x0123456789abcdef, 0xfedcba9876543211}};

static uint64_t key_of(const struct frame *frame)
{
	struct headers headers;

	parse_frame(frame->bytes, frame->length, &headers);
	assert_int_not_equal(headers.fragment, FRAGMENT_NONE);
	return pin_datagram(&fragments, &headers);
}

/* A fragment over IPv6; `next` is what its header says, and `offset` is in bytes. */
static void fragment6(struct frame *frame, uint8_t next, unsigned offset, uint32_t id)
{
	frame_macs(frame, 1, 2);
	frame_ipv6(frame, 1, 2, FRAGMENT, 8 + 24);
	frame_add8(frame, next);
	frame_add8(frame, 0);
	frame_add16(frame, offset | MORE);
	frame_add32(frame, id);
	/* Of a first one an extension header of 8 bytes, or 16 of authentication; of a later one whatever lies there.
	 */
	frame_add8(frame, UDP);
	frame_add8(frame, next == AUTHENTICATION ? 2 : 0);
	while (frame->length < 14 + 40 + 8 + (next == AUTHENTICATION ? 16 : 8))
		frame_add8(frame, 0);
	frame_ports(frame, 1000, 80);
}

static void knows_a_datagram_whatever_lies_behind_the_fragment_header(void **state)
{
	static const uint8_t next[] = {OPTIONS, MOBILITY, AUTHENTICATION};

	for (unsigned i = 0; i < RTE_DIM(next); i++) {
		struct headers headers;
		struct frame first, later;

		fragment6(&first, next[i], 0, 7);
		fragment6(&later, next[i], 1280, 7);
		parse_frame(first.bytes, first.length, &headers);
		assert_int_equal(headers.protocol, UDP);
		assert_int_equal(headers.destination_port, 80);
		assert_int_equal(key_of(&first), key_of(&later));
		/* Nor does it matter what a later one says itself. */
		fragment6(&later, NO_NEXT, 1280, 7);
		assert_int_equal(key_of(&first), key_of(&later));
		fragment6(&later, next[i], 1280, 8);
		assert_int_not_equal(key_of(&first), key_of(&later));
	}
}

static void fragment4(struct frame *frame, uint8_t protocol, uint16_t id, uint16_t offset)
{
	frame_macs(frame, 1, 2);
	frame_ipv4(frame, 1, 2, protocol, 8, id, 0x2000 | offset);
	frame_ports(frame, 1000, 80);
}

static void keeps_datagrams_of_ipv4_apart_by_protocol(void **state)
{
	struct frame first, later;

	fragment4(&first, UDP, 7, 0);
	fragment4(&later, UDP, 7, 100);
	assert_int_equal(key_of(&first), key_of(&later));
	fragment4(&later, 6, 7, 100);
	assert_int_not_equal(key_of(&first), key_of(&later));
	fragment4(&later, UDP, 8, 100);
	assert_int_not_equal(key_of(&first), key_of(&later));
}

static void keeps_datagrams_of_other_vlans_apart(void **state)
{
	static const uint16_t tags[][2] = {{0, 0}, {10, 0}, {20, 0}, {10, 20}, {20, 10}};
	uint64_t keys[RTE_DIM(tags)];

	for (unsigned i = 0; i < RTE_DIM(tags); i++) {
		struct frame frame;

		frame_macs(&frame, 1, 2);
		for (unsigned tag = 0; tag < 2 && tags[i][tag] != 0; tag++)
			frame_tag(&frame, 0x8100, tags[i][tag]);
		frame_ipv4(&frame, 1, 2, UDP, 8, 7, 100);
		keys[i] = key_of(&frame);
		for (unsigned other = 0; other < i; other++)
			assert_int_not_equal(keys[i], keys[other]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(knows_a_datagram_whatever_lies_behind_the_fragment_header),
		cmocka_unit_test(keeps_datagrams_of_ipv4_apart_by_protocol),
		cmocka_unit_test(keeps_datagrams_of_other_vlans_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
