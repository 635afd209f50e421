/* SPDX-License-Identifier: Apache-2.0
 *
 * What a visit to a ring may cost, counted: rings of 32768 descriptors that are made to cost the worker as much as they
 * can.  The last lines say how long the costliest visit took on this machine, which nothing is made of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "test/long_segment.h"
#include "vring/hop.h"
#include "vring/packet.h"

enum { LARGE = 32768, MANY = VRING_BURST };

static double longest_us;

static int start_large(void **state)
{
	*state = sized_pair(LARGE, LARGE, true);
	return 0;
}

static unsigned steer(struct virtqueue *from, struct virtqueue *to)
{
	static struct burst burst;
	uint8_t which[VRING_BURST];
	const unsigned taken = vring_read(from, &burst, VRING_BURST);

	for (unsigned i = 0; i < burst.count; i++)
		which[i] = (uint8_t)i;
	vring_write(to, &burst, which, burst.count);
	vring_read_done(from, &burst);
	return taken;
}

static unsigned discard(struct virtqueue *from, struct virtqueue *to)
{
	static uint64_t reason;

	return vring_discard(from, &reason);
}

typedef unsigned visit_fn(struct virtqueue *from, struct virtqueue *to);

/* One visit, that costs no more than it may.  Returns how many frames left their sender. */
static unsigned visit(struct pair *pair, visit_fn *call)
{
	const uint32_t from = pair->from.ring.work, to = pair->to.ring.work;
	struct timespec before, after;
	unsigned taken;
	double us;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	taken = call(&pair->from.ring, &pair->to.ring);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	us = (double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) / 1e3;
	longest_us = RTE_MAX(longest_us, us);
	/* What reads and what writes are bounded each, where they are not the same call. */
	if (call == steer) {
		assert_in_range(pair->from.ring.work - from, 0, VRING_WORK_MOST);
		assert_in_range(pair->to.ring.work - to, 0, VRING_WORK_MOST);
	} else {
		assert_in_range(pair->from.ring.work - from + pair->to.ring.work - to, 0, VRING_WORK_MOST);
	}
	return taken;
}

/* A chain of so many descriptors of `length` bytes each; all of its memory is the same. */
static void offer_chain(struct simulated_guest *guest, unsigned count, uint32_t length, uint16_t flags)
{
	uint16_t head = 0;

	for (unsigned i = 0; i < count; i++) {
		uint16_t at = guest_desc(guest, FRAMES, length, flags | (i + 1 < count ? VRING_DESC_F_NEXT : 0));

		if (i == 0)
			head = at;
	}
	guest_offer(guest, head);
}

static void send_frames(struct pair *pair, unsigned count, uint32_t length)
{
	for (unsigned i = 0; i < count; i++)
		guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER + length, 0));
}

static void a_receive_chain_as_long_as_the_ring(void **state)
{
	struct pair *pair = *state;

	offer_chain(&pair->to, LARGE, 1, VRING_DESC_F_WRITE);
	send_frames(pair, MANY, 1000);
	visit(pair, vring_hop);
	/* Where it ends is not looked for; of a split ring it need not be known. */
	assert_int_equal(pair->to.report, to_packed ? VRING_FAULT_long_chain : VRING_FAULT_NONE);
	assert_int_equal(pair->to.counters.drop_receiver_too_small, to_packed ? 0 : MANY);
}

static void a_send_chain_as_long_as_the_ring(void **state)
{
	for (unsigned discarded = 0; discarded < 2; discarded++) {
		struct pair *pair = *state;

		offer_chain(&pair->from, LARGE, 1, 0);
		offer_buffer(&pair->to, BUFFERS, 2048);
		visit(pair, discarded ? discard : vring_hop);
		assert_int_equal(pair->from.report, from_packed ? VRING_FAULT_long_chain : VRING_FAULT_NONE);
		end(state);
		start_large(state);
	}
}

/* As long as they may be, so that nothing stops the ring, and too short for any frame. */
static void receive_chains_that_are_looked_at_in_vain(void **state)
{
	for (unsigned steered = 0; steered < 2; steered++) {
		struct pair *pair = *state;

		for (unsigned i = 0; i < LARGE / VRING_CHAIN; i++)
			offer_chain(&pair->to, VRING_CHAIN, 1, VRING_DESC_F_WRITE);
		send_frames(pair, 10 * MANY, 1000);
		for (unsigned i = 0; i < 10; i++)
			assert_true(visit(pair, steered ? steer : vring_hop) > 0);
		assert_int_equal(pair->to.report, VRING_FAULT_NONE);
		assert_int_equal(pair->to.counters.sent_packets, 0);
		end(state);
		start_large(state);
	}
}

static void send_chains_that_are_looked_at_in_vain(void **state)
{
	for (unsigned steered = 0; steered < 3; steered++) {
		struct pair *pair = *state;

		for (unsigned i = 0; i < LARGE / VRING_CHAIN; i++)
			offer_chain(&pair->from, VRING_CHAIN, 1, 0);
		offer_buffer(&pair->to, BUFFERS, 2048);
		while (visit(pair, steered == 0 ? vring_hop : steered == 1 ? steer : discard) > 0)
			;
		assert_int_equal(pair->from.report, VRING_FAULT_NONE);
		/* All were passed over: where each ends was found. */
		assert_int_equal(guest_taken(&pair->from), LARGE / VRING_CHAIN);
		end(state);
		start_large(state);
	}
}

