/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-tester: options, start and end.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "common/control.h"
#include "common/eal.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "methods.h"

enum {
	CAPTURE_REFUSED = 3,  /* exit status */
	DEFAULT_MEMORY = 128, /* MiB */
	LEAST_MEMORY = 32,
	RECEIVE_CACHE = 256,
	CLOCK_LEAST = 100 * 1000 * 1000, /* ns over which the clock's rate is measured */
	FRAME_BUFFERS = 2047, /* for each size: a transmit ring's worth, what is cached, and a burst or two */
};

static const char usage[] =
	"Usage: tailrace-tester --control PATH --port NAME=URI [--port NAME=URI ...] [option ...]\n"
	"\n"
	"Generates test traffic and analyses every frame that comes back: loss, duplicates, order and latency.\n"
	"It is told what to send on its control socket (JSON-RPC, one object a line).\n"
	"\n"
	"  --control PATH     listen for commands at this Unix socket\n"
	"  --port NAME=URI    a port: vhost:SOCKET (connect to a vhost-user back end), vhost-server:SOCKET (wait for\n"
	"                     one), if:INTERFACE, pci:ADDRESS or vdev:DPDK-ARGUMENTS\n"
	"  --core N           the CPU that sends and receives (default: the last one)\n"
	"  --memory MIB       memory for packet buffers (default: 128)\n"
	"  --huge             take it from 2 MiB pages (reserve them in\n"
	"                     /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)\n"
	"  --no-huge          take it from 4 KiB pages (default)\n"
	"  --describe-capture FILE\n"
	"                     say as JSON what would be sent for a capture file, or why it cannot be (status 3), and "
	"end\n"
	"  --version, --help\n"
	"\n"
	"Example: between two ports of a switch\n"
	"  tailrace-tester --control /run/t.sock --port a=vhost:/run/a.sock --port b=vhost:/run/b.sock\n";

struct options {
	const char *control;
	struct eal_options eal;
};

/* Add the port that NAME=URI describes; ends the program if it is wrong. */
static void add_port(struct loop *loop, const char *text)
{
	const char *equals = strchr(text, '=');
	struct device_error error;
	struct loop_port *port;

	if (equals == NULL || equals == text || equals - text >= LOOP_PORT_NAME) {
		log_error("--port %s: expected NAME=URI with a name of 1 to %d bytes", text, LOOP_PORT_NAME - 1);
		exit(2);
	}
	if (loop->nb_ports == LOOP_PORTS) {
		log_error("more than %d ports", LOOP_PORTS);
		exit(2);
	}
	port = &loop->ports[loop->nb_ports];
	snprintf(port->name, sizeof(port->name), "%.*s", (int)(equals - text), text);
	port->uri = equals + 1;
	if (device_check(port->uri, &error) != 0) {
		log_error("--port %s: %s", port->name, error.text);
		exit(2);
	}
	for (uint16_t i = 0; i < loop->nb_ports; i++)
		if (strcmp(loop->ports[i].name, port->name) == 0) {
			log_error("--port %s: the name is used twice", port->name);
			exit(2);
		}
	loop->nb_ports++;
}

/* Says what a capture is; ends the program. */
static void describe_and_exit(const char *path)
{
	char error[CAPTURE_ERROR];
	struct capture *capture = capture_open(path, CAPTURE_LONGEST, error);
	json_t *facts;

	if (capture == NULL) {
		puts(error);
		exit(CAPTURE_REFUSED);
	}
	facts = capture_describe(capture);
	json_dumpf(facts, stdout, 0);
	putchar('\n');
	json_decref(facts);
	capture_close(capture);
	exit(0);
}

_Static_assert((int)LOOP_PORTS <= (int)EAL_DEVICES, "each may be a PCI device");

