/* SPDX-License-Identifier: Apache-2.0
 *
 * What onlookers get: capture rings, the hop trace, followed frames.  Each is bounded, whatever its reader does.
 */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "common/signature.h"
#include "steer/capture_ring.h"
#include "steer/follow.h"
#include "steer/hop_trace.h"
#include "vring/packet_bytes.h"

enum { KEY = 77, LONG = 700 };

static uint8_t rest[VRING_BURST][LONG];
static struct vring_piece pieces[VRING_BURST][4];

/* A frame of `length` bytes, byte i being `first` + i, in a head of 128 bytes and pieces behind it. */
static void make_packet(struct burst *burst, uint8_t first, uint32_t length)
{
	struct packet *packet = &burst->packets[burst->count];
	uint32_t behind = length > PACKET_HEAD ? length - PACKET_HEAD : 0, cut = behind / 3;
	uint8_t *tail = rest[burst->count];

	memset(packet, 0, sizeof(*packet));
	packet->head = packet->bytes + PACKET_ROOM;
	packet->head_length = (uint16_t)(length - behind);
	packet->length = length;
	packet->pieces = pieces[burst->count];
	packet->pieces[1] = (struct vring_piece){tail, cut};
	packet->pieces[2] = (struct vring_piece){tail + cut, behind - cut};
	packet->nb_pieces = behind > 0 ? 3 : 1;
	for (uint32_t i = 0; i < length; i++)
		*(i < PACKET_HEAD ? &packet->head[i] : &tail[i - PACKET_HEAD]) = (uint8_t)(first + i);
	burst->count++;
}

static void bytes_are_found_wherever_they_lie(void **state)
{
	static const uint32_t lengths[] = {14, 127, 128, 129, 131, 200, 600};
	static struct burst burst;

	for (unsigned l = 0; l < 7; l++) {
		uint32_t length = lengths[l];

		burst.count = 0;
		make_packet(&burst, 3, length);
		for (uint32_t from = 0; from < length; from += 7)
			for (uint32_t n = 1; n <= length - from; n += 11) {
				uint8_t room[LONG];
				const uint8_t *at = packet_bytes(&burst.packets[0], from, n, room);

				for (uint32_t i = 0; i < n; i++)
					assert_int_equal(at[i], (uint8_t)(3 + from + i));
			}
	}
}

/* ------- capture ------- */

enum { RING = 4096 };

struct test_ring {
	struct capture_ring ring;
	struct capture_header *header;
};

static struct test_ring ring_of(uint32_t snaplen)
{
	struct capture_header *header = aligned_alloc(4096, CAPTURE_DATA + RING);

	memset(header, 0, CAPTURE_DATA + RING);
	return (struct test_ring){
		{.header = header, .data = (uint8_t *)header + CAPTURE_DATA, .size = RING, .snaplen = snaplen}, header};
}

/* Take the next record, as a reader does.  Returns false if there is none. */
static bool take(struct test_ring *test, uint32_t record[4], uint8_t *bytes)
{
	const uint8_t *data = test->ring.data;
	uint64_t at = test->header->tail;

	if (at == test->header->head)
		return false;
	for (unsigned i = 0; i < CAPTURE_RECORD; i++)
		((uint8_t *)record)[i] = data[(at + i) % RING];
	for (unsigned i = 0; i < record[2]; i++)
		bytes[i] = data[(at + CAPTURE_RECORD + i) % RING];
	test->header->tail = at + CAPTURE_RECORD + record[2];
	return true;
}

static void a_capture_ring_holds_pcap_records_around_its_end(void **state)
{
	struct test_ring test = ring_of(500);
	static struct burst burst;
	uint32_t record[4];
	uint8_t bytes[LONG];

	for (unsigned n = 0; n < 1000; n++) {
		uint32_t length = 60 + n * 37 % 600, kept = length < 500 ? length : 500;

		burst.count = 0;
		make_packet(&burst, (uint8_t)n, length);
		capture_ring_add(&test.ring, &burst.packets[0], UINT64_C(1795000000123456789) + n);
		capture_ring_show(&test.ring);
		assert_true(take(&test, record, bytes));
		assert_int_equal(record[0], 1795000000);
		assert_int_equal(record[1], 123456789 + n);
		assert_int_equal(record[2], kept);
		assert_int_equal(record[3], length);
		for (uint32_t i = 0; i < kept; i++)
			assert_int_equal(bytes[i], (uint8_t)(n + i));
		assert_false(take(&test, record, bytes));
	}
	assert_int_equal(test.header->frames, 1000);
	assert_int_equal(test.header->dropped, 0);
	free(test.header);
}

static void a_full_capture_ring_drops_and_counts(void **state)
{
	struct test_ring test = ring_of(65535);
	static struct burst burst;
	uint32_t record[4];
	uint8_t bytes[LONG];
	unsigned taken = 0;

	burst.count = 0;
	make_packet(&burst, 0, 512 - CAPTURE_RECORD);
	for (unsigned n = 0; n < 20; n++)
		capture_ring_add(&test.ring, &burst.packets[0], n);
	capture_ring_show(&test.ring);
	assert_int_equal(test.header->frames, RING / 512);
	assert_int_equal(test.header->dropped, 20 - RING / 512);
	while (take(&test, record, bytes))
		assert_int_equal(record[1], taken++);
	assert_int_equal(taken, RING / 512);
	/* Whatever the reader says it has taken, the ring is not left. */
	for (uint64_t tail = 1; tail != 0; tail <<= 1) {
		test.header->tail = test.ring.head + tail;
		capture_ring_add(&test.ring, &burst.packets[0], 0);
		test.header->tail = test.ring.head - tail;
		capture_ring_add(&test.ring, &burst.packets[0], 0);
	}
	free(test.header);
}

