/* SPDX-License-Identifier: Apache-2.0 */
#define ALLOW_EXPERIMENTAL_API /* rte_power_pause() */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_pause.h>
#include <rte_power_intrinsics.h>

#include "common/grace.h"
#include "port/guest_pages.h"
#include "switch/privileges.h"
#include "switch/sleep.h"
#include "switch/worker.h"

enum {
	PAUSE_INSTRUCTIONS = 32, /* about a microsecond, on a processor without a timed pause */
	SAMPLE_ROUNDS = 1024,	 /* between two looks at how many frames wait */
	TIMED_ROUNDS = 64,	 /* one of so many has its polls timed one by one */
};

static void count_burst(struct worker_counters *counters, unsigned moved)
{
	uint64_t *bursts = &counters->burst_1;
	unsigned size = 31 - __builtin_clz(moved);

	bursts[size < WORKER_BURSTS ? size : WORKER_BURSTS - 1]++;
}

/* Poll the source, and if so chosen ask meanwhile for what the next one begins with. */
static __rte_always_inline unsigned poll_source(struct program *program, unsigned number, const struct round *round,
						const bool ahead)
{
	if (ahead)
		source_look_ahead(&program->sources[number + 1 < program->nb_sources ? number + 1 : 0]);
	return source_poll(&program->sources[number], round);
}

static __rte_always_inline unsigned poll_all(struct program *program, const struct round *round,
					     struct worker_counters *counters, const bool ahead)
{
	unsigned moved = 0;

	for (unsigned i = 0; i < program->nb_sources; i++) {
		unsigned burst = poll_source(program, i, round, ahead);

		if (burst == 0)
			continue;
		count_burst(counters, burst);
		moved += burst;
	}
	return moved;
}

static unsigned run_round(struct program *program, const struct round *round, struct worker_counters *counters)
{
	return program->looks_ahead ? poll_all(program, round, counters, true)
				    : poll_all(program, round, counters, false);
}

/* A round in which every poll is timed by itself: what moving frames costs, and what looking in vain does. */
static unsigned run_timed_round(struct program *program, const struct round *round, struct worker_counters *counters)
{
	uint64_t before = rte_rdtsc(), now;
	unsigned moved = 0;

	for (unsigned i = 0; i < program->nb_sources; i++, before = now) {
		unsigned burst = poll_source(program, i, round, program->looks_ahead);

		now = rte_rdtsc();
		if (burst == 0) {
			counters->timed_empty_cycles += now - before;
			counters->timed_empty_polls++;
			continue;
		}
		counters->timed_cycles += now - before;
		counters->timed_packets += burst;
		count_burst(counters, burst);
		moved += burst;
	}
	return moved;
}

/* A program that was not run before. */
static void begin(struct program *program)
{
	worker_disarm(program);
	for (unsigned i = 0; i < program->nb_sources; i++)
		source_begin(&program->sources[i]);
}

static void sample(struct program *program)
{
	for (unsigned i = 0; i < program->nb_sources; i++)
		source_sample(&program->sources[i]);
}

static void pause_core(const struct worker *worker, uint64_t now)
{
	if (rte_power_pause(now + worker->pause_cycles) == 0)
		return;
	for (unsigned i = 0; i < PAUSE_INSTRUCTIONS; i++)
		rte_pause();
}

/* The worker has found nothing since `idle_since`.  Returns whether it rested. */
static bool rest(struct worker *worker, struct program *program, const struct round *round, uint64_t idle_since)
{
	if (worker->idle == WORKER_POLL || round->now - idle_since < worker->idle_cycles)
		return false;
	/* Whoever looks while it sleeps is to see what waits now, and not what did before the last frames. */
	if (worker->idle == WORKER_SLEEP)
		sample(program);
	if (worker->idle == WORKER_PAUSE || !worker_sleep(worker, program, round))
		pause_core(worker, round->now);
	return true;
}

/*
 * DPDK's driver for TAP has the kernel signal the process for each frame that comes, and any thread may get it.  No
 * worker does: another thread takes it, and the driver looks when one has.
 */
static void leave_signals_to_others(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
		if (number != privileges_signal())
			sigaddset(&signals, number);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

int worker_run(void *argument)
{
	struct worker *worker = argument;
	struct worker_counters *counters = worker->counters;
	struct round round = {.patience = worker->patience, .worker = worker->number, .gaps = &worker->gaps};
	uint64_t now, before = rte_rdtsc(), idle_since = before, rounds = 0;
	uint64_t last = 0;

	leave_signals_to_others();
	grace_worker_begin(worker->number);
	gaps_begin(&worker->gaps);
	worker->pthread = pthread_self();
	atomic_store(&worker->thread, gettid());
	while (!atomic_load_explicit(&worker->stop, memory_order_relaxed)) {
		struct program *program = atomic_load_explicit(&worker->program, memory_order_acquire);
		bool rested = false;
		unsigned moved;

		if (unlikely(program->number != last)) {
			last = program->number;
			begin(program);
		}
		round.now = guest_worker_since = before;
		moved = unlikely(rounds % TIMED_ROUNDS == 0) ? run_timed_round(program, &round, counters)
							     : run_round(program, &round, counters);
		if (unlikely(++rounds % SAMPLE_ROUNDS == 0))
			sample(program);
		if (moved > 0)
			idle_since = before;
		else
			rested = rest(worker, program, &round, idle_since);
		grace_worker_round(worker->number);
		now = rte_rdtsc();
		if (likely(!rested))
			gaps_check(&worker->gaps, before, now, moved);
		else
			gaps_rested(&worker->gaps, before, now);
		if (moved > 0) {
			counters->busy_cycles += now - before;
			counters->busy_polls++;
			counters->packets += moved;
		} else {
			counters->idle_cycles += now - before;
			counters->idle_polls++;
		}
		before = now;
	}
	grace_worker_end(worker->number);
	atomic_store(&worker->thread, 0); /* the watchdog looks after it no more */
	return 0;
}
