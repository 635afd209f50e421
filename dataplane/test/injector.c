/* SPDX-License-Identifier: Apache-2.0
 *
 * Does something to a poller that delays frames, at a known time, so that a test can ask whether that is what is found
 * to be the cause.
 *
 *	hog	runs for 200 µs, or as long as is said, at a real-time priority
 *	storm	has timers expire one after the other for 400 µs, so that the CPU comes out of their interrupts hardly
 *at all fault	takes a process's own program out of memory, so that it has to wait for the disk when it runs next stop
 *stops a process for 5 ms (SIGSTOP, SIGCONT)
 *	first	at each event of the first eventfd that a process has, runs as hog does before who waits there on this
 *CPU
 *
 * Each line on standard input asks for one injection.  Each is answered by a line "BEGIN END", by the TSC: the time
 * from when on frames were held up, and a time at which nothing of it is left.  CPU N is where the injector itself
 * runs.  `first` takes no lines and answers none; it ends when --times events have come, or none for a while.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum {
	PRIORITY = 20, /* above functions, below the kernel's own threads */
	HOG_US = 200,
	STOP_NS = 5 * 1000 * 1000,
	AFTER_NS = 20 * 1000 * 1000, /* from the request on: who has asked is asleep again, and disturbs nobody */
	FAULT_NS = 3 * 1000 * 1000,  /* the disk is done long before */
	TIMERS = 4000,
	TIMERS_AT_ONCE = 20, /* set before frames are let through again */
	TIMERS_APART_NS = 100,
	TIMERS_PAUSE_NS = 100 * 1000,
	STORM_AFTER_NS = 60 * 1000 * 1000, /* from when the first is set; all are by then */
	FIRST_TIMES = 60,
	FIRST_PATIENCE_MS = 3000, /* without an event */
};

static void fail(const char *what)
{
	fprintf(stderr, "tailrace-injector: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec until = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void answer(uint64_t begin, uint64_t end)
{
	printf("%" PRIu64 " %" PRIu64 "\n", begin, end);
	fflush(stdout);
}

/* ------- a real-time hog ------- */

static void hog(unsigned us)
{
	uint64_t begin = __rdtsc(), until = now_ns() + us * UINT64_C(1000);

	while (now_ns() < until)
		;
	answer(begin, __rdtsc());
}

/* ------- an interrupt storm ------- */

static int timers[TIMERS];

static void open_timers(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < TIMERS; i++) {
		timers[i] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
		if (timers[i] < 0)
			fail("timerfd_create");
	}
}

/* Timers expire on the CPU that set them, so they are set here, a few at a time, long before. */
static void storm(void)
{
	uint64_t set_ns = now_ns(), set_tsc = __rdtsc(), first = set_ns + STORM_AFTER_NS, end_ns, end_tsc;
	double hz;

	for (int i = 0; i < TIMERS; i++) {
		uint64_t at = first + (uint64_t)i * TIMERS_APART_NS;
		const struct itimerspec when = {
			.it_value = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)},
		};

		if (timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &when, NULL) != 0)
			fail("timerfd_settime");
		if (i % TIMERS_AT_ONCE == TIMERS_AT_ONCE - 1)
			sleep_until(now_ns() + TIMERS_PAUSE_NS);
	}
	if (now_ns() > first)
		fprintf(stderr, "tailrace-injector: the timers were set too late\n");
	sleep_until(first + (uint64_t)TIMERS * TIMERS_APART_NS + 5 * 1000 * 1000);
	end_ns = now_ns();
	end_tsc = __rdtsc();
	hz = (double)(end_tsc - set_tsc) / (double)(end_ns - set_ns);
	answer(set_tsc + (uint64_t)(hz * (double)(first - set_ns)),
	       set_tsc + (uint64_t)(hz * (double)(first - set_ns + (uint64_t)TIMERS * TIMERS_APART_NS)));
}

/* ------- a page fault that waits for the disk ------- */

/* Where the program begins in the memory of the process. */
static uintptr_t find_program(pid_t process)
{
	char path[64], program[512], line[512];
	uintptr_t begin = 0, found;
	ssize_t length;
	FILE *maps;
	int name;

	snprintf(path, sizeof(path), "/proc/%d/exe", process);
	length = readlink(path, program, sizeof(program) - 1);
	if (length < 0)
		fail(path);
	program[length] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/maps", process);
	maps = fopen(path, "re");
	if (maps == NULL)
		fail(path);
	while (begin == 0 && fgets(line, sizeof(line), maps) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%" SCNxPTR "-%*s %*s %*s %*s %*s %n", &found, &name) == 1 &&
		    strcmp(line + name, program) == 0)
			begin = found;
	}
	fclose(maps);
	return begin;
}

