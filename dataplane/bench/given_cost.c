/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-given-cost [CONNECTIONS]: what a frame of a known connection costs in a firewall while another thread gives
 * its connections to a standby: as the service asks for them (what has changed, every 100 ms, and a page of what was
 * seen), and page after page without a rest, which is the worst that it can be asked.  In turn, with nobody asking; a
 * figure is the median of rounds.  The asking thread runs on another CPU.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "cost_ports.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "functions/handover.h"
#include "random_lines.h"
#include "rule_set.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum {
	DEFAULT_CONNECTIONS = 100000,
	MOST_CONNECTIONS = 4000000,
	FRAMES = 8191, /* packet buffers */
	BURST = COST_BURST,
	PASSES = 64,   /* bursts in a round */
	TURNS = 10,    /* of each mode */
	TURN_MS = 500, /* five rounds of the service's */
	ROUNDS = 1 << 16,
	SERVER = 0x09000001,   /* 9.0.0.1, in the machine's order */
	CLIENTS = 0x0b000000u, /* 11.0.0.0 and on */
};

enum mode { ALONE, KEPT, WITHOUT_REST, NB_MODES };

static const char *const names[NB_MODES] = {"nobody asks", "a standby is kept in step", "page after page"};
static double found[NB_MODES][ROUNDS]; /* cycles a frame */
static unsigned nb_found[NB_MODES];
static _Atomic int mode;
static _Atomic bool ends;
static _Atomic uint64_t pages, records;
static struct frame *sent;
static uint8_t received[BURST][64];
static uint32_t connections = DEFAULT_CONNECTIONS;

/* ------- who asks ------- */

/* Returns where the next page begins. */
static json_int_t ask_for_page(const char *which, json_int_t tick, json_int_t from, json_int_t *began)
{
	json_t *params = json_pack("{s:I}", "from", from), *page;
	struct control_error error;
	json_int_t next;

	if (which != NULL)
		json_object_set_new(params, which, json_integer(tick));
	page = handover_give(firewall.keeping->handover, params, &error);
	json_decref(params);
	next = json_integer_value(json_object_get(page, "next"));
	if (from == 1)
		*began = json_integer_value(json_object_get(page, "tick"));
	pages++;
	records += json_string_length(json_object_get(page, "connections")) / 2 / sizeof(struct handover_record);
	json_decref(page);
	return next;
}

static void *ask(void *context)
{
	static const struct timespec period = {.tv_nsec = 100000000}, shortly = {.tv_nsec = 1000000};
	json_int_t changed = connections_tick(rte_rdtsc()), from = 1, seen = 1, ignored;

	while (!ends) {
		if (mode == ALONE) {
			nanosleep(&shortly, NULL);
		} else if (mode == KEPT) {
			for (from = 1; from != 0;)
				from = ask_for_page("changed", changed, from, &changed);
			seen = ask_for_page(NULL, 0, seen > 0 ? seen : 1, &ignored);
			nanosleep(&period, NULL);
		} else {
			from = ask_for_page(NULL, 0, from > 0 ? from : 1, &ignored);
		}
	}
	return NULL;
}

/* On all CPUs that the program was given but the one that forwards. */
static void run_elsewhere(pthread_t thread, cpu_set_t *given, int own)
{
	CPU_CLR(own, given);
	if (CPU_COUNT(given) == 0 || pthread_setaffinity_np(thread, sizeof(*given), given) != 0) {
		fprintf(stderr, "there is one CPU; expected two\n");
		exit(1);
	}
}

/* ------- frames ------- */

static uint64_t forward(void)
{
	uint16_t nb_out;
	const uint64_t cycles = cost_ports_pass(&firewall, 0, sent, received, &nb_out);

	if (nb_out < BURST - 2) { /* some may find their bucket full */
		fprintf(stderr, "only %u of %u frames left\n", nb_out, BURST);
		exit(1);
	}
	return cycles;
}

static void address(struct frame *frame, uint32_t connection)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + 14);

	header->src_addr = rte_cpu_to_be_32(CLIENTS + connection);
	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

static void begin_connections(void)
{
	for (uint32_t at = 0; at + BURST <= connections; at += BURST) {
		for (unsigned i = 0; i < BURST; i++)
			address(&sent[i], at + i);
		forward();
	}
}

static double pass(uint64_t *seed)
{
	uint64_t cycles = 0;

	for (unsigned i = 0; i < PASSES; i++) {
		for (unsigned j = 0; j < BURST; j++)
			address(&sent[j], (uint32_t)(random64(seed) % connections));
		cycles += forward();
	}
	return (double)cycles / PASSES / BURST;
}

static void take_turn(enum mode turn, uint64_t *seed)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * TURN_MS;

	mode = turn;
	while (rte_rdtsc() < end && nb_found[turn] < ROUNDS)
		found[turn][nb_found[turn]++] = pass(seed);
}

static int in_order(const void *one, const void *other)
{
	const double *first = one, *second = other;

	return (*first > *second) - (*first < *second);
}

/* ------- all ------- */

static int open_firewall(struct rte_mempool *pool)
{
	struct control_error error;
	char text[16];
	json_t *rules = rule_set_make(1);
	int rc;

	snprintf(text, sizeof(text), "%" PRIu32, 2 * connections);
	if (firewall.set("connections", text) != NULL ||
	    firewall.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) != 0)
		return -1;
	rc = firewall.keeping->configure(rules, &error);
	json_decref(rules);
	return rc;
}

static void report(void)
{
	double alone = 0;

	for (unsigned i = 0; i < NB_MODES; i++) {
		const double *median = &found[i][nb_found[i] / 2];

		qsort(found[i], nb_found[i], sizeof(found[i][0]), in_order);
		alone = i == ALONE ? *median : alone;
		printf("%-28s %8.1f cycles a frame  %6.3f\n", names[i], *median, *median / alone);
	}
	printf("%" PRIu64 " pages of %" PRIu64 " connections in all; %" PRIu32 " are known\n", pages, records,
	       (uint32_t)firewalls[0].flows.used);
}

int main(int argc, char **argv)
{
	struct rte_mempool *pool;
	uint64_t seed = 1;
	cpu_set_t given;
	pthread_t asks;

	if (argc > 1)
		connections = (uint32_t)strtoul(argv[1], NULL, 10) / BURST * BURST;
	if (connections < BURST || connections > MOST_CONNECTIONS) {
		fprintf(stderr, "expected %d to %d connections\n", BURST, MOST_CONNECTIONS);
		return 2;
	}
	if (sched_getaffinity(0, sizeof(given), &given) != 0 || start_dpdk(64 + connections / 4000) != 0 ||
	    grace_open() != 0)
		return 1;
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	sent = calloc(BURST, sizeof(*sent));
	if (pool == NULL || sent == NULL || cost_ports_open(false, pool) != 0 || open_firewall(pool) != 0)
		return 1;
	for (unsigned i = 0; i < BURST; i++)
		frame_udp4(&sent[i], CLIENTS, SERVER, 1024, 9);
	begin_connections();
	if (pthread_create(&asks, NULL, ask, NULL) != 0)
		return 1;
	run_elsewhere(asks, &given, sched_getcpu());
	for (unsigned turn = 0; turn < TURNS * NB_MODES; turn++)
		take_turn(turn % NB_MODES, &seed);
	ends = true;
	pthread_join(asks, NULL);
	report();
	cost_ports_close();
	return 0;
}
