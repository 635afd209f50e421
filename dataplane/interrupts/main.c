/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-interrupts: raises interrupts at a steady period, and says how long each took to user space.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/control.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "interrupts/raise.h"
#include "tester/describe.h"

static const char usage[] =
	"Usage: tailrace-interrupts --control PATH --socket PATH [--nic PATH] [--core N] [--priority P]\n"
	"\n"
	"Raises interrupts at a steady period, and says how long each took until it was in user space of a receiver: "
	"a\n"
	"tailrace-interrupt-receiver in a process, or in a machine with QEMU's device ivshmem-doorbell.\n"
	"\n"
	"  --control PATH  what is to be done is said there, as JSON-RPC\n"
	"  --socket PATH   the receiver, or QEMU, takes its memory and its interrupt there\n"
	"  --nic PATH      QEMU listens there (vhost-user): the receiver has a network device (virtio)\n"
	"  --core N        raise them on this CPU\n"
	"  --priority P    and at this real-time priority (SCHED_FIFO)\n"
	"  --version, --help\n";

enum {
	RATE_MS = 100, /* for which the clock's rate is measured */
	PERIOD_NS_LEAST = 10000,
	PERIOD_NS_MOST = 1000000000,
};

struct options {
	const char *control, *socket, *nic;
	long core, priority;
};

struct sender {
	struct options options;
	struct doorbell doorbell;
	struct interrupts interrupts;
	struct nic nic;
	struct control *server;
	int listening, client; /* -1: none */
	pthread_t thread;
	bool running;
	atomic_bool stop, done;
	struct interrupts_run run;
};

static void *run(void *argument)
{
	struct sender *sender = argument;

	interrupts_raise(&sender->interrupts, &sender->run, &sender->stop);
	atomic_store_explicit(&sender->done, true, memory_order_release);
	return NULL;
}

static void end_run(struct sender *sender)
{
	if (!sender->running)
		return;
	atomic_store_explicit(&sender->stop, true, memory_order_relaxed);
	pthread_join(sender->thread, NULL);
	sender->running = false;
}

/* Returns 0 or an error number. */
static int begin_run(struct sender *sender)
{
	const struct sched_param priority = {.sched_priority = (int)sender->options.priority};
	pthread_attr_t how;
	cpu_set_t cpus;
	int error;

	CPU_ZERO(&cpus);
	pthread_attr_init(&how);
	if (sender->options.core >= 0) {
		CPU_SET((int)sender->options.core, &cpus);
		pthread_attr_setaffinity_np(&how, sizeof(cpus), &cpus);
	}
	if (sender->options.priority > 0) {
		pthread_attr_setinheritsched(&how, PTHREAD_EXPLICIT_SCHED);
		pthread_attr_setschedpolicy(&how, SCHED_FIFO);
		pthread_attr_setschedparam(&how, &priority);
	}
	error = pthread_create(&sender->thread, &how, run, sender);
	pthread_attr_destroy(&how);
	sender->running = error == 0;
	return error;
}

static const char *const path_words[] = {[INTERRUPTS_CALL] = "msix",
					 [INTERRUPTS_VRING] = "vring",
					 [INTERRUPTS_TIMER] = "timer",
					 [INTERRUPTS_IPI] = "ipi"};

