/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames spread over a receiver's queues by their flows: each flow has one, both ways round, and the receiver is waited
 * for.  The stations stand for the queues.
 */
#include "test/cmocka_all.h"

#include "steer/steering.h"
#include "test/stations.h"

enum { FLOWS = 12, QUEUES = 2 };

static struct source spread_source(struct setting *setting, struct hop_counters *hop)
{
	const struct egress egresses[QUEUES] = {egress_to(setting, 1, hop), egress_to(setting, 2, hop)};
	const struct step step = {.spread = QUEUES};
	struct source source = source_of(setting, 0,
					 &(struct steering_config){.egresses = egresses,
								   .nb_egresses = QUEUES,
								   .steps = &step,
								   .nb_steps = 1,
								   .otherwise = 0,
								   .waits = true});

	source.egress = egresses[0];
	return source;
}

/* Which of the two has the frame that comes next; fails unless exactly one has it. */
static unsigned next_of(struct setting *setting, const struct frame *expected)
{
	struct frame frame;
	const bool first = next_frame(&setting->stations[1], &frame);

	if (!first)
		assert_true(next_frame(&setting->stations[2], &frame));
	assert_int_equal(frame.length, expected->length);
	assert_memory_equal(frame.bytes, expected->bytes, expected->length);
	return first ? 1 : 2;
}

static void a_flow_has_one_queue(void **state)
{
	struct setting *setting = *state;
	struct hop_counters hop = {0};
	struct source source = spread_source(setting, &hop);
	unsigned queues[FLOWS], seen[3] = {0};

	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < FLOWS; i++) {
			struct frame frame;
			unsigned queue;

			offer_buffers(&setting->stations[1], round == 0 && i == 0 ? 8 : 0);
			offer_buffers(&setting->stations[2], round == 0 && i == 0 ? 8 : 0);
			frame_udp4(&frame, 1, 2, 1000 + i, 2000);
			send_frame(&setting->stations[0], &frame);
			assert_int_equal(source_poll(&source, &setting->round), 1);
			queue = next_of(setting, &frame);
			offer_buffers(&setting->stations[queue], 1);
			if (round == 0)
				queues[i] = queue;
			assert_int_equal(queue, queues[i]);
			seen[queue]++;
		}
	assert_true(seen[1] > 0 && seen[2] > 0);
	assert_int_equal(hop.packets, 3 * FLOWS);
	steering_free(source.steering);
}

static void parse_udp(struct headers *headers, unsigned from, unsigned to, uint16_t source, uint16_t destination)
{
	struct frame frame;

	frame_udp4(&frame, from, to, source, destination);
	parse_frame(frame.bytes, frame.length, headers);
}

static void its_answer_has_the_same(void **state)
{
	unsigned counts[4] = {0};

	for (unsigned i = 0; i < 4000; i++) {
		struct headers flow, answer;
		unsigned queue;

		parse_udp(&flow, 1 + i % 7, 2, 1000 + i, 53);
		parse_udp(&answer, 2, 1 + i % 7, 53, 1000 + i);
		queue = pin_spread(&flow, 4);
		assert_int_equal(queue, pin_spread(&answer, 4));
		counts[queue]++;
	}
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(counts[i], 800, 1200);
}

static void fragments_of_a_datagram_stay_together(void **state)
{
	for (unsigned i = 0; i < 100; i++) {
		struct headers first, later;
		struct frame frame;

		frame_macs(&frame, 1, 2);
		frame_ipv4(&frame, 1 + i, 2, 17, 8, i, 0x2000);
		frame_ports(&frame, 1000, 2000);
		parse_frame(frame.bytes, frame.length, &first);
		frame_macs(&frame, 1, 2);
		frame_ipv4(&frame, 1 + i, 2, 17, 8, i, 1);
		frame_ports(&frame, 7, 8);
		parse_frame(frame.bytes, frame.length, &later);
		assert_int_equal(first.fragment, FRAGMENT_FIRST);
		assert_int_equal(later.fragment, FRAGMENT_LATER);
		assert_int_equal(pin_spread(&first, 16), pin_spread(&later, 16));
	}
}

static void a_full_queue_is_waited_for(void **state)
{
	struct setting *setting = *state;
	struct source source = spread_source(setting, NULL);
	struct frame frame;

	setting->round.patience = 1000;
	offer_buffers(&setting->stations[1], 8);
	for (unsigned i = 0; i < FLOWS; i++) {
		frame_udp4(&frame, 1, 2, 1000 + i, 2000);
		send_frame(&setting->stations[0], &frame);
	}
	assert_int_equal(source_poll(&source, &setting->round), 0);
	setting->round.now += 1000;
	assert_int_equal(source_poll(&source, &setting->round), 0);
	expect_nothing(&setting->stations[1]);
	assert_int_equal(setting->stations[2].counters.drop_receiver_full, 0);

	/* For too long: then only what is for the full one is dropped. */
	setting->round.now += 1;
	assert_int_equal(source_poll(&source, &setting->round), FLOWS);
	assert_true(setting->stations[2].counters.drop_receiver_full > 0);
	assert_int_equal(setting->stations[1].counters.sent_packets + setting->stations[2].counters.drop_receiver_full,
			 FLOWS);

	/* Once there is room, it has not waited at all. */
	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[2], 8);
	send_frame(&setting->stations[0], &frame);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_int_equal(setting->stations[0].port.queues[0].blocked_since, 0);
	steering_free(source.steering);
}

static void a_busy_queue_leaves_the_burst_where_it_is(void **state)
{
	struct setting *setting = *state;
	struct source source = spread_source(setting, NULL);
	struct frame frame;

	for (unsigned i = 0; i < QUEUES; i++)
		source.steering->outlets[i].egress.locked = true;
	offer_buffers(&setting->stations[1], 8);
	offer_buffers(&setting->stations[2], 8);
	frame_udp4(&frame, 1, 2, 1000, 2000);
	send_frame(&setting->stations[0], &frame);
	rte_spinlock_lock(&setting->stations[2].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 0);
	assert_true(source_owes(&source));
	rte_spinlock_unlock(&setting->stations[2].port.queues[0].lock);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	next_of(setting, &frame);
	assert_true(rte_spinlock_trylock(&setting->stations[1].port.queues[0].lock));
	assert_true(rte_spinlock_trylock(&setting->stations[2].port.queues[0].lock));
	steering_free(source.steering);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(a_flow_has_one_queue),
		TEST(its_answer_has_the_same),
		TEST(fragments_of_a_datagram_stay_together),
		TEST(a_full_queue_is_waited_for),
		TEST(a_busy_queue_leaves_the_burst_where_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
