/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of every size, frames of every length, buffers that frames span, and what is noted for a migration.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/ring_pair.h"
#include "vring/hop.h"
#include "vring/packet.h"

static unsigned hop_all(struct pair *pair)
{
	unsigned sum = 0, taken;

	while ((taken = vring_hop(&pair->from.ring, &pair->to.ring)) > 0)
		sum += taken;
	return sum;
}

/* A successor finds the ring where it stands. */
static void resumes(struct virtqueue *ring)
{
	const uint16_t base = vring_base(ring);
	const bool plain = ring->plain;

	/* Of the largest ring one position cannot be recorded, and is the front end's to say. */
	vring_resume(ring, ring->size == 32768 ? base : 1 | 0x8000);
	assert_int_equal(vring_base(ring), base);
	assert_int_equal(ring->plain, plain);
	assert_int_equal(plain, ring->packed && ring->size < 16384);
}

/* Fill both rings to the brim, three times around. */
static void go_around(uint16_t from, uint16_t to)
{
	struct pair *pair = sized_pair(from, to, true);
	const unsigned batch = RTE_MIN(from, to);
	unsigned sent = 0, seen = 0;

	vring_resume(&pair->from.ring, 0x8000);
	vring_resume(&pair->to.ring, 0x8000);
	for (unsigned round = 0; round < 3u * RTE_MAX(from, to) / batch + 1; round++) {
		for (unsigned i = 0; i < batch; i++, sent++) {
			send_plain(&pair->from, FRAMES + i % 64 * 128, 60, sent % 64);
			offer_buffer(&pair->to, BUFFERS + i % 1024 * 128, 128);
			/* A frame of 64 slots is read before the slot is used again. */
			if (i % 64 == 63)
				assert_int_equal(hop_all(pair), 64);
		}
		hop_all(pair);
		assert_int_equal(guest_taken(&pair->from), sent);
		assert_int_equal(guest_taken(&pair->to), sent);
		for (unsigned i = batch > 1024 ? batch - 1024 : 0; i < batch; i++)
			expect_pattern(&pair->to, BUFFERS + i % 1024 * 128 + HEADER, 0, 60, (seen + i) % 64);
		seen += batch;
		resumes(&pair->from.ring);
		resumes(&pair->to.ring);
	}
	assert_int_equal(pair->from.report, VRING_FAULT_NONE);
	assert_int_equal(pair->to.report, VRING_FAULT_NONE);
	end((void **)&pair);
}

static void moves_frames_in_rings_of_every_size(void **state)
{
	static const uint16_t sizes[] = {2, 64, 128, 256, 512, 1024, 2048, 4096, 32768};

	for (unsigned i = 0; i < RTE_DIM(sizes); i++) {
		go_around(sizes[i], sizes[i]);
		go_around(sizes[i], sizes[(i + 3) % RTE_DIM(sizes)]);
	}
	/* Only a packed ring's size may be anything. */
	if (from_packed && to_packed) {
		go_around(1025, 67);
		go_around(16383, 16384);
		go_around(3, 67);
		go_around(3, 1);
		go_around(1, 1);
	}
}

/* Many chains go back as one batch by in-order use; killed before it had recorded that, a switch has still done so. */
static void resumes_after_a_batch_of_many_slots(void **state)
{
	struct pair *pair = sized_pair(2048, 64, false);
	struct virtqueue *ring = &pair->from.ring;
	uint64_t dropped = 0;
	uint16_t recorded, base;

	ring->in_order = true;
	send_plain(&pair->from, FRAMES, 60, 0);
	assert_int_equal(vring_discard(ring, &dropped), 1);
	recorded = from_packed ? ring->device_event->off_wrap : 0;
	for (unsigned chain = 0; chain < VRING_BURST; chain++) {
		uint16_t head = guest_desc(&pair->from, FRAMES, 64, VRING_DESC_F_NEXT);

		for (unsigned i = 1; i < 20; i++)
			guest_desc(&pair->from, FRAMES, 64, i + 1 < 20 ? VRING_DESC_F_NEXT : 0);
		guest_offer(&pair->from, head);
	}
	assert_int_equal(vring_discard(ring, &dropped), VRING_BURST);
	base = vring_base(ring);
	if (from_packed)
		ring->device_event->off_wrap = recorded;
	vring_resume(ring, 0x8000);
	assert_int_equal(vring_base(ring), base);
	end((void **)&pair);
}

static void carries_jumbo_frames_over_whatever_buffers(void **state)
{
	static const uint32_t lengths[] = {1519, 4000, 9000, 9216, 16000, 65535};
	static const uint32_t buffers[] = {300, 1526, 2048, 4096, 70000};
	static const uint32_t parts[] = {700, 2048, 100000};

	for (unsigned l = 0; l < RTE_DIM(lengths); l++)
		for (unsigned b = 0; b < RTE_DIM(buffers); b++)
			for (unsigned p = 0; p < RTE_DIM(parts); p++) {
				const uint32_t length = lengths[l], buffer = buffers[b], total = HEADER + length;
				const unsigned count = (total + buffer - 1) / buffer;
				struct pair *pair = sized_pair(256, 256, true);
				uint16_t head = 0;

				if (count > VRING_PIECES || total / parts[p] >= VRING_PIECES) {
					end((void **)&pair);
					continue;
				}
				pattern(&pair->from, FRAMES, total, l + b);
				for (uint32_t at = 0; at < total; at += parts[p]) {
					uint32_t part = RTE_MIN(parts[p], total - at);
					uint16_t slot = guest_desc(&pair->from, FRAMES + at, part,
								   at + part < total ? VRING_DESC_F_NEXT : 0);

					head = at == 0 ? slot : head;
				}
				guest_offer(&pair->from, head);
				for (unsigned i = 0; i < count; i++)
					offer_buffer(&pair->to, BUFFERS + i * buffer, buffer);
				assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
				assert_int_equal(guest_taken(&pair->to), count);
				expect_header(&pair->to, BUFFERS, count);
				/* The buffers lie side by side, so the frame does too. */
				expect_pattern(&pair->to, BUFFERS + HEADER, HEADER, length, l + b);
				expect_used(&pair->to, count - 1, count - 1, total - (count - 1) * buffer);
				end((void **)&pair);
			}
}

