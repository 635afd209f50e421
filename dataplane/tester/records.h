/* SPDX-License-Identifier: Apache-2.0
 *
 * Interval records: what each interval of a trial brought, with a histogram of its own, handed over while the trial
 * goes on, so that a trial of days can be followed and what it measured be kept.
 *
 * The polling thread fills one slot of a ring and closes it at the interval's end; the control thread reads closed
 * ones and gives them back.  If it has fallen so far behind that no slot is free, the present interval goes on: its
 * record is longer, and nothing is missing.  Counts are those of the whole trial up to the record's end, so that
 * records that follow each other add up by themselves; the histogram is of the interval alone.
 *
 * A frame counts as lost only when it has had time to arrive: a record is closed a while (`wait`) after its end, and
 * its loss is the frames sent by its end that have not come by then.  One that comes later still takes its loss back
 * in the interval in which it comes.
 */
#ifndef TAILRACE_TESTER_RECORDS_H
#define TAILRACE_TESTER_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/histogram.h"
#include "sequence.h"

enum { RECORDS = 8 }; /* slots: how many intervals a reader may be behind */

/* What has become of a stream's frames since the trial's start. */
struct trial_counts {
	uint64_t offered, sent, refused, held, received; /* received: all copies */
	uint64_t lost, duplicate, out_of_sequence, beyond_window, foreign;
	uint64_t latest;		     /* how far below `next` the latest beyond the window was */
	uint64_t sent_bytes, received_bytes; /* frame sizes, FCS included */
};

struct record_stream {
	struct trial_counts counts;
	uint64_t in_flight;	  /* of `sent`, those that were under way at the record's end and have come since */
	struct histogram latency; /* of all frames received in the interval; ns */
};

struct record {
	uint64_t start, end;	       /* cycles since the trial's start */
	double real_time, monotonic;   /* seconds of CLOCK_REALTIME and CLOCK_MONOTONIC at its end */
	struct record_stream *streams; /* as many as the trial has */
};

/* What the polling thread keeps for each stream. */
struct closing {
	uint64_t boundary; /* number of the first frame sent after the end of the record that is closing */
	uint64_t after;	   /* first copies received of those from `boundary` on */
};

struct records {
	uint64_t cycles; /* of an interval; 0: no records */
	uint64_t wait;	 /* cycles; less than an interval */
	uint64_t end;	 /* TSC; of the present interval */
	uint64_t filled; /* number of the record that is being filled */
	bool closing;	 /* the one before has ended and is not closed */
	uint64_t closes_at;

	struct closing *streams;
	struct record slots[RECORDS];

	_Atomic uint64_t closed; /* records below are the control thread's to read */
	_Atomic uint64_t kept;	 /* records below have been given back */
	uint64_t merged;	 /* records below are in the streams' totals; the control thread's */
};

static inline struct record *records_slot(struct records *records, uint64_t number)
{
	return &records->slots[number % RECORDS];
}

/* Whether a number in a frame is `boundary` or above. */
static inline bool closing_is_after(const struct closing *closing, uint64_t number)
{
	return ((number - closing->boundary) & SEQUENCE_MASK) <= SEQUENCE_MASK / 2;
}

/*
 * Record the arrival of `count` frames whose numbers follow each other, as sequence_record() does, and whether they
 * were sent after the end of the record that is closing.  A burst was sent before it or after it, whole.
 */
static inline void records_count(struct records *records, uint16_t stream, struct sequence *sequence, uint64_t number,
				 uint32_t count)
{
	uint64_t before = sequence->unique;

	sequence_record(sequence, number, count);
	if (__builtin_expect(records->closing, 0) && closing_is_after(&records->streams[stream], number))
		records->streams[stream].after += sequence->unique - before;
}

#endif
