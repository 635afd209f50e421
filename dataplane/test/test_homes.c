/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall with several queues: both directions of a flow meet in one table, whichever queues its frames come by, and
 * what it knows is the sum over all queues.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

#include <netinet/in.h>
#include <pthread.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "functions/handover.h"
#include "functions/inboxes.h"
#include "steer/pin.h"

enum { QUEUES = 4, FLOWS = 400, CLIENT = 0x0a000002, SERVER = 0x0a000102, MORE = 0x2000 };

static struct rte_mempool *pool;
static uint64_t seed;

/* Port 0 may begin anything, port 1 nothing. */
static const char rules[] = "{\"rules\": [{\"name\": \"out\", \"action\": \"allow\", \"port\": 0}]}";

static void begin(unsigned nb_queues)
{
	const struct function_start start = {.pool = pool, .wake_fd = -1, .nb_queues = nb_queues};
	json_t *params = json_loads(rules, 0, NULL);
	struct control_error error;

	assert_int_equal(firewall.keeping->open(&start), 0);
	assert_int_equal(firewall.keeping->configure(params, &error), 0);
	json_decref(params);
}

static int start(void **state)
{
	seed = 1;
	assert_null(firewall.set("connections", "1001"));
	begin(QUEUES);
	return 0;
}

static int end(void **state)
{
	firewall.keeping->close();
	return 0;
}

static void finish4(struct frame *frame)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + 14);
	const uint16_t sum = rte_ipv4_cksum(header);

	memcpy(frame->bytes + 14 + offsetof(struct rte_ipv4_hdr, hdr_checksum), &sum, sizeof(sum));
}

static struct frame udp4(uint32_t source, uint32_t destination, uint16_t from, uint16_t to)
{
	struct frame frame;

	frame_udp4(&frame, source, destination, from, to);
	finish4(&frame);
	return frame;
}

static struct frame udp6(uint32_t source, uint32_t destination, uint16_t from, uint16_t to)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, source, destination, IPPROTO_UDP, 8);
	frame_ports(&frame, from, to);
	return frame;
}

static struct frame echo4(uint32_t source, uint32_t destination, uint8_t type, uint16_t identifier)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8, 0, 0);
	frame_add16(&frame, (uint16_t)(type << 8));
	frame_add16(&frame, 0);
	frame_add16(&frame, identifier);
	frame_add16(&frame, 1);
	finish4(&frame);
	return frame;
}

static struct frame error4(uint32_t source, uint32_t destination, const struct frame *quoted)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8 + 28, 0, 0);
	frame_add32(&frame, 3u << 24);
	frame_add32(&frame, 0);
	frame_add(&frame, quoted->bytes + 14, 28);
	finish4(&frame);
	return frame;
}

/* Of a datagram of UDP, at this place in units of 8 bytes. */
static struct frame fragment4(uint32_t source, uint32_t destination, uint16_t id, uint16_t place, uint16_t from,
			      uint16_t to)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_UDP, 16, id, place);
	frame_add16(&frame, from);
	frame_add16(&frame, to);
	frame_add16(&frame, 32);
	frame_add16(&frame, 0);
	frame_add32(&frame, 0);
	frame_add32(&frame, 0);
	finish4(&frame);
	return frame;
}

static struct rte_mbuf *buffer_of(const struct frame *frame)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	assert_non_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, frame->length), frame->bytes, frame->length);
	return mbuf;
}

static unsigned home_of(const struct frame *frame, uint16_t in, unsigned queue)
{
	struct rte_mbuf *mbuf = buffer_of(frame);
	uint8_t home;

	firewall.homes(&mbuf, 1, in, (uint16_t)queue, &home);
	rte_pktmbuf_free(mbuf);
	return home;
}

/* By the queue where the switch has it come in. */
static unsigned spread(const struct frame *frame, unsigned nb_queues)
{
	struct headers headers;

	parse_frame(frame->bytes, frame->length, &headers);
	parse_embedded(frame->bytes, frame->length, &headers);
	return pin_spread(&headers, nb_queues);
}

/* A frame that comes in by a queue; returns whether it passes. */
static bool passes_by(const struct frame *frame, uint16_t in, unsigned queue)
{
	const unsigned home = home_of(frame, in, queue);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {buffer_of(frame)};
	const uint16_t nb = firewall.process(burst, 1, in, (uint16_t)home);

	rte_pktmbuf_free_bulk(burst, nb);
	return nb == 1;
}

