/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "common/device.h"
#include "common/log.h"
#include "common/option.h"
#include "options.h"

enum {
	DEFAULT_MEMORY = 32, /* MiB */
	LEAST_MEMORY = 24,
	SETTINGS = 32, /* at most */
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
	"  --core N[,N...]    the CPU to run on, or one for each thread (default: the last one)\n"
	"  --queues N         of each port, and the most threads that it may be given while it runs (default: one)\n"
	"  --memory MIB       memory for packet buffers (default: 32)\n"
	"  --control PATH     answer at this Unix socket what `tailrace function show` asks for: counters and tables\n"
	"  --ask PATH         send the line from standard input to another one's --control, and print its answer\n"
	"  --set NAME=VALUE   a setting of the function; may be repeated\n"
	"  --commands FIFO    take lines from there while it forwards: `address 0|1 MAC` gives a port another address\n"
	"  --huge             take it from 2 MiB pages (reserve them in\n"
	"                     /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)\n"
	"  --version, --help\n"
	"\n"
	"Functions:\n";

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

/* A number, or several with commas between them; returns how many. */
static unsigned parse_cpus(const char *text, int *cpus)
{
	char copy[128], *rest, *word;
	unsigned count = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
		if (count == FUNCTION_QUEUES) {
			log_error("--core %s: more than %d CPUs", text, FUNCTION_QUEUES);
			exit(2);
		}
		cpus[count++] = (int)option_number("core", word, 0, 1023);
	}
	if (count == 0)
		option_number("core", text, 0, 1023); /* which it is not */
	return count;
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

struct options options_parse(int argc, char **argv)
{
	enum {
		PORT = 256,
		MODE,
		CORE,
		QUEUES,
		CONTROL,
		ASK,
		SET,
		COMMANDS,
		MEMORY,
		HUGE_PAGES,
		NO_HUGE_PAGES,
		VERSION,
		HELP
	};
	static const struct option known[] = {
		{"port", required_argument, NULL, PORT},
		{"mode", required_argument, NULL, MODE},
		{"core", required_argument, NULL, CORE},
		{"queues", required_argument, NULL, QUEUES},
		{"control", required_argument, NULL, CONTROL},
		{"ask", required_argument, NULL, ASK},
		{"set", required_argument, NULL, SET},
		{"commands", required_argument, NULL, COMMANDS},
		{"memory", required_argument, NULL, MEMORY},
		{"huge", no_argument, NULL, HUGE_PAGES},
		{"no-huge", no_argument, NULL, NO_HUGE_PAGES},
		{"version", no_argument, NULL, VERSION},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	struct options options = {
		.cpus = {-1},
		.nb_cpus = 1,
		.nb_queues = 1,
		.eal = {.program = "tailrace-vnf", .memory_mib = DEFAULT_MEMORY},
	};
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
			options.nb_cpus = parse_cpus(optarg, options.cpus);
			break;
		case QUEUES:
			options.nb_queues = (unsigned)option_number("queues", optarg, 1, FUNCTION_QUEUES);
			break;
		case MEMORY:
			options.eal.memory_mib = (unsigned)option_number("memory", optarg, LEAST_MEMORY, 1 << 20);
			break;
		case CONTROL:
			options.control = optarg;
			break;
		case ASK:
			exit(ask(optarg));
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
	if (options.nb_queues > 1 && !options.function->several) {
		log_error("--queues %u: one thread sees all frames of kind %s; expected 1", options.nb_queues,
			  options.function->name);
		exit(2);
	}
	if (options.nb_cpus > options.nb_queues) {
		log_error("--core: %u CPUs for %u queue%s; expected no more, or more --queues", options.nb_cpus,
			  options.nb_queues, options.nb_queues == 1 ? "" : "s");
		exit(2);
	}
	for (int i = 0; i < nb_settings; i++)
		take_setting(options.function, settings[i]);
	return options;
}
