/* SPDX-License-Identifier: Apache-2.0
 *
 * Single frames that are remembered beside the histograms: the slowest of a trial, and a sample of all.  What the
 * switch noted about the same frames (its hop trace) then says where each of them was, when.
 *
 * Whatever holds up one frame holds up all that come meanwhile: a stop of 5 ms delays more frames than would fit.  So
 * of frames that went the same way and were under way at the same time only the slowest is kept, and the others' places
 * are left to what happened at other times.
 *
 * The polling thread writes.  The control thread may read the worst while the trial runs, and the sample after it.
 */
#ifndef TAILRACE_TESTER_SIGHTINGS_H
#define TAILRACE_TESTER_SIGHTINGS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	WORST = 100,
	WORST_WAYS = 2,	   /* ways of which the last frame that was kept is looked at first */
	SAMPLES = 1 << 16, /* kept; when they are full, every other one is given up */
};

struct sighting {
	uint64_t sequence;
	uint64_t sent, received; /* TSC */
	uint16_t stream;
	uint16_t way; /* the port that it arrived at */
};

/* ------- the slowest ------- */

struct worst {
	uint64_t least; /* cycles that the fastest of them took; 0 until there are WORST */
	uint32_t count;
	uint32_t last[WORST_WAYS]; /* the slot of the last that was kept, by way */
	_Atomic uint32_t version;  /* odd while they are changed */
	struct sighting frames[WORST];
};

static inline uint64_t sighting_delay(const struct sighting *frame)
{
	return frame->received - frame->sent;
}

/* Keep a frame that took longer than `least`, in the place of a faster one that was under way at the same time. */
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
