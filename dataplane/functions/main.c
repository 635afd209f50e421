/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-vnf: start and end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/stop.h"
#include "forward.h"
#include "inboxes.h"
#include "options.h"
#include "report.h"

enum {
	CACHE = 128,
	LINK_TICK = 500, /* ms between two looks at the links */
	PEER_TICK = 20,	 /* ms between two looks for who is to come */
};

static void wake_queue(void *loop, unsigned queue)
{
	forward_wake_queue(loop, queue);
}

/* What a function keeps or makes, and what waits between its threads. */
static unsigned own_buffers(const struct forward *forward)
{
	const struct function *function = forward->function;
	const unsigned kept = function->keeping != NULL ? function->keeping->buffers : 0;

	if (function->homes == NULL)
		return kept;
	return forward->nb_queues * (kept + inboxes_room(forward->nb_queues));
}

/* The function has its tables, and a way between its threads.  Returns 0 or -1 after logging. */
static int open_function(struct forward *forward)
{
	const struct function_keeping *keeping = forward->function->keeping;
	const struct function_start start = {
		.pool = forward->pool,
		.wake_fd = forward->wake_fd,
		.nb_queues = forward->nb_queues,
		.wake = wake_queue,
		.loop = forward,
	};

	if (keeping != NULL && keeping->open(&start) != 0)
		return -1;
	return forward->function->homes == NULL || forward->nb_queues == 1 ? 0 : inboxes_open(forward);
}

