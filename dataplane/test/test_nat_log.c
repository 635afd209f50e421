/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a NAT's blocks, read back from the file that is standard error meanwhile: a line for each event, what was
 * overrun, how many in a second; and copies of events while others are written.
 */
#include "test/cmocka_all.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <netinet/in.h>

#include "functions/nat_blocks.h"
#include "functions/nat_log.h"
#include "steer/parse.h"
#include "test/start_dpdk.h"

enum { INSIDE = 0x0a000000, POOL = 0xc6336400, BLOCKS = 2016, TEXT = 4 << 20, NEVER = 1 << 30 };

static const struct nat_settings settings = {
	.pool = {.nb = 1, .addresses = 2, .list = {{.address = POOL, .mask = 0xfffffffe}}},
	.inside = {.nb = 1, .list = {{.address = INSIDE, .mask = 0xff000000}}},
	.block = 64,
	.blocks = 16,
	.host_connections = NEVER,
};
static struct nat_pool pool;
static struct nat_table table;
static struct nat_log block_log;
static int said = -1;
static char text[TEXT];

static int start(void **state)
{
	if (nat_pool_open(&pool, &settings, 1) != 0 || nat_table_open(&table, &pool, 0, 4 * BLOCKS) != 0)
		return -1;
	table.hold = 0;
	nat_log_begin(&block_log, &pool, 1000);
	said = memfd_create("log", MFD_CLOEXEC);
	return said < 0 ? -1 : 0;
}

static int end(void **state)
{
	nat_table_close(&table);
	nat_pool_close(&pool);
	close(said);
	return 0;
}

/* What is logged meanwhile is added to the file. */
#define saying(statement)                                       \
	do {                                                    \
		const int before_ = dup(STDERR_FILENO);         \
		assert_true(dup2(said, STDERR_FILENO) >= 0);    \
		statement;                                      \
		assert_true(dup2(before_, STDERR_FILENO) >= 0); \
		close(before_);                                 \
	} while (0)

/* All lines until now, which are then forgotten. */
static const char *lines(void)
{
	const off_t size = lseek(said, 0, SEEK_END);

	assert_true(size >= 0 && size < TEXT);
	assert_int_equal(pread(said, text, (size_t)size, 0), size);
	text[size] = '\0';
	assert_int_equal(ftruncate(said, 0), 0);
	assert_int_equal(lseek(said, 0, SEEK_SET), 0);
	return text;
}

static unsigned count(const char *in, const char *word)
{
	unsigned nb = 0;

	for (; (in = strstr(in, word)) != NULL; in++)
		nb++;
	return nb;
}

static struct nat_mapping *hold(uint32_t host, uint16_t port, uint32_t tags)
{
	const struct nat_end end = {.address = INSIDE + host, .port = port, .protocol = IPPROTO_UDP, .tags = tags};
	enum verdict why;
	struct nat_mapping *mapping = nat_table_hold(&table, &end, &why);

	assert_non_null(mapping);
	return mapping;
}

/* Two events: a host has a block and gives it back. */
static void come_and_go(uint32_t host)
{
	nat_table_release(&table, hold(host, 2000, 0), 0);
	nat_table_sweep(&table, 1);
}

/* ------- lines ------- */

static void each_event_is_a_line(void **state)
{
	const struct nat_mapping *mapping = hold(2, 2000, 0);
	const unsigned first = NAT_FIRST_PORT + (mapping->outside_port - NAT_FIRST_PORT) / 64 * 64;
	char expected[128];
	const char *found;

	saying(nat_log_write(&block_log, 2000));
	found = lines();
	assert_int_equal(count(found, "\n"), 2);
	assert_non_null(strstr(found, "Z begins\n"));
	snprintf(expected, sizeof(expected), "Z assigned 10.0.0.2 198.51.100.%u %u-%u 1\n", mapping->outside & 255,
		 first, first + 63);
	assert_non_null(strstr(found, expected));
	assert_non_null(strstr(found, " info: blocks: 20"));

	nat_table_release(&table, (struct nat_mapping *)(uintptr_t)mapping, 0);
	nat_table_sweep(&table, 1);
	saying(nat_log_write(&block_log, 3000));
	found = lines();
	snprintf(expected, sizeof(expected), "Z released 10.0.0.2 198.51.100.%u %u-%u 2\n", mapping->outside & 255,
		 first, first + 63);
	assert_non_null(strstr(found, expected));
	assert_int_equal(count(found, "\n"), 1);
	saying(nat_log_write(&block_log, 4000));
	assert_string_equal(lines(), "");
}

static void a_vlan_is_said(void **state)
{
	hold(2, 2000, (uint32_t)(HEADERS_VLAN | 5) << 16);
	hold(2, 2000, (uint32_t)(HEADERS_VLAN | 5) << 16 | HEADERS_VLAN | 7);
	saying(nat_log_write(&block_log, 2000));
	lines();
	assert_non_null(strstr(text, " 1 vlan 5\n"));
	assert_non_null(strstr(text, " 2 vlan 5 7\n"));
}

