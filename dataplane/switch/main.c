/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-switch: vhost-user guests and DPDK devices, wired into chains.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "switch/switch.h"

static const char usage[] =
	"usage: tailrace-switch --control PATH --page PATH [options]\n"
	"\n"
	"A virtual switch that copies a packet between two guests once, ring to ring. It is told what to do over\n"
	"the control socket (JSON-RPC 2.0, a line each), and its counters can be read from the page.\n"
	"\n"
	"  --control PATH       the control socket\n"
	"  --page PATH          the file of counters, for readers to map\n"
	"  --core N             CPU of the polling worker (the last one allowed)\n"
	"  --idle poll|pause    what the worker does without traffic: look again at once, or rest a microsecond "
	"(poll)\n"
	"  --backpressure-us N  how long frames wait for a full receiver before they are dropped (20000)\n"
	"  --memory MIB         DPDK's memory, for device ports (48)\n"
	"  --pci                look for PCI devices, which may then be named as device ports\n"
	"  --version            print the version\n"
	"  --help               print this\n";

struct options {
	const char *control, *page;
	long core, backpressure_us, memory;
	enum worker_idle idle;
	bool pci;
};

/* Returns 0 to go on, or the exit status plus one. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"control", required_argument, NULL, 'c'}, {"page", required_argument, NULL, 'p'},
		{"core", required_argument, NULL, 'n'},	   {"idle", required_argument, NULL, 'i'},
		{"memory", required_argument, NULL, 'm'},  {"backpressure-us", required_argument, NULL, 'b'},
		{"pci", no_argument, NULL, 'd'},	   {"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},	   {NULL, 0, NULL, 0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 'c':
			options->control = optarg;
			break;
		case 'p':
			options->page = optarg;
			break;
		case 'n':
			options->core = option_number("core", optarg, 0, 1023);
			break;
		case 'm':
			options->memory = option_number("memory", optarg, 0, 1 << 20);
			break;
		case 'b':
			options->backpressure_us = option_number("backpressure-us", optarg, 0, 60000000);
			break;
		case 'i':
			if (strcmp(optarg, "poll") != 0 && strcmp(optarg, "pause") != 0) {
				log_error("--idle %s: expected 'poll' or 'pause'", optarg);
				return 3;
			}
			options->idle = optarg[1] == 'o' ? WORKER_POLL : WORKER_PAUSE;
			break;
		case 'd':
			options->pci = true;
			break;
		case 'v':
			puts("tailrace-switch " TAILRACE_VERSION);
			return 1;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc) {
		log_error("'%s' is not an option; see --help", argv[optind]);
		return 3;
	}
	if (options->control == NULL || options->page == NULL) {
		log_error("--control and --page are needed; see --help");
		return 3;
	}
	return 0;
}

/* A guest takes about seven descriptors: as many as this process may have. */
static void raise_open_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

int main(int argc, char **argv)
{
	struct options options = {.core = -1, .backpressure_us = 20000, .memory = 48};
	static struct switch_state state;
	struct control *control;
	int stop, rc;

	log_open("tailrace-switch", LOG_LEVEL_INFO);
	rc = parse(argc, argv, &options);
	if (rc != 0)
		return rc - 1;
	raise_open_files();
	stop = stop_open();
	if (stop < 0) {
		log_error("signals: %s", strerror(-stop));
		return 1;
	}
	if (eal_start(&(struct eal_options){
		    .program = "tailrace-switch",
		    .core = (int)options.core,
		    .memory_mib = options.memory,
		    .pci = options.pci,
	    }) != 0)
		return 1;
	if (grace_open() != 0 || guest_survive_cuts() != 0) {
		log_error("out of memory");
		return 1;
	}
	/* The socket first: it is what tells a second switch that this one runs. */
	control = control_open(options.control, switch_methods, switch_nb_methods, &state);
	if (control == NULL)
		return 1;
	state.worker.idle = options.idle;
	state.worker.patience = rte_get_tsc_hz() / 1000000 * options.backpressure_us;
	rc = switch_open(&state, options.page);
	if (rc == 0) {
		rte_eal_remote_launch(worker_run, &state.worker, eal_worker());
		rc = worker_watch(&state.worker);
		if (rc != 0)
			log_error("a thread to watch the worker: %s", strerror(-rc));
		else
			rc = control_serve(control, stop);
		worker_stop(&state.worker);
		rte_eal_wait_lcore(eal_worker());
		switch_close(&state);
	}
	control_close(control);
	rte_eal_cleanup();
	return rc == 0 ? 0 : 1;
}
