/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue in front of a receiver with a rate: in order, whole, bounded; long segments cut where the queue is short;
 * and as long as TCP needs to fill the rate.
 */
#include <stdlib.h>

#include "cmocka_all.h"
#include "steer/rate.h"
#include "steer/shaper.h"
#include "test/long_segment.h"

static struct burst burst;
static struct vring_piece pieces[VRING_PIECES];
static uint8_t bytes[VRING_FRAME_MAX];

/* A frame with a number in all of its bytes, head and the rest in three pieces. */
static struct packet *frame_of(uint32_t number, uint32_t length)
{
	static struct packet packet;
	const uint32_t head = RTE_MIN(length, (uint32_t)PACKET_HEAD), rest = length - head;

	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(number * 7 + i * 3);
	packet = (struct packet){
		.head = bytes, .head_length = head, .length = length, .received = length, .pieces = pieces};
	pieces[1] = (struct vring_piece){bytes + head, rest / 3};
	pieces[2] = (struct vring_piece){bytes + head + rest / 3, rest - rest / 3};
	packet.nb_pieces = rest > 0 ? 3 : 1;
	return &packet;
}

static void expect_frame(const struct packet *packet, uint32_t number, uint32_t length)
{
	uint32_t at = 0;

	assert_int_equal(packet->length, length);
	for (uint32_t i = 0; i < packet->head_length; i++, at++)
		assert_int_equal(packet->head[i], (uint8_t)(number * 7 + at * 3));
	for (unsigned p = 1; p < packet->nb_pieces; p++)
		for (uint32_t i = 0; i < packet->pieces[p].length; i++, at++)
			assert_int_equal(packet->pieces[p].at[i], (uint8_t)(number * 7 + at * 3));
	assert_int_equal(at, length);
}

static struct shaper shaper_with(uint32_t most_bytes, uint32_t most_packets)
{
	struct shaper shaper;

	assert_true(shaper_open(&shaper));
	shaper.limits = (struct shaper_limits){most_bytes, most_packets};
	return shaper;
}

/* ------- in order, whole, bounded ------- */

/* Of any length, in and out in turn, so that the frames go round the memory several times. */
static void frames_come_out_as_they_went_in(void **state)
{
	static uint32_t lengths[1 << 16];
	struct shaper shaper = shaper_with(SHAPER_MOST_BYTES, UINT32_MAX);
	uint32_t in = 0, out = 0;
	uint64_t passed = 0;

	srandom(1);
	while (passed < UINT64_C(5) * 2 * SHAPER_MOST_BYTES) {
		const bool fills = random() % 64 < 40;

		for (unsigned i = (unsigned)random() % 200; fills && i > 0; i--) {
			const uint32_t length = random() % 8 == 0 ? 60 + (uint32_t)random() % (VRING_FRAME_MAX - 59)
								  : 60 + (uint32_t)random() % 1455;

			if (!shaper_put(&shaper, frame_of(in, length)))
				break;
			lengths[in++ % RTE_DIM(lengths)] = length;
		}
		shaper_read(&shaper, &burst);
		for (unsigned i = 0; i < burst.count; i++) {
			expect_frame(&burst.packets[i], out + i, lengths[(out + i) % RTE_DIM(lengths)]);
			passed += burst.packets[i].length;
		}
		out += burst.count;
		shaper_remove(&shaper, burst.count);
		assert_int_equal(shaper.packets, in - out);
	}
	while (shaper_waiting(&shaper)) {
		shaper_read(&shaper, &burst);
		out += burst.count;
		shaper_remove(&shaper, burst.count);
	}
	assert_int_equal(out, in);
	assert_int_equal(shaper.bytes, 0);
	shaper_close(&shaper);
}

static void what_finds_no_room_is_the_newest(void **state)
{
	struct shaper shaper = shaper_with(10 * 1518, 1000);
	unsigned count = 0;

	while (shaper_put(&shaper, frame_of(count, 1514)))
		count++;
	assert_int_equal(count, 10);
	shaper_read(&shaper, &burst);
	assert_int_equal(burst.count, 10);
	expect_frame(&burst.packets[0], 0, 1514);
	shaper_remove(&shaper, 1);
	assert_true(shaper_put(&shaper, frame_of(10, 1514)));
	assert_int_equal(shaper_clear(&shaper), 10);
	for (count = 0; shaper_put(&shaper, frame_of(count, 60));)
		count++;
	assert_int_equal(count, 10 * 1518 / 64);
	shaper.limits.packets = 5; /* a limit that has become less lets out what is there */
	assert_false(shaper_put(&shaper, frame_of(0, 60)));
	shaper_remove(&shaper, count - 4);
	assert_true(shaper_put(&shaper, frame_of(0, 60)));
	assert_false(shaper_put(&shaper, frame_of(0, 60)));
	shaper_close(&shaper);
}

