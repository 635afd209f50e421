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
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "common/option.h"
#include "cost_ports.h"
#include "functions/balancer.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "functions/router_tap.h"
#include "random_lines.h"
#include "rule_set.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum {
	DEFAULT_CONNECTIONS = 1000000 / 256 * 256,
	FEW = 1000,
	BACK_ENDS = 16,
	FRAMES = 8191, /* packet buffers */
	BURST = COST_BURST,
	PASSES = 64, /* bursts in a round */
	ROUNDS = 400,
	LOST = 2, /* of a burst, at most: in a table that is half full some connections have given way */
	PART = 8, /* bursts of beginnings that are timed together */
	SECONDS_MOST = 3600,
	LARGE_PAGE = 2 << 20,
	SERVER = 0x09000001,   /* 9.0.0.1, in the machine's order */
	CLIENTS = 0x0b000000u, /* 11.0.0.0 and on: inside of the NAT */
	SERVERS = 0x80000000u, /* 128.0.0.0/2: where the router's many routes lead */
	PORT = 9,
};

void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align);
void *__wrap_rte_calloc(const char *type, size_t number, size_t size, unsigned align);
int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd);

/* As a function's tables lie where there are huge pages; otherwise page walks are most of what they cost. */
void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align)
{
	const size_t whole = RTE_ALIGN_CEIL(size, LARGE_PAGE);
	void *memory = aligned_alloc(LARGE_PAGE, whole);

	if (memory == NULL || madvise(memory, whole, MADV_HUGEPAGE) != 0)
		return NULL;
	return memset(memory, 0, whole);
}

void *__wrap_rte_calloc(const char *type, size_t number, size_t size, unsigned align)
{
	return __wrap_rte_zmalloc(type, number * size, align);
}

/* No kernel: all routes are known, and lead to neighbours. */
int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd)
{
	*tap = (struct router_tap){0};
	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		tap->from_kernel[port] = rte_ring_create(port == 0 ? "from0" : "from1", 64, SOCKET_ID_ANY, 0);
	return 0;
}

static struct rte_mempool *pool;
static struct frame *sent; /* a burst */
static uint8_t received[BURST][64];
static uint32_t connections = DEFAULT_CONNECTIONS;
static const char *kind; /* that is measured alone; NULL: all are */
static double seconds;	 /* of all that is measured; 0: ROUNDS rounds */

/* ------- functions ------- */

static const struct router_address gateway = {{10, 0, 1, 1}};

static void tell(const struct function *function, json_t *params)
{
	struct control_error error;

	if (params == NULL || function->keeping->configure(params, &error) != 0) {
		fprintf(stderr, "%s: %s\n", function->name, params != NULL ? error.message : "no settings");
		exit(1);
	}
	json_decref(params);
}

static void set(const struct function *function, const char *name, const char *value)
{
	const char *wrong = function->set(name, value);

	if (wrong != NULL) {
		fprintf(stderr, "%s %s=%s: expected %s\n", function->name, name, value, wrong);
		exit(1);
	}
}

/* With room for those that are begun a second time. */
static void open_function(const struct function *function)
{
	char text[16];

	snprintf(text, sizeof(text), "%" PRIu32, 2 * connections + 2 * BURST);
	set(function, function == &router ? "ipv4-routes" : "connections", text);
	if (function->keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) != 0)
		exit(1);
}

/* To the one neighbour. */
static void add_route(uint32_t address, uint8_t length)
{
	struct router_prefix prefix = {.length = length};
	struct router_hop hop = {.nb_paths = 1};

	address = htonl(address);
	memcpy(prefix.address.bytes, &address, sizeof(address));
	hop.paths[0] = (struct router_path){.gateway = gateway, .bound = UINT32_MAX, .link = 1};
	router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, ROUTER_NEW);
}

static void prepare_router(void)
{
	const uint8_t own[6] = {2, 0, 0, 0, 0, 1};

	open_function(&router);
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		atomic_store(&router_table.links[port].mac, router_mac(own));
		atomic_store(&router_table.links[port].mtu, 1500);
	}
	router_neighbour_set(1, ROUTER_4, &gateway, router_mac(own) | ROUTER_STATION_USABLE);
	add_route(SERVER & 0xff000000, 8);
}

/* The network of 256 addresses that frames of a connection go to: they lie scattered, and no two are the same. */
static uint32_t network_of(uint32_t connection)
{
	return SERVERS | ((connection * 0x9e3779b1u) & 0x3fffff) << 8;
}

