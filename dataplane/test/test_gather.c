/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst of plain buffers with one among them that is something else, or is plain in an unusual way: at every slot of
 * the burst and of the ring, since four are looked at together where that is possible.
 */
#include "test/cmocka_all.h"

#include "test/ring_pair.h"
#include "vring/gather.h"
#include "vring/hop.h"

enum { COUNT = 8, FRAME = 60, BUFFER = 128, STEP = 0x100 };

struct odd {
	uint64_t address;
	uint32_t length;
	uint16_t flags;
	bool plain;
};

#define BORDER (GUEST_BASE + GUEST_HALF)
#define OTHER  (BORDER + 0x1000)

static const struct odd frames[] = {
	{FRAMES, HEADER + FRAME, VRING_DESC_F_WRITE, false},
	{FRAMES, HEADER + FRAME, VRING_DESC_F_NEXT, false},
	{FRAMES, HEADER + FRAME, VRING_DESC_F_INDIRECT, false},
	{FRAMES, HEADER + FRAME, 1 << 3, false},
	{FRAMES, 0, 0, false},
	{FRAMES, HEADER + VRING_FRAME_MIN - 1, 0, false},
	{FRAMES, HEADER + VRING_FRAME_MIN, 0, true},
	{FRAMES, VRING_RUN_FRAME, 0, true},
	{FRAMES, VRING_RUN_FRAME + 1, 0, false},
	{FRAMES, UINT32_MAX, 0, false},
	{GUEST_BASE, HEADER + FRAME, 0, true},
	{GUEST_BASE - 1, HEADER + FRAME, 0, false},
	{BORDER - VRING_RUN_FRAME, VRING_RUN_FRAME, 0, true},
	{BORDER - VRING_RUN_FRAME + 1, VRING_RUN_FRAME, 0, false},
	{BORDER - HEADER - FRAME, HEADER + FRAME, 0, true},
	{BORDER - HEADER - FRAME + 1, HEADER + FRAME, 0, false},
	{OTHER, HEADER + FRAME, 0, true},
	{0, HEADER + FRAME, 0, false},
	{UINT64_MAX - 10, HEADER + FRAME, 0, false},
};

static const struct odd buffers[] = {
	{BUFFERS, BUFFER, 0, false},
	{BUFFERS, BUFFER, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, false},
	{BUFFERS, BUFFER, VRING_DESC_F_WRITE | VRING_DESC_F_INDIRECT, false},
	{BUFFERS, 0, VRING_DESC_F_WRITE, true},
	{BUFFERS, VRING_RUN_FRAME + 1, VRING_DESC_F_WRITE, true},
	{BUFFERS, GUEST_HALF - 0x4000, VRING_DESC_F_WRITE, true},
	{BUFFERS, GUEST_HALF - 0x4000 + 1, VRING_DESC_F_WRITE, false},
	{BUFFERS, UINT32_MAX, VRING_DESC_F_WRITE, false},
	{GUEST_BASE - 1, BUFFER, VRING_DESC_F_WRITE, false},
	{BORDER - BUFFER, BUFFER, VRING_DESC_F_WRITE, true},
	{BORDER - BUFFER + 1, BUFFER, VRING_DESC_F_WRITE, false},
	{OTHER, BUFFER, VRING_DESC_F_WRITE, true},
	{UINT64_MAX - 10, BUFFER, VRING_DESC_F_WRITE, false},
};

/* Bring both rings to slot `before`. */
static void advance_rings(struct pair *pair, unsigned before)
{
	for (unsigned i = 0; i < before; i++) {
		send_plain(&pair->from, FRAMES, FRAME, 0);
		offer_buffer(&pair->to, BUFFERS, BUFFER);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	}
}

/* Offer a burst, with the odd one at its slot; NULL: none. */
static void offer_burst(struct simulated_guest *guest, bool write, unsigned slot, const struct odd *odd)
{
	for (unsigned i = 0; i < COUNT; i++) {
		if (odd != NULL && i == slot)
			guest_offer(guest, guest_desc(guest, odd->address, odd->length, odd->flags));
		else if (write)
			offer_buffer(guest, BUFFERS + i * STEP, BUFFER);
		else
			send_plain(guest, FRAMES + i * STEP, FRAME, 0);
	}
}

