/* SPDX-License-Identifier: Apache-2.0
 *
 * The hop between two rings: every shape of frame and buffer, and everything that a malicious guest can write.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/ring_pair.h"
#include "vring/hop.h"

/* ------- frames that move ------- */

static void moves_plain_frames_of_every_length(void **state)
{
	struct pair *pair = *state;
	unsigned moved = 0;

	for (uint32_t length = VRING_FRAME_MIN; length < 1600; length++, moved++) {
		send_plain(&pair->from, FRAMES + 3, length, length);
		offer_buffer(&pair->to, BUFFERS + 64, 2048);
		*guest_at(&pair->to, BUFFERS + 64 + HEADER + length) = 0x5a;
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		expect_header(&pair->to, BUFFERS + 64, 1);
		expect_pattern(&pair->to, BUFFERS + 64 + HEADER, 0, length, length);
		/* Not a byte more. */
		assert_int_equal(*guest_at(&pair->to, BUFFERS + 64 + HEADER + length), 0x5a);
		expect_used(&pair->to, moved, moved % RING, HEADER + length);
		expect_used(&pair->from, moved, moved % RING, 0);
		assert_int_equal(guest_taken(&pair->to), moved + 1);
		assert_int_equal(guest_taken(&pair->from), moved + 1);
	}
	assert_int_equal(pair->from.counters.received_packets, moved);
	assert_int_equal(pair->to.counters.sent_packets, moved);
	assert_int_equal(pair->from.counters.received_bytes, pair->to.counters.sent_bytes);
}

static void keeps_order_across_the_wrap_of_the_index(void **state)
{
	struct pair *pair = *state;
	uint16_t expected = 0, sent = 0;

	guest_move_to(&pair->from, 65530);
	guest_move_to(&pair->to, 65520);
	for (unsigned round = 0; round < 40; round++) {
		unsigned burst = 1 + round % RING;

		for (unsigned i = 0; i < burst; i++) {
			send_plain(&pair->from, FRAMES + i * 128, 60, sent++);
			offer_buffer(&pair->to, BUFFERS + i * 128, 128);
		}
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), burst);
		for (unsigned i = 0; i < burst; i++)
			expect_pattern(&pair->to, BUFFERS + i * 128 + HEADER, 0, 60, expected++);
		assert_int_equal(guest_taken(&pair->from), sent);
		assert_int_equal(guest_taken(&pair->to), sent);
	}
}

static void follows_chained_descriptors(void **state)
{
	struct pair *pair = *state;
	uint16_t head;

	/* Header alone, then the frame in three parts, one of them empty: as Linux and testpmd do. */
	pattern(&pair->from, FRAMES + 0x100, 500, 9);
	head = guest_desc(&pair->from, FRAMES, HEADER, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100, 14, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100, 0, VRING_DESC_F_NEXT);
	guest_desc(&pair->from, FRAMES + 0x100 + 14, 486, 0);
	guest_offer(&pair->from, head);
	/* And buffers likewise, the network header apart. */
	head = guest_desc(&pair->to, BUFFERS, HEADER, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT);
	guest_desc(&pair->to, BUFFERS + 0x200, 100, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT);
	guest_desc(&pair->to, BUFFERS + 0x400, 1000, VRING_DESC_F_WRITE);
	guest_offer(&pair->to, head);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_header(&pair->to, BUFFERS, 1);
	expect_pattern(&pair->to, BUFFERS + 0x200, 0, 100, 9);
	expect_pattern(&pair->to, BUFFERS + 0x400, 100, 400, 9);
	expect_used(&pair->to, 0, head, HEADER + 500);
}

static void follows_indirect_tables_across_regions(void **state)
{
	struct pair *pair = *state;
	/* The table and the frame both lie across the border of the two memory regions. */
	const uint64_t table = GUEST_BASE + GUEST_HALF - 24, frame = GUEST_BASE + GUEST_HALF - 8192;

	pattern(&pair->from, frame, HEADER + 588, 4);
	guest_offer(&pair->from, indirect(&pair->from, table, frame, 150, 4, 0));
	guest_offer(&pair->to, indirect(&pair->to, table, frame, 300, 5, VRING_DESC_F_WRITE));
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, frame + HEADER, HEADER, 588, 4);
}