static struct options parse(int argc, char **argv, struct loop *loop)
{
	enum { CONTROL = 256, PORT, CORE, MEMORY, HUGE_PAGES, NO_HUGE_PAGES, DESCRIBE, VERSION, HELP };
	static const struct option known[] = {
		{"control", required_argument, NULL, CONTROL},
		{"port", required_argument, NULL, PORT},
		{"core", required_argument, NULL, CORE},
		{"memory", required_argument, NULL, MEMORY},
		{"huge", no_argument, NULL, HUGE_PAGES},
		{"no-huge", no_argument, NULL, NO_HUGE_PAGES},
		{"describe-capture", required_argument, NULL, DESCRIBE},
		{"version", no_argument, NULL, VERSION},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	struct options options = {
		.eal = {.program = "tailrace-tester", .core = -1, .memory_mib = DEFAULT_MEMORY},
	};
	const char *address;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		switch (option) {
		case CONTROL:
			options.control = optarg;
			break;
		case PORT:
			add_port(loop, optarg);
			address = device_pci_address(loop->ports[loop->nb_ports - 1].uri);
			if (address != NULL)
				eal_want_device(&options.eal, address);
			break;
		case CORE:
			options.eal.core = (int)option_number("core", optarg, 0, 1023);
			break;
		case MEMORY:
			options.eal.memory_mib = (unsigned)option_number("memory", optarg, LEAST_MEMORY, 1 << 20);
			break;
		case HUGE_PAGES:
			options.eal.huge = true;
			break;
		case NO_HUGE_PAGES:
			options.eal.huge = false;
			break;
		case DESCRIBE:
			describe_and_exit(optarg);
			break;
		case VERSION:
			printf("tailrace-tester %s\n", TAILRACE_VERSION);
			exit(0);
		case HELP:
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	}
	if (optind < argc) {
		log_error("'%s' is not an option; see --help", argv[optind]);
		exit(2);
	}
	if (options.control == NULL || loop->nb_ports == 0) {
		log_error("--control and at least one --port are needed; see --help");
		exit(2);
	}
	return options;
}

/* Open all ports with a common pool of receive buffers.  Returns 0 or -1 after logging. */
static int open_ports(struct loop *loop)
{
	unsigned buffers = loop->nb_ports * (DEVICE_DESCRIPTORS + 4 * FRAME_BURST) + 2 * RECEIVE_CACHE;
	struct rte_mempool *pool = rte_pktmbuf_pool_create("receive", buffers, RECEIVE_CACHE, 0,
							   RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);

	if (pool == NULL) {
		log_error("no memory for %u receive buffers; use a larger --memory", buffers);
		return -1;
	}
	for (uint16_t i = 0; i < loop->nb_ports; i++) {
		struct device_options options = {.pool = pool, .jumbo = true};
		struct loop_port *port = &loop->ports[i];
		struct device_error error;

		if (device_open(&port->device, port->uri, &options, &error) != 0) {
			log_error("port %s: %s", port->name, error.text);
			return -1;
		}
		port->pool = pool;
		port->up = device_link_up(&port->device);
	}
	return 0;
}

static void close_ports(struct loop *loop)
{
	for (uint16_t i = 0; i < loop->nb_ports; i++)
		device_close(&loop->ports[i].device);
}

/* Measure the clock's rate over what the start has taken, and a while more if that was short. */
static void take_rate(struct loop *loop, const struct clock_reading *began)
{
	struct clock_reading now = clock_read();

	while (now.ns - began->ns < CLOCK_LEAST) {
		usleep((useconds_t)((CLOCK_LEAST - (now.ns - began->ns)) / 1000 + 1));
		now = clock_read();
	}
	loop->began = *began;
	loop->rate = clock_rate(clock_measure(began, &now));
}

int main(int argc, char **argv)
{
	static struct tester tester = {.pools.buffers = FRAME_BUFFERS};
	struct control *control = NULL;
	struct clock_reading began;
	struct options options;
	int stop_fd, status = 1;

	log_open("tailrace-tester", LOG_LEVEL_INFO);
	options = parse(argc, argv, &tester.loop);
	if (!clock_is_invariant(clock_cpuid_of_this_cpu)) {
		log_error("this CPU's time stamp counter is not invariant, so it cannot measure time; in a virtual "
			  "machine, let the guest see 'invtsc'");
		return 1;
	}
	began = clock_read();
	for (uint16_t i = 0; i < LOOP_PORTS; i++)
		tester.loop.ports[i].device.port = RTE_MAX_ETHPORTS;
	stop_fd = stop_open();
	if (stop_fd < 0 || eal_start(&options.eal) != 0)
		return 1;
	take_rate(&tester.loop, &began);
	if (loop_open(&tester.loop) == 0 && open_ports(&tester.loop) == 0)
		control = control_open(options.control, tester_methods, nb_tester_methods, &tester);
	if (control != NULL) {
		rte_eal_remote_launch(loop_run, &tester.loop, eal_worker());
		status = control_serve(control, stop_fd) == 0 ? 0 : 1;
		loop_quit(&tester.loop);
		rte_eal_wait_lcore(eal_worker());
		control_close(control);
	}
	close_ports(&tester.loop);
	trial_free(tester.trial);
	rte_eal_cleanup();
	return status;
}