static void long_frames_take_several_visits(void **state)
{
	static const uint32_t lengths[] = {VRING_RUN_FRAME - HEADER, VRING_RUN_FRAME, 65000};

	for (unsigned kind = 0; kind < 2 * RTE_DIM(lengths); kind++) {
		const uint32_t length = lengths[kind / 2];
		struct pair *pair = *state;
		uint64_t bytes = 0;

		send_frames(pair, MANY, length);
		for (unsigned i = 0; i < MANY; i++)
			offer_buffer(&pair->to, BUFFERS, 0x11000);
		while (visit(pair, kind % 2 ? steer : vring_hop) > 0) {
			assert_in_range(pair->to.counters.sent_bytes - bytes, 1,
					(uint64_t)MANY * VRING_RUN_FRAME + 65000);
			bytes = pair->to.counters.sent_bytes;
		}
		assert_int_equal(pair->to.counters.sent_packets, MANY);
		assert_int_equal(bytes, (uint64_t)MANY * length);
		end(state);
		start_large(state);
	}
}

/* Long segments in the smallest pieces, for buffers in as many descriptors as are looked at. */
static void segments_cut_into_shreds(void **state)
{
	for (unsigned steered = 0; steered < 2; steered++) {
		struct segment segment = long_segment(false, 0, OFFLOAD_SEGMENT_MIN * OFFLOAD_SEGMENTS);
		struct pair *pair = *state;

		segment.offload.gso_size = OFFLOAD_SEGMENT_MIN;
		pair->from.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		for (unsigned i = 0; i < MANY; i++)
			send_segment(&pair->from, &segment, 16);
		for (unsigned i = 0; i < LARGE / VRING_PIECES; i++)
			offer_chain(&pair->to, VRING_PIECES, 1, VRING_DESC_F_WRITE);
		for (unsigned i = 0; i < MANY; i++)
			visit(pair, steered ? steer : vring_hop);
		assert_int_equal(pair->to.report, VRING_FAULT_NONE);
		assert_int_equal(pair->from.report, VRING_FAULT_NONE);
		end(state);
		start_large(state);
	}
}

/* The same, where each segment finds its room behind a hundred descriptors without any. */
static void segments_for_buffers_that_are_hard_to_find(void **state)
{
	for (unsigned steered = 0; steered < 2; steered++) {
		struct segment segment = long_segment(false, 0, OFFLOAD_SEGMENT_MIN * OFFLOAD_SEGMENTS);
		struct pair *pair = *state;

		segment.offload.gso_size = OFFLOAD_SEGMENT_MIN;
		pair->from.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		for (unsigned i = 0; i < 8; i++)
			send_segment(&pair->from, &segment, 100000);
		for (unsigned i = 0; i < LARGE / VRING_CHAIN; i++) {
			uint16_t head = guest_desc(&pair->to, FRAMES, 0, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT);

			for (unsigned j = 1; j < VRING_CHAIN; j++)
				guest_desc(&pair->to, FRAMES, j == 100 ? 2048 : 0,
					   VRING_DESC_F_WRITE | (j + 1 < VRING_CHAIN ? VRING_DESC_F_NEXT : 0));
			guest_offer(&pair->to, head);
		}
		for (unsigned i = 0; i < 8; i++)
			visit(pair, steered ? steer : vring_hop);
		assert_int_equal(pair->to.report, VRING_FAULT_NONE);
		end(state);
		start_large(state);
	}
}

/* Not all of a ring that looks used is taken for what an earlier switch has done. */
static void resuming_looks_at_a_bounded_part(void **state)
{
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	if (!to_packed)
		return; /* a split ring says where it stands */
	for (unsigned i = 0; i < LARGE; i++)
		ring->packed_desc[i] = (struct vring_packed_desc){FRAMES, 1, i, VRING_FLAG_AVAILABLE | VRING_FLAG_USED};
	ring->device_event->off_wrap = 1 << VRING_PACKED_EVENT_F_WRAP_CTR | 1;
	vring_resume(ring, 0);
	assert_int_equal(ring->index, 1 + VRING_DONE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_large, end)
		TEST(a_receive_chain_as_long_as_the_ring),
		TEST(a_send_chain_as_long_as_the_ring),
		TEST(receive_chains_that_are_looked_at_in_vain),
		TEST(send_chains_that_are_looked_at_in_vain),
		TEST(long_frames_take_several_visits),
		TEST(segments_cut_into_shreds),
		TEST(segments_for_buffers_that_are_hard_to_find),
		TEST(resuming_looks_at_a_bounded_part),
#undef TEST
	};
	int rc;

	choose_layouts(argc, argv);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	fprintf(stderr, "the costliest visit took %.0f us\n", longest_us);
	return rc;
}
