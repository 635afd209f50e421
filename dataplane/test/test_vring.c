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

#include "test/simulated_guest.h"
#include "vring/hop.h"

enum { HEADER = 12 };
#define FRAMES	(GUEST_BASE + 0x4000)
#define BUFFERS (GUEST_BASE + 0x4000)

struct pair {
	struct simulated_guest from, to;
};

static int start(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	guest_start(&pair->from, true);
	guest_start(&pair->to, true);
	*state = pair;
	return 0;
}

static int end(void **state)
{
	struct pair *pair = *state;

	guest_end(&pair->from);
	guest_end(&pair->to);
	free(pair);
	return 0;
}

/* Fill guest memory with a pattern that depends on the place and on a seed. */
static void pattern(struct simulated_guest *guest, uint64_t address, uint32_t length, uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		*guest_at(guest, address + i) = (uint8_t)(seed + i * 7);
}

static void expect_pattern(struct simulated_guest *guest, uint64_t address, uint32_t skip, uint32_t length,
			   uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		assert_int_equal(*guest_at(guest, address + i), (uint8_t)(seed + (skip + i) * 7));
}

/* Offer a frame of `length` bytes in one descriptor at `address`, network header before it. */
static void send_plain(struct simulated_guest *guest, uint64_t address, uint32_t length, uint8_t seed)
{
	memset(guest_at(guest, address), 0xee, HEADER);
	pattern(guest, address + HEADER, length, seed);
	guest_offer(guest, guest_desc(guest, address, HEADER + length, 0));
}

static void offer_buffer(struct simulated_guest *guest, uint64_t address, uint32_t length)
{
	guest_offer(guest, guest_desc(guest, address, length, VRING_DESC_F_WRITE));
}

static void expect_used(struct simulated_guest *guest, uint16_t place, uint32_t id, uint32_t length)
{
	assert_int_equal(guest->ring.used->ring[place % RING].id, id);
	assert_int_equal(guest->ring.used->ring[place % RING].len, length);
}

static void expect_header(struct simulated_guest *guest, uint64_t address, uint16_t buffers)
{
	static const uint8_t zero[10];

	assert_memory_equal(guest_at(guest, address), zero, 10);
	assert_int_equal(*(uint16_t *)(void *)guest_at(guest, address + 10), buffers);
}

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
		assert_int_equal(pair->to.ring.used->idx, moved + 1);
		assert_int_equal(pair->from.ring.used->idx, moved + 1);
	}
	assert_int_equal(pair->from.counters.received_packets, moved);
	assert_int_equal(pair->to.counters.sent_packets, moved);
	assert_int_equal(pair->from.counters.received_bytes, pair->to.counters.sent_bytes);
}

static void keeps_order_across_the_wrap_of_the_index(void **state)
{
	struct pair *pair = *state;
	uint16_t expected = 0, sent = 0;

	pair->from.ring.index = pair->from.ring.known = pair->from.added = 65530;
	pair->to.ring.index = pair->to.ring.known = pair->to.added = 65520;
	pair->from.ring.used->idx = 65530;
	pair->to.ring.used->idx = 65520;
	for (unsigned round = 0; round < 40; round++) {
		unsigned burst = 1 + round % RING;

		pair->from.next_desc = pair->to.next_desc = 0;
		for (unsigned i = 0; i < burst; i++) {
			send_plain(&pair->from, FRAMES + i * 128, 60, sent++);
			offer_buffer(&pair->to, BUFFERS + i * 128, 128);
		}
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), burst);
		for (unsigned i = 0; i < burst; i++)
			expect_pattern(&pair->to, BUFFERS + i * 128 + HEADER, 0, 60, expected++);
	}
	assert_int_equal(pair->from.ring.used->idx, pair->from.added);
	assert_int_equal(pair->to.ring.used->idx, pair->to.added);
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

/* Put an indirect table of `count` entries at `table`, all of the buffer in equal parts. */
static uint16_t indirect(struct simulated_guest *guest, uint64_t table, uint64_t address, uint32_t part, unsigned count,
			 uint16_t flags)
{
	for (unsigned i = 0; i < count; i++) {
		struct vring_desc entry = {address + i * part, part, flags | (i + 1 < count ? VRING_DESC_F_NEXT : 0),
					   i + 1};

		for (unsigned byte = 0; byte < sizeof(entry); byte++)
			*guest_at(guest, table + i * sizeof(entry) + byte) = ((uint8_t *)&entry)[byte];
	}
	return guest_desc(guest, table, count * sizeof(struct vring_desc), VRING_DESC_F_INDIRECT);
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
	assert_int_equal(pair->to.ring.used->idx, 4);
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

	pair->from.ring.in_order = pair->to.ring.in_order = true;
	for (unsigned i = 0; i < 5; i++) {
		send_plain(&pair->from, FRAMES + i * 0x100, 60, i);
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	}
	pair->from.ring.used->ring[1].id = pair->from.ring.used->ring[4].id = 99;
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 5);
	expect_used(&pair->from, 0, 4, 0);
	assert_int_equal(pair->from.ring.used->ring[1].id, 99);
	assert_int_equal(pair->from.ring.used->ring[4].id, 99);
	assert_int_equal(pair->from.ring.used->idx, 5);
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
	assert_int_equal(pair->from.ring.used->idx, 2);
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
		assert_int_equal(pair->to.ring.used->idx, 0);
	}
	offer_buffer(&pair->to, BUFFERS + 3 * 0x400, 300);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_int_equal(pair->to.ring.used->idx, 4);
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
	assert_int_equal(pair->from.ring.used->idx, 3);
	assert_int_equal(pair->to.ring.used->idx, 1);
}

