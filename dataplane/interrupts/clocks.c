/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>

#include "interrupts/clocks.h"

enum {
	ENOUGH = 1000,	/* answers */
	SPIN = 1 << 22, /* cycles without one, after which others get this CPU: the receiver may need it to answer */
	PAUSE_NS = 100000,
};

/* Returns whether the answer has come by `deadline`. */
static bool ask(struct interrupt_page *page, uint64_t question, uint64_t deadline, struct clocks *found)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t before = __rdtsc(), after, there, width;

	atomic_store_explicit(&page->question, question, memory_order_release);
	while (atomic_load_explicit(&page->answer, memory_order_acquire) != question) {
		after = __rdtsc();
		if (after > deadline)
			return false;
		if (after - before > SPIN)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		else
			_mm_pause();
	}
	after = clocks_now();
	there = atomic_load_explicit(&page->answered_at, memory_order_relaxed);
	width = after - before;
	*found = (struct clocks){
		.offset = (int64_t)(there - (before + width / 2)), .error = width / 2 + 1, .at = before + width / 2};
	return true;
}

int clocks_join(struct interrupt_page *page, uint64_t *question, uint64_t patience, struct clocks *clocks)
{
	uint64_t deadline = __rdtsc() + patience;

	clocks->error = UINT64_MAX;
	for (unsigned answers = 0; answers < ENOUGH; answers++) {
		struct clocks found;

		if (!ask(page, ++*question, deadline, &found))
			break;
		if (found.error < clocks->error)
			*clocks = found;
	}
	if (clocks->error == UINT64_MAX)
		return -ETIMEDOUT;
	/* One clock has no offset, and this is exact. */
	if ((uint64_t)(clocks->offset < 0 ? -clocks->offset : clocks->offset) <= clocks->error)
		*clocks = (struct clocks){.offset = 0, .error = 0, .at = clocks->at};
	return 0;
}

bool clocks_agree(const struct clocks *early, const struct clocks *late, uint64_t parts)
{
	uint64_t apart = early->offset > late->offset ? (uint64_t)early->offset - (uint64_t)late->offset
						      : (uint64_t)late->offset - (uint64_t)early->offset;
	uint64_t doubt = early->error + late->error;

	return apart <= doubt || apart - doubt <= (late->at - early->at) / 1000000 * parts;
}
