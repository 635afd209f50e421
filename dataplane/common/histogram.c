/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "histogram.h"

void histogram_clear(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->tally = TALLY_EMPTY;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	tally_merge(&into->tally, &from->tally);
	into->overflow += from->overflow;
	for (uint32_t i = 0; i < HISTOGRAM_SIZE; i++)
		into->counts[i] += from->counts[i];
}

static uint32_t shift_at(uint32_t index)
{
	uint32_t doubling = index >> HISTOGRAM_STEP_BITS;

	return doubling > 0 ? doubling - 1 : 0;
}

uint64_t histogram_lowest_at(uint32_t index)
{
	uint32_t shift = shift_at(index);

	return (uint64_t)(index - (shift << HISTOGRAM_STEP_BITS)) << shift;
}

uint64_t histogram_highest_at(uint32_t index)
{
	return histogram_lowest_at(index) + (UINT64_C(1) << shift_at(index)) - 1;
}

uint64_t histogram_at_rank(const struct histogram *histogram, uint64_t rank)
{
	uint64_t passed = 0;

	if (rank == 0 || rank > histogram->tally.count)
		return 0;
	for (uint32_t index = 0; index < HISTOGRAM_SIZE - 1; index++) {
		uint64_t highest = histogram_highest_at(index);

		passed += histogram->counts[index];
		if (passed >= rank)
			return highest < histogram->tally.max ? highest : histogram->tally.max;
	}
	return histogram->tally.max;
}