/* ------- the hop trace ------- */

static void frames_of_the_run_are_noted(void **state)
{
	enum { LENGTH = 256 };
	static struct hop_record sampled[LENGTH], recent[LENGTH];
	static uint64_t sampled_head, recent_head;
	static struct burst burst;
	uint8_t which[VRING_BURST];
	struct hop_trace trace = {.every_mask = 3, .has_recent = true};

	trace.sampled[2] = (struct hop_ring){&sampled_head, sampled, LENGTH - 1};
	trace.recent[2] = (struct hop_ring){&recent_head, recent, LENGTH - 1};
	for (unsigned i = 0; i < 40; i++) {
		uint32_t length = i % 2 ? 60 : 400;
		uint8_t signature[SIGNATURE_SIZE];

		which[i] = (uint8_t)i;
		make_packet(&burst, 0, length);
		/* Every tenth frame is of another run, and one is too short. */
		signature_write(signature, i % 10 == 9 ? KEY + 1 : KEY, 5, 1000 + i, 1);
		for (unsigned b = 0; b < SIGNATURE_SIZE; b++) {
			uint32_t at = length - SIGNATURE_SIZE + b;

			*(at < PACKET_HEAD ? &burst.packets[i].head[at] : &rest[i][at - PACKET_HEAD]) = signature[b];
		}
	}
	burst.packets[0].length = burst.packets[0].head_length = 17;
	hop_trace_note(&trace, 2, &burst, which, 40, 7, 8, 99);
	assert_int_equal(recent_head, 0); /* without a key nothing is */
	trace.key = HOP_KEYED | KEY;
	hop_trace_note(&trace, 2, &burst, which, 40, 7, 8, 99);
	assert_int_equal(recent_head, 40 - 4 - 1);
	assert_int_equal(sampled_head, 9);
	for (unsigned i = 0; i < sampled_head; i++) {
		assert_int_equal(sampled[i].frame, UINT64_C(5) << 48 | (1004 + 4 * i));
		assert_int_equal(sampled[i].arrived, 99);
		assert_int_equal(sampled[i].from, 7);
		assert_int_equal(sampled[i].to, 8);
	}
	/* It goes around. */
	for (unsigned n = 0; n < 100; n++)
		hop_trace_note(&trace, 2, &burst, which, 40, 7, 8, 100 + n);
	assert_int_equal(recent_head, 101 * 35);
	assert_int_equal(recent[(recent_head - 1) % LENGTH].arrived, 199);
}

/* ------- following ------- */

static struct classifier *all_frames(void)
{
	struct classifier *classifier;
	unsigned culprit;

	assert_int_equal(classifier_build(&classifier, NULL, 0, 1, &culprit), 0);
	return classifier;
}

static void so_many_frames_are_followed_at_each_port(void **state)
{
	static struct note_ring ring;
	static struct burst burst;
	static struct follow follow;
	struct followed followed = {.follow = &follow};

	follow.match = all_frames();
	follow.rings[0] = &ring;
	follow.left[1] = follow.left[2] = 3;
	burst.count = 0;
	for (unsigned i = 0; i < 5; i++)
		make_packet(&burst, (uint8_t)i, 100);
	follow_pick(&followed, &burst, "one", 1);
	assert_int_equal(followed.packets, 7);
	assert_int_equal(ring.head, 0);
	follow_show(&followed);
	assert_int_equal(ring.head, 3);
	assert_string_equal(ring.notes[0].text, "enters by port one");
	follow_pick(&followed, &burst, "one", 1);
	assert_int_equal(followed.packets, 0);
	follow_pick(&followed, &burst, "two", 2);
	assert_int_equal(followed.packets, 7);
	assert_int_equal(ring.notes[3].mark, ring.notes[0].mark);
	assert_int_not_equal(ring.notes[0].mark, ring.notes[1].mark);
	assert_int_not_equal(ring.notes[0].sighting, ring.notes[3].sighting);
	/* A reader that does not come costs notes, which are counted. */
	for (unsigned i = 0; i < FOLLOW_NOTES + 10; i++)
		follow_say(&followed, &burst, 0, "%0200u", i);
	follow_show(&followed);
	assert_int_equal(ring.head, FOLLOW_NOTES);
	assert_int_equal(ring.lost, 16);
	assert_int_equal(strlen(ring.notes[100].text), FOLLOW_TEXT - 1);
	free(follow.match);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_found_wherever_they_lie),
		cmocka_unit_test(a_capture_ring_holds_pcap_records_around_its_end),
		cmocka_unit_test(a_full_capture_ring_drops_and_counts),
		cmocka_unit_test(frames_of_the_run_are_noted),
		cmocka_unit_test(so_many_frames_are_followed_at_each_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
