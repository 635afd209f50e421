/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-function-cores --cores A[,B...] [--queues N] [--seconds S] KIND [CONNECTIONS]: how many frames a function
 * forwards on several cores together: in the loop that it always has (functions/forward.h), with a queue for each core
 * or with more, between two ports in memory.  One makes frames, of 64 bytes, where they are received; the other one
 * frees what it is given.  As a line of JSON, in millions of frames a second:
 *
 *   mpps_few        1000 connections, at random, each by the queue that it belongs to
 *   mpps            all connections, likewise
 *   mpps_handed_on  all connections, by any queue: those that come in elsewhere are handed on; with several queues
 *
 * A rate is of the CPU time that the cores took, so that others on this machine do not matter.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_malloc.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/option.h"
#include "cost_kinds.h"
#include "functions/forward.h"
#include "functions/inboxes.h"
#include "test/frame_builder.h"

enum {
	CACHE = 256,	/* buffers that a thread keeps for itself */
	BUFFERS = 8191, /* for each queue */
	LENGTH = 60,	/* of a frame, without its check sequence */
	SECONDS_MOST = 3600,
	MEMORY_MIB = 2048,
	FIRST_SECONDS_MOST = 60, /* for all connections to come once */
};

enum mode { FEW, ALL, HANDED_ON, MODES };

static const char *const names[MODES] = {"mpps_few", "mpps", "mpps_handed_on"};

/* Of a queue, its thread's: what comes in there. */
struct source {
	uint32_t *connections[MODES]; /* in the order in which they come, again and again */
	uint32_t count[MODES], next;
	_Atomic int mode;	 /* in which they are */
	_Atomic uint64_t rounds; /* through all of them */
	struct frame frame;
} __rte_cache_aligned;

static struct forward forward;
static struct source sources[FUNCTION_QUEUES];
static void *queues[2][FUNCTION_QUEUES];
static _Atomic int mode = ALL;
static unsigned nb_cores;
static bool scattered; /* each connection has a network of its own */

static const struct kind {
	const struct function *function;
	void (*open)(void);
} kinds[] = {
	{&skeleton, NULL},     {&router, cost_open_router},	{&firewall, cost_open_firewall},
	{&nat, cost_open_nat}, {&balancer, cost_open_balancer},
};

/* ------- ports ------- */

static void address(uint8_t *bytes, uint32_t connection)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(bytes + 14);

	header->src_addr = htonl(COST_CLIENTS + connection);
	if (scattered)
		header->dst_addr = htonl(cost_network_of(connection) | 1);
	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

static uint16_t receive(void *queue, struct rte_mbuf **mbufs, uint16_t nb_frames)
{
	struct source *source = queue;
	const int now = atomic_load_explicit(&mode, memory_order_relaxed);

	if (unlikely(now != atomic_load_explicit(&source->mode, memory_order_relaxed))) {
		source->next = 0;
		atomic_store(&source->rounds, 0);
		atomic_store(&source->mode, now);
	}
	if (unlikely(rte_pktmbuf_alloc_bulk(forward.pool, mbufs, nb_frames) != 0))
		return 0;
	for (uint16_t i = 0; i < nb_frames; i++) {
		memcpy(rte_pktmbuf_append(mbufs[i], LENGTH), source->frame.bytes, LENGTH);
		address(rte_pktmbuf_mtod(mbufs[i], uint8_t *), source->connections[now][source->next]);
		mbufs[i]->port = forward.ports[0].port;
		if (unlikely(++source->next == source->count[now])) {
			source->next = 0;
			function_count(&source->rounds, 1);
		}
	}
	return nb_frames;
}

static uint16_t receive_nothing(void *queue, struct rte_mbuf **mbufs, uint16_t nb_frames)
{
	return 0;
}

static uint16_t take(void *queue, struct rte_mbuf **mbufs, uint16_t nb_frames)
{
	rte_pktmbuf_free_bulk(mbufs, nb_frames);
	return nb_frames;
}

