/* SPDX-License-Identifier: Apache-2.0
 *
 * What became of each frame of one stream: in order, out of sequence, duplicate or lost, exactly.
 *
 * RFC 4737, section 3: with `next` as the sequence number expected, a frame numbered `next` or above is in order
 * and moves `next` past itself; one below is out of sequence (reordered) and leaves `next` alone.  A gap is loss,
 * not reordering.  Duplicates are found first, and only the first copy of a frame is analysed; so a late frame
 * takes back the loss of itself, and an older duplicate takes back nothing.
 *
 * A bitmap remembers which of the last `window` numbers below `next` arrived.  A frame older than that cannot be
 * distinguished from a duplicate: it is counted as beyond the window and as nothing else, so the loss it may have
 * filled stays visible; how far beyond the latest of them was is reported too.
 *
 * The extent of a reordered frame (RFC 4737, section 4.2) is how many first copies have arrived since the one that
 * overtook it first, that one counted: as many places of a buffer would put the frame back in order.  The one that
 * overtook it first is the one that moved `next` past it and left a gap, so the last gaps are remembered, by where
 * they begin and when; a frame of an older gap is counted, and its extent is not known.
 *
 * One thread owns a sequence.
 */
#ifndef TAILRACE_TESTER_SEQUENCE_H
#define TAILRACE_TESTER_SEQUENCE_H

#include <stdint.h>

#include "common/histogram.h"

#define SEQUENCE_MASK ((UINT64_C(1) << SEQUENCE_BITS) - 1)

enum {
	SEQUENCE_BITS = 48,	    /* of a number in a frame */
	SEQUENCE_WINDOW = 1u << 22, /* the default: 0.4 s at 10 Mpps, in 512 KiB */
	SEQUENCE_GAPS = 1u << 14,   /* remembered, in 256 KiB; a power of two */
};

#define SEQUENCE_WINDOW_MOST (UINT64_C(1) << 32)

struct sequence_gap {
	uint64_t first;	 /* logical number of the first frame that was missing */
	uint64_t unique; /* first copies that had arrived before the frame that left the gap */
};

struct sequence {
	uint64_t next;	/* NextExp; logical: it goes on where the number in a frame wraps */
	uint64_t first; /* logical number of the stream's first frame */
	uint64_t mask;	/* window - 1 */
	uint64_t *seen; /* bit (number & mask), for numbers in [next - window, next) */

	uint64_t unique; /* first copies; lost = sent - unique */
	uint64_t duplicate;
	uint64_t out_of_sequence;
	uint64_t beyond_window;
	uint64_t latest;       /* how far below `next` the latest frame beyond the window was */
	uint64_t before_first; /* numbers that this stream never had */

	struct sequence_gap *gaps; /* the last of them, by their number modulo SEQUENCE_GAPS */
	uint64_t nb_gaps;	   /* all there ever were */
	uint64_t extent_unknown;
	struct histogram extents; /* of out_of_sequence less extent_unknown frames, in frames */
};

/*
 * Start at the frame numbered `first` (below 2^48), with a window of a power of two from 64 to 2^32 numbers.
 * Its memory is resident from the start.  Returns 0, -EINVAL or -ENOMEM.
 */
int sequence_open(struct sequence *sequence, uint64_t first, uint64_t window);
void sequence_close(struct sequence *sequence);

/* Record that the next `count` frames have arrived in order, however many they are. */
void sequence_skip(struct sequence *sequence, uint64_t count);

/* One frame, with any number. */
void sequence_record_one(struct sequence *sequence, uint64_t number);

/*
 * Record the arrival of `count` frames with numbers that follow each other, the first of which is `number`, as they
 * stand in the frames.
 */
static inline void sequence_record(struct sequence *sequence, uint64_t number, uint32_t count)
{
	uint64_t next = sequence->next, end = next + count;

	if (__builtin_expect(((number - next) & SEQUENCE_MASK) != 0, 0)) {
		for (uint32_t i = 0; i < count; i++)
			sequence_record_one(sequence, number + i);
		return;
	}
	sequence->unique += count;
	sequence->next = end;
	while (next < end) {
		uint64_t bits = 64 - next % 64 < end - next ? 64 - next % 64 : end - next;

		sequence->seen[(next & sequence->mask) / 64] |= UINT64_MAX >> (64 - bits) << (next % 64);
		next += bits;
	}
}

#endif