static void a_block_that_was_handed_over_is_kept(void **state)
{
	const struct nat_end end = {.address = INSIDE + 3, .port = 2000, .protocol = IPPROTO_UDP};
	enum verdict why;

	assert_non_null(nat_table_hold_this(&table, &end, POOL + 1, 40000, true, &why));
	saying(nat_log_write(&block_log, 2000));
	assert_non_null(strstr(lines(), "Z kept 10.0.0.3 198.51.100.1 40000-40063 1\n"));
}

static void the_end_is_a_line_after_all_others(void **state)
{
	hold(2, 2000, 0);
	saying(nat_log_end(&block_log));
	lines();
	assert_int_equal(count(text, "\n"), 3);
	assert_true(strstr(text, " begins\n") < strstr(text, " assigned "));
	assert_true(strstr(text, " assigned ") < strstr(text, " ends\n"));
}

/* ------- bounds ------- */

static void there_are_so_many_in_a_second(void **state)
{
	for (uint32_t host = 1; host <= NAT_LOG_A_SECOND; host++)
		come_and_go(host); /* twice as many events */
	saying(nat_log_write(&block_log, 1500));
	assert_int_equal(count(lines(), " 10.0."), NAT_LOG_A_SECOND / 2);
	saying(nat_log_write(&block_log, 1500));
	assert_int_equal(count(lines(), " 10.0."), 0);
	/* Time without lines is not saved up beyond a second. */
	saying(nat_log_write(&block_log, 60000));
	assert_int_equal(count(lines(), " 10.0."), NAT_LOG_A_SECOND);
	saying(nat_log_write(&block_log, 61000));
	assert_int_equal(count(lines(), " 10.0."), NAT_LOG_A_SECOND / 2);
	assert_int_equal(count(text, "left out"), 0);
}

static void all_blocks_taken_at_once_are_not_too_many(void **state)
{
	for (uint32_t host = 1; host <= BLOCKS; host++)
		hold(host, 2000, 0);
	assert_int_equal(pool.left, 0);
	saying(nat_log_end(&block_log));
	assert_int_equal(count(lines(), " assigned "), BLOCKS);
	assert_int_equal(count(text, "left out"), 0);
}

static void what_was_overrun_is_counted(void **state)
{
	const unsigned more = 100, room = pool.most_events;
	char expected[64];

	assert_int_equal(room, BLOCKS + NAT_EVENTS);
	for (uint32_t i = 0; i < (room + more) / 2; i++)
		come_and_go(1 + i % 2);
	/* One place is the next event's. */
	snprintf(expected, sizeof(expected), "Z left out %u (1-%u)\n", more + 1, more + 1);
	saying(nat_log_write(&block_log, 2000));
	assert_non_null(strstr(lines(), expected));
	assert_non_null(strstr(text, "warning: blocks: "));
	assert_int_equal(count(text, " 10.0."), NAT_LOG_A_SECOND - 1);
	snprintf(expected, sizeof(expected), " %u\n", more + 2);
	assert_non_null(strstr(text, expected));
	saying(nat_log_end(&block_log));
	assert_int_equal(count(lines(), " 10.0."), room - 1 - (NAT_LOG_A_SECOND - 1));
	assert_int_equal(count(text, "left out"), 0);
}

/* ------- copies meanwhile ------- */

static _Atomic bool enough;
static cpu_set_t cpus; /* of before DPDK, which has one */

static void come_and_go_in_turn(void)
{
	come_and_go(1 + (uint32_t)(pool.nb_events / 2 % 200));
}

static void *come_and_go_on(void *nothing)
{
	sched_setaffinity(0, sizeof(cpus), &cpus);
	while (!enough)
		come_and_go_in_turn();
	return NULL;
}

/* An event of an odd number assigns, and the next one is of the same host and releases. */
static void no_copy_is_of_two_events(void **state)
{
	enum { COPIES = 200000 };
	struct nat_event event;
	unsigned nb_copies = 0;
	pthread_t thread;

	while (pool.nb_events < pool.most_events)
		come_and_go_in_turn();
	enough = false;
	assert_int_equal(pthread_create(&thread, NULL, come_and_go_on, NULL), 0);
	for (unsigned i = 0; nb_copies < COPIES; i++) {
		const uint64_t number = nat_pool_oldest(&pool) + i % 3;

		if (!nat_pool_event(&pool, number, &event))
			continue;
		nb_copies++;
		if (event.number != number || event.kind != (number % 2 ? NAT_EVENT_assigned : NAT_EVENT_released) ||
		    event.inside != INSIDE + 1 + (number - 1) / 2 % 200)
			break;
	}
	enough = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(nb_copies, COPIES);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(each_event_is_a_line),
		TEST(a_vlan_is_said),
		TEST(a_block_that_was_handed_over_is_kept),
		TEST(the_end_is_a_line_after_all_others),
		TEST(there_are_so_many_in_a_second),
		TEST(all_blocks_taken_at_once_are_not_too_many),
		TEST(what_was_overrun_is_counted),
		TEST(no_copy_is_of_two_events),
	};

	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || start_dpdk(64) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
