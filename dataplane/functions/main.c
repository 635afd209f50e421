/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-vnf: options, start and end.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "forward.h"
#include "report.h"

enum {
	DEFAULT_MEMORY = 32, /* MiB */
	LEAST_MEMORY = 24,
	CACHE = 128,
	LINK_TICK = 500, /* ms between two looks at the links */
	PEER_TICK = 20,	 /* ms between two looks for who is to come */
	END_TICK = 500,	 /* us between two looks whether the forwarding thread has ended */
	SETTINGS = 32,	 /* at most */
};

static const char usage[] =
	"Usage: tailrace-vnf FUNCTION --port URI --port URI [option ...]\n"
	"\n"
	"A reference network function between two ports.  It needs no privilege of its own for vhost ports, and\n"
	"leaves nothing on any file system.  SIGTERM ends it; its counters then go to standard output as a line\n"
	"of JSON.\n"
	"\n"
	"  --port URI         a port: vhost:SOCKET (connect to a vhost-user back end), vhost-server:SOCKET (wait for\n"
	"                     one), if:INTERFACE, pci:ADDRESS or vdev:DPDK-ARGUMENTS\n"
	"  --mode poll        never sleep: for a core of its own (default)\n"
	"  --mode interrupt   sleep while there is nothing to do: for a shared core; there, start it at a real-time\n"
	"                     priority (chrt -f 20 tailrace-vnf ...), which only the forwarding thread then keeps;\n"
	"                     a port without receive interrupts (memif, if:) is looked at every 50 us\n"
	"  --core N           the CPU to run on (default: the last one)\n"
	"  --memory MIB       memory for packet buffers (default: 32)\n"
	"  --control PATH     answer at this Unix socket what `tailrace function show` asks for: counters and tables\n"
	"  --set NAME=VALUE   a setting of the function; may be repeated\n"
	"  --commands FIFO    take lines from there while it forwards: `address 0|1 MAC` gives a port another address\n"
	"  --huge             take it from 2 MiB pages (reserve them in\n"
	"                     /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)\n"
	"  --version, --help\n"
	"\n"
	"Functions:\n";

struct options {
	const struct function *function;
	const char *ports[2];
	const char *commands;
	const char *control; /* NULL: no socket */
	bool interrupts;
	struct eal_options eal;
};

static void help(void)
{
	fputs(usage, stdout);
	for (size_t i = 0; i < nb_functions; i++)
		printf("  %-18s %s\n", functions[i]->name, functions[i]->help);
}

static bool parse_mode(const char *mode)
{
	if (strcmp(mode, "interrupt") == 0)
		return true;
	if (strcmp(mode, "poll") != 0) {
		log_error("--mode %s: expected poll or interrupt", mode);
		exit(2);
	}
	return false;
}

/* Give a function the setting that NAME=VALUE is; ends the program if it is wrong. */
static void take_setting(const struct function *function, const char *text)
{
	const char *equals = strchr(text, '='), *expected = "NAME=VALUE";
	char name[32];

	if (function->set == NULL) {
		log_error("--set %s: %s has no settings", text, function->name);
		exit(2);
	}
	if (equals != NULL && equals > text && (size_t)(equals - text) < sizeof(name)) {
		snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
		expected = function->set(name, equals + 1);
	}
	if (expected != NULL) {
		log_error("--set %s: expected %s", text, expected);
		exit(2);
	}
}

static struct options parse(int argc, char **argv)
{
	enum { PORT = 256, MODE, CORE, CONTROL, SET, COMMANDS, MEMORY, HUGE_PAGES, NO_HUGE_PAGES, VERSION, HELP };
	static const struct option known[] = {
		{"port", required_argument, NULL, PORT},
		{"mode", required_argument, NULL, MODE},
		{"core", required_argument, NULL, CORE},
		{"control", required_argument, NULL, CONTROL},
		{"set", required_argument, NULL, SET},
		{"commands", required_argument, NULL, COMMANDS},
		{"memory", required_argument, NULL, MEMORY},
		{"huge", no_argument, NULL, HUGE_PAGES},
		{"no-huge", no_argument, NULL, NO_HUGE_PAGES},
		{"version", no_argument, NULL, VERSION},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.eal = {.program = "tailrace-vnf", .core = -1, .memory_mib = DEFAULT_MEMORY}};
	const char *settings[SETTINGS];
	struct device_error error;
	int option, nb_ports = 0, nb_settings = 0;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		switch (option) {
		case PORT:
			if (nb_ports == 2) {
				log_error("--port %s: a function has two ports", optarg);
				exit(2);
			}
			if (device_check(optarg, &error) != 0) {
				log_error("--port: %s", error.text);
				exit(2);
			}
			if (device_pci_address(optarg) != NULL)
				eal_want_device(&options.eal, device_pci_address(optarg));
			options.ports[nb_ports++] = optarg;
			break;
		case MODE:
			options.interrupts = parse_mode(optarg);
			break;
		case CORE:
			options.eal.core = (int)option_number("core", optarg, 0, 1023);
			break;
		case MEMORY:
			options.eal.memory_mib = (unsigned)option_number("memory", optarg, LEAST_MEMORY, 1 << 20);
			break;
		case CONTROL:
			options.control = optarg;
			break;
		case SET:
			if (nb_settings == SETTINGS) {
				log_error("--set %s: more than %d settings", optarg, SETTINGS);
				exit(2);
			}
			settings[nb_settings++] = optarg;
			break;
		case COMMANDS:
			options.commands = optarg;
			break;
		case HUGE_PAGES:
			options.eal.huge = true;
			break;
		case NO_HUGE_PAGES:
			options.eal.huge = false;
			break;
		case VERSION:
			printf("tailrace-vnf %s\n", TAILRACE_VERSION);
			exit(0);
		case HELP:
			help();
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	}
	if (optind + 1 != argc || nb_ports != 2) {
		log_error("expected one function and two ports; see --help");
		exit(2);
	}
	options.function = function_find(argv[optind]);
	if (options.function == NULL) {
		log_error("no function '%s'; --help lists those there are", argv[optind]);
		exit(2);
	}
	for (int i = 0; i < nb_settings; i++)
		take_setting(options.function, settings[i]);
	return options;
}

