/* SPDX-License-Identifier: Apache-2.0 */
#include "switch/placement.h"

static unsigned queues_of(const struct placement_queue *queues, unsigned nb_queues, unsigned worker)
{
	unsigned count = 0;

	for (unsigned i = 0; i < nb_queues; i++)
		count += queues[i].is_placed && queues[i].worker == worker;
	return count;
}

void placement_place(struct placement_queue *queues, unsigned nb_queues, const struct placement_worker *workers,
		     unsigned nb_workers)
{
	unsigned counts[64];

	if (nb_workers > 64)
		nb_workers = 64;
	for (unsigned worker = 0; worker < nb_workers; worker++)
		counts[worker] = queues_of(queues, nb_queues, worker);
	for (unsigned i = 0; i < nb_queues; i++) {
		unsigned best = 0;

		if (queues[i].is_placed)
			continue;
		/* Nothing is known of a new queue: first those with time to spare, then those with fewer queues. */
		for (unsigned worker = 1; worker < nb_workers; worker++) {
			const bool saturated = workers[worker].busy > PLACEMENT_SATURATED;
			const bool best_saturated = workers[best].busy > PLACEMENT_SATURATED;

			if (saturated != best_saturated ? best_saturated : counts[worker] < counts[best])
				best = worker;
		}
		queues[i].worker = best;
		queues[i].is_placed = true;
		counts[best]++;
	}
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

bool placement_move(const struct placement_queue *queues, unsigned nb_queues, const struct placement_worker *workers,
		    unsigned nb_workers, struct placement_move *move)
{
	double best = PLACEMENT_GAIN;
	bool found = false;

	for (unsigned i = 0; i < nb_queues; i++) {
		const struct placement_queue *queue = &queues[i];
		const double before = workers[queue->worker].busy;

		if (queue->pinned || !queue->is_placed || queue->load <= 0 || queue->rested < PLACEMENT_REST ||
		    before <= PLACEMENT_SATURATED)
			continue;
		for (unsigned to = 0; to < nb_workers; to++) {
			const double there = workers[to].busy + queue->load;
			const double gain = before - larger(before - queue->load, there);

			if (to == queue->worker || there > PLACEMENT_ROOM || gain <= best)
				continue;
			best = gain;
			*move = (struct placement_move){.queue = i, .from = queue->worker, .to = to};
			found = true;
		}
	}
	return found;
}
