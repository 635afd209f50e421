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

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "switch/cores.h"
#include "switch/privileges.h"
#include "switch/switch.h"

enum { CHECK_REFUSED = 3 };

static const char usage[] =
	"usage: tailrace-switch --control PATH --page PATH [options]\n"
	"\n"
	"A virtual switch that copies a packet between two guests once, ring to ring. It is told what to do over\n"
	"the control socket (JSON-RPC 2.0, a line each), and its counters can be read from the page.\n"
	"\n"
	"  --control PATH       the control socket\n"
	"  --page PATH          the file of counters, for readers to map\n"
	"  --config PATH        the file that keeps the configuration, read at the start if it is there\n"
	"  --cores A,B,...      CPUs of the polling workers, one each (the last one allowed)\n"
	"  --share-cores        take cores that other switches' workers have too, or one for several workers\n"
	"  --idle A,B,...       what each worker does without traffic: 'poll' looks again at once, 'pause' rests a\n"
	"                       microsecond, 'sleep' leaves the core until a guest has something; the last holds for\n"
	"                       all that follow (poll)\n"
	"  --idle-after-us N    how long it has had none before it rests or sleeps (200)\n"
	"  --backpressure-us N  how long frames wait for a full receiver before they are dropped (20000)\n"
	"  --memory MIB         DPDK's memory, for device ports (48)\n"
	"  --user NAME|UID:GID  after the start run as this user, with its groups (the one that starts it)\n"
	"  --groups A,B         further groups, which sockets may be given to\n"
	"  --keep A,B           capabilities that device ports added later, or with --user any, need, of net_raw,\n"
	"                       net_admin, sys_admin, sys_rawio, ipc_lock, dac_override (none are kept)\n"
	"  --pci                look for PCI devices, which may then be named as device ports\n"
	"  --check              read a configuration from standard input, as with the --cores and --memory given, say\n"
	"                       what is wrong with it on standard output (status 3), and start nothing\n"
	"  --version            print the version\n"
	"  --help               print this\n";

struct options {
	const char *control, *config;
	long memory;
	bool pci, share_cores, check;
	unsigned nb_cores, nb_idle;
	int cores[EAL_WORKERS];
	struct switch_options open;
	struct privileges privileges;
};

/* Read a list of CPUs.  Returns whether it is one. */
static bool read_cores(const char *text, struct options *options)
{
	options->nb_cores = 0;
	for (const char *at = text;; at++) {
		char *end;
		long core = strtol(at, &end, 10);

		if (*at < '0' || *at > '9' || core > 1023 || options->nb_cores == EAL_WORKERS)
			break;
		options->cores[options->nb_cores++] = (int)core;
		if (*end == '\0')
			return true;
		if (*end != ',')
			break;
		at = end;
	}
	log_error("--cores %s: expected up to %d CPU numbers, such as 1,2,3", text, EAL_WORKERS);
	return false;
}

/* The idle policy whose name are the `length` bytes at `text`; -1: none. */
static int idle_named(const char *text, size_t length)
{
	for (enum worker_idle idle = WORKER_POLL; idle <= WORKER_SLEEP; idle++) {
		const char *name = worker_idle_name(idle);

		if (strlen(name) == length && memcmp(text, name, length) == 0)
			return idle;
	}
	return -1;
}

/* Read a list of idle policies.  Returns whether it is one. */
static bool read_idle(const char *text, struct options *options)
{
	enum worker_idle *list = options->open.workers.idle;
	const char *at = text;

	options->nb_idle = 0;
	for (;;) {
		const size_t length = strcspn(at, ",");
		const int idle = idle_named(at, length);

		if (idle < 0 || options->nb_idle == GRACE_WORKERS)
			break;
		list[options->nb_idle++] = idle;
		if (at[length] == '\0')
			return true;
		at += length + 1;
	}
	log_error("--idle %s: expected 'poll', 'pause' or 'sleep', or one for each worker, such as poll,sleep", text);
	return false;
}

/* The last policy that was given holds for all workers that follow.  Returns whether there are no more than workers. */
static bool spread_idle(struct options *options)
{
	struct workers_options *workers = &options->open.workers;

	if (options->nb_idle > workers->count) {
		log_error("--idle: %u policies, and there %s %u worker%s (--cores)", options->nb_idle,
			  workers->count == 1 ? "is" : "are", workers->count, workers->count == 1 ? "" : "s");
		return false;
	}
	for (unsigned i = options->nb_idle; i > 0 && i < GRACE_WORKERS; i++)
		workers->idle[i] = workers->idle[i - 1];
	return true;
}