/* DPDK's null devices, which count in cache lines that two queues share: so their fast paths are replaced. */
static int open_ports(void)
{
	const struct device_options options = {.pool = forward.pool, .queues = (uint16_t)forward.nb_queues};
	struct device_error error;

	for (unsigned port = 0; port < 2; port++) {
		struct rte_eth_fp_ops *path;

		if (device_open(&forward.ports[port], port == 0 ? "vdev:net_null0" : "vdev:net_null1", &options,
				&error) != 0) {
			fprintf(stderr, "%s\n", error.text);
			return -1;
		}
		for (unsigned queue = 0; queue < forward.nb_queues; queue++)
			queues[port][queue] = &sources[queue];
		path = &rte_eth_fp_ops[forward.ports[port].port];
		path->rxq.data = path->txq.data = queues[port];
		path->rx_pkt_burst = port == 0 ? receive : receive_nothing;
		path->tx_pkt_burst = take;
	}
	return 0;
}

/* ------- connections ------- */

/* The queue that a connection belongs to. */
static unsigned home_of(uint32_t connection)
{
	struct rte_mbuf *mbuf;
	uint8_t home = 0;

	if (forward.nb_queues == 1)
		return 0;
	if (forward.function->homes == NULL)
		return connection % forward.nb_queues;
	mbuf = rte_pktmbuf_alloc(forward.pool);
	memcpy(rte_pktmbuf_append(mbuf, LENGTH), sources[0].frame.bytes, LENGTH);
	address(rte_pktmbuf_mtod(mbuf, uint8_t *), connection);
	forward.function->homes(&mbuf, 1, 0, 0, &home);
	rte_pktmbuf_free(mbuf);
	return home;
}

static void shuffle(uint32_t *numbers, uint32_t count, uint64_t *seed)
{
	for (uint32_t i = count; i > 1; i--) {
		const uint32_t other = (uint32_t)(random64(seed) % i), number = numbers[i - 1];

		numbers[i - 1] = numbers[other];
		numbers[other] = number;
	}
}

/* The first `count`, by the queue of each or by any.  Returns whether there is memory, and each queue has some. */
static bool share_out(enum mode which, uint32_t count, bool at_home, uint64_t *seed)
{
	for (unsigned queue = 0; queue < forward.nb_queues; queue++) {
		sources[queue].connections[which] = malloc(count * sizeof(uint32_t));
		if (sources[queue].connections[which] == NULL)
			return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct source *source = &sources[at_home ? home_of(i) : i % forward.nb_queues];

		source->connections[which][source->count[which]++] = i;
	}
	for (unsigned queue = 0; queue < forward.nb_queues; queue++) {
		if (sources[queue].count[which] == 0)
			return false;
		shuffle(sources[queue].connections[which], sources[queue].count[which], seed);
	}
	return true;
}

static bool make_sources(void)
{
	uint64_t seed = 1;

	for (unsigned queue = 0; queue < forward.nb_queues; queue++) {
		sources[queue].mode = ALL;
		frame_udp4(&sources[queue].frame, 0, COST_SERVER, COST_CLIENT_PORT, COST_PORT);
	}
	return share_out(FEW, COST_FEW, true, &seed) && share_out(ALL, cost_connections, true, &seed) &&
	       share_out(HANDED_ON, cost_connections, false, &seed);
}

/* ------- rates ------- */

static double cpu_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time); /* the other threads sleep */
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t sent(void)
{
	uint64_t sum = 0;

	for (unsigned queue = 0; queue < forward.nb_queues; queue++)
		sum += forward.lanes[queue].counters[0].sent;
	return sum;
}

static bool all_came(enum mode which)
{
	for (unsigned queue = 0; queue < forward.nb_queues; queue++)
		if (atomic_load(&sources[queue].mode) != (int)which || atomic_load(&sources[queue].rounds) == 0)
			return false;
	return true;
}

/* Millions of frames a second; ends the program if connections do not come. */
static double measure(enum mode which, double seconds)
{
	const struct timespec look = {.tv_nsec = 1000000},
			      window = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (long)seconds) * 1e9)};
	uint64_t began;
	double used;

	atomic_store(&mode, which);
	for (unsigned ms = 0; !all_came(which); ms++) {
		if (ms > FIRST_SECONDS_MOST * 1000) {
			fprintf(stderr, "%s: not all connections have come\n", names[which]);
			exit(1);
		}
		nanosleep(&look, NULL);
	}
	began = sent();
	used = cpu_seconds();
	nanosleep(&window, NULL);
	used = cpu_seconds() - used;
	return (double)(sent() - began) / used * nb_cores / 1e6;
}