/* DPDK's driver marks the header so, in what it sends by a packed ring. */
static void takes_what_a_packed_table_says_is_written_to(void **state)
{
	struct pair *pair = *state;
	const uint64_t table = GUEST_BASE + GUEST_HALF - 24;

	if (!from_packed)
		return;
	pattern(&pair->from, FRAMES, HEADER + 588, 4);
	guest_offer(&pair->from, indirect(&pair->from, table, FRAMES, 150, 4, VRING_DESC_F_WRITE));
	offer_buffer(&pair->to, BUFFERS, 1500);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, BUFFERS + HEADER, HEADER, 588, 4);
}

static void splits_buffers_that_cross_regions(void **state)
{
	struct pair *pair = *state;
	const uint64_t border = GUEST_BASE + GUEST_HALF;

	pattern(&pair->from, border - 100, HEADER + 1000, 1);
	guest_offer(&pair->from, guest_desc(&pair->from, border - 100, HEADER + 1000, 0));
	offer_buffer(&pair->to, border - 500, 1500);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, border - 500 + HEADER, HEADER, 1000, 1);
	assert_int_equal(pair->to.report, VRING_FAULT_NONE);
}

static void spreads_a_frame_over_mergeable_buffers(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 1000, 3);
	for (unsigned i = 0; i < 4; i++)
		offer_buffer(&pair->to, BUFFERS + i * 0x400, 300);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_header(&pair->to, BUFFERS, 4);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 288, 3);
	expect_pattern(&pair->to, BUFFERS + 0x400, 288, 300, 3);
	expect_pattern(&pair->to, BUFFERS + 0x800, 588, 300, 3);
	expect_pattern(&pair->to, BUFFERS + 0xc00, 888, 112, 3);
	expect_used(&pair->to, 0, 0, 300);
	expect_used(&pair->to, 3, 3, 112);
	assert_int_equal(guest_taken(&pair->to), 4);
}

static void carries_the_largest_frame(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 2; i++) {
		uint32_t length = VRING_FRAME_MAX + i;

		pattern(&pair->from, FRAMES, HEADER + length, 0);
		guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER + length, 0));
		offer_buffer(&pair->to, BUFFERS, 0x20000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	}
	expect_pattern(&pair->to, BUFFERS + HEADER, HEADER, VRING_FRAME_MAX, 0);
	assert_int_equal(pair->to.counters.sent_packets, 1);
	assert_int_equal(pair->from.counters.drop_frame_too_long, 1);
}

static void uses_the_short_header_of_old_drivers(void **state)
{
	struct pair *pair = *state;

	pair->to.ring.header = 10;
	pair->to.ring.mergeable = false;
	send_plain(&pair->from, FRAMES, 100, 8);
	offer_buffer(&pair->to, BUFFERS, 110);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, BUFFERS + 10, 0, 100, 8);
	expect_used(&pair->to, 0, 0, 110);
}

static void completes_a_batch_in_order_by_its_last_frame(void **state)
{
	struct pair *pair = *state;
	const struct virtqueue *ring = &pair->from.ring;

	pair->from.ring.in_order = pair->to.ring.in_order = true;
	for (unsigned i = 0; i < 5; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	const struct vring_packed_desc untouched = ring->packed_desc[1];

	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 5);
	if (from_packed) {
		assert_int_equal(ring->packed_desc[0].id, 4);
		assert_int_equal(ring->packed_desc[0].flags,
				 VRING_FLAG_AVAILABLE | VRING_FLAG_USED | VRING_DESC_F_NEXT);
		assert_memory_equal(&ring->packed_desc[1], &untouched, sizeof(untouched));
		assert_int_equal(ring->index, 5);
	} else {
		assert_int_equal(ring->used->ring[0].id, 4);
		assert_int_equal(ring->used->ring[1].id, 0);
		assert_int_equal(ring->used->ring[4].id, 0);
		assert_int_equal(ring->used->idx, 5);
	}
	/* The receiver needs the length of each. */
	for (unsigned i = 0; i < 5; i++)
		expect_used(&pair->to, i, i, HEADER + 60);
}

/* ------- frames that wait or are dropped ------- */

static void leaves_frames_with_the_sender_when_the_receiver_is_full(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 5; i++)
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
	offer_buffer(&pair->to, BUFFERS, 128);
	offer_buffer(&pair->to, BUFFERS + 0x100, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 2);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_int_equal(guest_taken(&pair->from), 2);
	offer_buffer(&pair->to, BUFFERS + 0x200, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, BUFFERS + 0x200 + HEADER, 0, 60, 2);
}