static bool passes(const struct frame *frame, uint16_t in)
{
	return passes_by(frame, in, (unsigned)(random64(&seed) % QUEUES));
}

static json_int_t counted(const char *object, const char *name)
{
	json_t *counters = json_object();
	json_int_t count;

	firewall.keeping->describe(counters);
	count = json_integer_value(json_object_get(json_object_get(counters, object), name));
	json_decref(counters);
	return count;
}

/* At both ports. */
static json_int_t filtered(const char *name)
{
	json_t *counters = json_object();
	json_int_t count = 0;

	firewall.keeping->describe(counters);
	for (unsigned port = 0; port < 2; port++)
		count += json_integer_value(
			json_object_get(json_array_get(json_object_get(counters, "filtered"), port), name));
	json_decref(counters);
	return count;
}

static void a_flow_and_its_answer_belong_where_the_switch_has_them(void **state)
{
	unsigned have[QUEUES] = {0};

	for (unsigned i = 0; i < FLOWS; i++) {
		const uint32_t to = SERVER + i % 7;
		const uint16_t from = (uint16_t)(1000 + i);
		const struct frame pairs[][2] = {
			{udp4(CLIENT, to, from, 53), udp4(to, CLIENT, 53, from)},
			{udp6(CLIENT, to, from, 53), udp6(to, CLIENT, 53, from)},
			{echo4(CLIENT, to, 8, from), echo4(to, CLIENT, 0, from)},
		};

		for (unsigned kind = 0; kind < RTE_DIM(pairs); kind++) {
			const unsigned home = home_of(&pairs[kind][0], 0, i % QUEUES);

			assert_int_equal(home_of(&pairs[kind][1], 1, i % 3), home);
			assert_int_equal(spread(&pairs[kind][0], QUEUES), home);
			assert_int_equal(spread(&pairs[kind][1], QUEUES), home);
			have[home]++;
		}
	}
	for (unsigned i = 0; i < QUEUES; i++)
		assert_in_range(have[i], FLOWS * 3 / QUEUES * 3 / 4, FLOWS * 3 / QUEUES * 5 / 4);
}

static void answers_pass_whatever_queue_they_come_by(void **state)
{
	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);
		const struct frame answers = udp4(SERVER, CLIENT, 53, (uint16_t)(1000 + i));

		assert_false(passes(&answers, 1));
		assert_true(passes(&asks, 0));
		assert_true(passes(&answers, 1));
	}
	assert_int_equal(counted("connections", "known"), FLOWS);
	assert_int_equal(counted("connections", "begun"), FLOWS);
	assert_int_equal(filtered("passed"), 2 * FLOWS);
	assert_int_equal(filtered("drop_rule"), FLOWS);
}

static void errors_belong_where_what_they_quote_does(void **state)
{
	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);
		const struct frame wrong = error4(SERVER + 9, CLIENT, &asks);

		assert_int_equal(home_of(&wrong, 1, 0), home_of(&asks, 0, 0));
		assert_false(passes(&wrong, 1));
		assert_true(passes(&asks, 0));
		assert_true(passes(&wrong, 1));
	}
	assert_int_equal(filtered("drop_unrelated"), FLOWS);
}

/* They come in by the queue of their addresses, which is that of few of the flows. */
static void fragments_belong_where_their_flow_does(void **state)
{
	for (unsigned i = 0; i < FLOWS; i++) {
		const uint16_t port = (uint16_t)(1000 + i), id = (uint16_t)i;
		const struct frame asks = udp4(CLIENT, SERVER, port, 53);
		const struct frame first = fragment4(SERVER, CLIENT, id, MORE | 0, 53, port);
		const struct frame later = fragment4(SERVER, CLIENT, id, 2, 53, port);
		const struct frame over = fragment4(SERVER, CLIENT, id, 1, 53, port);
		const unsigned queue = spread(&first, QUEUES);

		assert_int_equal(spread(&later, QUEUES), queue);
		assert_true(passes(&asks, 0));
		assert_false(passes_by(&later, 1, queue)); /* nobody knows where it belongs */
		assert_true(passes_by(&first, 1, queue));
		assert_true(passes_by(&later, 1, queue));
		assert_int_equal(home_of(&later, 1, queue), home_of(&asks, 0, 0));
		assert_false(passes_by(&over, 1, queue));
	}
	assert_int_equal(filtered("drop_fragment"), FLOWS);
	assert_int_equal(filtered("drop_overlap"), FLOWS);
	assert_int_equal(counted("connections", "known"), FLOWS);
}

