/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-priority: gives the virtual CPUs of a machine the priorities of what they run, as its kernel says it in a
 * page of its memory (page.h), within bounds.
 *
 * It reads that page four times a period at the most, whatever the machine does, and rests for as long as that took: a
 * machine that changes its mind a million times a second costs this host no more than any that works.  The page is read
 * by process_vm_readv(), which fails where nothing is mapped any more; so nothing of the machine's is mapped here.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/option.h"
#include "priority/follow.h"
#include "priority/page.h"
#include "priority/vcpu.h"

static const char usage[] =
	"Usage: tailrace-priority --process PID --page ADDRESS --thread TID... --least N --most N [--period US] "
	"[--core N]\n"
	"\n"
	"Gives the virtual CPUs of a machine the priority of what they run, as its kernel says it in a page of its "
	"memory\n"
	"(tailrace-priority-agent).  When it ends, they have the one again that they had.\n"
	"\n"
	"  --process PID   QEMU\n"
	"  --page ADDRESS  where QEMU has that page, in hexadecimal digits\n"
	"  --thread TID    the thread of a virtual CPU; once for each, in their order\n"
	"  --least N       SCHED_FIFO priority of one that runs nothing real-time (0: an ordinary task)\n"
	"  --most N        the highest that one can have\n"
	"  --period US     how often the page is read (default: 1000)\n"
	"  --core N        on this CPU\n"
	"  --version, --help\n";

enum {
	MOST_PRIORITY = 49,  /* below the kernel's threads of interrupts */
	STEPS = 4,	     /* of a period: one that runs ordinary work is raised for the first */
	SILENT_LOOK_MS = 10, /* how often one that is not believed is looked at */
	NS = 1000000000,
};

struct options {
	long process, core, least, most, period_us;
	uintptr_t page;
	unsigned nb_threads;
	pid_t threads[PRIORITY_PAGE_CPUS];
};

struct follower {
	struct options options;
	struct follow_bounds bounds;
	struct follow_life life;
	struct vcpu vcpus[PRIORITY_PAGE_CPUS];
	struct priority_page page; /* as it was when it was last read */
	bool follows;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	stopped = 1;
}

static uintptr_t address(const char *text)
{
	char *end;
	unsigned long long found;

	errno = 0;
	found = strtoull(text, &end, 16);
	if (errno != 0 || *end != '\0' || end == text || found % PRIORITY_PAGE_BYTES != 0) {
		log_error("--page %s: expected the address of a page of memory, in hexadecimal digits", text);
		exit(2);
	}
	return (uintptr_t)found;
}

