/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/resident.h"
#include "sequence.h"

#define WRAP (UINT64_C(1) << SEQUENCE_BITS)

static const size_t gaps_size = SEQUENCE_GAPS * sizeof(struct sequence_gap);

int sequence_open(struct sequence *sequence, uint64_t first, uint64_t window)
{
	if (first >= WRAP || window < 64 || window > SEQUENCE_WINDOW_MOST || (window & (window - 1)) != 0)
		return -EINVAL;
	/* One wrap up, so that a number below the first one is still not negative. */
	*sequence = (struct sequence){.next = first + WRAP, .first = first + WRAP, .mask = window - 1};
	histogram_clear(&sequence->extents);
	sequence->seen = resident_zeros(window / 8);
	sequence->gaps = resident_zeros(gaps_size);
	if (sequence->seen == NULL || sequence->gaps == NULL) {
		sequence_close(sequence);
		return -ENOMEM;
	}
	return 0;
}

void sequence_close(struct sequence *sequence)
{
	resident_free(sequence->seen, (sequence->mask + 1) / 8);
	resident_free(sequence->gaps, gaps_size);
	sequence->seen = NULL;
	sequence->gaps = NULL;
}

/* Forget the numbers in [from, to): their bits in the bitmap held numbers one window below. */
static void forget(struct sequence *sequence, uint64_t from, uint64_t to)
{
	if (to - from > sequence->mask) {
		memset(sequence->seen, 0, (sequence->mask + 1) / 8);
		return;
	}
	while (from < to) {
		uint64_t *word = &sequence->seen[(from & sequence->mask) / 64];

		if (from % 64 == 0 && to - from >= 64) {
			*word = 0;
			from += 64;
		} else {
			*word &= ~(UINT64_C(1) << (from % 64));
			from++;
		}
	}
}

void sequence_skip(struct sequence *sequence, uint64_t count)
{
	uint64_t recent = count <= sequence->mask ? count : sequence->mask + 1;

	sequence->next += count - recent;
	sequence->unique += count - recent;
	while (recent-- > 0)
		sequence_record_one(sequence, sequence->next & SEQUENCE_MASK);
}

/* Note that the frame which arrives now leaves a gap before it that begins at `next`. */
static void remember_gap(struct sequence *sequence)
{
	sequence->gaps[sequence->nb_gaps++ % SEQUENCE_GAPS] = (struct sequence_gap){.first = sequence->next,
										    .unique = sequence->unique};
}

/* Record the extent of a reordered frame, the last one counted in `unique`. */
static void record_extent(struct sequence *sequence, uint64_t number)
{
	uint64_t low = sequence->nb_gaps > SEQUENCE_GAPS ? sequence->nb_gaps - SEQUENCE_GAPS : 0;
	uint64_t high = sequence->nb_gaps;

	if (low == high || sequence->gaps[low % SEQUENCE_GAPS].first > number) {
		sequence->extent_unknown++;
		return;
	}
	/* Gaps lie in the order of their numbers: the frame is of the last one that begins at or below it. */
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (sequence->gaps[middle % SEQUENCE_GAPS].first <= number)
			low = middle;
		else
			high = middle;
	}
	histogram_record(&sequence->extents, sequence->unique - 1 - sequence->gaps[low % SEQUENCE_GAPS].unique);
}

void sequence_record_one(struct sequence *sequence, uint64_t number)
{
	uint64_t ahead = (number - sequence->next) & SEQUENCE_MASK, behind;
	uint64_t *word, bit;

	if (ahead < WRAP / 2) {
		number = sequence->next + ahead;
		if (ahead > 0)
			remember_gap(sequence);
		forget(sequence, sequence->next, number);
		sequence->seen[(number & sequence->mask) / 64] |= UINT64_C(1) << (number % 64);
		sequence->next = number + 1;
		sequence->unique++;
		return;
	}

	behind = WRAP - ahead;
	if (behind > sequence->next - sequence->first) {
		sequence->before_first++;
		return;
	}
	if (behind > sequence->mask + 1) {
		sequence->beyond_window++;
		sequence->latest = behind > sequence->latest ? behind : sequence->latest;
		return;
	}
	number = sequence->next - behind;
	word = &sequence->seen[(number & sequence->mask) / 64];
	bit = UINT64_C(1) << (number % 64);
	if (*word & bit) {
		sequence->duplicate++;
		return;
	}
	*word |= bit;
	sequence->unique++;
	sequence->out_of_sequence++;
	record_extent(sequence, number);
}