static void what_has_no_flow_stays_where_it_came_in(void **state)
{
	struct frame frame;

	frame_macs(&frame, 255, 2);
	frame_add16(&frame, 0x0806);
	frame_add32(&frame, 0x00010800);
	frame_add32(&frame, 0x06040001);
	for (unsigned queue = 0; queue < QUEUES; queue++)
		assert_int_equal(home_of(&frame, 0, queue), queue);
	frame = udp4(CLIENT, SERVER, 1, 2);
	frame.length = 14 + 20 + 7; /* it ends within its ports' header */
	for (unsigned queue = 0; queue < QUEUES; queue++)
		assert_int_equal(home_of(&frame, 0, queue), queue);
}

static void what_does_not_hold_is_dropped_whatever_its_queue(void **state)
{
	struct frame frame = udp4(CLIENT, SERVER, 1, 2);
	const unsigned home = home_of(&frame, 0, 0);

	frame.bytes[24]++; /* its checksum */
	for (unsigned queue = 0; queue < QUEUES; queue++) {
		assert_int_equal(home_of(&frame, 0, queue), home);
		assert_false(passes_by(&frame, 0, queue));
	}
	assert_int_equal(filtered("drop_checksum"), QUEUES);
	assert_int_equal(counted("connections", "known"), 0);
}

static void there_are_as_many_as_were_asked_for_and_no_more(void **state)
{
	unsigned most = 0;

	for (unsigned i = 0; i < QUEUES; i++)
		most += firewalls[i].flows.most;
	assert_int_equal(most, 1001);
	assert_int_equal(counted("connections", "most"), 1001);
	for (unsigned i = 0; i < 20000; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)i, 53);

		assert_true(passes(&asks, 0)); /* one that nobody has answered gives way */
	}
	assert_in_range(counted("connections", "known"), 900, 1001);
	assert_int_equal(counted("connections", "known") + counted("connections", "gave_way"), 20000);
}

static void rules_count_what_all_queues_had(void **state)
{
	json_t *tables = json_object(), *rows;

	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);
		const struct frame denied = udp4(SERVER, CLIENT, 1, (uint16_t)i);

		assert_true(passes(&asks, 0));
		assert_false(passes(&denied, 1));
	}
	firewall.keeping->tables(tables, FLOWS);
	rows = json_object_get(json_object_get(tables, "rules"), "rows");
	for (unsigned row = 0; row < 2; row++) /* the default, and the rule */
		assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, row), "frames")), FLOWS);
	rows = json_object_get(tables, "connections");
	assert_int_equal(json_integer_value(json_object_get(rows, "total")), FLOWS);
	assert_int_equal(json_array_size(json_object_get(rows, "rows")), FLOWS);
	json_decref(tables);
}

/* ------- another instance, with other queues ------- */

static _Atomic bool forwards;

static void *forward_all(void *nb_queues)
{
	while (forwards)
		for (uint16_t queue = 0; queue < *(const unsigned *)nb_queues; queue++)
			for (uint16_t in = 0; in < 2; in++)
				firewall.process(NULL, 0, in, queue);
	return NULL;
}

/* What became of records: so many of this name. */
static json_int_t took(const char *records, unsigned nb_queues, const char *name)
{
	json_t *params = json_pack("{s:s}", "connections", records), *counts;
	struct control_error error;
	json_int_t count;
	pthread_t thread;

	forwards = true;
	assert_int_equal(pthread_create(&thread, NULL, forward_all, &nb_queues), 0);
	counts = handover_receive(firewall.keeping->handover, params, &error);
	forwards = false;
	pthread_join(thread, NULL);
	json_decref(params);
	assert_non_null(counts);
	count = json_integer_value(json_object_get(counts, name));
	json_decref(counts);
	return count;
}