static void waits_for_enough_mergeable_buffers(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 1000, 3);
	for (unsigned i = 0; i < 3; i++) {
		offer_buffer(&pair->to, BUFFERS + i * 0x400, 300);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
		assert_int_equal(guest_taken(&pair->to), 0);
	}
	offer_buffer(&pair->to, BUFFERS + 3 * 0x400, 300);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_int_equal(guest_taken(&pair->to), 4);
}

static void drops_what_cannot_be_carried_and_goes_on(void **state)
{
	struct pair *pair = *state;

	pair->to.ring.mergeable = false;
	send_plain(&pair->from, FRAMES, 1000, 0);				   /* longer than the buffer */
	guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER + 13, 0)); /* no Ethernet header */
	send_plain(&pair->from, FRAMES + 0x1000, 60, 7);
	offer_buffer(&pair->to, BUFFERS, 300);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 3);
	assert_int_equal(pair->to.counters.drop_receiver_too_small, 1);
	assert_int_equal(pair->from.counters.drop_frame_too_short, 1);
	assert_int_equal(pair->to.counters.sent_packets, 1);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 60, 7);
	assert_int_equal(guest_taken(&pair->from), 3);
	assert_int_equal(guest_taken(&pair->to), 1);
}

static void discards_and_counts(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 5; i++)
		send_plain(&pair->from, FRAMES, 60, 0);
	assert_int_equal(vring_discard(&pair->from.ring, &pair->to.counters.drop_receiver_down), 5);
	assert_int_equal(pair->to.counters.drop_receiver_down, 5);
	assert_int_equal(guest_taken(&pair->from), 5);
}

/* ------- notifications ------- */

