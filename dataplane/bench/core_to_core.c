/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-core-to-core: how far two cores are from each other, as the round trip of one cache line.
 *
 * Two threads, each pinned to a core, take turns at one number: the first writes an odd value, the second answers with
 * the next even one.  A round trip is two transfers of the line.  A sample is the average of SAMPLE_ROUNDS round trips,
 * long enough for the clock; the median of many samples is reported, so that an interrupt or another process on a core
 * spoils a few samples and not the figure.
 *
 * On virtual machines this says what topology files do not: whether the cores share a last-level cache at this moment.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"

enum {
	SAMPLES = 400,
	SAMPLE_ROUNDS = 200,
	WARM_UP_SAMPLES = 20,
	NEAR_NS = 150, /* under this the cores share their last-level cache */
	LINE = 64,
};

static struct {
	/* The line under test, alone: neighbouring lines are fetched in pairs. */
	_Alignas(2 * LINE) _Atomic uint32_t turn;
	_Alignas(2 * LINE) atomic_int failed; /* errno of a thread that could not be pinned */
	pthread_barrier_t start;
} shared;

static double samples[SAMPLES];

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Pin the calling thread, then wait for the other; false if either could not be pinned. */
static bool take_place(int cpu)
{
	cpu_set_t set;
	int error;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (error != 0)
		atomic_store(&shared.failed, error);
	pthread_barrier_wait(&shared.start);
	return atomic_load(&shared.failed) == 0;
}

static void await(uint32_t turn)
{
	while (atomic_load_explicit(&shared.turn, memory_order_acquire) != turn)
		__builtin_ia32_pause();
}

static void *answer(void *cpu)
{
	if (!take_place(*(const int *)cpu))
		return NULL;
	for (uint32_t round = 0; round < (WARM_UP_SAMPLES + SAMPLES) * SAMPLE_ROUNDS; round++) {
		await(2 * round + 1);
		atomic_store_explicit(&shared.turn, 2 * round + 2, memory_order_release);
	}
	return NULL;
}

static void *ask(void *cpu)
{
	uint32_t round = 0;

	if (!take_place(*(const int *)cpu))
		return NULL;
	for (int sample = -WARM_UP_SAMPLES; sample < SAMPLES; sample++) {
		uint64_t start = now_ns();

		for (int i = 0; i < SAMPLE_ROUNDS; i++, round++) {
			atomic_store_explicit(&shared.turn, 2 * round + 1, memory_order_release);
			await(2 * round + 2);
		}
		if (sample >= 0)
			samples[sample] = (double)(now_ns() - start) / SAMPLE_ROUNDS;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Parse "A,B"; false unless these are two different CPU numbers. */
static bool parse_cores(const char *text, int cores[2])
{
	char *end;
	long first, second;

	first = strtol(text, &end, 10);
	if (end == text || *end != ',')
		return false;
	text = end + 1;
	second = strtol(text, &end, 10);
	if (end == text || *end != '\0')
		return false;
	if (first < 0 || second < 0 || first >= CPU_SETSIZE || second >= CPU_SETSIZE || first == second)
		return false;
	cores[0] = first;
	cores[1] = second;
	return true;
}

static int usage(FILE *stream, int status)
{
	fprintf(stream, "usage: tailrace-core-to-core --cores A,B [--json]\n"
			"The round trip of a cache line between two cores, in ns: the median of many samples.\n");
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"cores", required_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int cores[2] = {-1, -1};
	bool json = false;
	pthread_t thread;
	double median;
	int option, error;

	log_open("tailrace-core-to-core", LOG_LEVEL_INFO);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!parse_cores(optarg, cores)) {
				log_error("--cores %s: two different CPU numbers are expected, such as 0,1", optarg);
				return 2;
			}
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
	if (cores[0] < 0 || optind != argc)
		return usage(stderr, 2);

	pthread_barrier_init(&shared.start, NULL, 2);
	error = pthread_create(&thread, NULL, answer, &cores[1]);
	if (error != 0) {
		log_error("a thread could not be started: %s", strerror(error));
		return 1;
	}
	ask(&cores[0]);
	pthread_join(thread, NULL);
	error = atomic_load(&shared.failed);
	if (error != 0) {
		log_error("cores %d,%d: %s; use two of Cpus_allowed_list in /proc/self/status", cores[0], cores[1],
			  error == EINVAL ? "one of them is offline or not allowed to this process" : strerror(error));
		return 2;
	}

	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	median = (samples[SAMPLES / 2 - 1] + samples[SAMPLES / 2]) / 2;
	if (json)
		printf("{\"cores\": [%d, %d], \"round_trip_ns\": %.1f, \"minimum_ns\": %.1f, \"near\": %s}\n", cores[0],
		       cores[1], median, samples[0], median < NEAR_NS ? "true" : "false");
	else
		printf("cores %d and %d: round trip %.1f ns (%s), minimum %.1f ns\n", cores[0], cores[1], median,
		       median < NEAR_NS ? "near: they share the last-level cache" : "far", samples[0]);
	return 0;
}
