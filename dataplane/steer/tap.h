/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of frames for somebody who looks on: a mirror's port, or a capture.  They never hold the original up: what the
 * onlooker has no room for is dropped for it alone, and counted.
 *
 * The control side makes taps with a program and frees them with it; a worker uses those of its own sources.
 */
#ifndef TAILRACE_STEER_TAP_H
#define TAILRACE_STEER_TAP_H

#include "steer/capture_ring.h"
#include "steer/classify.h"
#include "steer/source.h"

enum {
	TAP_WORKERS = 64,
	TAP_HELD = 16, /* ports that copies of a source's frames go to */
};

/* A capture, shared by all workers that see frames for it. */
struct capture {
	struct classifier *match; /* action 1 is wanted; NULL: every frame is */
	_Atomic unsigned clock;	  /* which of the two holds */
	struct capture_clock clocks[2];
	unsigned nb_rings;
	struct capture_ring rings[TAP_WORKERS]; /* by worker */
};

struct tap {
	struct capture *capture; /* or NULL: */
	struct egress mirror;	 /* where the copies leave; its hop counts them */
};

/*
 * The ports that copies were written to, each once.  Those of the burst under way are held until it has been shown; the
 * others may have to be flushed (egress_flush()).
 */
struct tap_held {
	unsigned count;
	struct tap_egress {
		struct egress egress;
		bool taken; /* for the burst under way */
	} egresses[TAP_HELD];
};

/* Copy the packets which[0..n) of the burst to so many onlookers, as they are now. */
void tap_copy(const struct tap *taps, unsigned nb_taps, struct tap_held *held, struct burst *burst,
	      const uint8_t *which, unsigned n, const struct round *round);

/* The burst, if there was one, has been shown: release its ports, and flush the others. */
void tap_release(struct tap_held *held, const struct round *round);

/* Copies may have been written to these ports under another program. */
void tap_owe(struct tap_held *held, const struct tap *taps, unsigned nb_taps);

#endif
