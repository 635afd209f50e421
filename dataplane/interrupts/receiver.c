/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-interrupt-receiver: waits for interrupts in user space, and notes when each has arrived.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "common/log.h"
#include "common/option.h"
#include "interrupts/clocks.h"
#include "interrupts/ipi.h"
#include "interrupts/source.h"
#include "interrupts/wake.h"

static const char usage[] =
	"Usage: tailrace-interrupt-receiver (--socket PATH | --device ADDRESS [--nic ADDRESS]) [--core N] "
	"[--priority P] [--waker N]\n"
	"\n"
	"Waits for interrupts in user space, or for its own timer, and notes in memory that it shares with who raises "
	"them\n"
	"when each arrived.\n"
	"\n"
	"  --socket PATH     from a tailrace-interrupts that listens there\n"
	"  --device ADDRESS  of this PCI device, an ivshmem-doorbell that vfio-pci has\n"
	"  --nic ADDRESS     and frames of this network device, which Linux's driver has\n"
	"  --core N          on this CPU\n"
	"  --priority P      at this real-time priority (SCHED_FIFO)\n"
	"  --waker N         on this CPU a thread can wake it\n"
	"  --version, --help\n";

struct options {
	const char *socket, *device, *nic;
	long core, priority, waker;
};

static const struct timespec rest = {.tv_nsec = 1000000};

/* Questions come one after the other while this phase lasts; to sleep would make them wait. */
static void answer(struct interrupt_page *page)
{
	uint64_t last = atomic_load_explicit(&page->answer, memory_order_relaxed);

	while (atomic_load_explicit(&page->phase, memory_order_acquire) == PHASE_CLOCK) {
		uint64_t question = atomic_load_explicit(&page->question, memory_order_acquire);

		if (question == last) {
			_mm_pause();
			continue;
		}
		atomic_store_explicit(&page->answered_at, clocks_now(), memory_order_relaxed);
		atomic_store_explicit(&page->answer, question, memory_order_release);
		last = question;
	}
}

/* To read `file` waits for an interrupt.  Returns 0 or -errno. */
static int receive(struct interrupt_page *page, int file, enum interrupt_phase phase)
{
	uint64_t count = 0, spent = 0;
	unsigned int cpu;

	while (atomic_load_explicit(&page->phase, memory_order_acquire) == phase) {
		uint64_t number, now;
		ssize_t got = read(file, &number, sizeof(number));

		now = __rdtsc();
		if (got == sizeof(number)) {
			if (phase == PHASE_WAIT)
				number = atomic_load_explicit(&page->raised, memory_order_acquire);
			atomic_store_explicit(&page->arrived_at, now, memory_order_relaxed);
			atomic_store_explicit(&page->arrived, number, memory_order_release);
			spent += __rdtscp(&cpu) - now; /* once all that is read has come */
			count++;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	atomic_store_explicit(&page->recording, count == 0 ? 0 : spent / count, memory_order_relaxed);
	return 0;
}

static int serve(const struct source *source, int waker)
{
	struct interrupt_page *page = source->page;
	int error;

	if (page->magic != INTERRUPT_PAGE_MAGIC) {
		log_error("its memory is not that of a tailrace-interrupts of this version");
		return 1;
	}
	atomic_store_explicit(&page->ready, 1, memory_order_release);
	puts("ready");
	fflush(stdout);
	for (;;) {
		error = 0;
		switch (atomic_load_explicit(&page->phase, memory_order_acquire)) {
		case PHASE_CLOCK:
			answer(page);
			break;
		case PHASE_WAIT:
			error = receive(page, source->event, PHASE_WAIT);
			break;
		case PHASE_FRAME:
			error = receive(page, source->frames, PHASE_FRAME);
			break;
		case PHASE_TIMER:
			wake_up(page);
			break;
		case PHASE_IPI:
			error = waker < 0 ? -EINVAL : ipi_receive(page, waker);
			break;
		default:
			nanosleep(&rest, NULL);
		}
		if (error < 0) {
			log_error("interrupts cannot be waited for: %s", strerror(-error));
			return 1;
		}
	}
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"socket", required_argument, NULL, 's'},
		{"device", required_argument, NULL, 'd'},
		{"nic", required_argument, NULL, 'n'},
		{"core", required_argument, NULL, 'c'},
		{"priority", required_argument, NULL, 'p'},
		{"waker", required_argument, NULL, 'w'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.core = -1, .waker = -1};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 's':
			options.socket = optarg;
			break;
		case 'd':
			options.device = optarg;
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
		case 'w':
			options.waker = option_number("waker", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'v':
			puts("tailrace-interrupt-receiver " TAILRACE_VERSION);
			exit(0);
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc || (options.socket == NULL) == (options.device == NULL) ||
	    (options.nic != NULL && options.device == NULL)) {
		log_error("expected one of --socket and --device, and --nic with the latter only; see --help");
		exit(2);
	}
	return options;
}

/* Returns 0, or 1 with a line said. */
static int settle(const struct options *options)
{
	const struct sched_param priority = {.sched_priority = (int)options->priority};
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	if (options->core >= 0)
		CPU_SET((int)options->core, &cpus);
	if (options->core >= 0 && sched_setaffinity(0, sizeof(cpus), &cpus) < 0) {
		log_error("--core %ld: %s", options->core, strerror(errno));
		return 1;
	}
	if (options->priority > 0 && sched_setscheduler(0, SCHED_FIFO, &priority) < 0) {
		log_error("--priority %ld: %s", options->priority, strerror(errno));
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
		log_warning("its memory is not locked, so that it may wait for the disk: %s", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	struct source source = {.frames = -1};
	struct options options;
	int error;

	log_open("tailrace-interrupt-receiver", LOG_LEVEL_INFO);
	options = parse(argc, argv);
	error = options.socket != NULL ? source_open_socket(options.socket, &source)
				       : source_open_device(options.device, &source);
	if (error == 0 && options.nic != NULL)
		error = source_open_nic(options.nic, &source);
	return error < 0 || settle(&options) != 0 ? 1 : serve(&source, (int)options.waker);
}