static void another_instance_may_have_other_queues(void **state)
{
	static const unsigned others[] = {1, 3, QUEUES, FUNCTION_QUEUES, 2};
	struct control_error error;

	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);

		assert_true(passes(&asks, 0));
	}
	for (unsigned number = 0; number < RTE_DIM(others); number++) {
		json_t *params = json_object();
		json_t *page = handover_give(firewall.keeping->handover, params, &error);
		const char *records = json_string_value(json_object_get(page, "connections"));

		assert_int_equal(json_integer_value(json_object_get(page, "next")), 0);
		firewall.keeping->close();
		begin(others[number]);
		assert_int_equal(took(records, others[number], "taken"), FLOWS);
		assert_int_equal(took(records, others[number], "known"), FLOWS);
		assert_int_equal(took("", others[number], "taken"), 0);
		assert_int_equal(counted("connections", "known"), FLOWS);
		assert_int_equal(counted("handed_over", "taken"), FLOWS);
		for (unsigned i = 0; i < FLOWS; i++) {
			const struct frame answers = udp4(SERVER, CLIENT, 53, (uint16_t)(1000 + i));

			assert_true(passes_by(&answers, 1, spread(&answers, others[number])));
		}
		json_decref(params);
		json_decref(page);
	}
}

static unsigned stands_still;

static void *forward_but_one(void *nothing)
{
	while (forwards)
		for (uint16_t queue = 0; queue < QUEUES; queue++)
			if (queue != stands_still)
				firewall.process(NULL, 0, 0, queue);
	return NULL;
}

/* The first one, so that others would come after it. */
static void one_that_is_late_does_not_keep_the_others(void **state)
{
	struct control_error error = {0};
	json_t *params = json_object(), *page;
	json_int_t known;
	pthread_t thread;

	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);

		assert_true(passes(&asks, 0));
	}
	page = handover_give(firewall.keeping->handover, params, &error);
	known = firewalls[0].flows.used;
	firewall.keeping->close();
	begin(QUEUES);
	forwards = true;
	assert_int_equal(pthread_create(&thread, NULL, forward_but_one, NULL), 0);
	json_object_set(params, "connections", json_object_get(page, "connections"));
	assert_null(handover_receive(firewall.keeping->handover, params, &error));
	assert_non_null(strstr(error.message, "1 of 4 tables"));
	assert_non_null(strstr(error.message, "queue 0"));
	forwards = false;
	pthread_join(thread, NULL);
	assert_int_equal(counted("handed_over", "taken"), FLOWS - known);

	/* It comes later. */
	for (unsigned round = 0; round < FLOWS; round++)
		firewall.process(NULL, 0, 0, 0);
	assert_int_equal(counted("handed_over", "taken"), FLOWS);
	assert_int_equal(took(json_string_value(json_object_get(page, "connections")), QUEUES, "known"), FLOWS);
	json_decref(params);
	json_decref(page);
}

/* A page begins and ends in any table. */
static void pages_go_on_from_table_to_table(void **state)
{
	struct control_error error;
	json_int_t from = 1, entries = 0;

	for (unsigned i = 0; i < FLOWS; i++) {
		const struct frame asks = udp4(CLIENT, SERVER, (uint16_t)(1000 + i), 53);

		assert_true(passes(&asks, 0));
	}
	for (; from <= 1001; from += 100) {
		json_t *params = json_pack("{s:I}", "from", from);
		json_t *page = handover_give(firewall.keeping->handover, params, &error);
		const size_t length = json_string_length(json_object_get(page, "connections"));

		if (from == 1)
			entries = (json_int_t)(length / (2 * sizeof(struct handover_record)));
		else
			assert_true(length / (2 * sizeof(struct handover_record)) <= (size_t)entries);
		json_decref(params);
		json_decref(page);
	}
	assert_int_equal(entries, FLOWS);
}

/* ------- inboxes ------- */

static unsigned nb_woken;

void forward_wake_queue(struct forward *forward, unsigned queue)
{
	nb_woken++;
}

static struct forward forward;
static uint64_t now;

static void begin_to_forward_by(unsigned nb_queues)
{
	forward = (struct forward){.function = &firewall, .nb_queues = nb_queues, .interrupts = true};
	for (unsigned i = 0; i < nb_queues; i++)
		forward.lanes[i].owner = (int)i;
	nb_woken = 0;
	now = 1;
	assert_int_equal(inboxes_open(&forward), 0);
}

static void begin_to_forward(void)
{
	begin_to_forward_by(QUEUES);
}

static void pass_us(uint64_t us)
{
	now += rte_get_tsc_hz() / 1000000 * us;
}