/* Open both ports with a common pool: all rings full at once, and what is under way.  Returns 0 or -1 after logging. */
static int open_ports(struct forward *forward, const struct options *options)
{
	const struct function_keeping *keeping = options->function->keeping;
	unsigned buffers = 4 * DEVICE_DESCRIPTORS + 2 * CACHE + 64 + (keeping != NULL ? keeping->buffers : 0);
	struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", buffers, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
							   SOCKET_ID_ANY);

	if (pool == NULL) {
		log_error("no memory for %u buffers; use a larger --memory", buffers);
		return -1;
	}
	if (keeping != NULL && keeping->open(pool, forward->wake_fd) != 0)
		return -1;
	for (int i = 0; i < 2; i++) {
		struct device_options wanted = {.pool = pool, .interrupts = options->interrupts, .jumbo = true};
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
 * Wait for a signal.  A port at which this program listens may lose its back end: another one takes the rings up where
 * they stand.  Returns 0, or -1 if what another port is connected to went away, or forwarding failed, first.
 */
static int wait_for_end(struct forward *forward, int stop_fd, int commands)
{
	bool up[2] = {true, true};

	while (!asked_to_end_at_work(forward, stop_fd, commands, up[0] && up[1] ? LINK_TICK : PEER_TICK)) {
		if (rte_eal_get_lcore_state(eal_worker()) != RUNNING)
			return -1;
		for (int i = 0; i < 2; i++) {
			const struct device *port = &forward->ports[i];

			if (device_link_up(port) == up[i])
				continue;
			up[i] = !up[i];
			if (port->kind == DEVICE_VHOST_SERVER) {
				log_info("port %s: its back end %s", port->target, up[i] ? "is back" : "has gone");
				continue;
			}
			log_error("port %s: its link went down; start this program again when what is at its "
				  "other end is back",
				  port->target);
			return -1;
		}
	}
	return 0;
}

/*
 * Wait for the forwarding thread's end, and return what it did.  DPDK's own wait spins: at the forwarding thread's
 * real-time priority, and on its core, it would keep it from ever ending.
 */
static int wait_for_worker(void)
{
	while (rte_eal_get_lcore_state(eal_worker()) == RUNNING)
		usleep(END_TICK);
	return rte_eal_wait_lcore(eal_worker());
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
	rte_eal_remote_launch(forward_run, forward, eal_worker());
	status = wait_for_end(forward, stop_fd, commands) == 0 ? 0 : 1;
	forward_quit(forward);
	if (wait_for_worker() != 0)
		status = 1;

	report_print(forward);
	return status;
}

int main(int argc, char **argv)
{
	static struct forward forward;
	struct report report = {0};
	struct options options;
	int stop_fd, commands = -1, status = 1;

	log_open("tailrace-vnf", LOG_LEVEL_INFO);
	options = parse(argc, argv);
	forward.function = options.function;
	forward.interrupts = options.interrupts;
	for (int i = 0; i < 2; i++)
		forward.ports[i].port = RTE_MAX_ETHPORTS;
	/* Written to as well, so that it does not end with who writes there. */
	if (options.commands != NULL && (commands = open(options.commands, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0) {
		log_error("--commands %s: %s", options.commands, strerror(errno));
		return 2;
	}
	stop_fd = stop_open();
	if (stop_fd < 0 || eal_start(&options.eal) != 0)
		return 1;
	/* The socket is there before those of the ports: then the folder that they share is closed. */
	if (grace_open() == 0 && forward_confine_priority() == 0 && forward_open(&forward) == 0 &&
	    report_open(&report, options.control, &forward) == 0 && open_ports(&forward, &options) == 0)
		status = run(&forward, &report, stop_fd, commands);
	report_close(&report);
	if (options.function->keeping != NULL)
		options.function->keeping->close();
	for (int i = 0; i < 2; i++)
		device_close(&forward.ports[i]);
	rte_eal_cleanup();
	return status;
}