static void a_frame_that_is_longer_than_the_queue_waits_alone(void **state)
{
	struct shaper shaper = shaper_with(SHAPER_LEAST_BYTES, UINT32_MAX);

	assert_true(shaper_put(&shaper, frame_of(1, 9014)));
	assert_false(shaper_put(&shaper, frame_of(2, VRING_FRAME_MAX)));
	assert_int_equal(shaper_clear(&shaper), 1);
	assert_true(shaper_put(&shaper, frame_of(2, VRING_FRAME_MAX)));
	assert_false(shaper_put(&shaper, frame_of(3, 60)));
	shaper_read(&shaper, &burst);
	assert_int_equal(burst.count, 1);
	expect_frame(&burst.packets[0], 2, VRING_FRAME_MAX);
	shaper_close(&shaper);
}

static void the_smallest_frames_fill_it_to_its_limit(void **state)
{
	struct shaper shaper = shaper_with(SHAPER_MOST_BYTES, UINT32_MAX);
	unsigned count = 0;

	while (shaper_put(&shaper, frame_of(0, 60)))
		count++;
	assert_int_equal(count, SHAPER_MOST_BYTES / 64);
	shaper_close(&shaper);
}

static void nothing_waits_before_there_is_a_limit(void **state)
{
	struct shaper shaper = shaper_with(0, 0);

	assert_false(shaper_put(&shaper, frame_of(0, 60)));
	shaper_close(&shaper);
}

/* ------- long segments ------- */

static struct packet packet_of(struct segment *segment)
{
	pieces[1] = (struct vring_piece){segment->bytes + PACKET_HEAD, segment->length - PACKET_HEAD};
	assert_true(offload_check(&segment->offload, ALL, segment->bytes, PACKET_HEAD, segment->length));
	return (struct packet){.head = segment->bytes,
			       .head_length = PACKET_HEAD,
			       .length = segment->length,
			       .pieces = pieces,
			       .nb_pieces = 2,
			       .offload = segment->offload};
}

static void a_long_segment_is_cut_where_the_queue_is_short(void **state)
{
	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		struct shaper shaper = shaper_with(SHAPER_LEAST_BYTES, UINT32_MAX);
		struct segment segment = long_segment(ipv6, 0, PAYLOAD);
		struct packet packet = packet_of(&segment);
		const unsigned count = (PAYLOAD + SEGMENT - 1) / SEGMENT;
		uint32_t done = 0;

		assert_true(shaper_cuts(&shaper, &packet));
		assert_true(shaper_put(&shaper, &packet));
		shaper_read(&shaper, &burst);
		assert_int_equal(burst.count, count);
		for (unsigned i = 0; i < count; i++) {
			const uint32_t payload = RTE_MIN((uint32_t)SEGMENT, (uint32_t)PAYLOAD - done);

			assert_int_equal(burst.packets[i].length, segment.headers + payload);
			assert_int_equal(burst.packets[i].offload.flags, 0);
			expect_right_checksums(burst.packets[i].head, &segment, ipv6);
			assert_memory_equal(burst.packets[i].head + segment.headers,
					    segment.bytes + segment.headers + done, payload);
			done += payload;
		}
		/* All of it or nothing. */
		assert_true(shaper_put(&shaper, &packet));
		assert_false(shaper_put(&shaper, &packet));
		assert_int_equal(shaper.packets, 2 * count);
		shaper_close(&shaper);
	}
}

static void a_long_segment_stays_whole_where_the_queue_is_long(void **state)
{
	struct shaper shaper = shaper_with(10 * PAYLOAD, UINT32_MAX);
	struct segment segment = long_segment(false, 0, PAYLOAD);
	struct packet packet = packet_of(&segment);

	assert_false(shaper_cuts(&shaper, &packet));
	assert_true(shaper_put(&shaper, &packet));
	shaper_read(&shaper, &burst);
	assert_int_equal(burst.count, 1);
	assert_int_equal(burst.packets[0].length, segment.length);
	assert_memory_equal(&burst.packets[0].offload, &packet.offload, sizeof(packet.offload));
	assert_memory_equal(burst.packets[0].head, segment.bytes, segment.length);
	shaper_close(&shaper);
}

/* ------- how long it is ------- */