static uint64_t woken(int fd)
{
	uint64_t count = 0;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

static void send_one(struct pair *pair)
{
	send_plain(&pair->from, FRAMES, 60, 0);
	offer_buffer(&pair->to, BUFFERS, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
}

static void wakes_a_guest_that_sleeps_once_a_burst(void **state)
{
	struct pair *pair = *state;
	int fd = eventfd(0, EFD_NONBLOCK);

	pair->to.ring.call_fd = fd;
	for (unsigned i = 0; i < 4; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	vring_hop(&pair->from.ring, &pair->to.ring);
	assert_int_equal(woken(fd), 1);
	guest_sleep(&pair->to, false);
	send_one(pair);
	assert_int_equal(woken(fd), 0);
	assert_int_equal(pair->to.counters.notifications, 1);
	/* It was polling; now it sleeps, and is asked on the next visit. */
	guest_sleep(&pair->to, true);
	send_one(pair);
	assert_int_equal(woken(fd), 0);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_int_equal(woken(fd), 1);
	close(fd);
}

static void wakes_a_guest_at_the_index_it_asked_for(void **state)
{
	struct pair *pair = *state;
	int fd = eventfd(0, EFD_NONBLOCK);

	pair->to.ring.call_fd = fd;
	pair->to.ring.event_index = true;
	/* Several times around the ring, to each of its slots. */
	for (unsigned lap = 0; lap < 3 * RING + 1; lap++) {
		const unsigned ahead = lap % (RING - 1);

		guest_sleep_until(&pair->to, ahead);
		for (unsigned i = 0; i <= ahead + 1; i++) {
			send_one(pair);
			assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
			assert_int_equal(woken(fd), i == ahead);
		}
	}
	close(fd);
}

static void wakes_a_guest_whose_index_was_passed_by_a_burst(void **state)
{
	struct pair *pair = *state;
	int fd = eventfd(0, EFD_NONBLOCK);

	pair->to.ring.call_fd = fd;
	pair->to.ring.event_index = true;
	for (unsigned lap = 0; lap < 2 * RING; lap++) {
		guest_sleep_until(&pair->to, lap % 7);
		for (unsigned i = 0; i < 5; i++) {
			send_plain(&pair->from, FRAMES, 60, 0);
			offer_buffer(&pair->to, BUFFERS, 128);
		}
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 5);
		vring_hop(&pair->from.ring, &pair->to.ring);
		assert_int_equal(woken(fd), lap % 7 < 5);
	}
	close(fd);
}

/* Whether the driver has been asked to kick. */
static bool kick_wanted(const struct virtqueue *ring, uint16_t next)
{
	if (ring->packed)
		return ring->device_event->flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	if (ring->event_index) {
		uint16_t event;

		memcpy(&event, &ring->used->ring[ring->size], sizeof(event));
		return vring_need_event(event, next + 1, next);
	}
	return !(ring->used->flags & VRING_USED_F_NO_NOTIFY);
}

static void asks_for_a_kick_only_before_it_sleeps(void **state)
{
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->from.ring;

	for (unsigned event_index = 0; event_index < 2; event_index++) {
		const uint16_t next = pair->from.added;

		ring->event_index = event_index;
		vring_start(ring);
		assert_false(kick_wanted(ring, next));
		assert_true(vring_arm(ring));
		assert_true(kick_wanted(ring, next));
		vring_disarm(ring);
		assert_false(kick_wanted(ring, next));
		/* What came before the wish was seen is not slept over. */
		send_plain(&pair->from, FRAMES, 60, 0);
		assert_false(vring_arm(ring));
		vring_disarm(ring);
		offer_buffer(&pair->to, BUFFERS, 128);
		assert_int_equal(vring_hop(ring, &pair->to.ring), 1);
	}
}

/* ------- malformed rings: each costs its own guest only ------- */

static void expect_fault(struct pair *pair, struct simulated_guest *bad, enum vring_fault fault)
{
	struct simulated_guest *good = bad == &pair->from ? &pair->to : &pair->from;

	vring_hop(&pair->from.ring, &pair->to.ring);
	assert_int_equal(bad->report, fault);
	assert_int_equal(bad->ring.fault, fault);
	assert_int_equal(bad->counters.quarantines, 1);
	assert_int_equal(good->report, VRING_FAULT_NONE);
	/* Stopped: nothing moves, nothing more is counted. */
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_int_equal(bad->counters.quarantines, 1);
}

static void send_good(struct pair *pair)
{
	send_plain(&pair->from, FRAMES, 60, 0);
}

static void take_good(struct pair *pair)
{
	offer_buffer(&pair->to, BUFFERS, 2048);
}

static void stops_on_an_available_index_too_far_ahead(void **state)
{
	struct pair *pair = *state;

	if (from_packed)
		return; /* a packed ring has no such index */

	take_good(pair);
	pair->from.ring.avail->idx = RING + 1;
	expect_fault(pair, &pair->from, VRING_FAULT_available_index);
}

static void stops_on_a_head_outside_the_table(void **state)
{
	struct pair *pair = *state;

	if (from_packed)
		return; /* a packed ring has no such index */

	take_good(pair);
	guest_offer(&pair->from, RING);
	expect_fault(pair, &pair->from, VRING_FAULT_head_index);
}

static void stops_on_a_receive_head_outside_the_table(void **state)
{
	struct pair *pair = *state;

	if (to_packed)
		return; /* a packed ring has no such index */

	send_good(pair);
	guest_offer(&pair->to, 0xffff);
	expect_fault(pair, &pair->to, VRING_FAULT_head_index);
}

static void stops_on_a_next_outside_the_table(void **state)
{
	struct pair *pair = *state;
	uint16_t head = guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_NEXT);

	if (from_packed)
		return; /* a packed ring has no such index */
	pair->from.ring.desc[head].next = RING;
	take_good(pair);
	guest_offer(&pair->from, head);
	expect_fault(pair, &pair->from, VRING_FAULT_next_index);
}

static void stops_on_a_chain_without_an_end(void **state)
{
	struct pair *pair = *state;
	uint16_t head = guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_NEXT);

	if (from_packed)
		for (unsigned i = 1; i < RING; i++)
			guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_NEXT);
	else
		pair->from.ring.desc[head].next = head;
	take_good(pair);
	guest_offer(&pair->from, head);
	expect_fault(pair, &pair->from, VRING_FAULT_endless_chain);
}

static void stops_on_a_chain_that_is_not_all_available(void **state)
{
	if (!from_packed)
		return; /* a split ring makes whole chains available */
	for (unsigned receiver = 0; receiver < 2; receiver++) {
		struct pair *pair;

		if (receiver && !to_packed)
			break;
		start((void **)&pair);
		struct simulated_guest *bad = receiver ? &pair->to : &pair->from;
		const uint16_t flags = receiver ? VRING_DESC_F_WRITE : 0;
		const uint16_t head = guest_desc(bad, FRAMES, 100, flags | VRING_DESC_F_NEXT);

		guest_desc(bad, FRAMES, 100, flags);
		guest_offer(bad, head);
		*guest_flags(bad, head + 1) = flags | guest_available_flags(false);
		if (receiver)
			send_good(pair);
		else
			take_good(pair);
		expect_fault(pair, bad, VRING_FAULT_broken_chain);
		end((void **)&pair);
	}
}

