/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-function-cost [--vhost] [--json KIND [--seconds S]] [CONNECTIONS]: what each function costs beside the
 * skeleton, on the same frames, a burst at a time.  Over ports in memory a frame is copied into a packet buffer,
 * processed, and copied out of it; with
 * --vhost it comes and leaves by vhost-user, as in a chain (cost_ports.h).  Frames of 64 bytes, UDP, of connections in
 * random order: of few, which caches hold, and of many, which they do not; and of these the answers, which come from
 * the other side.  To the router with many routes each connection has a destination, and a route, of its own. Functions
 * take turns in each round, and each figure is the least of several rounds.  And what the first frame of a connection
 * costs, and what memory costs by itself: a cache line at random, of which a burst has asked ahead.
 *
 * With --json only functions of this kind, for so many seconds, as a line of JSON: for `tailrace bench function`.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "common/option.h"
#include "cost_kinds.h"
#include "cost_ports.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "random_lines.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum {
	FRAMES = 8191, /* packet buffers */
	BURST = COST_BURST,
	PASSES = 64, /* bursts in a round */
	ROUNDS = 400,
	LOST = 2, /* of a burst, at most: in a table that is half full some connections have given way */
	PART = 8, /* bursts of beginnings that are timed together */
	SECONDS_MOST = 3600,
};

static struct frame *sent; /* a burst */
static uint8_t received[BURST][64];
static const char *kind; /* that is measured alone; NULL: all are */
static double seconds;	 /* of all that is measured; 0: ROUNDS rounds */

static struct firewall_rules *few_rules, *many_rules;

static void prepare_firewall(void)
{
	cost_open_firewall();
	few_rules = firewalls[0].rules;
}

static void prepare_rules(void)
{
	many_rules = cost_many_rules();
}

/* Where the frames of a connection come out, and so where answers come from and go to; as they lie. */
struct ends {
	uint32_t source, destination;
	uint16_t source_port, destination_port;
};

static struct subject {
	const char *name;
	const struct function *function;
	void (*prepare)(void);		  /* before its connections begin */
	struct firewall_rules **rules;	  /* that it has */
	bool scattered;			  /* each of its connections goes to a network of its own */
	uint32_t first;			  /* of its connections; 0: it knows none */
	struct ends *left;		  /* by connection */
	double few, many, answers, begin; /* cycles a frame */
} subjects[] = {
	{.name = "skeleton", .function = &skeleton},
	{.name = "router, one route", .function = &router, .prepare = cost_open_router},
	{.name = "router, many routes", .function = &router, .prepare = cost_add_routes, .scattered = true},
	{.name = "firewall, 1 rule",
	 .function = &firewall,
	 .prepare = prepare_firewall,
	 .rules = &few_rules,
	 .first = 1},
	{.name = "firewall, 10000 rules",
	 .function = &firewall,
	 .prepare = prepare_rules,
	 .rules = &many_rules,
	 .first = 2},
	{.name = "nat", .function = &nat, .prepare = cost_open_nat, .first = 1},
	{.name = "balancer, 16 back ends", .function = &balancer, .prepare = cost_open_balancer, .first = 1},
};

/* ------- frames ------- */

static struct ends *ends_in(uint8_t *bytes) /* of UDP, without options */
{
	return (struct ends *)(bytes + 14 + offsetof(struct rte_ipv4_hdr, src_addr));
}

static void address(struct frame *frame, const struct ends *ends)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + 14);

	*ends_in(frame->bytes) = *ends;
	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

static void ask(struct frame *frame, const struct subject *subject, uint32_t connection)
{
	const uint32_t server = subject->scattered ? cost_network_of(connection) | 1 : COST_SERVER;

	address(frame, &(struct ends){htonl(COST_CLIENTS + connection), htonl(server), htons(COST_CLIENT_PORT),
				      htons(COST_PORT)});
}

static void answer(struct frame *frame, const struct ends *left)
{
	address(frame, &(struct ends){left->destination, left->source, left->destination_port, left->source_port});
}

