/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "common/eal.h"
#include "port/device.h"
#include "port/guest.h"
#include "switch/pages.h"
#include "switch/sleep.h"
#include "switch/workers.h"
#include "vring/vring.h"

enum {
	WATCHDOG_MS = 10,     /* that a worker may take for a round before it is interrupted */
	WATCHDOG_LOOKS = 100, /* for nothing, after which the watchdog rests */
};

/* The watchdog rests while nobody wakes guests, as when they poll: what shares its core is not disturbed. */
enum { RESTING, LOOKING, NEEDED };
static atomic_int watchdog = LOOKING;
static sem_t needed;

static void need_watchdog(void)
{
	if (atomic_load_explicit(&watchdog, memory_order_relaxed) != NEEDED &&
	    atomic_exchange(&watchdog, NEEDED) == RESTING)
		sem_post(&needed);
}

const char *worker_idle_name(enum worker_idle idle)
{
	static const char *const names[] = {[WORKER_POLL] = "poll", [WORKER_PAUSE] = "pause", [WORKER_SLEEP] = "sleep"};

	return names[idle];
}

static int open_worker(struct worker *worker, unsigned number, const struct workers_options *options, struct page *page)
{
	const uint64_t hz = rte_get_tsc_hz();
	static struct program nothing;
	char name[PAGE_NAME];

	atomic_store(&worker->program, &nothing);
	worker->number = number;
	worker->lcore = eal_worker_lcore(number);
	worker->cpu = eal_lcore_cpu(worker->lcore);
	worker->idle = options->idle[number];
	worker->patience = hz / 1000000 * options->backpressure_us;
	worker->idle_cycles = hz / 1000000 * options->idle_us;
	worker->pause_cycles = hz / 1000000;
	snprintf(name, sizeof(name), "worker-%u", number);
	worker->counters = (struct worker_counters *)page_slot_open(page, PAGE_WORKER, name);
	if (worker->counters == NULL)
		return -ENOSPC;
	return sleeper_open(worker);
}

static int open_gaps(struct workers *workers)
{
	char names[GRACE_WORKERS][PAGE_NAME];
	const char *all[GRACE_WORKERS];
	struct gap_log logs[GRACE_WORKERS];
	int rc;

	for (unsigned i = 0; i < workers->count; i++) {
		snprintf(names[i], sizeof(names[i]), "worker-%u", i);
		all[i] = names[i];
	}
	rc = gaps_open(logs, all, workers->count, rte_get_tsc_hz());
	for (unsigned i = 0; i < workers->count && rc == 0; i++)
		workers->list[i].gaps = logs[i];
	return rc;
}

int workers_open(struct workers *workers, const struct workers_options *options, struct page *page)
{
	int rc;

	for (unsigned i = 0; i < options->count; i++) {
		rc = open_worker(&workers->list[i], i, options, page);

		workers->count = i + 1;
		if (rc != 0) {
			workers_close(workers);
			return rc;
		}
	}
	rc = open_gaps(workers);
	if (rc != 0)
		workers_close(workers);
	return rc;
}

void workers_close(struct workers *workers)
{
	atomic_store(&workers->stop, true);
	need_watchdog();
	if (workers->has_watchdog)
		pthread_join(workers->watchdog, NULL);
	workers->has_watchdog = false;
	for (unsigned i = 0; i < workers->count; i++)
		sleeper_close(&workers->list[i]);
	workers->count = 0;
}

static void interrupt(int signal_number)
{
}

/* Returns once there is something to look for. */
static void rest(unsigned *looks)
{
	bool was_needed = atomic_exchange(&watchdog, LOOKING) == NEEDED || device_had_peers();

	*looks = was_needed ? 0 : *looks + 1;
	if (*looks < WATCHDOG_LOOKS || !atomic_compare_exchange_strong(&watchdog, &(int){LOOKING}, RESTING))
		return;
	while (sem_wait(&needed) != 0)
		continue;
	*looks = 0;
}

static void *run_watchdog(void *argument)
{
	const struct timespec pause = {.tv_nsec = WATCHDOG_MS * 1000000};
	uint64_t before[GRACE_WORKERS] = {0};
	struct workers *workers = argument;
	unsigned looks = 0;

	while (!atomic_load(&workers->stop)) {
		guest_watchdog();
		for (unsigned i = 0; i < workers->count; i++) {
			struct worker *worker = &workers->list[i];
			const struct worker_counters *counters = worker->counters;
			uint64_t rounds = __atomic_load_n(&counters->busy_polls, __ATOMIC_RELAXED) +
					  __atomic_load_n(&counters->idle_polls, __ATOMIC_RELAXED);

			/* A worker that is only kept off its core is not harmed by it. */
			if (rounds == before[i] && atomic_load(&worker->thread) != 0 && !atomic_load(&worker->asleep))
				pthread_kill(worker->pthread, SIGUSR1);
			before[i] = rounds;
		}
		nanosleep(&pause, NULL);
		rest(&looks);
	}
	return NULL;
}

