/* SPDX-License-Identifier: Apache-2.0
 *
 * When each frame of a stream is due, by the TSC.  Frame k of a stream at rate r is due k / r after the start.  A
 * frame that has not left when it is `patience` overdue never will: it is counted unsent, which is the sender's
 * failing (or a transmit ring that stayed full), never the network's loss.  So a sender that was held up catches
 * up by at most that much.  offered = sent + unsent.
 *
 * Without a rate (as fast as possible) every frame is due at once, and none is unsent; `total` may be set lower
 * afterwards, for a burst of so many frames.
 * Pure arithmetic: it reads no clock, and one thread owns it.
 */
#ifndef TAILRACE_TESTER_PACE_H
#define TAILRACE_TESTER_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	uint64_t step;	   /* frames for each cycle, as a fraction of 2^64; 0: as fast as possible */
	uint64_t total;	   /* frames in all */
	uint64_t patience; /* cycles that a frame may be overdue */
	uint64_t duration; /* cycles */
	uint64_t sent;
	uint64_t unsent;
};

/*
 * Plan `duration` seconds at `rate` frames a second (0: as fast as possible) on a clock of `hz`.
 * The rate must be below hz.
 */
static inline struct pace pace_plan(double rate, double duration, double patience, uint64_t hz)
{
	return (struct pace){
		.step = rate > 0 ? (uint64_t)(rate / (double)hz * 0x1p64) : 0,
		.total = rate > 0 ? (uint64_t)(rate * duration + 0.5) : UINT64_MAX,
		.patience = (uint64_t)(patience * (double)hz),
		.duration = (uint64_t)(duration * (double)hz),
	};
}

/* Frames that are due `elapsed` cycles after the start. */
static inline uint64_t pace_due(const struct pace *pace, uint64_t elapsed)
{
	uint64_t due;

	if (pace->step == 0)
		return elapsed < pace->duration ? pace->total : pace->sent;
	due = (uint64_t)(((unsigned __int128)elapsed * pace->step) >> 64) + 1;
	return due < pace->total ? due : pace->total;
}

/* How many frames, at most `limit`, may leave now; those that are too late are counted unsent. */
static inline uint32_t pace_allow(struct pace *pace, uint64_t elapsed, uint32_t limit)
{
	uint64_t accounted = pace->sent + pace->unsent;
	uint64_t due = pace_due(pace, elapsed);

	if (pace->step != 0 && elapsed > pace->patience) {
		uint64_t late = pace_due(pace, elapsed - pace->patience);

		if (__builtin_expect(late > accounted, 0)) {
			pace->unsent += late - accounted;
			accounted = late;
		}
	}
	due -= accounted;
	return due < limit ? (uint32_t)due : limit;
}

/* Whether every frame has been sent or given up. */
static inline bool pace_finished(const struct pace *pace, uint64_t elapsed)
{
	return pace->sent + pace->unsent >= pace->total || (pace->step == 0 && elapsed >= pace->duration);
}

#endif
