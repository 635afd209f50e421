/* SPDX-License-Identifier: Apache-2.0 */
#include "priority/follow.h"
#include "priority/page.h"

int follow_priority(const struct follow_bounds *bounds, uint32_t runs, bool open)
{
	if (runs == PRIORITY_IDLE || (open && runs == PRIORITY_OTHER))
		return bounds->most;
	if (runs > PRIORITY_MOST || (int)runs < bounds->least)
		return bounds->least;
	return (int)runs > bounds->most ? bounds->most : (int)runs;
}

bool follow_opens(const struct follow_bounds *bounds, uint32_t runs)
{
	return runs == PRIORITY_OTHER && bounds->least < bounds->most;
}

bool follow_lives(struct follow_life *life, uint64_t magic, uint64_t beat, uint64_t now_ns)
{
	if (magic != PRIORITY_PAGE_MAGIC) {
		life->believed = false;
	} else if (beat != life->beat) {
		/* The first that is seen may be what one has left that ended before. */
		life->believed = life->since_ns != 0;
		life->since_ns = now_ns;
	} else if (now_ns - life->since_ns > FOLLOW_SILENT_MS * UINT64_C(1000000)) {
		life->believed = false;
	}
	life->beat = beat;
	return life->believed;
}