/* Open both ports with a common pool: all rings full at once, and what is under way.  Returns 0 or -1 after logging. */
static int open_ports(struct forward *forward, const struct options *options)
{
	unsigned buffers = forward->nb_queues * (4 * DEVICE_DESCRIPTORS + 2 * CACHE + 64) + own_buffers(forward);

	forward->pool = rte_pktmbuf_pool_create("frames", buffers, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (forward->pool == NULL) {
		log_error("no memory for %u buffers; use a larger --memory", buffers);
		return -1;
	}
	if (open_function(forward) != 0)
		return -1;
	for (int i = 0; i < 2; i++) {
		struct device_options wanted = {
			.pool = forward->pool,
			.queues = (uint16_t)forward->nb_queues,
			.interrupts = options->interrupts,
			.jumbo = true,
		};
		struct device_error error;

		if (device_open(&forward->ports[i], options->ports[i], &wanted, &error) != 0) {
			log_error("port %s: %s", options->ports[i], error.text);
			return -1;
		}
	}
	return 0;
}

/* Whether a signal to end comes within so many ms.  DPDK's TAP driver has signals of its own, which end a wait. */
static bool asked_to_end(int stop_fd, int timeout)
{
	struct pollfd stop = {.fd = stop_fd, .events = POLLIN};

	return poll(&stop, 1, timeout) > 0;
}

/* Whether somebody is at the other end; a client of memif looks for its server. */
static bool has_peer(struct device *port)
{
	return (port->started || device_restart(port)) && device_link_up(port);
}

/* A port at which this program listens has nobody at first.  Returns whether all have come; false after a signal. */
static bool wait_for_peers(struct forward *forward, int stop_fd)
{
	for (int i = 0; i < 2; i++)
		while (!has_peer(&forward->ports[i]))
			if (asked_to_end(stop_fd, PEER_TICK))
				return false;
	return true;
}

/* Give a port another address: a machine that is a copy of another one is another station. */
static void take_command(struct forward *forward, const char *line)
{
	struct rte_ether_addr address;
	char text[RTE_ETHER_ADDR_FMT_SIZE];
	unsigned port;
	int error;

	if (sscanf(line, "address %u %17s", &port, text) != 2 || port > 1 ||
	    rte_ether_unformat_addr(text, &address) != 0) {
		log_error("command '%s': expected address 0|1 MAC", line);
		return;
	}
	error = rte_eth_dev_default_mac_addr_set(forward->ports[port].port, &address);
	if (error != 0)
		log_error("port %s: its address stays: %s", forward->ports[port].target, rte_strerror(-error));
	else
		log_info("port %s: its address is %s", forward->ports[port].target, text);
}

/* Take the lines that have come; each was written at once, so it is whole. */
static void take_commands(struct forward *forward, int commands)
{
	char text[512], *rest, *line;
	ssize_t length = read(commands, text, sizeof(text) - 1);

	text[RTE_MAX(length, 0)] = '\0';
	for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
		take_command(forward, line);
}

/* Whether a signal to end comes within so many ms; commands are taken meanwhile. */
static bool asked_to_end_at_work(struct forward *forward, int stop_fd, int commands, int timeout)
{
	struct pollfd fds[] = {{.fd = stop_fd, .events = POLLIN}, {.fd = commands, .events = POLLIN}};

	if (poll(fds, RTE_DIM(fds), timeout) <= 0)
		return false;
	if (fds[1].revents != 0)
		take_commands(forward, commands);
	return fds[0].revents != 0;
}

/*
 * Whether a port goes on by itself once its link is back.  One at which this program listens does: another back end
 * takes the rings up where they stand.  So does a PCI device that is still there, as a machine's, whose switch may be
 * started again.
 */
static bool resumes(const struct device *port)
{
	return port->kind == DEVICE_VHOST_SERVER || (port->kind == DEVICE_PCI && device_exists(port));
}

static void let_say(const struct forward *forward, bool ends)
{
	const struct function_keeping *keeping = forward->function->keeping;

	if (keeping != NULL && keeping->say != NULL)
		keeping->say(ends);
}

/*
 * Wait for a signal.  Ports that go on by themselves may lose their links meanwhile.  Returns 0, or -1 if what another
 * port is connected to went away, or forwarding failed, first.
 */
static int wait_for_end(struct forward *forward, int stop_fd, int commands)
{
	bool up[2] = {true, true};

	while (!asked_to_end_at_work(forward, stop_fd, commands, up[0] && up[1] ? LINK_TICK : PEER_TICK)) {
		if (!forward_runs(forward))
			return -1;
		let_say(forward, false);
		for (int i = 0; i < 2; i++) {
			const struct device *port = &forward->ports[i];
			const bool now = device_link_up(port);

			if (!now && !resumes(port)) {
				log_error("port %s: its link went down; start this program again when what is at its "
					  "other end is back",
					  port->target);
				return -1;
			}
			if (now == up[i])
				continue;
			up[i] = now;
			if (port->kind == DEVICE_VHOST_SERVER)
				log_info("port %s: its back end %s", port->target, now ? "is back" : "has gone");
			else
				log_info("port %s: its link %s", port->target, now ? "is back" : "went down");
		}
	}
	return 0;
}

/* Forward until the end; then write the counters.  Returns the exit status. */
static int run(struct forward *forward, struct report *report, int stop_fd, int commands)
{
	int status;

	if (report_start(report) != 0)
		return 1;
	if (!wait_for_peers(forward, stop_fd))
		return 0;
	log_info("forwarding");
	forward_start(forward);
	status = wait_for_end(forward, stop_fd, commands) == 0 ? 0 : 1;
	if (forward_end(forward) != 0)
		status = 1;
	let_say(forward, true);
	report_print(forward);
	return status;
}

/* The CPUs are those that DPDK's threads were pinned to. */
static int open_threads(struct forward *forward, unsigned nb_threads)
{
	int cpus[FUNCTION_QUEUES];

	for (unsigned i = 0; i < nb_threads; i++)
		cpus[i] = eal_lcore_cpu(eal_worker_lcore(i));
	return forward_open(forward, cpus, nb_threads);
}

int main(int argc, char **argv)
{
	static struct forward forward;
	struct report report = {0};
	struct options options;
	int stop_fd, commands = -1, status = 1, cpus[FUNCTION_QUEUES];

	log_open("tailrace-vnf", LOG_LEVEL_INFO);
	options = options_parse(argc, argv);
	forward.function = options.function;
	forward.interrupts = options.interrupts;
	forward.nb_queues = options.nb_queues;
	for (int i = 0; i < 2; i++)
		forward.ports[i].port = RTE_MAX_ETHPORTS;
	/* Written to as well, so that it does not end with who writes there. */
	if (options.commands != NULL && (commands = open(options.commands, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0) {
		log_error("--commands %s: %s", options.commands, strerror(errno));
		return 2;
	}
	/* Threads that may be started later wait where the first one runs. */
	for (unsigned i = 0; i < options.nb_queues; i++)
		cpus[i] = options.cpus[i < options.nb_cpus ? i : 0];
	options.eal.cores = cpus;
	options.eal.nb_cores = options.nb_queues;
	stop_fd = stop_open();
	if (stop_fd < 0 || eal_start(&options.eal) != 0)
		return 1;
	/* The socket is there before those of the ports: then the folder that they share is closed. */
	if (grace_open() == 0 && forward_confine_priority(options.nb_queues) == 0 &&
	    open_threads(&forward, options.nb_cpus) == 0 && report_open(&report, options.control, &forward) == 0 &&
	    open_ports(&forward, &options) == 0)
		status = run(&forward, &report, stop_fd, commands);
	report_close(&report);
	if (options.function->keeping != NULL)
		options.function->keeping->close();
	for (int i = 0; i < 2; i++)
		device_close(&forward.ports[i]);
	rte_eal_cleanup();
	return status;
}