static void discards_and_counts(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 5; i++)
		send_plain(&pair->from, FRAMES, 60, 0);
	assert_int_equal(vring_discard(&pair->from.ring, &pair->to.counters.drop_receiver_down), 5);
	assert_int_equal(pair->to.counters.drop_receiver_down, 5);
	assert_int_equal(pair->from.ring.used->idx, 5);
}

/* ------- notifications ------- */

static uint64_t woken(int fd)
{
	uint64_t count = 0;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
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
	pair->to.ring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	send_plain(&pair->from, FRAMES, 60, 0);
	offer_buffer(&pair->to, BUFFERS, 128);
	vring_hop(&pair->from.ring, &pair->to.ring);
	assert_int_equal(woken(fd), 0);
	assert_int_equal(pair->to.counters.notifications, 1);
	/* It was polling; now it sleeps, and is asked on the next visit. */
	pair->to.ring.avail->flags = 0;
	send_plain(&pair->from, FRAMES, 60, 0);
	offer_buffer(&pair->to, BUFFERS, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
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
	pair->to.ring.avail->ring[RING] = 2; /* wake me when the used index passes 2 */
	for (unsigned i = 0; i < 5; i++) {
		send_plain(&pair->from, FRAMES, 60, 0);
		offer_buffer(&pair->to, BUFFERS, 128);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
		assert_int_equal(woken(fd), i == 2);
	}
	close(fd);
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

	take_good(pair);
	pair->from.ring.avail->idx = RING + 1;
	expect_fault(pair, &pair->from, VRING_FAULT_available_index);
}

static void stops_on_a_head_outside_the_table(void **state)
{
	struct pair *pair = *state;

	take_good(pair);
	guest_offer(&pair->from, RING);
	expect_fault(pair, &pair->from, VRING_FAULT_head_index);
}

static void stops_on_a_receive_head_outside_the_table(void **state)
{
	struct pair *pair = *state;

	send_good(pair);
	guest_offer(&pair->to, 0xffff);
	expect_fault(pair, &pair->to, VRING_FAULT_head_index);
}

static void stops_on_a_next_outside_the_table(void **state)
{
	struct pair *pair = *state;
	uint16_t head = guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_NEXT);

	pair->from.ring.desc[head].next = RING;
	take_good(pair);
	guest_offer(&pair->from, head);
	expect_fault(pair, &pair->from, VRING_FAULT_next_index);
}

static void stops_on_a_loop(void **state)
{
	struct pair *pair = *state;
	uint16_t head = guest_desc(&pair->from, FRAMES, 100, VRING_DESC_F_NEXT);

	pair->from.ring.desc[head].next = head;
	take_good(pair);
	guest_offer(&pair->from, head);
	expect_fault(pair, &pair->from, VRING_FAULT_endless_chain);
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

		start((void **)&pair);
		head = indirect(&pair->from, table, FRAMES, 100, 3, 0);
		entries = (void *)guest_at(&pair->from, table);
		if (kind == EMPTY)
			pair->from.ring.desc[head].len = 0;
		if (kind == RAGGED)
			pair->from.ring.desc[head].len = 47;
		if (kind == TOO_LONG)
			pair->from.ring.desc[head].len = (RING + 1) * 16;
		if (kind == NESTED)
			entries[1].flags |= VRING_DESC_F_INDIRECT;
		if (kind == CHAINED)
			pair->from.ring.desc[head].flags |= VRING_DESC_F_NEXT;
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
	guest_offer(&pair->from, RING + 5);
	for (unsigned i = 0; i < 3; i++)
		offer_buffer(&pair->to, BUFFERS + i * 0x100, 128);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 2);
	expect_pattern(&pair->to, BUFFERS + 0x100 + HEADER, 0, 60, 2);
	assert_int_equal(pair->to.ring.used->idx, 2);
	assert_int_equal(pair->from.report, VRING_FAULT_head_index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
		TEST(moves_plain_frames_of_every_length),
		TEST(keeps_order_across_the_wrap_of_the_index),
		TEST(follows_chained_descriptors),
		TEST(follows_indirect_tables_across_regions),
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
		TEST(stops_on_an_available_index_too_far_ahead),
		TEST(stops_on_a_head_outside_the_table),
		TEST(stops_on_a_receive_head_outside_the_table),
		TEST(stops_on_a_next_outside_the_table),
		TEST(stops_on_a_loop),
		TEST(stops_on_an_address_outside_memory),
		TEST(stops_on_a_wrong_direction),
		TEST(stops_on_a_missing_header),
		TEST(stops_on_malformed_indirect_tables),
		TEST(moves_what_came_before_the_fault),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