static void expect_gathered(struct simulated_guest *guest, bool write, unsigned before, unsigned slot,
			    const struct odd *odd, unsigned count)
{
	struct vring_buffer found[COUNT];

	assert_int_equal(vring_available(&guest->ring, COUNT), COUNT);
	assert_int_equal(vring_gather(&guest->ring, guest->ring.packed, write, 0, COUNT, found), count);
	for (unsigned i = 0; i < count; i++) {
		uint64_t address = (write ? BUFFERS : FRAMES) + i * STEP;
		uint32_t length = write ? BUFFER : HEADER + FRAME;

		if (odd != NULL && i == slot) {
			address = odd->address;
			length = odd->length;
		}
		assert_ptr_equal(found[i].at, guest_at(guest, address));
		assert_int_equal(found[i].length, length);
		assert_int_equal(found[i].id, (before + i) % RING);
	}
	assert_int_equal(guest->report, VRING_FAULT_NONE);
}

static void try_all(bool write, const struct odd *odds, unsigned nb_odds)
{
	static const unsigned befores[] = {0, 5, 10, 15};

	for (unsigned each = 0; each < RTE_DIM(befores) * nb_odds * COUNT; each++) {
		const struct odd *odd = &odds[each / COUNT % nb_odds];
		const unsigned before = befores[each / COUNT / nb_odds], slot = each % COUNT;
		struct simulated_guest *guest;
		struct pair *pair;

		start((void **)&pair);
		guest = write ? &pair->to : &pair->from;
		advance_rings(pair, before);
		offer_burst(guest, write, slot, odd);
		expect_gathered(guest, write, before, slot, odd, odd->plain ? COUNT : slot);
		end((void **)&pair);
	}
}

static void gathers_frames_up_to_one_that_is_not_plain(void **state)
{
	(void)state;
	try_all(false, frames, RTE_DIM(frames));
}

static void gathers_buffers_up_to_one_that_is_not_plain(void **state)
{
	(void)state;
	try_all(true, buffers, RTE_DIM(buffers));
}

static void ends_before_a_head_outside_the_table(void **state)
{
	(void)state;
	for (unsigned slot = 0; slot < COUNT; slot++) {
		struct pair *pair;

		start((void **)&pair);
		offer_burst(&pair->from, false, 0, NULL);
		if (!from_packed)
			pair->from.ring.avail->ring[slot] = slot % 2 ? RING : UINT16_MAX;
		expect_gathered(&pair->from, false, 0, 0, NULL, from_packed ? COUNT : slot);
		end((void **)&pair);
	}
}

/* Four heads that follow each other and leave the table, or the numbers that a head can be. */
static void ends_before_neighbours_outside_the_table(void **state)
{
	static const uint16_t firsts[] = {RING - 3, RING - 2, RING - 1, RING, UINT16_MAX - 2, UINT16_MAX - 3};

	(void)state;
	for (unsigned each = 0; each < RTE_DIM(firsts) * 2; each++) {
		const uint16_t first = firsts[each / 2];
		const unsigned group = each % 2 * 4;
		struct vring_buffer found[COUNT];
		struct pair *pair;
		unsigned count = 0;

		start((void **)&pair);
		offer_burst(&pair->from, false, 0, NULL);
		if (!from_packed) {
			/* All of the table is plain, so that it is the heads alone that are wrong. */
			for (unsigned i = COUNT; i < RING; i++)
				pair->from.ring.desc[i] = pair->from.ring.desc[0];
			for (unsigned i = 0; i < 4; i++)
				pair->from.ring.avail->ring[group + i] = first + i;
			while (count < 4 && (uint16_t)(first + count) < RING)
				count++;
		}
		assert_int_equal(vring_available(&pair->from.ring, COUNT), COUNT);
		assert_int_equal(vring_gather(&pair->from.ring, from_packed, false, 0, COUNT, found),
				 from_packed ? COUNT : group + count);
		end((void **)&pair);
	}
}