static void stops_on_an_address_outside_memory(void **state)
{
	static const struct {
		uint64_t address;
		uint32_t length;
	} outside[] = {
		{0, 100},
		{GUEST_BASE - 1, 100},
		{GUEST_BASE + 2 * GUEST_HALF - 50, 100},
		{GUEST_BASE + 2 * GUEST_HALF, 100},
		{UINT64_MAX - 20, 100},
		{UINT64_MAX, 60000},
		{GUEST_BASE + 0x4000, UINT32_MAX},
	};

	for (unsigned i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
		for (unsigned receiver = 0; receiver < 2; receiver++) {
			struct pair *pair;

			start((void **)&pair);
			if (receiver) {
				send_good(pair);
				offer_buffer(&pair->to, outside[i].address, outside[i].length);
			} else {
				guest_offer(&pair->from,
					    guest_desc(&pair->from, outside[i].address, outside[i].length, 0));
				take_good(pair);
			}
			expect_fault(pair, receiver ? &pair->to : &pair->from, VRING_FAULT_address);
			end((void **)&pair);
		}
}

static void stops_on_a_wrong_direction(void **state)
{
	for (unsigned receiver = 0; receiver < 2; receiver++) {
		struct pair *pair;

		start((void **)&pair);
		if (receiver) {
			send_good(pair);
			guest_offer(&pair->to, guest_desc(&pair->to, BUFFERS, 2048, 0));
		} else {
			guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_WRITE));
			take_good(pair);
		}
		expect_fault(pair, receiver ? &pair->to : &pair->from, VRING_FAULT_direction);
		end((void **)&pair);
	}
}

static void stops_on_a_missing_header(void **state)
{
	for (unsigned receiver = 0; receiver < 2; receiver++) {
		struct pair *pair;

		start((void **)&pair);
		if (receiver) {
			send_good(pair);
			offer_buffer(&pair->to, BUFFERS, HEADER - 1);
			offer_buffer(&pair->to, BUFFERS, 2048);
		} else {
			guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER - 1, 0));
			take_good(pair);
		}
		expect_fault(pair, receiver ? &pair->to : &pair->from, VRING_FAULT_no_header);
		end((void **)&pair);
	}
}

static void stops_on_malformed_indirect_tables(void **state)
{
	const uint64_t table = GUEST_BASE + 0x3000;
	enum { EMPTY, RAGGED, TOO_LONG, NESTED, CHAINED, LOOP, NEXT_OUTSIDE, OUTSIDE, KINDS };
	static const enum vring_fault expected[KINDS] = {VRING_FAULT_indirect_table, VRING_FAULT_indirect_table,
							 VRING_FAULT_indirect_table, VRING_FAULT_indirect_table,
							 VRING_FAULT_indirect_table, VRING_FAULT_endless_chain,
							 VRING_FAULT_next_index,     VRING_FAULT_address};

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct vring_desc *entries;
		struct pair *pair;
		uint16_t head;

		if (from_packed && (kind == LOOP || kind == NEXT_OUTSIDE))
			continue; /* entries of a packed ring's table follow each other */
		start((void **)&pair);
		head = indirect(&pair->from, table, FRAMES, 100, 3, 0);
		entries = (void *)guest_at(&pair->from, table);
		if (kind == EMPTY)
			pair->from.ring.desc[head].len = 0;
		if (kind == RAGGED)
			pair->from.ring.desc[head].len = 47;
		if (kind == TOO_LONG)
			pair->from.ring.desc[head].len = (RING + 1) * 16;
		if (kind == NESTED && from_packed)
			((struct vring_packed_desc *)(void *)entries)[1].flags |= VRING_DESC_F_INDIRECT;
		if (kind == NESTED && !from_packed)
			entries[1].flags |= VRING_DESC_F_INDIRECT;
		if (kind == CHAINED)
			*guest_flags(&pair->from, head) |= VRING_DESC_F_NEXT;
		if (kind == LOOP) {
			entries[1].next = 0;
			entries[0].len = entries[1].len = 0;
		}
		if (kind == NEXT_OUTSIDE)
			entries[1].next = 3;
		if (kind == OUTSIDE) {
			/* The third entry ends past the guest's memory. */
			pair->from.ring.desc[head].addr = GUEST_BASE + 2 * GUEST_HALF - 40;
			memcpy(guest_at(&pair->from, GUEST_BASE + 2 * GUEST_HALF - 40), entries, 32);
		}
		guest_offer(&pair->from, head);
		take_good(pair);
		expect_fault(pair, &pair->from, expected[kind]);
		end((void **)&pair);
	}
}

