/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_pause.h>

#include "common/grace.h"
#include "switch/worker.h"

enum {
	IDLE_ROUNDS = 1000, /* rounds without frames before a pausing worker rests */
	WATCH_MS = 10,	    /* that a worker may take for a round before it is interrupted */
	IDLE_PAUSES = 32,   /* PAUSE instructions in a rest; about a microsecond */
};

static void interrupt(int signal_number)
{
}

static void *watch(void *argument)
{
	const struct worker *worker = argument;
	const struct timespec pause = {.tv_nsec = WATCH_MS * 1000000};
	uint64_t before = 0;

	while (!atomic_load(&worker->stop)) {
		const struct worker_counters *counters = worker->counters;
		uint64_t rounds = __atomic_load_n(&counters->busy_polls, __ATOMIC_RELAXED) +
				  __atomic_load_n(&counters->idle_polls, __ATOMIC_RELAXED);

		/* A worker that is only kept off its core is not harmed by it. */
		if (rounds == before && atomic_load(&worker->thread) != 0)
			pthread_kill(worker->watched, SIGUSR1);
		before = rounds;
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int worker_watch(struct worker *worker)
{
	/* No SA_RESTART: the system call it is in shall end. */
	struct sigaction action = {.sa_handler = interrupt};

	if (sigaction(SIGUSR1, &action, NULL) != 0)
		return -errno;
	return -pthread_create(&worker->watch, NULL, watch, worker);
}

void worker_stop(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	if (worker->watch != 0)
		pthread_join(worker->watch, NULL);
}

int worker_run(void *argument)
{
	struct worker *worker = argument;
	struct worker_counters *counters = worker->counters;
	uint64_t now, before = rte_rdtsc();
	unsigned idle_rounds = 0;

	grace_worker_begin(worker->number);
	worker->watched = pthread_self();
	atomic_store(&worker->thread, gettid());
	while (!atomic_load_explicit(&worker->stop, memory_order_relaxed)) {
		struct program *program = atomic_load_explicit(&worker->program, memory_order_acquire);
		unsigned moved = 0;

		for (unsigned i = 0; i < program->nb_directs; i++)
			moved += direct_poll(&program->directs[i], before, worker->patience);
		grace_worker_round(worker->number);

		if (moved > 0) {
			idle_rounds = 0;
		} else if (worker->idle == WORKER_PAUSE && ++idle_rounds > IDLE_ROUNDS) {
			for (unsigned i = 0; i < IDLE_PAUSES; i++)
				rte_pause();
		}
		now = rte_rdtsc();
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
	return 0;
}

struct program *worker_swap(struct worker *worker, struct program *program)
{
	struct program *old = atomic_exchange(&worker->program, program);

	grace_wait();
	return old;
}