/* One page, because taking it out holds up who shares this CPU. */
static void page_out(int pidfd, uintptr_t at)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const struct iovec range = {.iov_base = (void *)(at & ~(page - 1)), .iov_len = page};

	if (syscall(SYS_process_madvise, pidfd, &range, 1, MADV_PAGEOUT, 0) < 0)
		fail("process_madvise");
}

static void fault(int pidfd, uintptr_t at)
{
	uint64_t begin;

	page_out(pidfd, at);
	begin = __rdtsc();
	sleep_until(now_ns() + FAULT_NS);
	answer(begin, __rdtsc());
}

/* ------- a stop ------- */

static void stop(pid_t process)
{
	uint64_t begin = __rdtsc();

	if (kill(process, SIGSTOP) != 0)
		fail("SIGSTOP");
	sleep_until(now_ns() + STOP_NS);
	if (kill(process, SIGCONT) != 0)
		fail("SIGCONT");
	answer(begin, __rdtsc());
}

/* ------- before who waits for an event ------- */

/* The lowest one that is an eventfd, as a descriptor of ours. */
static int take_eventfd(pid_t process, int pidfd)
{
	char path[64], target[64];
	int lowest = -1, found;
	struct dirent *entry;
	ssize_t length;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", process);
	folder = opendir(path);
	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = '\0';
		found = atoi(entry->d_name);
		if (strcmp(target, "anon_inode:[eventfd]") == 0 && (lowest < 0 || found < lowest))
			lowest = found;
	}
	if (folder != NULL)
		closedir(folder);
	found = lowest < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, lowest, 0);
	if (found < 0)
		fail("its eventfd");
	return found;
}

static double cycles_per_us(void)
{
	uint64_t tsc = __rdtsc(), ns = now_ns();

	sleep_until(ns + AFTER_NS);
	return 1000 * (double)(__rdtsc() - tsc) / (double)(now_ns() - ns);
}

/* Edge-triggered: the event stays for who waits, and we are told of each once. */
static void first(int event, int times)
{
	static const unsigned lasts_us[] = {0, 5, 50, 500};
	const double per_us = cycles_per_us();
	struct epoll_event one = {.events = EPOLLIN | EPOLLET};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	char name[16];

	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, event, &one) != 0)
		fail("epoll");
	for (int i = 0; i < times && epoll_wait(epoll, &one, 1, FIRST_PATIENCE_MS) == 1; i++) {
		const unsigned us = lasts_us[(unsigned)i % (sizeof(lasts_us) / sizeof(lasts_us[0]))];
		uint64_t begin;

		/* By the name that it leaves the CPU with it is known. */
		snprintf(name, sizeof(name), "inject-%u", us);
		prctl(PR_SET_NAME, name);
		begin = __rdtsc();
		while ((double)(__rdtsc() - begin) < us * per_us)
			;
	}
}

/* Returns the number after `option`, or `otherwise`. */
static int number_after(int argc, char **argv, const char *option, int otherwise)
{
	for (int i = 2; i + 1 < argc; i++)
		if (strcmp(argv[i], option) == 0)
			return atoi(argv[i + 1]);
	return otherwise;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	const struct sched_param priority = {.sched_priority = number_after(argc, argv, "--priority", PRIORITY)};
	int cpu = number_after(argc, argv, "--cpu", -1), process = number_after(argc, argv, "--process", -1),
	    pidfd = -1;
	const int us = number_after(argc, argv, "--us", HOG_US);
	uintptr_t at = 0;
	char line[64];
	cpu_set_t set;

	if (cpu < 0) {
		fprintf(stderr,
			"usage: tailrace-injector hog|storm|fault|stop|first --cpu N [--process P [--at ADDRESS]] "
			"[--priority P] [--us N] [--times N]\n");
		return 2;
	}
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0 || sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
		fail("affinity and priority");
	if (mlockall(MCL_CURRENT) != 0)
		fail("mlockall");
	if (process > 0 && (pidfd = (int)syscall(SYS_pidfd_open, process, 0)) < 0)
		fail("pidfd_open");
	if (strcmp(kind, "storm") == 0)
		open_timers();
	if (strcmp(kind, "fault") == 0)
		at = find_program((pid_t)process) + (uintptr_t)number_after(argc, argv, "--at", -1);
	if (strcmp(kind, "first") == 0) {
		first(take_eventfd((pid_t)process, pidfd), number_after(argc, argv, "--times", FIRST_TIMES));
		return 0;
	}
	while (fgets(line, sizeof(line), stdin) != NULL) {
		sleep_until(now_ns() + AFTER_NS);
		if (strcmp(kind, "hog") == 0)
			hog((unsigned)us);
		else if (strcmp(kind, "storm") == 0)
			storm();
		else if (strcmp(kind, "fault") == 0)
			fault(pidfd, at);
		else
			stop((pid_t)process);
	}
	return 0;
}