/* What a worker fetches while there is nothing to do must do no more than that, whatever the guest offers. */
static void expects_what_a_guest_offers_and_changes_nothing(void **state)
{
	static const struct odd offered[] = {
		{BUFFERS, BUFFER, VRING_DESC_F_WRITE, true},
		{0, BUFFER, VRING_DESC_F_WRITE, false},
		{UINT64_MAX - 10, BUFFER, VRING_DESC_F_WRITE, false},
		{BUFFERS, UINT32_MAX, VRING_DESC_F_WRITE, false},
		{BUFFERS, BUFFER, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, false},
	};

	(void)state;
	for (unsigned each = 0; each < RTE_DIM(offered) * 3; each++) {
		const struct odd *odd = &offered[each / 3];
		const unsigned offers = (unsigned[]){0, 2, COUNT}[each % 3];
		struct virtqueue before;
		struct pair *pair;

		start((void **)&pair);
		for (unsigned i = 0; i < 4; i++) {
			send_plain(&pair->from, FRAMES, FRAME, 0);
			offer_buffer(&pair->to, BUFFERS, BUFFER);
		}
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 4);
		assert_int_equal(pair->to.ring.last, 4);
		for (unsigned i = 0; i < offers; i++)
			guest_offer(&pair->to, guest_desc(&pair->to, odd->address, odd->length, odd->flags));
		if (offers > 0 && !to_packed && each % 2)
			pair->to.ring.avail->ring[4] = UINT16_MAX;
		before = pair->to.ring;
		for (unsigned i = 0; i < 4; i++)
			vring_expect(&pair->to.ring);
		assert_int_equal(pair->to.ring.expected, offers > 0 ? 2 : 0);
		assert_int_equal(pair->to.ring.index, before.index);
		assert_int_equal(pair->to.ring.nb_done, before.nb_done);
		assert_int_equal(pair->to.report, VRING_FAULT_NONE);
		assert_int_equal(guest_taken(&pair->to), 4);
		/* And the next frame goes where it would have gone. */
		send_plain(&pair->from, FRAMES, FRAME, 0);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring),
				 offers > 0 && odd->plain && (to_packed || each % 2 == 0));
		end((void **)&pair);
	}
}

/* Four neighbours of the table are looked at in another way than four from here and there. */
static void gathers_descriptors_in_any_order(void **state)
{
	static const uint8_t orders[][COUNT] = {
		{7, 6, 5, 4, 3, 2, 1, 0}, {4, 5, 6, 7, 0, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 0}, {6, 7, 0, 1, 2, 3, 4, 5},
		{0, 1, 2, 2, 4, 5, 6, 7}, {0, 2, 4, 6, 1, 3, 5, 7}, {3, 3, 3, 3, 5, 6, 7, 7}, {0, 1, 2, 4, 3, 5, 7, 6},
	};

	(void)state;
	for (unsigned each = 0; each < 2 * RTE_DIM(orders); each++) {
		const uint8_t *order = orders[each / 2];
		const bool write = each % 2;
		struct vring_buffer found[COUNT];
		struct simulated_guest *guest;
		struct pair *pair;

		start((void **)&pair);
		guest = write ? &pair->to : &pair->from;
		/* Their descriptors are the table's last ones and its first. */
		advance_rings(pair, RING - COUNT / 2);
		offer_burst(guest, write, 0, NULL);
		for (unsigned i = 0; i < COUNT; i++) {
			const unsigned head = (RING - COUNT / 2 + order[i]) % RING;

			if (guest->ring.packed)
				guest->ring.packed_desc[(RING - COUNT / 2 + i) % RING].id = head;
			else
				guest->ring.avail->ring[(RING - COUNT / 2 + i) % RING] = head;
		}
		assert_int_equal(vring_available(&guest->ring, COUNT), COUNT);
		assert_int_equal(vring_gather(&guest->ring, guest->ring.packed, write, 0, COUNT, found), COUNT);
		for (unsigned i = 0; i < COUNT; i++) {
			const unsigned number = guest->ring.packed ? i : order[i];

			assert_int_equal(found[i].id, (RING - COUNT / 2 + order[i]) % RING);
			assert_ptr_equal(found[i].at, guest_at(guest, (write ? BUFFERS : FRAMES) + number * STEP));
		}
		assert_int_equal(guest->report, VRING_FAULT_NONE);
		end((void **)&pair);
	}
}

/* A guest with little memory: no region has room for the longest plain frame. */
static void gathers_from_small_regions(void **state)
{
	struct pair *pair = *state;

	for (unsigned i = 0; i < 2; i++) {
		struct simulated_guest *guest = i ? &pair->to : &pair->from;

		offer_burst(guest, i, 0, NULL);
		guest->memory.regions[0].size = 0x4000 + COUNT * STEP;
		expect_gathered(guest, i, 0, 0, NULL, COUNT);
		/* The region begins where the frames do. */
		guest->memory.regions[0].guest += 0x4000;
		guest->memory.regions[0].host += 0x4000;
		guest->memory.regions[0].size = COUNT * STEP;
		expect_gathered(guest, i, 0, 0, NULL, COUNT);
		guest->memory.regions[0].host -= 0x4000;
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gathers_frames_up_to_one_that_is_not_plain),
		cmocka_unit_test(gathers_buffers_up_to_one_that_is_not_plain),
		cmocka_unit_test(gathers_descriptors_in_any_order),
		cmocka_unit_test(ends_before_neighbours_outside_the_table),
		cmocka_unit_test(expects_what_a_guest_offers_and_changes_nothing),
		cmocka_unit_test(ends_before_a_head_outside_the_table),
		cmocka_unit_test_setup_teardown(gathers_from_small_regions, start, end),
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