static void the_limits_are_the_rate_times_the_latency(void **state)
{
	struct shaper_limits limits = shaper_limits_of(1000000000, 0, 10000, 1, 1);

	assert_int_equal(limits.bytes, 1250000);
	assert_int_equal(limits.packets, UINT32_MAX);
	assert_int_equal(shaper_limits_of(1000000000, 0, 10000, 3, 4).bytes, 937500);
	assert_int_equal(shaper_limits_of(1000000, 0, 10000, 1, 1).bytes, SHAPER_LEAST_BYTES);
	assert_int_equal(shaper_limits_of(UINT64_C(1000000000000000), 0, 10000000, 1, 1).bytes, SHAPER_MOST_BYTES);
	limits = shaper_limits_of(0, 100000, 10000, 1, 2);
	assert_int_equal(limits.bytes, SHAPER_MOST_BYTES);
	assert_int_equal(limits.packets, 500);
	assert_int_equal(shaper_limits_of(0, 10, 10000, 1, 1).packets, SHAPER_LEAST_PACKETS);
}

enum { FLIGHT = 1 << 16, STEP_US = 10 };

/*
 * A TCP sender without pacing, as RFC 5681 has it: the window doubles each round trip up to its threshold and then
 * grows by a segment; a loss halves it, once for each window.
 */
struct tcp {
	double window, threshold;
	uint64_t sent, recovers; /* segments; losses before that one are of a window that has been halved */
	unsigned flying, first;
	struct {
		uint64_t back; /* when its sender hears of it, in steps */
		uint64_t number;
		bool lost;
	} flight[FLIGHT];
};

static void hear(struct tcp *tcp, uint64_t now)
{
	for (; tcp->flying > 0 && tcp->flight[tcp->first].back <= now; tcp->flying--) {
		if (!tcp->flight[tcp->first].lost) {
			tcp->window += tcp->window < tcp->threshold ? 1 : 1 / tcp->window;
		} else if (tcp->flight[tcp->first].number >= tcp->recovers) {
			tcp->threshold = tcp->window = RTE_MAX(tcp->window / 2, 2.0);
			tcp->recovers = tcp->sent;
		}
		tcp->first = (tcp->first + 1) % FLIGHT;
	}
}

/* The part of the rate that TCP fills in so many seconds, over a way of this round trip. */
static double filled(uint64_t bits, unsigned round_trip_us, unsigned seconds)
{
	const struct rate rate = {.bits = bits};
	const uint64_t steps = UINT64_C(1000000) * seconds / STEP_US, hz = 1000000000;
	const uint32_t one = 1, length = 1514;
	struct shares *shares = shares_make(&rate, &one, 1, hz, hz);
	struct shaper_limits limits = shaper_limits_of(bits, 0, SHAPER_LATENCY_US, 1, 1);
	static struct tcp tcp;
	uint64_t passed = 0;
	uint32_t waiting = 0;

	tcp = (struct tcp){.window = 10, .threshold = FLIGHT};
	for (uint64_t step = 1; step <= steps; step++) {
		const uint64_t now = hz + step * STEP_US * 1000;

		for (; shares_open(shares, 0, now) && waiting > 0; waiting--, passed++)
			shares_spend(shares, 0, &(struct share_use){.bytes = length, .packets = 1}, now);
		hear(&tcp, step);
		for (; tcp.flying < FLIGHT && tcp.flying < (unsigned)tcp.window; tcp.flying++, tcp.sent++) {
			const uint64_t held = waiting * UINT64_C(8) * 1518 * 1000000 / STEP_US / bits;
			unsigned last = (tcp.first + tcp.flying) % FLIGHT;
			const bool lost = waiting > 0 && (waiting + 1) * 1518 > limits.bytes;

			tcp.flight[last].back = step + held + round_trip_us / STEP_US + 1;
			tcp.flight[last].number = tcp.sent;
			tcp.flight[last].lost = lost;
			waiting += lost ? 0 : 1;
		}
	}
	free(shares);
	return (double)passed * 1518 * 8 / ((double)bits * seconds);
}

static void tcp_fills_the_rate(void **state)
{
	static const uint64_t rates[] = {1000000, 10000000, 100000000, 1000000000, UINT64_C(10000000000)};

	for (unsigned i = 0; i < RTE_DIM(rates); i++)
		for (unsigned round_trip = 50; round_trip <= 5000; round_trip *= 10)
			assert_in_range(filled(rates[i], round_trip, rates[i] < 100000000 ? 20 : 4) * 1000, 900, 1020);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_come_out_as_they_went_in),
		cmocka_unit_test(what_finds_no_room_is_the_newest),
		cmocka_unit_test(a_frame_that_is_longer_than_the_queue_waits_alone),
		cmocka_unit_test(the_smallest_frames_fill_it_to_its_limit),
		cmocka_unit_test(nothing_waits_before_there_is_a_limit),
		cmocka_unit_test(a_long_segment_is_cut_where_the_queue_is_short),
		cmocka_unit_test(a_long_segment_stays_whole_where_the_queue_is_long),
		cmocka_unit_test(the_limits_are_the_rate_times_the_latency),
		cmocka_unit_test(tcp_fills_the_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
