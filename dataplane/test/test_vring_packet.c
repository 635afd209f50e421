/* SPDX-License-Identifier: Apache-2.0
 *
 * The steered path: read, decide, write to any number of rings, done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/ring_pair.h"
#include "vring/packet.h"

static struct burst burst;
static const uint8_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void delivers_the_copy_that_was_looked_at(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 1000, 5);
	offer_buffer(&pair->to, BUFFERS, 2048);
	assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
	assert_int_equal(burst.count, 1);
	assert_int_equal(burst.packets[0].head_length, PACKET_HEAD);
	assert_int_equal(burst.packets[0].length, 1000);
	/* The guest changes its frame after it was looked at. */
	memset(guest_at(&pair->from, FRAMES + HEADER), 0xff, PACKET_HEAD);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, 1), 1);
	vring_read_done(&pair->from.ring, &burst);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 1000, 5);
	expect_header(&pair->to, BUFFERS, 1);
	expect_used(&pair->to, 0, 0, HEADER + 1000);
	assert_int_equal(pair->from.counters.received_packets, 1);
	assert_int_equal(pair->from.counters.received_bytes, 1000);
	assert_int_equal(pair->to.counters.sent_bytes, 1000);
}

static void shows_the_receiver_nothing_before_the_sender_has_its_frames_back(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 3; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 3);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, 1), 1);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all + 1, 2), 2);
	assert_int_equal(guest_taken(&pair->to), 0);
	assert_int_equal(guest_taken(&pair->from), 0);
	vring_read_done(&pair->from.ring, &burst);
	assert_int_equal(guest_taken(&pair->to), 3);
	assert_int_equal(guest_taken(&pair->from), 3);
	for (unsigned i = 0; i < 3; i++)
		expect_pattern(&pair->to, BUFFERS + i * 0x100 + HEADER, 0, 60, i);
}

static void grows_and_shrinks_the_head(void **state)
{
	struct pair *pair = *state;

	for (int change = -8; change <= 8; change += 4) {
		struct packet *packet;
		const unsigned length = 200;

		send_plain(&pair->from, FRAMES, length, 1);
		offer_buffer(&pair->to, BUFFERS, 2048);
		assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
		packet = &burst.packets[0];
		if (change > 0) {
			packet_push(packet, change);
			memset(packet->head, 0xaa, change);
		} else {
			packet_pop(packet, -change);
		}
		assert_int_equal(vring_write(&pair->to.ring, &burst, all, 1), 1);
		vring_read_done(&pair->from.ring, &burst);
		if (change > 0) {
			assert_int_equal(*guest_at(&pair->to, BUFFERS + HEADER + change - 1), 0xaa);
			expect_pattern(&pair->to, BUFFERS + HEADER + change, 0, length, 1);
		} else {
			expect_pattern(&pair->to, BUFFERS + HEADER, -change, length + change, 1);
		}
		assert_int_equal(packet->length, length + change);
	}
}

static void writes_one_frame_to_several_receivers(void **state)
{
	struct pair *pair = *state;
	struct simulated_guest other;

	guest_start(&other, to_packed, true);
	for (unsigned i = 0; i < 4; i++) {
		send_plain(&pair->from, FRAMES + i * 0x400, 500, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x400, 1024);
		if (i < 2) /* the other receiver is slow */
			offer_buffer(&other, BUFFERS + i * 0x400, 1024);
	}
	assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 4);
	assert_int_equal(vring_write(&other.ring, &burst, all, 4), 2);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, 4), 4);
	vring_read_done(&pair->from.ring, &burst);
	assert_int_equal(guest_taken(&pair->to), 4);
	assert_int_equal(guest_taken(&other), 2);
	expect_pattern(&pair->to, BUFFERS + 3 * 0x400 + HEADER, 0, 500, 3);
	expect_pattern(&other, BUFFERS + 0x400 + HEADER, 0, 500, 1);
	assert_int_equal(pair->from.counters.received_bytes, 2000);
	guest_end(&other);
}

static void writes_a_selection_in_the_order_asked(void **state)
{
	static const uint8_t which[] = {4, 1};
	struct pair *pair = *state;

	for (unsigned i = 0; i < 5; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	assert_int_equal(vring_read(&pair->from.ring, &burst, 5), 5);
	assert_int_equal(vring_write(&pair->to.ring, &burst, which, 2), 2);
	vring_read_done(&pair->from.ring, &burst);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 60, 4);
	expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 1);
	assert_int_equal(pair->from.counters.received_packets, 5);
	assert_int_equal(pair->from.counters.received_bytes, 120);
}

static void reads_and_writes_frames_in_pieces(void **state)
{
	struct pair *pair = *state;
	uint16_t head;

	pattern(&pair->from, FRAMES + 0x100, 900, 3);
	head = guest_desc(&pair->from, FRAMES, HEADER, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100, 14, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100 + 14, 286, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100 + 300, 600, 0);
	guest_offer(&pair->from, head);
	for (unsigned i = 0; i < 4; i++)
		offer_buffer(&pair->to, BUFFERS + i * 0x400, 300);
	assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
	assert_int_equal(burst.packets[0].head_length, PACKET_HEAD);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, 1), 1);
	vring_read_done(&pair->from.ring, &burst);
	expect_header(&pair->to, BUFFERS, 4);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 288, 3);
	expect_pattern(&pair->to, BUFFERS + 0x400, 288, 300, 3);
	expect_pattern(&pair->to, BUFFERS + 0xc00, 888, 12, 3);
	assert_int_equal(guest_taken(&pair->to), 4);
}

static void drops_on_reading_what_cannot_be_carried(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 60, 1);
	guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER + 13, 0));
	send_plain(&pair->from, FRAMES + 0x100, 60, 2);
	for (unsigned i = 0; i < 3; i++)
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 3);
	assert_int_equal(burst.count, 2);
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, 2), 2);
	vring_read_done(&pair->from.ring, &burst);
	assert_int_equal(guest_taken(&pair->from), 3);
	assert_int_equal(guest_taken(&pair->to), 2);
	expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 2);
	assert_int_equal(pair->from.counters.drop_frame_too_short, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
		TEST(delivers_the_copy_that_was_looked_at),
		TEST(shows_the_receiver_nothing_before_the_sender_has_its_frames_back),
		TEST(grows_and_shrinks_the_head),
		TEST(writes_one_frame_to_several_receivers),
		TEST(writes_a_selection_in_the_order_asked),
		TEST(reads_and_writes_frames_in_pieces),
		TEST(drops_on_reading_what_cannot_be_carried),
#undef TEST
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