static json_t *begin(void *context, json_t *params, struct control_error *error)
{
	struct sender *sender = context;
	json_int_t count, period, budget;
	const char *clock, *path;
	unsigned way = 0;
	int failed;

	if (control_unpack(params, error, "{s:I, s:I, s:I, s:s, s:s}", "count", &count, "period_ns", &period,
			   "budget_ns", &budget, "clock", &clock, "path", &path) != 0)
		return NULL;
	if (count < 1 || period < PERIOD_NS_LEAST || period > PERIOD_NS_MOST || budget < 0)
		return control_fail(error, CONTROL_INVALID_PARAMS,
				    "expected a count from 1, a period_ns from %d to %d, and a budget_ns",
				    PERIOD_NS_LEAST, PERIOD_NS_MOST);
	if (strcmp(clock, "monotonic") != 0 && strcmp(clock, "tai") != 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "expected the clock monotonic or tai");
	while (way < INTERRUPTS_PATHS && strcmp(path, path_words[way]) != 0)
		way++;
	if (way == INTERRUPTS_PATHS || (way == INTERRUPTS_VRING && sender->interrupts.nic == NULL))
		return control_fail(error, CONTROL_INVALID_PARAMS,
				    "expected the path msix, timer or ipi, or with --nic vring");
	if (sender->running && !atomic_load_explicit(&sender->done, memory_order_acquire))
		return control_fail(error, CONTROL_FAILED, "interrupts are raised already; end that first");
	end_run(sender);
	memset(&sender->run, 0, sizeof(sender->run));
	sender->run.count = (uint64_t)count;
	sender->run.budget_ns = (uint64_t)budget;
	sender->run.path = way;
	sender->run.grid = (struct grid){
		.clock = strcmp(clock, "tai") == 0 ? CLOCK_TAI : CLOCK_MONOTONIC,
		.period_ns = (uint64_t)period,
		.ahead = grid_ahead,
	};
	sender->stop = false;
	sender->done = false;
	failed = begin_run(sender);
	if (failed != 0)
		return control_fail(error, CONTROL_FAILED, "the thread that raises them: %s", strerror(failed));
	return json_object();
}

static json_t *end(void *context, json_t *params, struct control_error *error)
{
	end_run(context);
	return json_object();
}

static const char *fault(enum interrupts_fault fault)
{
	static const char *const words[] = {
		[INTERRUPTS_NO_ANSWER] = "the receiver does not answer",
		[INTERRUPTS_CLOCKS] = "the receiver's time stamp counter was set, or has another rate than this host's",
	};

	return words[fault];
}

/* Those that were among the slowest when they came, each told once. */
static json_t *take_slowest(struct slowest *slowest)
{
	json_t *found = json_array();
	struct slow_interrupt one;

	for (unsigned i = 0; i < SLOWEST_TOLD && slowest_take(slowest, &one); i++)
		json_array_append_new(found, json_pack("[I, I, I]", (json_int_t)one.number, (json_int_t)one.raised,
						       (json_int_t)one.arrived));
	return found;
}

static json_t *look(void *context, json_t *params, struct control_error *error)
{
	struct sender *sender = context;
	struct interrupts_run *run = &sender->run;
	bool done = sender->running && atomic_load_explicit(&sender->done, memory_order_acquire);
	bool ready = atomic_load_explicit(&sender->interrupts.page->ready, memory_order_acquire) != 0 &&
		     (sender->interrupts.nic == NULL || nic_takes(&sender->nic));
	bool joined = atomic_load_explicit(&run->joined, memory_order_acquire);
	json_t *found = json_pack("{s:b, s:b, s:I, s:I, s:o, s:I, s:o}", "attached", sender->client >= 0, "ready",
				  ready, "ticks", (json_int_t)atomic_load_explicit(&run->ticks, memory_order_relaxed),
				  "tsc_hz", (json_int_t)sender->interrupts.rate.hz, "slowest",
				  take_slowest(&run->slowest), "slowest_missed",
				  (json_int_t)atomic_load_explicit(&run->slowest.missed, memory_order_relaxed),
				  "clock_offset", joined ? json_integer(run->before.offset) : json_null());

	if (!done)
		return found;
	json_object_set_new(found, "result",
			    json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o}", "raised",
				      (json_int_t)run->counts.raised, "lost", (json_int_t)run->counts.lost, "wrong",
				      (json_int_t)run->counts.wrong, "held", (json_int_t)run->counts.held, "reset",
				      (json_int_t)run->counts.reset, "over", (json_int_t)run->counts.over, "ipis",
				      (json_int_t)(run->ipis & INT64_MAX), "recording_ns",
				      (json_int_t)(clock_ns(&sender->interrupts.rate, run->recording) & INT64_MAX),
				      "clock_error_ns", (double)clock_ns(&sender->interrupts.rate, run->before.error),
				      "latency", describe_latency(&run->latency), "late", describe_latency(&run->late),
				      "fault",
				      run->fault == INTERRUPTS_WELL ? json_null() : json_string(fault(run->fault))));
	return found;
}