/* Returns 0 to go on, or the exit status plus one. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"control", required_argument, NULL, 'c'},
		{"page", required_argument, NULL, 'p'},
		{"cores", required_argument, NULL, 'n'},
		{"share-cores", no_argument, NULL, 's'},
		{"idle", required_argument, NULL, 'i'},
		{"config", required_argument, NULL, 'f'},
		{"idle-after-us", required_argument, NULL, 'a'},
		{"memory", required_argument, NULL, 'm'},
		{"backpressure-us", required_argument, NULL, 'b'},
		{"user", required_argument, NULL, 'u'},
		{"groups", required_argument, NULL, 'g'},
		{"keep", required_argument, NULL, 'k'},
		{"pci", no_argument, NULL, 'd'},
		{"check", no_argument, NULL, 'x'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 'c':
			options->control = optarg;
			break;
		case 'p':
			options->open.page = optarg;
			break;
		case 'n':
			if (!read_cores(optarg, options))
				return 3;
			break;
		case 's':
			options->share_cores = true;
			break;
		case 'f':
			options->config = optarg;
			break;
		case 'a':
			options->open.workers.idle_us = option_number("idle-after-us", optarg, 0, 60000000);
			break;
		case 'm':
			options->memory = option_number("memory", optarg, 0, 1 << 20);
			break;
		case 'b':
			options->open.workers.backpressure_us = option_number("backpressure-us", optarg, 0, 60000000);
			break;
		case 'i':
			if (!read_idle(optarg, options))
				return 3;
			break;
		case 'u':
			if (privileges_user(&options->privileges, optarg) != 0)
				return 3;
			break;
		case 'g':
			if (privileges_groups(&options->privileges, optarg) != 0)
				return 3;
			break;
		case 'k':
			if (privileges_keep(&options->privileges, optarg) != 0)
				return 3;
			break;
		case 'd':
			options->pci = true;
			break;
		case 'x':
			options->check = true;
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
	if (!options->check && (options->control == NULL || options->open.page == NULL)) {
		log_error("--control and --page are needed; see --help");
		return 3;
	}
	return 0;
}

/* A guest takes about seven descriptors: as many as this process may have.  AF_XDP pins the buffers of its frames. */
static void raise_limits(void)
{
	struct rlimit files, locked = {RLIM_INFINITY, RLIM_INFINITY};

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	setrlimit(RLIMIT_MEMLOCK, &locked);
}

static int start_eal(const struct options *options)
{
	return eal_start(&(struct eal_options){
		.program = "tailrace-switch",
		.core = -1,
		.cores = options->cores,
		.nb_cores = options->nb_cores,
		.memory_mib = options->memory,
		.pci = options->pci,
	});
}

static int restore(struct switch_state *state, const struct options *options)
{
	return options->config != NULL ? config_restore(state, options->config) : 0;
}

/*
 * Start, take up what was kept, and give up what is no longer needed.  Another user's file is taken up as that user:
 * the sockets are then its own, and who could write the file gains nothing by it.
 */
static int open_and_drop(struct switch_state *state, const struct options *options)
{
	const bool another = options->privileges.change_user;
	int rc = switch_open(state, &options->open);

	if (rc == 0 && !another)
		rc = restore(state, options);
	if (rc == 0)
		rc = privileges_drop(&options->privileges);
	if (rc == 0 && another)
		rc = restore(state, options);
	return rc;
}

int main(int argc, char **argv)
{
	struct options options = {.memory = 48, .open.workers = {.count = 1, .backpressure_us = 20000, .idle_us = 200}};
	static struct switch_state state;
	int stop, rc;

	log_open("tailrace-switch", LOG_LEVEL_INFO);
	rc = parse(argc, argv, &options);
	if (rc != 0)
		return rc - 1;
	if (options.nb_cores > 0)
		options.open.workers.count = options.nb_cores;
	if (!spread_idle(&options))
		return 2;
	if (options.check)
		return config_check(stdin, options.open.workers.count, (size_t)options.memory) == 0 ? 0 : CHECK_REFUSED;
	raise_limits();
	stop = stop_open();
	if (stop < 0) {
		log_error("signals: %s", strerror(-stop));
		return 1;
	}
	if (start_eal(&options) != 0)
		return 1;
	for (unsigned i = 0; i < options.open.workers.count; i++)
		options.cores[i] = eal_lcore_cpu(eal_worker_lcore(i));
	if (grace_open() != 0 || guest_survive_cuts() != 0) {
		log_error("out of memory");
		return 1;
	}
	/* The socket first: it is what tells a second switch that this one runs. */
	state.control = control_open(options.control, switch_methods, switch_nb_methods, &state);
	if (state.control == NULL)
		return 1;
	if (cores_claim(state.control, options.cores, options.open.workers.count, options.share_cores) != 0) {
		control_close(state.control);
		return 1;
	}
	rc = open_and_drop(&state, &options);
	if (rc == 0)
		rc = control_serve(state.control, stop);
	switch_close(&state);
	control_close(state.control);
	/*
	 * Without rte_eal_cleanup(): it unmaps DPDK's memory while DPDK's own thread may still be busy in it, with a
	 * memif's peer that has just gone for one, and there is nothing to clean up that does not end with the process.
	 */
	return rc == 0 ? 0 : 1;
}
