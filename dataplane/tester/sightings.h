/* SPDX-License-Identifier: Apache-2.0
 *
 * Single frames that are remembered beside the histograms: the slowest of a trial, and a sample of all.  What the
 * switch noted about the same frames (its hop trace) then says where each of them was, when.
 *
 * The polling thread writes.  The control thread may read the worst while the trial runs, and the sample after it.
 */
#ifndef TAILRACE_TESTER_SIGHTINGS_H
#define TAILRACE_TESTER_SIGHTINGS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	WORST = 100,
	SAMPLES = 1 << 16, /* kept; when they are full, every other one is given up */
};

struct sighting {
	uint64_t sequence;
	uint64_t sent, received; /* TSC */
	uint16_t stream;
};

/* ------- the slowest ------- */

struct worst {
	uint64_t least; /* cycles that the fastest of them took; 0 until there are WORST */
	uint32_t count;
	_Atomic uint32_t version; /* odd while they are changed */
	struct sighting frames[WORST];
};

static inline uint64_t sighting_delay(const struct sighting *frame)
{
	return frame->received - frame->sent;
}

/* Keep a frame that took longer than `least`. */
void worst_add(struct worst *worst, const struct sighting *frame);

/* A copy of them, the slowest first, at any time; returns how many. */
uint32_t worst_read(const struct worst *worst, struct sighting *frames);

/* ------- a sample ------- */

struct samples {
	uint64_t every; /* multiples of it are kept; a power of two; 0: none */
	uint32_t count;
	struct sighting *frames; /* SAMPLES of them */
};

/*
 * Keep those frames whose numbers are multiples of `every`, of `count` frames numbered from frame->sequence on that
 * were sent and received together.
 */
void samples_add(struct samples *samples, const struct sighting *frame, uint32_t count);

/* The first multiple of `every` from `sequence` on. */
static inline uint64_t samples_next(const struct samples *samples, uint64_t sequence)
{
	return (sequence + samples->every - 1) & ~(samples->every - 1);
}

#endif
