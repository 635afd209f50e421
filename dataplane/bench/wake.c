/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-wake: what it takes to wake a thread that sleeps on another core, with nothing around.
 *
 * One thread waits in epoll_wait() for an eventfd, as a worker does that sleeps; the other, which polls its clock as a
 * guest does that polls, writes to it so seldom that each write finds the core at rest.  From before the write to the
 * moment at which the other thread runs: the kernel, the interrupt between the cores and, on a virtual machine, the
 * host that has to run the virtual CPU again.  A switch that sleeps cannot be awake before.
 */
#include <errno.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "bench/duet.h"
#include "common/log.h"

enum { PERIOD_NS = 5000000 };

static struct {
	_Atomic uint64_t written; /* when, on the clock that both read */
	_Atomic bool over;
} shared;

static double seconds = 1;
static int event, poller;
static uint64_t *waits;
static size_t nb_waits, waits_size;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void sleeper(void)
{
	struct epoll_event ready;
	uint64_t count, now;

	while (!atomic_load(&shared.over)) {
		if (epoll_wait(poller, &ready, 1, -1) != 1)
			continue;
		now = now_ns();
		if (read(event, &count, sizeof(count)) == sizeof(count) && nb_waits < waits_size)
			waits[nb_waits++] = now - atomic_load(&shared.written);
	}
}

static void waker(void)
{
	const uint64_t one = 1, begin = now_ns();

	for (uint64_t at = PERIOD_NS; (double)at < seconds * 1e9; at += PERIOD_NS) {
		while (now_ns() < begin + at)
			__builtin_ia32_pause();
		atomic_store(&shared.written, now_ns());
		(void)!write(event, &one, sizeof(one));
	}
	while (now_ns() < begin + (uint64_t)(seconds * 1e9))
		__builtin_ia32_pause();
	/* What this one takes is one more. */
	atomic_store(&shared.over, true);
	atomic_store(&shared.written, now_ns());
	(void)!write(event, &one, sizeof(one));
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* In microseconds; the least value that so many of all do not exceed. */
static double percentile(double share)
{
	size_t rank = (size_t)(share * (double)nb_waits + 0.999999);

	return (double)waits[rank > 0 ? rank - 1 : 0] / 1000;
}

static void print(const int cores[2], bool json)
{
	qsort(waits, nb_waits, sizeof(waits[0]), compare);
	printf(json ? "{\"cores\": [%d, %d], \"wakes\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p99.9_us\": %.3f, "
		      "\"max_us\": %.3f}\n"
		    : "cores %d and %d: %zu wakes, p50 %.1f us, p99 %.1f us, p99.9 %.1f us, at most %.1f us\n",
	       cores[0], cores[1], nb_waits, percentile(0.5), percentile(0.99), percentile(0.999), percentile(1));
}

static bool prepare(void)
{
	struct epoll_event wanted = {.events = EPOLLIN};

	waits_size = (size_t)(seconds * 1e9 / PERIOD_NS) + 2;
	waits = calloc(waits_size, sizeof(waits[0]));
	event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (waits != NULL && event >= 0 && poller >= 0 && epoll_ctl(poller, EPOLL_CTL_ADD, event, &wanted) == 0)
		return true;
	log_error("no memory for %zu waits, or no eventfd: %s", waits_size, strerror(errno));
	return false;
}

static int usage(FILE *stream, int status)
{
	fprintf(stream,
		"usage: tailrace-wake --cores SLEEPS,WAKES [--seconds S] [--json]\n"
		"How long a thread that sleeps on one core takes to run when another core wakes it, every 5 ms.\n");
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"cores", required_argument, NULL, 'c'},
		{"seconds", required_argument, NULL, 's'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct duet duet = {.cores = {-1, -1}, .first = sleeper, .second = waker};
	bool json = false;
	int option, status;

	log_open("tailrace-wake", LOG_LEVEL_INFO);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!duet_parse(optarg, duet.cores))
				return 2;
			break;
		case 's':
			if (!duet_seconds(optarg, &seconds))
				return 2;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			return usage(stdout, 0);
		default:
			return usage(stderr, 2);
		}
	}
	if (duet.cores[0] < 0 || optind != argc)
		return usage(stderr, 2);
	if (!prepare())
		return 1;
	status = duet_run(&duet);
	if (status == 0)
		print(duet.cores, json);
	return status;
}