static void prepare_routes(void)
{
	for (uint32_t i = 0; i < connections; i++)
		add_route(network_of(i), 24);
}

static struct firewall_rules *few_rules, *many_rules;

static void prepare_firewall(void)
{
	open_function(&firewall);
	tell(&firewall, rule_set_make(1));
	few_rules = firewalls[0].rules;
}

static void prepare_rules(void)
{
	struct control_error error;

	many_rules = firewall_rules_read(rule_set_make(FIREWALL_RULES_MOST), 1, &error);
	if (many_rules == NULL) {
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
}

/* As many hosts as connections, each with a block of its own. */
static void prepare_nat(void)
{
	set(&nat, "pool", "198.51.100.0/22");
	set(&nat, "inside", "11.0.0.0/8");
	set(&nat, "block", "64");
	open_function(&nat);
}

static void prepare_balancer(void)
{
	json_t *ends = json_array();
	struct balancer_set *of = &the_balancer.set;

	open_function(&balancer);
	for (unsigned i = 0; i < BACK_ENDS; i++) {
		char address[16], name[16];

		snprintf(address, sizeof(address), "10.0.1.%u", i + 2);
		snprintf(name, sizeof(name), "%u", i);
		json_array_append_new(ends,
				      json_pack("{s:s, s:s, s:i}", "name", name, "address", address, "port", 8080));
	}
	tell(&balancer, json_pack("{s:[s], s:[{s:s, s:s, s:i, s:s, s:o}]}", "source", "10.0.1.1", "services", "name",
				  "service", "address", "9.0.0.1", "port", PORT, "protocol", "udp", "back_ends", ends));
	for (unsigned i = 0; i < of->nb_used; i++) {
		of->ends[of->used[i]].mac = 2;
		of->ends[of->used[i]].state = BALANCER_UP;
	}
	if (balancer_set_publish(of) != 0)
		exit(1);
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
	{.name = "router, one route", .function = &router, .prepare = prepare_router},
	{.name = "router, many routes", .function = &router, .prepare = prepare_routes, .scattered = true},
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
	{.name = "nat", .function = &nat, .prepare = prepare_nat, .first = 1},
	{.name = "balancer, 16 back ends", .function = &balancer, .prepare = prepare_balancer, .first = 1},
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
	const uint32_t server = subject->scattered ? network_of(connection) | 1 : SERVER;

	address(frame, &(struct ends){htonl(CLIENTS + connection), htonl(server), htons(1024), htons(PORT)});
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
	static double parts[DEFAULT_CONNECTIONS / BURST / PART + 1];
	const uint32_t first = (subject->first - 1) * connections;
	unsigned nb_parts = 0;

	subject->left = calloc(connections, sizeof(*subject->left));
	if (subject->left == NULL)
		exit(1);

	take_rules(subject);
	for (uint32_t at = 0; at + BURST * PART <= connections; at += BURST * PART) {
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
	for (uint32_t at = 0; at < connections; at += BURST) {
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
	const uint32_t first = subject->first > 0 ? (subject->first - 1) * connections : 0;
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
		connections = (uint32_t)strtoul(argv[optind], NULL, 10) / (BURST * PART) * (BURST * PART);
	if (connections < FEW || connections > DEFAULT_CONNECTIONS) {
		fprintf(stderr, "expected %d to %d connections\n", FEW, DEFAULT_CONNECTIONS);
		exit(2);
	}
	return vhost;
}

int main(int argc, char **argv)
{
	const bool vhost = parse(argc, argv);

	if (start_dpdk(2048) != 0 || grace_open() != 0)
		return 1;
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	sent = calloc(BURST, sizeof(*sent));
	if (pool == NULL || sent == NULL || cost_ports_open(vhost, pool) != 0)
		return 1;
	for (unsigned i = 0; i < BURST; i++)
		frame_udp4(&sent[i], 0, SERVER, 1024, PORT);
	for (unsigned i = 0; i < RTE_DIM(subjects); i++) {
		if (!wanted(&subjects[i]))
			continue;
		if (subjects[i].prepare != NULL)
			subjects[i].prepare();
		if (subjects[i].first > 0)
			subjects[i].begin = begin(&subjects[i]);
	}
	measure(FEW, offsetof(struct subject, few), pass);
	measure(connections, offsetof(struct subject, many), pass);
	measure(connections, offsetof(struct subject, answers), pass_back);
	if (kind != NULL)
		report_kind();
	else
		report_all();
	cost_ports_close();
	return 0;
}
