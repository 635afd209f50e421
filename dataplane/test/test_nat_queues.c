/* SPDX-License-Identifier: Apache-2.0
 *
 * The NAT with several queues: whatever queue a frame comes by, it leaves as with one; all queues have the pool in
 * common, and inside hosts of different queues reach each other by it.
 */
#include "test/segments.h"

#include <pthread.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "functions/function.h"
#include "functions/nat.h"
#include "functions/nat_handover.h"
#include "test/start_dpdk.h"
#include "test/translated.h"

enum { QUEUES = 4, HOSTS = 64, HOST = 0x0a000100, SERVER = 0xc0000201, POOL = 0xc6336400, FORWARDED = POOL + 1 };
enum { FORWARD_TO = 0x0a000009, MORE_FRAGMENTS = 0x2000 };

static struct rte_mempool *pool;
static uint64_t seed;
static unsigned nb_queues;

static unsigned nb_woken[FUNCTION_QUEUES];

static void count_wake(void *nothing, unsigned queue)
{
	nb_woken[queue]++;
}

static int begin(unsigned queues)
{
	static bool told;

	nb_queues = queues;
	if (!told) {
		assert_null(nat.set("connections", "4096"));
		assert_null(nat.set("pool", "198.51.100.0/31"));
		assert_null(nat.set("inside", "10.0.0.0/8"));
		assert_null(nat.set("block", "1024"));
		assert_null(nat.set("host-connections", "1024"));
		assert_null(nat.set("forwards", "tcp:198.51.100.1:80:10.0.0.9:8080,udp:198.51.100.1:2000:10.0.0.9:53"));
		told = true;
	}
	return nat.keeping->open(
		&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = queues, .wake = count_wake});
}

static int start(void **state)
{
	seed = 1;
	return begin(QUEUES);
}

static int end(void **state)
{
	nat.keeping->close();
	return rte_mempool_in_use_count(pool) != 0;
}

/* Frames that wait to leave by the port where they came in; returns how many. */
static uint16_t leave(struct rte_mbuf **burst)
{
	uint16_t nb_out = 0;

	for (uint16_t queue = 0; queue < nb_queues; queue++)
		nb_out += nat.process(burst + nb_out, 0, 1, queue);
	return nb_out;
}

/* Let a frame in by a queue; what leaves takes its place.  Returns whether it does. */
static bool passes_by(struct frame *frame, uint16_t in, unsigned queue)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf_of(frame, pool)};
	uint8_t home = 0;
	uint16_t nb_out;

	if (nb_queues > 1)
		nat.homes(burst, 1, in, (uint16_t)queue, &home);
	nb_out = nat.process(burst, 1, in, home);
	if (nb_out == 0)
		nb_out = leave(burst);
	if (nb_out == 0)
		return false;
	assert_int_equal(nb_out, 1);
	take_back(frame, burst[0]);
	return true;
}

static bool passes(struct frame *frame, uint16_t in)
{
	return passes_by(frame, in, (unsigned)(random64(&seed) % nb_queues));
}

static json_int_t counted(const char *object, const char *name)
{
	json_t *counters = json_object();
	json_int_t count;

	nat.keeping->describe(counters);
	count = json_integer_value(json_object_get(json_object_get(counters, object), name));
	json_decref(counters);
	return count;
}

static json_int_t translated(unsigned port, const char *name)
{
	json_t *counters = json_object();
	json_int_t count;

	nat.keeping->describe(counters);
	count = json_integer_value(
		json_object_get(json_array_get(json_object_get(counters, "translated"), port), name));
	json_decref(counters);
	return count;
}