static json_t *version(void *context, json_t *params, struct control_error *error)
{
	return json_pack("{s:s, s:s}", "program", "tailrace-interrupts", "version", TAILRACE_VERSION);
}

static const struct control_method methods[] = {
	{"version", version, CONTROL_NO_PARAMS},
	{"interrupts.begin", begin, CONTROL_PARAMS("count", "period_ns", "budget_ns", "clock", "path")},
	{"interrupts.look", look, CONTROL_NO_PARAMS},
	{"interrupts.end", end, CONTROL_NO_PARAMS},
};

/* One client has the interrupt; another that comes takes its place. */
static void accept_client(void *context)
{
	struct sender *sender = context;
	int error, client = accept4(sender->listening, NULL, NULL, SOCK_CLOEXEC);

	if (client < 0)
		return;
	error = doorbell_give(&sender->doorbell, client);
	if (error < 0) {
		log_warning("%s: who came there does not take it: %s", sender->options.socket, strerror(-error));
		close(client);
		return;
	}
	if (sender->client >= 0)
		close(sender->client);
	sender->client = client;
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"control", required_argument, NULL, 'C'},  {"socket", required_argument, NULL, 's'},
		{"nic", required_argument, NULL, 'n'},	    {"core", required_argument, NULL, 'c'},
		{"priority", required_argument, NULL, 'p'}, {"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},	    {NULL, 0, NULL, 0},
	};
	struct options options = {.core = -1};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 'C':
			options.control = optarg;
			break;
		case 's':
			options.socket = optarg;
			break;
		case 'n':
			options.nic = optarg;
			break;
		case 'c':
			options.core = option_number("core", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'p':
			options.priority = option_number("priority", optarg, 1, 98);
			break;
		case 'v':
			puts("tailrace-interrupts " TAILRACE_VERSION);
			exit(0);
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc || options.control == NULL || options.socket == NULL) {
		log_error("expected --control and --socket; see --help");
		exit(2);
	}
	return options;
}

/* Returns 0 or -errno. */
static int open_page(struct sender *sender)
{
	struct interrupt_page *page;
	int error = doorbell_make(&sender->doorbell);

	if (error < 0)
		return error;
	page = mmap(NULL, INTERRUPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		    sender->doorbell.page, 0);
	if (page == MAP_FAILED)
		return -errno;
	page->magic = INTERRUPT_PAGE_MAGIC;
	sender->interrupts.page = page;
	sender->interrupts.call = sender->doorbell.call;
	return 0;
}

int main(int argc, char **argv)
{
	static struct sender sender = {.client = -1};
	const struct timespec span = {.tv_nsec = RATE_MS * 1000000};
	struct clock_reading began, now;
	int stop, error, status = 1;

	log_open("tailrace-interrupts", LOG_LEVEL_INFO);
	sender.options = parse(argc, argv);
	if (!clock_is_invariant(clock_cpuid_of_this_cpu)) {
		log_error("this CPU's time stamp counter is not invariant, so it cannot measure time; in a virtual "
			  "machine, let the guest see 'invtsc'");
		return 1;
	}
	stop = stop_open();
	began = clock_read();
	nanosleep(&span, NULL);
	now = clock_read();
	sender.interrupts.rate = clock_rate(clock_measure(&began, &now));
	error = stop < 0 ? stop : open_page(&sender);
	sender.listening = error < 0 ? error : doorbell_listen(sender.options.socket);
	if (sender.listening < 0) {
		log_error("%s: %s", sender.options.socket, strerror(-sender.listening));
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	if (sender.options.nic != NULL) {
		if (nic_open(&sender.nic, sender.options.nic) != 0)
			return 1;
		sender.interrupts.nic = &sender.nic;
	}
	if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
		log_warning("its memory is not locked, so that it may wait for the disk: %s", strerror(errno));
	sender.server = control_open(sender.options.control, methods, sizeof(methods) / sizeof(methods[0]), &sender);
	if (sender.server != NULL && control_on_input(sender.server, sender.listening, accept_client, &sender) == 0)
		status = control_serve(sender.server, stop) == 0 ? 0 : 1;
	end_run(&sender);
	if (sender.server != NULL)
		control_close(sender.server);
	unlink(sender.options.socket);
	return status;
}
