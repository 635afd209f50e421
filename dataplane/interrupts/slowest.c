/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupts/slowest.h"

/* Returns whether it is one of the slowest. */
static bool keep(struct slowest *slowest, uint64_t took)
{
	unsigned at = slowest->count < SLOWEST_KEPT ? slowest->count : slowest->least;

	if (slowest->count == SLOWEST_KEPT && took <= slowest->took[slowest->least])
		return false;
	slowest->took[at] = took;
	slowest->count += slowest->count < SLOWEST_KEPT;
	for (unsigned i = slowest->least = 0; i < slowest->count; i++)
		if (slowest->took[i] < slowest->took[slowest->least])
			slowest->least = i;
	return true;
}

void slowest_note(struct slowest *slowest, const struct slow_interrupt *one)
{
	uint64_t head = atomic_load_explicit(&slowest->head, memory_order_relaxed);

	if (!keep(slowest, one->arrived - one->raised))
		return;
	if (head - atomic_load_explicit(&slowest->tail, memory_order_acquire) == SLOWEST_TOLD) {
		atomic_fetch_add_explicit(&slowest->missed, 1, memory_order_relaxed);
		return;
	}
	slowest->told[head % SLOWEST_TOLD] = *one;
	atomic_store_explicit(&slowest->head, head + 1, memory_order_release);
}

bool slowest_take(struct slowest *slowest, struct slow_interrupt *one)
{
	uint64_t tail = atomic_load_explicit(&slowest->tail, memory_order_relaxed);

	if (tail == atomic_load_explicit(&slowest->head, memory_order_acquire))
		return false;
	*one = slowest->told[tail % SLOWEST_TOLD];
	atomic_store_explicit(&slowest->tail, tail + 1, memory_order_release);
	return true;
}