static void drops_a_frame_in_more_pieces_than_it_carries(void **state)
{
	struct pair *pair = sized_pair(256, 256, true);
	const uint16_t head = guest_desc(&pair->from, FRAMES, HEADER, VRING_DESC_F_NEXT);

	for (unsigned i = 0; i < VRING_PIECES; i++)
		guest_desc(&pair->from, FRAMES + 64 * i, 64, i + 1 < VRING_PIECES ? VRING_DESC_F_NEXT : 0);
	guest_offer(&pair->from, head);
	send_plain(&pair->from, FRAMES, 60, 4);
	offer_buffer(&pair->to, BUFFERS, 16384);
	assert_int_equal(hop_all(pair), 2);
	assert_int_equal(pair->from.counters.drop_frame_fragmented, 1);
	assert_int_equal(guest_taken(&pair->from), 2);
	expect_pattern(&pair->to, BUFFERS + HEADER, 0, 60, 4);
	end((void **)&pair);
}

/* ------- migration ------- */

static bool noted(const struct dirty_log *log, uint64_t address)
{
	return log->bits[address / DIRTY_PAGE / 8] >> address / DIRTY_PAGE % 8 & 1;
}

static void start_log(struct simulated_guest *guest)
{
	const uint64_t size = (GUEST_BASE + 2 * GUEST_HALF) / DIRTY_PAGE / 8;

	guest->ring.log = (struct dirty_log){.bits = calloc(1, size), .size = size, .ring = GUEST_RINGS + 0xa0000};
	vring_start(&guest->ring);
	memset(guest->ring.log.bits, 0, size);
}

static unsigned count_noted(const struct dirty_log *log)
{
	unsigned count = 0;

	for (uint64_t i = 0; i < log->size; i++)
		count += __builtin_popcount(log->bits[i]);
	return count;
}

static void notes_what_it_writes_for_a_migration(void **state)
{
	static const uint8_t first[] = {0};
	static struct burst burst;

	for (unsigned steered = 0; steered < 2; steered++) {
		struct pair *pair = sized_pair(64, 64, true);

		start_log(&pair->from);
		start_log(&pair->to);
		/* A frame over two buffers, of which the first ends where a page does. */
		send_plain(&pair->from, FRAMES, 9000, 1);
		offer_buffer(&pair->to, BUFFERS + 5 * DIRTY_PAGE - 100, 100);
		offer_buffer(&pair->to, BUFFERS + 9 * DIRTY_PAGE, 3 * DIRTY_PAGE);
		offer_buffer(&pair->to, BUFFERS + 20 * DIRTY_PAGE, DIRTY_PAGE);
		if (steered) {
			assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
			assert_int_equal(vring_write(&pair->to.ring, &burst, first, 1), 1);
			vring_read_done(&pair->from.ring, &burst);
		} else {
			assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		}
		assert_true(noted(&pair->to.ring.log, BUFFERS + 4 * DIRTY_PAGE));
		for (unsigned page = 0; page < 3; page++)
			assert_true(noted(&pair->to.ring.log, BUFFERS + (9 + page) * DIRTY_PAGE));
		/* And the rings: each where its completions lie. */
		assert_true(noted(&pair->to.ring.log, GUEST_RINGS + 0xa0000));
		assert_true(noted(&pair->from.ring.log, GUEST_RINGS + 0xa0000));
		assert_int_equal(count_noted(&pair->to.ring.log), 5);
		assert_int_equal(count_noted(&pair->from.ring.log), 1);
		free(pair->from.ring.log.bits);
		free(pair->to.ring.log.bits);
		end((void **)&pair);
	}
}

static void writes_no_log_past_its_end(void **state)
{
	uint8_t bits[2] = {0};
	const struct dirty_log log = {.bits = bits, .size = 1};

	dirty_note(&log, 6 * DIRTY_PAGE, 100 * DIRTY_PAGE);
	assert_int_equal(bits[0], 0xc0);
	assert_int_equal(bits[1], 0);
	dirty_note(&log, UINT64_MAX - 10, 100);
	dirty_note(&log, DIRTY_NOWHERE, 100);
	dirty_note(&log, 0, 0);
	assert_int_equal(bits[0], 0xc0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_frames_in_rings_of_every_size),
		cmocka_unit_test(resumes_after_a_batch_of_many_slots),
		cmocka_unit_test(carries_jumbo_frames_over_whatever_buffers),
		cmocka_unit_test(drops_a_frame_in_more_pieces_than_it_carries),
		cmocka_unit_test(notes_what_it_writes_for_a_migration),
		cmocka_unit_test(writes_no_log_past_its_end),
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
