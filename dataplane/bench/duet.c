/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/duet.h"
#include "common/log.h"

enum { SECONDS_MOST = 3600 };

struct start {
	const struct duet *duet;
	pthread_barrier_t both;
	atomic_int failed; /* errno of a thread that could not be pinned */
};

bool duet_parse(const char *text, int cores[2])
{
	int end = 0;

	if (sscanf(text, "%d,%d%n", &cores[0], &cores[1], &end) == 2 && text[end] == '\0' && cores[0] >= 0 &&
	    cores[1] >= 0 && cores[0] < CPU_SETSIZE && cores[1] < CPU_SETSIZE && cores[0] != cores[1])
		return true;
	log_error("--cores %s: two different CPU numbers are expected, such as 0,1", text);
	return false;
}

bool duet_number(const char *text, double least, double most, double *number)
{
	char *end;

	*number = strtod(text, &end);
	return end != text && *end == '\0' && *number >= least && *number <= most;
}

bool duet_seconds(const char *text, double *seconds)
{
	if (duet_number(text, 0.1, SECONDS_MOST, seconds))
		return true;
	log_error("--seconds %s: expected 0.1 to %d", text, SECONDS_MOST);
	return false;
}

static void play(struct start *start, int cpu, void (*part)(void))
{
	cpu_set_t set;
	int error;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (error != 0)
		atomic_store(&start->failed, error);
	pthread_barrier_wait(&start->both);
	if (atomic_load(&start->failed) == 0)
		part();
}

static void *second(void *argument)
{
	struct start *start = argument;

	play(start, start->duet->cores[1], start->duet->second);
	return NULL;
}

int duet_run(const struct duet *duet)
{
	struct start start = {.duet = duet};
	pthread_t thread;
	int error;

	pthread_barrier_init(&start.both, NULL, 2);
	error = pthread_create(&thread, NULL, second, &start);
	if (error != 0) {
		log_error("a thread could not be started: %s", strerror(error));
		return 1;
	}
	play(&start, duet->cores[0], duet->first);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&start.both);
	error = atomic_load(&start.failed);
	if (error == 0)
		return 0;
	log_error("cores %d,%d: %s; use two of Cpus_allowed_list in /proc/self/status", duet->cores[0], duet->cores[1],
		  error == EINVAL ? "one of them is offline or not allowed to this process" : strerror(error));
	return 2;
}