int workers_start(struct workers *workers)
{
	/* No SA_RESTART: the system call it is in shall end. */
	struct sigaction action = {.sa_handler = interrupt};
	int rc;

	if (sigaction(SIGUSR1, &action, NULL) != 0 || sem_init(&needed, 0, 0) != 0)
		return -errno;
	vring_on_wake = need_watchdog;
	for (unsigned i = 0; i < workers->count; i++)
		rte_eal_remote_launch(worker_run, &workers->list[i], workers->list[i].lcore);
	rc = pthread_create(&workers->watchdog, NULL, run_watchdog, workers);
	workers->has_watchdog = rc == 0;
	return -rc;
}

void workers_stop(struct workers *workers)
{
	for (unsigned i = 0; i < workers->count; i++) {
		atomic_store(&workers->list[i].stop, true);
		sleeper_wake(&workers->list[i]);
	}
	for (unsigned i = 0; i < workers->count; i++)
		rte_eal_wait_lcore(workers->list[i].lcore);
}

void workers_wake(struct workers *workers)
{
	for (unsigned i = 0; i < workers->count; i++)
		sleeper_wake(&workers->list[i]);
}

/* ------- programs ------- */

static bool same_source(const struct source *a, const struct source *b)
{
	return a->from == b->from && a->queue == b->queue && a->kind == b->kind && a->orphan == b->orphan &&
	       a->steering == b->steering && a->watch == b->watch &&
	       memcmp(&a->egress, &b->egress, sizeof(a->egress)) == 0;
}

/*
 * The sources of `before` that are in `after` too, just as they are.  Both list ports in one order or another; a source
 * is looked for from where the last was found.
 */
static struct program *what_stays(const struct program *before, const struct program *after)
{
	struct program *stays = calloc(1, sizeof(*stays) + before->nb_sources * sizeof(stays->sources[0]));
	unsigned at = 0;

	for (unsigned i = 0; stays != NULL && i < before->nb_sources; i++) {
		const struct source *source = &before->sources[i];

		for (unsigned j = 0; j < after->nb_sources; j++) {
			const struct source *other = &after->sources[(at + j) % after->nb_sources];

			if (source->from != other->from || source->queue != other->queue)
				continue;
			at = (at + j + 1) % after->nb_sources;
			if (same_source(source, other))
				stays->sources[stays->nb_sources++] = *source;
			break;
		}
	}
	return stays;
}

/*
 * From so many sources on, what a visit begins with has left the worker's cache when its turn comes, and is asked for
 * one visit ahead.  Of two, the next one's guest is writing to it at that moment, and would lose it for nothing.
 */
enum { LOOK_AHEAD_SOURCES = 4 };

static void put(struct workers *workers, struct program *const *programs)
{
	for (unsigned i = 0; i < workers->count; i++) {
		programs[i]->number = ++workers->programs;
		programs[i]->looks_ahead = programs[i]->nb_sources >= LOOK_AHEAD_SOURCES;
		atomic_store(&workers->list[i].program, programs[i]);
		sleeper_wake(&workers->list[i]);
	}
	grace_wait();
}

/*
 * Workers do not change programs at one moment.  With several of them a queue would have two owners for a moment, and
 * an egress one worker that takes its lock and one that does not.  So what does not stay as it is stops first,
 * everywhere, for a grace period: its frames wait in their rings.
 */
int workers_install(struct workers *workers, struct program *const *programs)
{
	struct program *stays[GRACE_WORKERS] = {0};
	bool stop = false;

	for (unsigned i = 0; i < workers->count && workers->count > 1; i++) {
		const struct program *before = atomic_load(&workers->list[i].program);

		stays[i] = what_stays(before, programs[i]);
		if (stays[i] == NULL) {
			for (unsigned j = 0; j < i; j++)
				free(stays[j]);
			return -ENOMEM;
		}
		stop |= stays[i]->nb_sources < before->nb_sources;
	}
	if (stop)
		put(workers, stays);
	put(workers, programs);
	for (unsigned i = 0; i < workers->count; i++)
		free(stays[i]);
	return 0;
}