static void add_thread(struct options *options, const char *text)
{
	if (options->nb_threads == PRIORITY_PAGE_CPUS) {
		log_error("--thread: expected at most %d", PRIORITY_PAGE_CPUS);
		exit(2);
	}
	options->threads[options->nb_threads++] = (pid_t)option_number("thread", text, 1, INT32_MAX);
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"process", required_argument, NULL, 'p'}, {"page", required_argument, NULL, 'a'},
		{"thread", required_argument, NULL, 't'},  {"least", required_argument, NULL, 'l'},
		{"most", required_argument, NULL, 'm'},	   {"period", required_argument, NULL, 'e'},
		{"core", required_argument, NULL, 'c'},	   {"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},	   {NULL, 0, NULL, 0},
	};
	struct options options = {.core = -1, .least = -1, .most = -1, .period_us = 1000};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 'p':
			options.process = option_number("process", optarg, 1, INT32_MAX);
			break;
		case 'a':
			options.page = address(optarg);
			break;
		case 't':
			add_thread(&options, optarg);
			break;
		case 'l':
			options.least = option_number("least", optarg, 0, MOST_PRIORITY);
			break;
		case 'm':
			options.most = option_number("most", optarg, 1, MOST_PRIORITY);
			break;
		case 'e':
			options.period_us = option_number("period", optarg, 100, 1000000);
			break;
		case 'c':
			options.core = option_number("core", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'v':
			puts("tailrace-priority " TAILRACE_VERSION);
			exit(0);
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc || options.process == 0 || options.page == 0 || options.nb_threads == 0 ||
	    options.least < 0 || options.most < options.least) {
		log_error("expected --process, --page, --thread, --least and --most, the last two in this order; see "
			  "--help");
		exit(2);
	}
	return options;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t due)
{
	const struct timespec until = {.tv_sec = (time_t)(due / NS), .tv_nsec = (long)(due % NS)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Whether there is still a process.  What cannot be read of one is read as zeros, which nobody believes. */
static bool look(struct follower *follower)
{
	/* Each CPU's line is copied once, and looked at here. */
	const size_t size = offsetof(struct priority_page, cpus) +
			    follower->options.nb_threads * sizeof(struct priority_page_cpu);
	const struct iovec here = {.iov_base = &follower->page, .iov_len = size};
	const struct iovec there = {.iov_base = (void *)follower->options.page, .iov_len = size};
	const ssize_t got = process_vm_readv((pid_t)follower->options.process, &here, 1, &there, 1, 0);

	if (got == (ssize_t)size)
		return true;
	if (got < 0 && errno == ESRCH)
		return false;
	memset(&follower->page, 0, sizeof(follower->page));
	return true;
}

/*
 * Returns whether to look again at the next step, or -errno: one is raised for a moment, or for a real-time task that
 * has come since the period began and may have done by then.  One that runs such a task without end is not looked at
 * more often for that.
 */
static int set(struct follower *follower, bool open)
{
	int again = 0;

	for (unsigned i = 0; i < follower->options.nb_threads; i++) {
		uint32_t runs = follower->page.cpus[i].runs;
		int wanted = follow_priority(&follower->bounds, runs, open);
		int error = vcpu_set(&follower->vcpus[i], wanted);

		if (error < 0)
			return error;
		again |= open ? follow_opens(&follower->bounds, runs)
			      : wanted > follower->bounds.least && runs != PRIORITY_IDLE;
	}
	return again;
}

static int give_back(struct follower *follower)
{
	int error = 0;

	for (unsigned i = 0; i < follower->options.nb_threads; i++) {
		int failed = vcpu_give_back(&follower->vcpus[i]);

		error = failed < 0 ? failed : error;
	}
	return error;
}

/* As the machine says it, if it is to be believed.  As `set`. */
static int heed(struct follower *follower, bool open)
{
	bool lives = follow_lives(&follower->life, follower->page.magic, follower->page.beat, now_ns());
	int again = lives ? set(follower, open) : give_back(follower);

	if (again >= 0 && lives != follower->follows) {
		static struct log_budget budget;

		log_within(&budget, LOG_LEVEL_INFO, "%s",
			   lives ? "follows what the machine runs"
				 : "the machine's agent is silent: its CPUs have their planned priority");
	}
	follower->follows = lives;
	return again;
}

/* Returns 0 once it is asked to end, or the machine has ended; or -errno. */
static int follow(struct follower *follower)
{
	const uint64_t step = (uint64_t)follower->options.period_us * 1000 / STEPS;
	uint64_t due = now_ns();
	unsigned at = 0; /* the step of the period */
	int again;

	for (uint64_t began = due; !stopped && look(follower); began = now_ns()) {
		uint64_t ended;

		again = heed(follower, at == 0);
		if (again < 0)
			return again;
		if (!follower->follows)
			due += SILENT_LOOK_MS * UINT64_C(1000000);
		else
			due += again ? step : (STEPS - at) * step;
		at = follower->follows && again ? (at + 1) % STEPS : 0;
		ended = now_ns();
		if (due < ended + (ended - began)) /* what was missed is not made up for */
			due = ended + (ended - began);
		sleep_until(due);
	}
	return 0;
}

/* Returns 0, or 1 with a line said. */
static int settle(struct follower *follower)
{
	const struct sigaction end = {.sa_handler = stop};
	const struct options *options = &follower->options;
	const struct sched_param own = {.sched_priority = (int)options->most + 1};
	cpu_set_t cpus;

	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	for (unsigned i = 0; i < options->nb_threads; i++) {
		int error = vcpu_take(&follower->vcpus[i], (pid_t)options->process, options->threads[i]);

		if (error < 0) {
			log_error("thread %d of process %ld: %s", options->threads[i], options->process,
				  strerror(-error));
			return 1;
		}
	}
	CPU_ZERO(&cpus);
	if (options->core >= 0)
		CPU_SET((int)options->core, &cpus);
	if (options->core >= 0 && sched_setaffinity(0, sizeof(cpus), &cpus) < 0) {
		log_error("--core %ld: %s", options->core, strerror(errno));
		return 1;
	}
	if (sched_setscheduler(0, SCHED_FIFO, &own) < 0) {
		log_error("this process may have no real-time priority: %s", strerror(errno));
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
		log_warning("its memory is not locked, so that it may wait for the disk: %s", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	static struct follower follower;
	uint64_t changes = 0;
	int error, failed;

	log_open("tailrace-priority", LOG_LEVEL_INFO);
	follower.options = parse(argc, argv);
	follower.bounds = (struct follow_bounds){.least = (int)follower.options.least,
						 .most = (int)follower.options.most};
	if (settle(&follower) != 0)
		return 1;
	error = follow(&follower);
	failed = give_back(&follower);
	error = error < 0 ? error : failed;
	if (error == -EPERM)
		log_error("a virtual CPU may have no real-time priority: %s; with CONFIG_RT_GROUP_SCHED its cgroup "
			  "needs time for that (cpu.rt_runtime_us)",
			  strerror(-error));
	else if (error < 0)
		log_error("the priority of a virtual CPU: %s", strerror(-error));
	for (unsigned i = 0; i < follower.options.nb_threads; i++)
		changes += follower.vcpus[i].changes;
	log_info("ends; it has changed priorities %" PRIu64 " times", changes);
	return error < 0 ? 1 : 0;
}