static void moves_what_came_before_the_fault(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 60, 1);
	send_plain(&pair->from, FRAMES + 0x100, 60, 2);
	guest_offer(&pair->from, guest_desc(&pair->from, 0, 100, 0));
	for (unsigned i = 0; i < 3; i++)
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 2);
	expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 2);
	assert_int_equal(guest_taken(&pair->to), 2);
	assert_int_equal(guest_taken(&pair->from), 2);
	assert_int_equal(pair->from.report, VRING_FAULT_address);
}

/* What a switch that is started after a crash makes of the ring, which the front end says nothing true of. */
static void expect_resumes(struct virtqueue *ring, uint16_t recorded)
{
	const uint16_t base = vring_base(ring);

	for (unsigned killed_early = 0; killed_early < 2; killed_early++) {
		/* Killed between showing the last burst's completions and recording where they end. */
		if (killed_early && ring->packed && recorded != 0)
			ring->device_event->off_wrap = recorded;
		vring_resume(ring, 0x8000);
		assert_int_equal(vring_base(ring), base);
	}
}

static void goes_on_where_it_stood(void **state)
{
	struct pair *pair = *state;

	vring_resume(&pair->from.ring, 0x8000);
	vring_resume(&pair->to.ring, 0x8000);
	for (unsigned burst = 0; burst < 40; burst++) {
		uint16_t from_recorded = from_packed ? pair->from.ring.device_event->off_wrap : 0;
		uint16_t to_recorded = to_packed ? pair->to.ring.device_event->off_wrap : 0;
		uint16_t head;

		pair->from.ring.in_order = burst % 4 == 3;
		for (unsigned frame = 0; frame <= burst % 3; frame++) {
			send_plain(&pair->from, FRAMES + frame * 0x100, 60, frame);
			offer_buffer(&pair->to, BUFFERS + frame * 0x100, 128);
		}
		pattern(&pair->from, FRAMES + 0x800, 60, 9);
		head = guest_desc(&pair->from, FRAMES + 0x700, HEADER, VRING_DESC_F_NEXT);
		guest_desc(&pair->from, FRAMES + 0x800, 60, 0);
		guest_offer(&pair->from, head);
		offer_buffer(&pair->to, BUFFERS + 0x800, 128);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), burst % 3 + 2);
		expect_resumes(&pair->from.ring, from_recorded);
		expect_resumes(&pair->to.ring, to_recorded);
		pair->from.used_at = pair->from.next_desc;
	}
}

/*
 * Killed before it had recorded what it showed.  Before the next switch comes, a guest that keeps its ring full has
 * taken that back and used some of the slots again.
 */
static void come_round(struct pair *pair, bool sender)
{
	unsigned sent = 0, offered = 0, moved = 0;

	vring_resume(&pair->from.ring, 0x8000);
	vring_resume(&pair->to.ring, 0x8000);
	for (unsigned burst = 0; burst < 60; burst++) {
		const unsigned frames = 1 + burst % 7;
		/* All its slots are in use, then all but those that it has not used again. */
		const unsigned filled[] = {moved + RING, moved + RING + burst % (frames + 1)};
		uint16_t from_recorded = 0, to_recorded = 0;

		for (unsigned step = 0; step < 2; step++) {
			for (; sent < (sender ? filled[step] : moved + frames); sent++)
				send_plain(&pair->from, FRAMES + sent % RING * 0x100, 60, sent);
			for (; offered < (sender ? moved + frames : filled[step]); offered++)
				offer_buffer(&pair->to, BUFFERS + offered % RING * 0x100, 128);
			if (step == 1)
				break;
			from_recorded = from_packed ? pair->from.ring.device_event->off_wrap : 0;
			to_recorded = to_packed ? pair->to.ring.device_event->off_wrap : 0;
			assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), frames);
			for (unsigned frame = moved; frame < moved + frames; frame++)
				expect_pattern(&pair->to, BUFFERS + frame % RING * 0x100 + HEADER, 0, 60, frame);
		}
		expect_resumes(&pair->from.ring, from_recorded);
		expect_resumes(&pair->to.ring, to_recorded);
		moved += frames;
	}
}