/* Of so many flows in turn, numbered; returns how many were received. */
static unsigned receive_of(unsigned nb_flows, unsigned queue, unsigned number)
{
	struct rte_mbuf *burst[FORWARD_BURST];
	uint16_t nb_kept;

	if (!inboxes_take_more(&forward, (uint16_t)queue, 0, now))
		return 0;
	for (unsigned i = 0; i < FORWARD_BURST; i++) {
		const struct frame frame = udp4(CLIENT, SERVER, (uint16_t)((number + i) % nb_flows + 1000), 53);

		burst[i] = buffer_of(&frame);
		burst[i]->hash.usr = number + i;
	}
	nb_kept = inboxes_hand_on(&forward, (uint16_t)queue, 0, burst, FORWARD_BURST);
	for (uint16_t i = 1; i < nb_kept; i++)
		assert_true(burst[i]->hash.usr > burst[i - 1]->hash.usr);
	rte_pktmbuf_free_bulk(burst, nb_kept);
	return FORWARD_BURST;
}

/* Of flows of all queues. */
static unsigned receive(unsigned queue, unsigned number)
{
	return receive_of(500, queue, number);
}

/* Those of one queue come in order; `next` is NULL: they are of several.  Returns how many. */
static unsigned take_some(unsigned queue, unsigned *next)
{
	struct rte_mbuf *taken[INBOX_TAKEN];
	const uint16_t nb = inboxes_take(&forward, (uint16_t)queue, 0, taken, INBOX_TAKEN);

	for (uint16_t i = 0; next != NULL && i < nb; i++) {
		assert_true(taken[i]->hash.usr >= *next);
		*next = taken[i]->hash.usr + 1;
	}
	rte_pktmbuf_free_bulk(taken, nb);
	return nb;
}

static unsigned take_all(unsigned queue, unsigned *next)
{
	unsigned count = 0, nb;

	while ((nb = take_some(queue, next)) > 0)
		count += nb;
	return count;
}

static uint64_t dropped(void)
{
	return forward.lanes[1].counters[0].drop_busy;
}

static void frames_are_handed_on_in_order_and_none_is_lost(void **state)
{
	unsigned next[QUEUES] = {0}, number = 0, taken = 0;

	begin_to_forward();
	for (unsigned round = 0; round < 100; round++) {
		number += FORWARD_BURST;
		assert_int_equal(receive(1, number), FORWARD_BURST);
		for (unsigned queue = 0; queue < QUEUES; queue++)
			taken += take_all(queue, &next[queue]);
	}
	assert_int_equal(next[1], 0); /* its own stayed */
	assert_int_equal(taken, forward.lanes[1].counters[0].handed_on);
	assert_true(nb_woken >= 100);
	assert_int_equal(dropped(), 0);
	inboxes_close(&forward);
}

/* Fill what queue 2 has for queue 1; the others take theirs. */
static unsigned fill(unsigned next[QUEUES])
{
	unsigned number = 0;

	while (receive(1, number) > 0) {
		number += FORWARD_BURST;
		take_all(0, &next[0]);
		take_all(3, &next[3]);
	}
	assert_true(inboxes_waited_for(&forward, 1));
	assert_true(inboxes_waited_for(&forward, 2));
	assert_false(inboxes_waited_for(&forward, 0));
	assert_int_equal(dropped(), 0);
	return number;
}

