/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "sequence.h"

#define WRAP (UINT64_C(1) << SEQUENCE_BITS)

int sequence_open(struct sequence *sequence, uint64_t first, uint64_t window)
{
	void *seen;

	if (first >= WRAP || window < 64 || window > UINT64_C(1) << 32 || (window & (window - 1)) != 0)
		return -EINVAL;
	/* Mapped whole now: a page fault later would be measured as latency. */
	seen = mmap(NULL, window / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (seen == MAP_FAILED)
		return -ENOMEM;
	/* One wrap up, so that a number below the first one is still not negative. */
	*sequence = (struct sequence){.next = first + WRAP, .first = first + WRAP, .mask = window - 1, .seen = seen};
	return 0;
}

void sequence_close(struct sequence *sequence)
{
	if (sequence->seen != NULL)
		munmap(sequence->seen, (sequence->mask + 1) / 8);
	sequence->seen = NULL;
}

/* Forget the numbers in [from, to): their places in the bitmap held numbers one window below. */
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

void sequence_record_one(struct sequence *sequence, uint64_t number)
{
	uint64_t ahead = (number - sequence->next) & SEQUENCE_MASK, behind;
	uint64_t *word, bit;

	if (ahead < WRAP / 2) {
		number = sequence->next + ahead;
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
}