static void answers_come_to_who_asked(void **state)
{
	unsigned have[QUEUES] = {0};

	for (unsigned i = 0; i < HOSTS; i++) {
		const struct seen one = sent(udp(HOST + i, 2000, SERVER, 53), 0);
		const struct seen same = sent(udp(HOST + i, 2000, SERVER + 1, 54), 0);
		const struct seen tcp_one = sent(tcp(HOST + i, 3000, SERVER, 80, 2), 0);
		const struct seen echo = sent(icmp(HOST + i, SERVER, 8, 77), 0);
		struct seen back;

		assert_true(one.source == same.source && one.from == same.from); /* RFC 4787, REQ-1 */
		assert_int_equal(tcp_one.source, one.source);			 /* and REQ-2 */
		back = sent(udp(SERVER, 53, one.source, one.from), 1);
		assert_true(back.destination == HOST + i && back.to == 2000);
		back = sent(tcp(SERVER, 80, tcp_one.source, tcp_one.from, 18), 1);
		assert_true(back.destination == HOST + i && back.to == 3000);
		back = sent(icmp(SERVER, echo.source, 0, echo.from), 1);
		assert_true(back.destination == HOST + i && back.to == 77);
		have[nat_table_home(HOST + i, QUEUES)]++;
	}
	for (unsigned i = 0; i < QUEUES; i++)
		assert_true(have[i] > 0 && nats[i].flows.used == 4 * have[i]);
	assert_int_equal(counted("connections", "known"), 4 * HOSTS);
	assert_int_equal(counted("mappings", "known"), 3 * HOSTS + 2);
	assert_int_equal(counted("blocks", "taken"), HOSTS);
	assert_int_equal(translated(0, "passed"), 4 * HOSTS);
	assert_int_equal(translated(1, "passed"), 3 * HOSTS);
}

static void no_two_hosts_have_a_block(void **state)
{
	json_t *tables = json_object(), *rows, *row;
	bool had[2 * 63] = {false};
	unsigned passed = 0;
	size_t i;

	for (unsigned host = 0; host < 200; host++) {
		struct frame frame = udp(HOST + host, 2000, SERVER, 53);

		passed += passes(&frame, 0);
	}
	assert_int_equal(passed, 2 * 63); /* all there are, whatever queues their hosts have */
	assert_int_equal(translated(0, "drop_no_ports"), 200 - 2 * 63);
	nat.keeping->tables(tables, 1000);
	rows = json_object_get(json_object_get(tables, "blocks"), "rows");
	assert_int_equal(json_array_size(rows), 2 * 63);
	json_array_foreach (rows, i, row) {
		const json_int_t first = json_integer_value(json_object_get(row, "first"));
		const char *outside = json_string_value(json_object_get(row, "outside"));
		const size_t at = (size_t)(first / 1024 - 1) + (strcmp(outside, "198.51.100.1") == 0 ? 63 : 0);

		assert_false(had[at]);
		had[at] = true;
		assert_int_equal(json_integer_value(json_object_get(row, "ports")), 1);
		assert_memory_equal(json_string_value(json_object_get(row, "host")), "10.0.1.", 7);
	}
	json_decref(tables);
}

static void forwards_lead_to_the_queue_of_their_host(void **state)
{
	const struct seen web = sent(tcp(SERVER, 999, FORWARDED, 80, 2), 1);
	const struct seen names = sent(udp(SERVER, 999, FORWARDED, 2000), 1);
	struct seen back;

	assert_true(web.destination == FORWARD_TO && web.to == 8080);
	assert_true(names.destination == FORWARD_TO && names.to == 53);
	back = sent(tcp(FORWARD_TO, 8080, SERVER, 999, 18), 0);
	assert_true(back.source == FORWARDED && back.from == 80);
}

static void inside_reaches_inside_of_another_queue(void **state)
{
	unsigned across = 0;

	for (unsigned i = 1; i < HOSTS; i++) {
		const struct seen there = sent(udp(HOST, 2000, SERVER, 53), 0);
		const struct seen here = sent(udp(HOST + i, 3000, SERVER, 53), 0);
		struct frame frame = udp(HOST + i, 3000, there.source, there.from);
		struct seen seen = through(&frame, 0);

		across += nat_table_home(HOST, QUEUES) != nat_table_home(HOST + i, QUEUES);
		assert_true(seen.destination == HOST && seen.to == 2000);
		assert_true(seen.source == here.source && seen.from == here.from);
		assert_int_equal(frame.bytes[5], 2); /* to the station that HOST sent from */
		assert_int_equal(frame.bytes[11], 1);
		seen = sent(udp(HOST, 2000, here.source, here.from), 0);
		assert_true(seen.destination == HOST + i && seen.to == 3000);
		assert_true(seen.source == there.source && seen.from == there.from);
	}
	assert_in_range(across, 1, HOSTS - 2);
	assert_int_equal(translated(0, "hairpinned"), 2 * (HOSTS - 1));
	assert_int_equal(translated(0, "passed"), 2 * (HOSTS - 1));
	assert_int_equal(translated(0, "drop_spoofed"), 0);
}

