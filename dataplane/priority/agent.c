/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-priority-agent: in a machine, has its kernel say in a page of memory what each CPU runs, and says where that
 * page is.  It has nothing to do after that but to live.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "common/log.h"
#include "common/option.h"
#include "priority/page.h"
#include "priority/switches.h"
#include "switches_object.h" /* switches_object[]: switches.bpf.c compiled */

static const char usage[] =
	"Usage: tailrace-priority-agent [--task NAME]... [--lock PATH]\n"
	"\n"
	"Has the kernel of a machine say in a page of its memory what each CPU runs, for a host that gives its "
	"virtual\n"
	"CPUs the priorities of that.  Prints the page's physical address, and goes on in the background.  If one "
	"runs\n"
	"already, prints that one's.\n"
	"\n"
	"  --task NAME       real-time tasks of this name count (up to 8); without it all do\n"
	"  --lock PATH       which only one has (default: /run/tailrace-priority)\n"
	"  --version, --help\n";

enum {
	PRIORITY = 99, /* a machine that is busy with real-time work is alive, too */
	BEAT_MS = 500, /* the host waits for several */
	ADDRESS_MOST = 32,
	MAPPED = 4096, /* of a processor's pages */
};

struct options {
	const char *lock;
	unsigned nb_names;
	char names[SWITCHES_NAMES][SWITCHES_COMM];
};

static void add_name(struct options *options, const char *name)
{
	if (options->nb_names == SWITCHES_NAMES || strlen(name) >= SWITCHES_COMM || name[0] == '\0') {
		log_error("--task %s: expected at most %d names of 1 to %d bytes", name, SWITCHES_NAMES,
			  SWITCHES_COMM - 1);
		exit(2);
	}
	strcpy(options->names[options->nb_names++], name);
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"task", required_argument, NULL, 't'},
		{"lock", required_argument, NULL, 'l'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.lock = "/run/tailrace-priority"};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 't':
			add_name(&options, optarg);
			break;
		case 'l':
			options.lock = optarg;
			break;
		case 'v':
			puts("tailrace-priority-agent " TAILRACE_VERSION);
			exit(0);
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc) {
		log_error("unexpected argument %s; see --help", argv[optind]);
		exit(2);
	}
	return options;
}

/* The library's own messages would be read as ours; what went wrong is reported by the error it returns. */
static int quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return 0;
}

/* The page, with the program at work that writes it: for as long as this process lives.  Returns 0 or -errno. */
static int attach(const struct options *options, struct priority_page **page)
{
	struct bpf_object *object;
	struct bpf_program *program;
	struct bpf_map *map, *rodata;
	struct {
		unsigned nb_names;
		char names[SWITCHES_NAMES][SWITCHES_COMM];
	} told = {.nb_names = options->nb_names};
	int error;

	libbpf_set_print(quiet);
	memcpy(told.names, options->names, sizeof(told.names));
	object = bpf_object__open_mem(switches_object, sizeof(switches_object), NULL);
	if (object == NULL)
		return -errno;
	map = bpf_object__find_map_by_name(object, "page");
	rodata = bpf_object__find_map_by_name(object, ".rodata");
	program = bpf_object__find_program_by_name(object, "sched_switch");
	if (map == NULL || rodata == NULL || program == NULL)
		return -EINVAL;
	error = bpf_map__set_initial_value(rodata, &told, sizeof(told));
	if (error == 0)
		error = bpf_object__load(object);
	if (error < 0)
		return error;
	*page = mmap(NULL, PRIORITY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, bpf_map__fd(map), 0);
	if (*page == MAP_FAILED)
		return -errno;
	return bpf_program__attach(program) != NULL ? 0 : -errno;
}

/* Where the page is in the machine's memory.  Source: Documentation/admin-guide/mm/pagemap.rst.  0: unknown. */
static uint64_t physical(const void *page)
{
	const uint64_t present = UINT64_C(1) << 63, number = (UINT64_C(1) << 55) - 1;
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)page / MAPPED * sizeof(entry)));

	if (fd >= 0)
		close(fd);
	return got == sizeof(entry) && (entry & present) != 0 ? (entry & number) * MAPPED : 0;
}

/* The lock's file, or -1 where another has it, whose page's address is in it. */
static int lock(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0) {
		log_error("%s: %s", path, strerror(errno));
		exit(1);
	}
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	for (int i = 0; i < 100; i++) { /* it may be about to write it */
		char address[ADDRESS_MOST + 1] = "";
		ssize_t got = pread(fd, address, ADDRESS_MOST, 0);

		if (got > 0 && address[got - 1] == '\n') {
			fputs(address, stdout);
			return -1;
		}
		usleep(50000);
	}
	log_error("%s: another agent has it, and does not say where its page is", path);
	exit(1);
}

static void live(struct priority_page *page)
{
	const struct sched_param priority = {.sched_priority = PRIORITY};
	const struct timespec pause = {.tv_nsec = BEAT_MS * 1000000L};

	if (sched_setscheduler(0, SCHED_FIFO, &priority) < 0)
		log_warning("without a real-time priority of its own: %s", strerror(errno));
	if (mlockall(MCL_CURRENT) < 0) /* here, for a fork has none of it */
		log_warning("its memory is not locked: %s", strerror(errno));
	for (;;) {
		__atomic_fetch_add(&page->beat, 1, __ATOMIC_RELAXED);
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	struct priority_page *page = NULL;
	struct options options;
	char said[ADDRESS_MOST];
	uint64_t address;
	int error, file, length;

	log_open("tailrace-priority-agent", LOG_LEVEL_INFO);
	options = parse(argc, argv);
	file = lock(options.lock);
	if (file < 0)
		return 0;
	error = ftruncate(file, 0) < 0 ? -errno : attach(&options, &page);
	if (error < 0) {
		log_error("the kernel does not take a program on sched_switch: %s; it needs root, BPF and BTF",
			  strerror(-error));
		return 1;
	}
	address = physical(page);
	if (address == 0) {
		log_error("/proc/self/pagemap does not say where the page is; run as root");
		return 1;
	}
	__atomic_store_n(&page->magic, PRIORITY_PAGE_MAGIC, __ATOMIC_RELEASE);
	length = snprintf(said, sizeof(said), "0x%" PRIx64 "\n", address);
	if (pwrite(file, said, (size_t)length, 0) != length || fputs(said, stdout) < 0 || fflush(stdout) != 0) {
		log_error("the address of the page: %s", strerror(errno));
		return 1;
	}
	/* The descriptors of the lock, of the map and of the program go to the child, and so on. */
	if (daemon(0, 0) < 0) {
		log_error("it cannot go on in the background: %s", strerror(errno));
		return 1;
	}
	live(page);
}