/* A driver gives the id that it was given back last to the next frame, which is no part of what had it before. */
static void takes_a_new_frame_by_an_old_id_for_a_frame(void **state)
{
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->from.ring;

	if (!from_packed)
		return;
	for (unsigned plain = 0; plain < 2; plain++) {
		const unsigned first = 2 * plain;
		uint16_t recorded;

		vring_resume(ring, first | 0x8000);
		assert_true(ring->plain);
		ring->plain = plain;
		vring_forget_position(ring);
		for (unsigned i = 0; i < 2; i++)
			offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
		recorded = first | 0x8000 | (plain ? 0x4000 : 0);
		send_plain(&pair->from, FRAMES, 60, 1);
		ring->packed_desc[first].id = 7;
		assert_int_equal(vring_hop(ring, &pair->to.ring), 1);
		send_plain(&pair->from, FRAMES + 0x100, 60, 2);
		ring->packed_desc[first + 1].id = 7;
		ring->device_event->off_wrap = recorded;
		vring_resume(ring, 0x8000);
		assert_int_equal(vring_base(ring), (first + 1) | 0x8000);
		assert_int_equal(vring_hop(ring, &pair->to.ring), 1);
		expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 2);
		vring_forget_position(ring);
	}
}

/* Killed between two completions of one frame: the guest saw none of it, since it looks for the first. */
static void finishes_a_frame_that_was_half_shown(void **state)
{
	struct pair *pair = *state;
	struct vring_packed_desc *desc = pair->to.ring.packed_desc;

	if (!to_packed)
		return;
	vring_resume(&pair->to.ring, 0x8000);
	for (unsigned shown = 0; shown < 3; shown++) {
		const uint16_t recorded = pair->to.ring.device_event->off_wrap;
		const unsigned first = 4 * shown;
		uint16_t base;

		for (unsigned i = 0; i < 4; i++)
			offer_buffer(&pair->to, BUFFERS + i * 0x100, 64);
		send_plain(&pair->from, FRAMES, 4 * 64 - HEADER - 20, shown);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		base = vring_base(&pair->to.ring);
		for (unsigned i = 0; i < 3 - shown; i++) {
			desc[first + i].flags = guest_available_flags(true) | VRING_DESC_F_WRITE;
			desc[first + i].id = first + i;
		}
		assert_int_equal(guest_taken(&pair->to), first);
		pair->to.ring.device_event->off_wrap = recorded;
		vring_resume(&pair->to.ring, 0x8000);
		assert_int_equal(vring_base(&pair->to.ring), base);
		assert_int_equal(guest_taken(&pair->to), first + 4);
		for (unsigned i = 0; i < 4; i++)
			expect_used(&pair->to, first + i, first + i, i < 3 ? 64 : 44);
		expect_header(&pair->to, BUFFERS, 4);
		expect_pattern(&pair->to, BUFFERS + HEADER, 0, 64 - HEADER, shown);
	}
}

/* A ring that was stopped, and of which no record is kept, is plain if nothing in it says otherwise. */
static void knows_a_plain_ring_that_was_stopped(void **state)
{
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->from.ring;
	uint64_t dropped = 0;

	if (!from_packed)
		return;
	vring_resume(ring, 0x8000);
	for (unsigned frame = 0; frame < 3 * RING + 5; frame++) {
		const uint16_t base = vring_base(ring);

		vring_forget_position(ring);
		vring_resume(ring, base);
		assert_int_equal(vring_base(ring), base);
		assert_true(ring->plain);
		if (frame == 2 * RING) {
			uint16_t head = guest_desc(&pair->from, FRAMES, HEADER, VRING_DESC_F_NEXT);

			guest_desc(&pair->from, FRAMES + 0x100, 60, 0);
			guest_offer(&pair->from, head);
			assert_int_equal(vring_discard(ring, &dropped), 1);
			assert_false(ring->plain);
			vring_forget_position(ring);
			/* What is left of the chain is behind: only in the next round does it look like something else.
			 */
			for (unsigned i = 2; i < RING; i++)
				send_plain(&pair->from, FRAMES, 60, 0);
			assert_int_equal(vring_discard(ring, &dropped), RING - 2);
			vring_forget_position(ring);
			vring_resume(ring, vring_base(ring));
			assert_false(ring->plain);
			return;
		}
		send_plain(&pair->from, FRAMES, 60, 0);
		assert_int_equal(vring_discard(ring, &dropped), 1);
	}
}

static void goes_on_where_the_sender_has_come_round(void **state)
{
	come_round(*state, true);
}

static void goes_on_where_the_receiver_has_come_round(void **state)
{
	come_round(*state, false);
}

/* The guest sleeps, and wants to be woken when the slot is used, in the first round of the ring. */
static void wake_at(struct simulated_guest *guest, uint16_t slot)
{
	guest->ring.event_index = true;
	guest->ring.call_fd = eventfd(0, EFD_NONBLOCK);
	if (guest->ring.packed)
		*guest->ring.driver_event = (struct vring_packed_desc_event){
			.off_wrap = slot | 1 << VRING_PACKED_EVENT_F_WRAP_CTR, .flags = VRING_PACKED_EVENT_FLAG_DESC};
	else
		guest->ring.avail->ring[guest->ring.size] = slot;
}

