/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

unsigned lanes_share_out(struct lane *lanes, unsigned nb_lanes, unsigned nb_threads)
{
	unsigned have[FUNCTION_QUEUES] = {0}, moved = 0, next = 0;
	bool stays[FUNCTION_QUEUES] = {false};

	/* The first threads have one more where they cannot all have as many. */
	for (unsigned queue = 0; queue < nb_lanes; queue++) {
		const int owner = atomic_load(&lanes[queue].wanted);

		if (owner < 0 || (unsigned)owner >= nb_threads)
			continue;
		stays[queue] = have[owner] < nb_lanes / nb_threads + ((unsigned)owner < nb_lanes % nb_threads);
		have[owner] += stays[queue];
	}
	for (unsigned queue = 0; queue < nb_lanes; queue++) {
		if (stays[queue])
			continue;
		while (have[next] >= nb_lanes / nb_threads + (next < nb_lanes % nb_threads))
			next++;
		have[next]++;
		atomic_store(&lanes[queue].wanted, (int)next);
		moved++;
	}
	return moved;
}

bool lanes_settled(const struct lane *lanes, unsigned nb_lanes)
{
	for (unsigned queue = 0; queue < nb_lanes; queue++)
		if (atomic_load(&lanes[queue].owner) != atomic_load(&lanes[queue].wanted))
			return false;
	return true;
}

static void let_go(struct forward_thread *thread, void (*lets_go)(struct forward_thread *thread, unsigned queue))
{
	struct lane *lanes = thread->forward->lanes;
	unsigned kept = 0;

	for (unsigned i = 0; i < thread->nb_queues; i++) {
		const uint16_t queue = thread->queues[i];
		const int wanted = atomic_load_explicit(&lanes[queue].wanted, memory_order_relaxed);

		if (wanted == (int)thread->number) {
			thread->queues[kept++] = queue;
			continue;
		}
		if (lets_go != NULL)
			lets_go(thread, queue);
		/* Whoever takes it sees all that was done with it. */
		atomic_store_explicit(&lanes[queue].owner, FORWARD_NOBODY, memory_order_release);
		forward_wake(&thread->forward->threads[wanted]);
	}
	thread->nb_queues = kept;
}

void lanes_follow(struct forward_thread *thread, void (*lets_go)(struct forward_thread *thread, unsigned queue),
		  void (*takes)(struct forward_thread *thread, unsigned queue))
{
	const struct forward *forward = thread->forward;
	struct lane *lanes = thread->forward->lanes;

	thread->seen = atomic_load_explicit(&forward->changes, memory_order_acquire);
	thread->expects = false;
	let_go(thread, lets_go);
	for (unsigned queue = 0; queue < forward->nb_queues; queue++) {
		struct lane *lane = &lanes[queue];
		int owner = FORWARD_NOBODY;

		if (atomic_load_explicit(&lane->wanted, memory_order_relaxed) != (int)thread->number)
			continue;
		/* Who is to have it may change at this moment: one of the two gets it, and lets go if it must. */
		if (!atomic_compare_exchange_strong(&lane->owner, &owner, (int)thread->number)) {
			thread->expects |= owner != (int)thread->number;
			continue;
		}
		thread->queues[thread->nb_queues++] = (uint16_t)queue;
		if (takes != NULL)
			takes(thread, queue);
	}
}