static void who_gets_them_is_woken_once_for_a_burst(void **state)
{
	const struct seen there = sent(udp(HOST, 2000, SERVER, 53), 0);
	const unsigned home = nat_table_home(HOST, QUEUES);
	struct rte_mbuf *burst[FUNCTION_ROOM];
	unsigned other = 1;

	while (nat_table_home(HOST + other, QUEUES) == home)
		other++;
	for (unsigned i = 0; i < 8; i++) {
		const struct frame frame = udp(HOST + other, 3000, there.source, there.from);

		burst[i] = mbuf_of(&frame, pool);
	}
	memset(nb_woken, 0, sizeof(nb_woken));
	assert_int_equal(nat.process(burst, 8, 0, (uint16_t)nat_table_home(HOST + other, QUEUES)), 0);
	for (unsigned queue = 0; queue < QUEUES; queue++)
		assert_int_equal(nb_woken[queue], queue == home);
	assert_int_equal(leave(burst), 8);
	rte_pktmbuf_free_bulk(burst, 8);
}

static void so_do_fragments_and_errors(void **state)
{
	for (unsigned i = 1; i < HOSTS; i++) {
		const struct seen there = sent(udp(HOST, 2000, SERVER, 53), 0);
		struct frame first, later, about, wrong;
		struct seen seen, here;

		first = fragment(HOST + i, there.source, MORE_FRAGMENTS);
		memcpy(payload_of(&first) + 2, &(uint16_t){htons(there.from)}, 2);
		finish(&first);
		later = fragment(HOST + i, there.source, 2);
		assert_true(passes_by(&first, 0, 1));
		assert_int_equal(ntohl(ip_of(&first)->dst_addr), HOST);
		assert_true(passes_by(&later, 0, 1));
		assert_int_equal(ip_of(&later)->dst_addr, ip_of(&first)->dst_addr);
		assert_int_equal(ip_of(&later)->src_addr, ip_of(&first)->src_addr);
		assert_int_equal(later.bytes[5], 2);

		/* HOST answers with an error, which goes to who sent it, at its address inside. */
		here = sent(udp(HOST + i, 3000, SERVER, 53), 0);
		about = udp(HOST + i, 3000, there.source, there.from);
		through(&about, 0);
		wrong = error(HOST, here.source, &about, 28);
		seen = through(&wrong, 0);
		assert_int_equal(seen.destination, HOST + i);
		assert_int_equal(seen.source, there.source);
		assert_int_equal(ntohl(quoted_in(&wrong)->src_addr), HOST + i);
		assert_int_equal(ntohl(quoted_in(&wrong)->dst_addr), there.source);
	}
}

static void errors_from_outside_come_to_who_sent(void **state)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		struct frame about = udp(HOST + i, 2000, SERVER, 53), wrong;
		const struct seen out = through(&about, 0);
		struct seen in;

		wrong = error(SERVER + 5, out.source, &about, 28);
		in = through(&wrong, 1);
		assert_int_equal(in.destination, HOST + i);
		assert_int_equal(ntohl(quoted_in(&wrong)->src_addr), HOST + i);
	}
}