static bool was_woken(struct simulated_guest *guest)
{
	eventfd_t times;

	return eventfd_read(guest->ring.call_fd, &times) == 0;
}

static void wakes_a_guest_that_an_earlier_switch_did_not(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 3; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 3);
	wake_at(&pair->from, 1);
	wake_at(&pair->to, 2);
	vring_resume(&pair->from.ring, 0x8000);
	vring_resume(&pair->to.ring, 0x8000);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_true(was_woken(&pair->from));
	assert_true(was_woken(&pair->to));
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_false(was_woken(&pair->from));
	assert_false(was_woken(&pair->to));
	close(pair->from.ring.call_fd);
	close(pair->to.ring.call_fd);
}

/* As QEMU does with a packed ring while there is no switch: from a slot where the ring stood before. */
static void goes_on_after_what_another_has_used(void **state)
{
	struct pair *pair = *state;

	if (!from_packed)
		return; /* its used index is where it stands, whoever used what */
	for (unsigned i = 0; i < 4; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	for (unsigned i = 1; i < 3; i++)
		pair->from.ring.packed_desc[i].flags = VRING_FLAG_AVAILABLE | VRING_FLAG_USED;
	wake_at(&pair->from, 2);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_false(was_woken(&pair->from));
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
	assert_true(was_woken(&pair->from));
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 3);
	assert_int_equal(guest_taken(&pair->from), 4);
	close(pair->from.ring.call_fd);
}

static void reports_its_position_once_it_has_stopped(void **state)
{
	struct pair *pair = *state;

	send_plain(&pair->from, FRAMES, 60, 1);
	offer_buffer(&pair->to, BUFFERS, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	/* The position has been reported to the front end, and the guest may have set the ring up anew since. */
	vring_forget_position(&pair->to.ring);
	if (to_packed) {
		vring_resume(&pair->to.ring, 5 | 0x8000);
		assert_int_equal(vring_base(&pair->to.ring), 5 | 0x8000);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
		TEST(moves_plain_frames_of_every_length),
		TEST(keeps_order_across_the_wrap_of_the_index),
		TEST(follows_chained_descriptors),
		TEST(follows_indirect_tables_across_regions),
		TEST(takes_what_a_packed_table_says_is_written_to),
		TEST(splits_buffers_that_cross_regions),
		TEST(spreads_a_frame_over_mergeable_buffers),
		TEST(carries_the_largest_frame),
		TEST(uses_the_short_header_of_old_drivers),
		TEST(completes_a_batch_in_order_by_its_last_frame),
		TEST(leaves_frames_with_the_sender_when_the_receiver_is_full),
		TEST(waits_for_enough_mergeable_buffers),
		TEST(drops_what_cannot_be_carried_and_goes_on),
		TEST(discards_and_counts),
		TEST(wakes_a_guest_that_sleeps_once_a_burst),
		TEST(wakes_a_guest_at_the_index_it_asked_for),
		TEST(wakes_a_guest_whose_index_was_passed_by_a_burst),
		TEST(asks_for_a_kick_only_before_it_sleeps),
		TEST(stops_on_an_available_index_too_far_ahead),
		TEST(stops_on_a_head_outside_the_table),
		TEST(stops_on_a_receive_head_outside_the_table),
		TEST(stops_on_a_next_outside_the_table),
		TEST(stops_on_a_chain_without_an_end),
		TEST(stops_on_a_chain_that_is_not_all_available),
		TEST(stops_on_an_address_outside_memory),
		TEST(stops_on_a_wrong_direction),
		TEST(stops_on_a_missing_header),
		TEST(stops_on_malformed_indirect_tables),
		TEST(moves_what_came_before_the_fault),
		TEST(goes_on_where_it_stood),
		TEST(takes_a_new_frame_by_an_old_id_for_a_frame),
		TEST(finishes_a_frame_that_was_half_shown),
		TEST(knows_a_plain_ring_that_was_stopped),
		TEST(goes_on_where_the_sender_has_come_round),
		TEST(goes_on_where_the_receiver_has_come_round),
		TEST(wakes_a_guest_that_an_earlier_switch_did_not),
		TEST(goes_on_after_what_another_has_used),
		TEST(reports_its_position_once_it_has_stopped),
#undef TEST
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
