/* SPDX-License-Identifier: Apache-2.0
 *
 * The hop trace: for test frames, recognised by their signature (common/signature.h), when each was given from one port
 * to the next.  Records lie in a file that readers map read-only: two rings for each worker, overwritten from the
 * oldest on.  `sampled` has the frames whose sequence is a multiple of `every`, the same at each hop; `recent` has all
 * frames for as long as it holds them, so that a reader who learns that a frame was slow can still look it up.
 *
 * The check of a signature is keyed by run.  The measurement gives the key to tester and switch, so recognising a frame
 * is one CRC over 14 bytes that the copy has just brought into the cache.  Until a key is set nothing is recorded.  The
 * check distinguishes test frames from other payload; it authenticates nobody: a function that sees test frames can
 * make others like them, and spoil this trace and nothing else.
 *
 * A record becomes visible by its ring's head, after its burst.  A writer never waits: a reader takes as valid only
 * what is less than length - HOP_MARGIN records older than the head it reads afterwards.
 */
#ifndef TAILRACE_STEER_HOP_TRACE_H
#define TAILRACE_STEER_HOP_TRACE_H

#include <stdatomic.h>

#include "vring/packet.h"

enum { HOP_WORKERS = 64, HOP_MARGIN = 256 /* records that may be written ahead of the head */ };

#define HOP_KEYED (UINT64_C(1) << 32)

struct hop_record {
	uint64_t frame;	  /* stream in the upper 16 bits, sequence in the others */
	uint64_t arrived; /* TSC when the burst was taken up; monotonic within a ring */
	uint32_t stay;	  /* cycles from then until the next port had been given it */
	uint16_t from;	  /* numbers of ports */
	uint16_t to;
};

struct hop_ring {
	uint64_t *head; /* in the file */
	struct hop_record *records;
	uint64_t mask; /* length - 1 */
};

struct hop_trace {
	_Atomic uint64_t key; /* HOP_KEYED beside the key of the run; 0: none */
	uint64_t every_mask;  /* every - 1 */
	bool has_recent;
	struct hop_ring sampled[HOP_WORKERS], recent[HOP_WORKERS];
};

/*
 * Note the packets which[0..n), all given from one port to another.  `arrived` is the TSC when the burst was taken up.
 * Belongs to the worker.
 */
void hop_trace_note(struct hop_trace *trace, unsigned worker, const struct burst *burst, const uint8_t *which,
		    unsigned n, uint16_t from, uint16_t to, uint64_t arrived);

#endif