static void answers_in_fragments_come_to_who_asked(void **state)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		const struct seen out = sent(udp(HOST + i, 2000, SERVER, 53), 0);
		struct frame first = fragment(SERVER, out.source, MORE_FRAGMENTS),
			     later = fragment(SERVER, out.source, 2);

		memcpy(payload_of(&first), &(uint16_t){htons(53)}, 2);
		memcpy(payload_of(&first) + 2, &(uint16_t){htons(out.from)}, 2);
		finish(&first);
		assert_true(passes_by(&first, 1, 2));
		assert_int_equal(ntohl(ip_of(&first)->dst_addr), HOST + i);
		assert_true(passes_by(&later, 1, 2));
		assert_int_equal(ntohl(ip_of(&later)->dst_addr), HOST + i);
	}
}

/* A quarter of all, and so of its table. */
static void a_host_leaves_room_to_others_of_its_queue(void **state)
{
	unsigned passed = 0, other = 1;

	while (nat_table_home(HOST + other, QUEUES) != nat_table_home(HOST, QUEUES))
		other++;
	for (unsigned i = 0; i < 4000; i++) {
		struct frame frame = udp(HOST, 2000, SERVER + i, 53);

		passed += passes(&frame, 0);
	}
	assert_int_equal(passed, 1024 / QUEUES);
	assert_int_equal(translated(0, "drop_host_connections"), 4000 - passed);
	for (unsigned i = 0; i < 200; i++)
		sent(udp(HOST + other, 2000, SERVER + i, 53), 0);
}

/* ------- another instance, with other queues ------- */

static _Atomic bool forwards;

static void *forward_all(void *nothing)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];

	while (forwards)
		leave(burst);
	return NULL;
}

static json_int_t took(const char *records, const char *name)
{
	json_t *params = json_pack("{s:s}", "connections", records), *counts;
	struct control_error error;
	json_int_t count;
	pthread_t thread;

	forwards = true;
	assert_int_equal(pthread_create(&thread, NULL, forward_all, NULL), 0);
	counts = handover_receive(&nat_handover, params, &error);
	forwards = false;
	pthread_join(thread, NULL);
	json_decref(params);
	assert_non_null(counts);
	count = json_integer_value(json_object_get(counts, name));
	json_decref(counts);
	return count;
}

static void connections_keep_their_addresses_with_other_queues(void **state)
{
	static const unsigned others[] = {1, 3, FUNCTION_QUEUES, 2};
	struct control_error error;
	struct seen out[HOSTS];

	for (unsigned i = 0; i < HOSTS; i++) {
		out[i] = sent(udp(HOST + i, 2000, SERVER, 53), 0);
		sent(udp(HOST + i, 2000, SERVER + 1, 53), 0);
	}
	for (unsigned number = 0; number < RTE_DIM(others); number++) {
		json_t *params = json_object(), *page = handover_give(&nat_handover, params, &error);
		const char *records = json_string_value(json_object_get(page, "connections"));

		assert_int_equal(json_integer_value(json_object_get(page, "next")), 0);
		nat.keeping->close();
		assert_int_equal(begin(others[number]), 0);
		assert_int_equal(took(records, "taken"), 2 * HOSTS);
		assert_int_equal(took(records, "known"), 2 * HOSTS);
		assert_int_equal(counted("blocks", "taken"), HOSTS);
		for (unsigned i = 0; i < HOSTS; i++) {
			const struct seen in = sent(udp(SERVER, 53, out[i].source, out[i].from), 1);
			const struct seen again = sent(udp(HOST + i, 2000, SERVER, 53), 0);

			assert_true(in.destination == HOST + i && in.to == 2000);
			assert_true(again.source == out[i].source && again.from == out[i].from);
		}
		json_decref(params);
		json_decref(page);
	}
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(answers_come_to_who_asked),
		TEST(no_two_hosts_have_a_block),
		TEST(forwards_lead_to_the_queue_of_their_host),
		TEST(inside_reaches_inside_of_another_queue),
		TEST(who_gets_them_is_woken_once_for_a_burst),
		TEST(so_do_fragments_and_errors),
		TEST(errors_from_outside_come_to_who_sent),
		TEST(answers_in_fragments_come_to_who_asked),
		TEST(a_host_leaves_room_to_others_of_its_queue),
		TEST(connections_keep_their_addresses_with_other_queues),
	};

	pool = start_dpdk_with_pool(512, 512);
	return pool == NULL ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