static void report(double seconds)
{
	const unsigned modes = forward.nb_queues > 1 && forward.function->homes != NULL ? MODES : HANDED_ON;
	json_t *found = json_object();
	uint64_t handed_on = 0, lost = 0;

	for (unsigned which = 0; which < modes; which++)
		json_object_set_new(found, names[which], json_real(measure(which, seconds / modes)));
	for (unsigned queue = 0; queue < forward.nb_queues; queue++) {
		handed_on += forward.lanes[queue].counters[0].handed_on;
		lost += forward.lanes[queue].counters[0].drop_busy;
	}
	json_object_set_new(found, "handed_on", json_integer((json_int_t)handed_on));
	json_object_set_new(found, "drop_busy", json_integer((json_int_t)lost));
	json_dumpf(found, stdout, JSON_COMPACT);
	printf("\n");
	json_decref(found);
}

/* ------- all ------- */

static void wake(void *loop, unsigned queue)
{
	forward_wake_queue(loop, queue);
}

static int open_function(const struct kind *kind)
{
	cost_start.pool = forward.pool;
	cost_start.nb_queues = forward.nb_queues;
	if (forward.nb_queues > 1) {
		cost_start.wake = wake;
		cost_start.loop = &forward;
	}
	if (kind->open != NULL)
		kind->open();
	if (kind->function == &router) {
		scattered = true;
		cost_add_routes();
	}
	return kind->function->homes != NULL && forward.nb_queues > 1 ? inboxes_open(&forward) : 0;
}

/* Returns how many there are, or 0. */
static unsigned read_cores(const char *text, int *cores)
{
	unsigned nb = 0;
	int end = 0;

	for (; nb < FUNCTION_QUEUES; text++) {
		if (sscanf(text, "%d%n", &cores[nb], &end) != 1 || cores[nb] < 0)
			return 0;
		nb++;
		text += end;
		if (*text == '\0')
			return nb;
		if (*text != ',')
			return 0;
	}
	return 0;
}

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < RTE_DIM(kinds); i++)
		if (name != NULL && strcmp(kinds[i].function->name, name) == 0)
			return &kinds[i];
	return NULL;
}

static const struct kind *parse(int argc, char **argv, int *cores, double *seconds)
{
	static const struct option options[] = {
		{"cores", required_argument, NULL, 'c'},
		{"queues", required_argument, NULL, 'q'},
		{"seconds", required_argument, NULL, 's'},
		{0},
	};
	const struct kind *kind;
	int option;

	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 'c':
			nb_cores = read_cores(optarg, cores);
			break;
		case 'q':
			forward.nb_queues = (unsigned)option_number("queues", optarg, 1, FUNCTION_QUEUES);
			break;
		case 's':
			*seconds = (double)option_number("seconds", optarg, 1, SECONDS_MOST);
			break;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	kind = find_kind(argv[optind]);
	forward.nb_queues = RTE_MAX(forward.nb_queues, nb_cores);
	if (nb_cores == 0 || kind == NULL) {
		fprintf(stderr, "usage: tailrace-function-cores --cores A[,B...] [--queues N] [--seconds S] "
				"skeleton|router|firewall|nat|balancer [CONNECTIONS]\n");
		exit(2);
	}
	if (optind + 1 < argc)
		cost_connections = (uint32_t)strtoul(argv[optind + 1], NULL, 10);
	if (cost_connections < COST_FEW || cost_connections > COST_CONNECTIONS) {
		fprintf(stderr, "expected %d to %d connections\n", COST_FEW, COST_CONNECTIONS);
		exit(2);
	}
	return kind;
}

int main(int argc, char **argv)
{
	struct eal_options eal = {.program = "tailrace-function-cores", .memory_mib = MEMORY_MIB};
	int cores[FUNCTION_QUEUES];
	double seconds = 3;
	const struct kind *kind = parse(argc, argv, cores, &seconds);
	unsigned buffers;

	log_open("tailrace-function-cores", LOG_LEVEL_ERROR);
	forward.function = kind->function;
	eal.cores = cores;
	eal.nb_cores = nb_cores;
	if (eal_start(&eal) != 0 || grace_open() != 0)
		return 1;
	buffers = forward.nb_queues * (BUFFERS + 1) - 1;
	forward.pool = rte_pktmbuf_pool_create("frames", buffers, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (forward.pool == NULL || open_function(kind) != 0 || forward_open(&forward, cores, nb_cores) != 0 ||
	    open_ports() != 0)
		return 1;
	if (!make_sources()) {
		log_error("there is no memory for the connections, or a queue has none of them");
		return 1;
	}
	forward_start(&forward);
	report(seconds);
	return forward_end(&forward) == 0 ? 0 : 1;
}
