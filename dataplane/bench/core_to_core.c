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
#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/duet.h"
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
} shared;

static double samples[SAMPLES];

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void await(uint32_t turn)
{
	while (atomic_load_explicit(&shared.turn, memory_order_acquire) != turn)
		__builtin_ia32_pause();
}

static void answer(void)
{
	for (uint32_t round = 0; round < (WARM_UP_SAMPLES + SAMPLES) * SAMPLE_ROUNDS; round++) {
		await(2 * round + 1);
		atomic_store_explicit(&shared.turn, 2 * round + 2, memory_order_release);
	}
}

static void ask(void)
{
	uint32_t round = 0;

	for (int sample = -WARM_UP_SAMPLES; sample < SAMPLES; sample++) {
		uint64_t start = now_ns();

		for (int i = 0; i < SAMPLE_ROUNDS; i++, round++) {
			atomic_store_explicit(&shared.turn, 2 * round + 1, memory_order_release);
			await(2 * round + 2);
		}
		if (sample >= 0)
			samples[sample] = (double)(now_ns() - start) / SAMPLE_ROUNDS;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
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
	struct duet duet = {.cores = {-1, -1}, .first = ask, .second = answer};
	bool json = false;
	double median;
	int option, status;

	log_open("tailrace-core-to-core", LOG_LEVEL_INFO);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!duet_parse(optarg, duet.cores))
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

	status = duet_run(&duet);
	if (status != 0)
		return status;

	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	median = (samples[SAMPLES / 2 - 1] + samples[SAMPLES / 2]) / 2;
	if (json)
		printf("{\"cores\": [%d, %d], \"round_trip_ns\": %.1f, \"minimum_ns\": %.1f, \"near\": %s}\n",
		       duet.cores[0], duet.cores[1], median, samples[0], median < NEAR_NS ? "true" : "false");
	else
		printf("cores %d and %d: round trip %.1f ns (%s), minimum %.1f ns\n", duet.cores[0], duet.cores[1],
		       median, median < NEAR_NS ? "near: they share the last-level cache" : "far", samples[0]);
	return 0;
}
