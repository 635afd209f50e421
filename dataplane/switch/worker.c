/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_pause.h>

#include "common/grace.h"
#include "switch/worker.h"

enum {
	IDLE_ROUNDS = 1000, /* rounds without frames before a pausing worker rests */
	IDLE_PAUSES = 32,   /* PAUSE instructions in a rest; about a microsecond */
};

int worker_run(void *argument)
{
	struct worker *worker = argument;
	struct worker_counters *counters = worker->counters;
	uint64_t now, before = rte_rdtsc();
	unsigned idle_rounds = 0;

	grace_worker_begin(worker->number);
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