/* A burst through a function; returns the cycles, or ends the program if frames are lost. */
static uint64_t forward(const struct function *function, uint16_t in)
{
	uint16_t nb_out;
	const uint64_t cycles = cost_ports_pass(function, in, sent, received, &nb_out);

	if (nb_out < BURST - LOST) {
		fprintf(stderr, "%s: only %u of %u frames left\n", function->name, nb_out, BURST);
		exit(1);
	}
	return cycles;
}

static void take_rules(const struct subject *subject)
{
	if (subject->rules != NULL)
		atomic_store(&firewalls[0].rules, *subject->rules);
}

static int in_order(const void *one, const void *other)
{
	const double *first = one, *second = other;

	return (*first > *second) - (*first < *second);
}

/* Begin all connections of a function, in order, and answer them; returns the cycles a frame, the median of parts. */
static double begin(struct subject *subject)
{
	static double parts[COST_CONNECTIONS / BURST / PART + 1];
	const uint32_t first = (subject->first - 1) * cost_connections;
	unsigned nb_parts = 0;

	subject->left = calloc(cost_connections, sizeof(*subject->left));
	if (subject->left == NULL)
		exit(1);

	take_rules(subject);
	for (uint32_t at = 0; at + BURST * PART <= cost_connections; at += BURST * PART) {
		uint64_t cycles = 0;

		for (unsigned burst = 0; burst < PART; burst++) {
			for (unsigned i = 0; i < BURST; i++)
				ask(&sent[i], subject, first + at + burst * BURST + i);
			cycles += forward(subject->function, 0);
			for (unsigned i = 0; i < BURST; i++)
				subject->left[at + burst * BURST + i] = *ends_in(received[i]);
		}
		parts[nb_parts++] = (double)cycles / BURST / PART;
	}
	for (uint32_t at = 0; at < cost_connections; at += BURST) {
		for (unsigned i = 0; i < BURST; i++)
			answer(&sent[i], &subject->left[at + i]);
		forward(subject->function, 1);
	}
	qsort(parts, nb_parts, sizeof(parts[0]), in_order);
	return parts[nb_parts / 2];
}

/* Frames of so many connections; the same ones for all in a round. */
static double pass(const struct subject *subject, uint32_t count, uint64_t seed)
{
	const uint32_t first = subject->first > 0 ? (subject->first - 1) * cost_connections : 0;
	uint64_t cycles = 0;

	take_rules(subject);
	for (unsigned i = 0; i < PASSES; i++) {
		for (unsigned j = 0; j < BURST; j++)
			ask(&sent[j], subject, first + random64(&seed) % count);
		cycles += forward(subject->function, 0);
	}
	return (double)cycles / PASSES / BURST;
}

/* Answers to frames of so many connections. */
static double pass_back(const struct subject *subject, uint32_t count, uint64_t seed)
{
	uint64_t cycles = 0;

	if (subject->first == 0)
		return 0;
	take_rules(subject);
	for (unsigned i = 0; i < PASSES; i++) {
		for (unsigned j = 0; j < BURST; j++)
			answer(&sent[j], &subject->left[random64(&seed) % count]);
		cycles += forward(subject->function, 1);
	}
	return (double)cycles / PASSES / BURST;
}

static bool wanted(const struct subject *subject)
{
	return kind == NULL || strcmp(subject->function->name, kind) == 0;
}

/* One of three figures, which share the time. */
static void measure(uint32_t count, size_t offset, double (*one)(const struct subject *, uint32_t, uint64_t))
{
	const uint64_t end = rte_rdtsc() + (uint64_t)(seconds / 3 * (double)rte_get_tsc_hz());

	for (unsigned round = 0; seconds > 0 ? round == 0 || rte_rdtsc() < end : round < ROUNDS; round++)
		for (unsigned i = 0; i < RTE_DIM(subjects); i++) {
			const double cycles = wanted(&subjects[i]) ? one(&subjects[i], count, round) : 0;
			double *best = (double *)((char *)&subjects[i] + offset);

			if (*best == 0 || cycles < *best)
				*best = cycles;
		}
}

/* ------- all ------- */