static void who_stands_still_is_waited_for_and_not_for_ever(void **state)
{
	unsigned next[QUEUES] = {0}, number, others = 0;

	begin_to_forward();
	number = fill(next);
	pass_us(9000);
	assert_int_equal(receive(1, number), 0);
	for (unsigned from = 0; from < QUEUES; from++)
		if (from != 1)
			assert_int_equal(receive(from, number), FORWARD_BURST); /* they have room of their own */
	take_all(0, NULL);
	take_all(3, NULL);
	pass_us(2000);
	for (unsigned round = 0; round < 100; round++) { /* it still does */
		assert_int_equal(receive(1, number += FORWARD_BURST), FORWARD_BURST);
		others += take_all(0, NULL) + take_all(3, NULL);
	}
	assert_true(others > 1000 && dropped() > 500);
	pass_us(60 * 1000 * 1000);
	assert_int_equal(receive(1, number += FORWARD_BURST), FORWARD_BURST); /* nor does it cost anything later */
	inboxes_close(&forward);					      /* what nobody has taken */
	assert_true(forward.lanes[2].counters[0].drop_full > 0);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

static void who_has_too_much_costs_flows_of_other_queues_nothing(void **state)
{
	unsigned next[QUEUES] = {0}, number, taken = 0, others = 0;
	uint64_t before;

	begin_to_forward();
	number = fill(next);
	/* It may be able to take it later: that is waited for. */
	for (unsigned round = 0; round < 1000 / 20; round++) {
		pass_us(20);
		if (round % 4 == 0)
			take_some(2, &next[2]);
		number += receive(1, number + FORWARD_BURST);
		take_all(0, &next[0]);
		take_all(3, &next[3]);
	}
	assert_int_equal(dropped(), 0);
	pass_us(20);
	take_some(2, &next[2]);
	before = forward.lanes[1].counters[0].handed_on;
	for (unsigned round = 0; round < 1000; round++) {
		pass_us(20);
		if (round % 4 == 0)
			taken += take_some(2, &next[2]);
		assert_int_equal(receive(1, number += FORWARD_BURST), FORWARD_BURST);
		others += take_all(0, &next[0]) + take_all(3, &next[3]);
	}
	assert_true(taken > 1000 && dropped() > 1000);
	assert_in_range(others, 1000 * FORWARD_BURST / 3, 1000 * FORWARD_BURST * 2 / 3);
	assert_in_range(forward.lanes[1].counters[0].handed_on - before, taken + others - INBOX_LEAST * 2,
			taken + others + INBOX_LEAST * 2);

	/* As soon as it does not run, it is waited for again. */
	pass_us(200);
	assert_int_equal(receive(1, number), 0);
	inboxes_close(&forward);
}

/* It is longer than the inbox, and comes in twice as fast as its reader takes it, once that runs. */
static void a_burst_of_one_flow_is_waited_for(void **state)
{
	enum { MANY = 5, LENGTH = 256, ROUND = 10 };
	static const unsigned asleep[] = {0, 100, 250, 400, 5000}; /* us, until its reader runs */
	static const unsigned pauses[] = {400, 2000, 50000};	   /* us, until the next one */
	const struct frame one = udp4(CLIENT, SERVER, 1000, 53);
	unsigned next[MANY] = {0}, number = 0, taken = 0, sent = 0, home, from;

	firewall.keeping->close();
	begin(MANY);
	home = spread(&one, MANY);
	from = (home + 1) % MANY;
	begin_to_forward_by(MANY);
	for (unsigned i = 0; i < 4 * RTE_DIM(asleep) * RTE_DIM(pauses); i++) {
		unsigned left = LENGTH;

		for (unsigned us = 0; taken < sent + LENGTH; us += ROUND) {
			assert_true(us < 100000);
			if (left > 0) {
				const unsigned nb = receive_of(1, from, number);

				number += nb;
				left -= nb;
			}
			if (us >= asleep[i % RTE_DIM(asleep)])
				taken += take_some(home, &next[home]);
			assert_int_equal(forward.lanes[from].counters[0].drop_busy, 0);
			pass_us(ROUND);
		}
		sent += LENGTH;
		pass_us(pauses[i / RTE_DIM(asleep) % RTE_DIM(pauses)]);
	}
	inboxes_close(&forward);
}

static void one_thread_with_both_queues_takes_before_it_receives_more(void **state)
{
	unsigned next[QUEUES] = {0}, number;

	begin_to_forward();
	forward.lanes[2].owner = 1;
	number = fill(next);
	for (unsigned round = 0; round < 1000; round++) {
		pass_us(20);
		take_some(2, &next[2]);
		receive(1, number += FORWARD_BURST);
		take_all(0, &next[0]);
		take_all(3, &next[3]);
	}
	assert_int_equal(dropped(), 0);
	inboxes_close(&forward);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_flow_and_its_answer_belong_where_the_switch_has_them),
		TEST(answers_pass_whatever_queue_they_come_by),
		TEST(errors_belong_where_what_they_quote_does),
		TEST(fragments_belong_where_their_flow_does),
		TEST(what_has_no_flow_stays_where_it_came_in),
		TEST(what_does_not_hold_is_dropped_whatever_its_queue),
		TEST(there_are_as_many_as_were_asked_for_and_no_more),
		TEST(rules_count_what_all_queues_had),
		TEST(another_instance_may_have_other_queues),
		TEST(one_that_is_late_does_not_keep_the_others),
		TEST(pages_go_on_from_table_to_table),
		TEST(frames_are_handed_on_in_order_and_none_is_lost),
		TEST(who_stands_still_is_waited_for_and_not_for_ever),
		TEST(who_has_too_much_costs_flows_of_other_queues_nothing),
		TEST(a_burst_of_one_flow_is_waited_for),
		TEST(one_thread_with_both_queues_takes_before_it_receives_more),
	};

	pool = start_dpdk_with_pool(256, 1024);
	if (pool == NULL || grace_open() != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
