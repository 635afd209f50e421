/* SPDX-License-Identifier: Apache-2.0
 *
 * By what a frame that is followed is known again when a function has changed it.
 */
#include "test/cmocka_all.h"

#include "steer/follow.h"
#include "test/frame_builder.h"

enum { PAYLOAD = 100 };

static uint8_t carried[PAYLOAD];

/* TCP, UDP or ICMP over IP of either version, under so many tags, with a payload that goes beyond the packet's head. */
static struct frame framed(unsigned family, uint8_t protocol, unsigned tags)
{
	const unsigned header = protocol == IPPROTO_TCP ? 20 : 8;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	for (unsigned i = 0; i < tags; i++)
		frame_tag(&frame, 0x8100, 10 + i);
	if (family == 4)
		frame_ipv4(&frame, 0x0a000001, 0x0a000002, protocol, header + PAYLOAD, 7, 0);
	else
		frame_ipv6(&frame, 1, 2, protocol, header + PAYLOAD);
	for (unsigned i = 0; i < header; i++)
		frame_add8(&frame, i == 12 ? 0x50 : i);
	frame_add(&frame, carried, PAYLOAD);
	return frame;
}

static uint32_t mark_of(const struct frame *frame)
{
	struct packet packet = {.length = frame->length};
	struct vring_piece pieces[2];

	packet.head = packet.bytes + PACKET_ROOM;
	packet.head_length = RTE_MIN(frame->length, (unsigned)PACKET_HEAD);
	memcpy(packet.head, frame->bytes, packet.head_length);
	packet.pieces = pieces;
	pieces[1] = (struct vring_piece){(uint8_t *)(uintptr_t)frame->bytes + packet.head_length,
					 frame->length - packet.head_length};
	packet.nb_pieces = 2;
	return follow_mark(&packet);
}

/* The mark with this byte of the frame changed; counted from the IP header on. */
static uint32_t changed(const struct frame *frame, int at)
{
	struct frame other = *frame;

	other.bytes[14 + at] ^= 0x10;
	return mark_of(&other);
}

static void what_functions_change_is_not_in_the_mark(void **state)
{
	static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP};
	static const uint8_t checksums[] = {16, 6, 2};

	for (unsigned i = 0; i < PAYLOAD; i++)
		carried[i] = i;
	for (unsigned family = 4; family <= 6; family += 2)
		for (unsigned i = 0; i < 3; i++) {
			const uint8_t protocol = family == 6 && i == 2 ? IPPROTO_ICMPV6 : protocols[i];
			struct frame frame = framed(family, protocol, 0), tagged;
			const unsigned transport = family == 4 ? 20 : 40;
			const uint32_t mark = mark_of(&frame);

			for (unsigned tags = 1; tags <= 3; tags++) {
				tagged = framed(family, protocol, tags);
				assert_int_equal(mark_of(&tagged), mark);
			}
			assert_int_equal(changed(&frame, -14), mark);			   /* MAC addresses */
			assert_int_equal(changed(&frame, family == 4 ? 8 : 7), mark);	   /* time to live */
			assert_int_equal(changed(&frame, 1), mark);			   /* priority */
			assert_int_equal(changed(&frame, transport + checksums[i]), mark); /* may be completed */
			if (family == 4)
				assert_int_equal(changed(&frame, 10), mark);
			frame_add(&frame, "padding", 7);
			assert_int_equal(mark_of(&frame), mark);
		}
}

static void other_frames_have_other_marks(void **state)
{
	struct frame four = framed(4, IPPROTO_UDP, 0), six = framed(6, IPPROTO_TCP, 0);
	struct frame arp = {0};

	assert_int_not_equal(mark_of(&four), mark_of(&six));
	/* Identification, protocol, addresses, ports, payload: its beginning and its end, which is behind the head. */
	for (unsigned i = 0; i < 9; i++) {
		static const uint8_t places[] = {5, 9, 12, 19, 20, 23, 28, 60, 20 + 8 + PAYLOAD - 1};

		assert_int_not_equal(changed(&four, places[i]), mark_of(&four));
	}
	/* Flow label, addresses, ports, positions, payload. */
	for (unsigned i = 0; i < 7; i++) {
		static const uint8_t places[] = {3, 8, 39, 40, 44, 60, 40 + 20 + PAYLOAD - 1};

		assert_int_not_equal(changed(&six, places[i]), mark_of(&six));
	}
	frame_macs(&arp, 1, 2);
	frame_add16(&arp, 0x0806);
	frame_add(&arp, carried, 46);
	for (unsigned i = 12; i < 60; i++)
		assert_int_not_equal(changed(&arp, (int)i - 14), mark_of(&arp));
	assert_int_equal(changed(&arp, -14), mark_of(&arp));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_functions_change_is_not_in_the_mark),
		cmocka_unit_test(other_frames_have_other_marks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