static void report(const struct subject *subject)
{
	const struct subject *nothing = &subjects[0];

	printf("%-24s %9.1f %8.2f %11.1f %8.2f", subject->name, subject->few, nothing->few / subject->few,
	       subject->many, nothing->many / subject->many);
	if (subject->first > 0)
		printf(" %9.1f %8.2f %9.1f %9.2f", subject->answers, nothing->many / subject->answers, subject->begin,
		       (double)rte_get_tsc_hz() / subject->begin / 1e6);
	printf("\n");
}

static void report_all(void)
{
	printf("%24s 1000 connections      all connections      their answers        first frames\n"
	       "%24s    cycles     rate      cycles     rate    cycles     rate    cycles       M/s\n",
	       "", "");
	for (unsigned i = 0; i < RTE_DIM(subjects); i++)
		report(&subjects[i]);
	printf("TSC: %.3f GHz\n", (double)rte_get_tsc_hz() / 1e9);
	random_lines_report();
}

static void report_kind(void)
{
	json_t *figures = json_object();

	for (unsigned i = 0; i < RTE_DIM(subjects); i++) {
		const struct subject *subject = &subjects[i];

		if (wanted(subject))
			json_object_set_new(figures, subject->name,
					    json_pack("{s:f, s:f, s:f, s:f}", "few", subject->few, "many",
						      subject->many, "answers", subject->answers, "begin",
						      subject->begin));
	}
	json_object_set_new(figures, "tsc_hz", json_integer((json_int_t)rte_get_tsc_hz()));
	json_dumpf(figures, stdout, JSON_COMPACT);
	printf("\n");
	json_decref(figures);
}

/* Returns whether the ports are to be of vhost-user. */
static bool parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"vhost", no_argument, NULL, 'v'},
		{"json", required_argument, NULL, 'j'},
		{"seconds", required_argument, NULL, 's'},
		{0},
	};
	bool vhost = false, known = false;
	int option;

	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 'v':
			vhost = true;
			break;
		case 'j':
			kind = optarg;
			break;
		case 's':
			seconds = (double)option_number("seconds", optarg, 1, SECONDS_MOST);
			break;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	for (unsigned i = 0; i < RTE_DIM(subjects); i++)
		known |= wanted(&subjects[i]);
	if (!known) {
		fprintf(stderr, "--json %s: expected skeleton, router, firewall, nat or balancer\n", kind);
		exit(2);
	}
	if (optind < argc)
		cost_connections = (uint32_t)strtoul(argv[optind], NULL, 10) / (BURST * PART) * (BURST * PART);
	if (cost_connections < COST_FEW || cost_connections > COST_CONNECTIONS) {
		fprintf(stderr, "expected %d to %d connections\n", COST_FEW, COST_CONNECTIONS);
		exit(2);
	}
	return vhost;
}

int main(int argc, char **argv)
{
	const bool vhost = parse(argc, argv);

	if (start_dpdk(2048) != 0 || grace_open() != 0)
		return 1;
	cost_start.pool = rte_pktmbuf_pool_create("frames", FRAMES, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	sent = calloc(BURST, sizeof(*sent));
	if (cost_start.pool == NULL || sent == NULL || cost_ports_open(vhost, cost_start.pool) != 0)
		return 1;
	for (unsigned i = 0; i < BURST; i++)
		frame_udp4(&sent[i], 0, COST_SERVER, COST_CLIENT_PORT, COST_PORT);
	for (unsigned i = 0; i < RTE_DIM(subjects); i++) {
		if (!wanted(&subjects[i]))
			continue;
		if (subjects[i].prepare != NULL)
			subjects[i].prepare();
		if (subjects[i].first > 0)
			subjects[i].begin = begin(&subjects[i]);
	}
	measure(COST_FEW, offsetof(struct subject, few), pass);
	measure(cost_connections, offsetof(struct subject, many), pass);
	measure(cost_connections, offsetof(struct subject, answers), pass_back);
	if (kind != NULL)
		report_kind();
	else
		report_all();
	cost_ports_close();
	return 0;
}
