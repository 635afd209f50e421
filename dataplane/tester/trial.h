/* SPDX-License-Identifier: Apache-2.0
 *
 * One trial: the streams it sends, and what became of them.  The control thread makes it and hands it to the
 * polling thread, which alone writes to it until its state says done or failed; then the control thread reads it.
 * While it runs, only the fields declared _Atomic may be looked at.
 */
#ifndef TAILRACE_TESTER_TRIAL_H
#define TAILRACE_TESTER_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_cycles.h>

#include "clock.h"
#include "common/histogram.h"
#include "frames.h"
#include "pace.h"
#include "records.h"
#include "sequence.h"
#include "sightings.h"

enum {
	TRIAL_STREAMS = 64,
	TRIAL_STRANGER = 64,	/* bytes */
	TRIAL_INTERVALS = 4096, /* kept for each stream; a longer trial has longer intervals */
	TRIAL_NAME = 64,
	TRIAL_REASON = 256,
};

#define TRIAL_PATIENCE 1e-3 /* seconds that a frame may be overdue before it counts as unsent */

struct interval {
	uint64_t sent;
	struct tally latency; /* of all frames received in it; ns */
};

struct stream {
	char name[TRIAL_NAME];
	uint16_t from, to; /* ports */

	/* sending */
	struct pace pace;
	struct frames frames;
	uint64_t next;			     /* sequence of the next frame */
	struct rte_mbuf *burst[FRAME_BURST]; /* frames made that the port has not taken yet */
	uint16_t nb_held;
	uint64_t refused;		/* of the unsent, those that became so while the port took none */
	uint64_t held;			/* bursts that the port did not take whole */
	uint64_t sent_bytes;		/* frame sizes, FCS included; so below */
	uint64_t first_sent, last_sent; /* TSC; 0: never */

	/* receiving */
	struct sequence sequence;
	struct histogram latency;   /* of the whole trial, but for records that are not merged into it yet */
	struct histogram *counting; /* where frames are counted: `latency`, or that of the present record */
	uint64_t received;	    /* all copies */
	uint64_t received_bytes;
	uint64_t first_received, last_received;
	uint64_t longest_gap; /* cycles between two bursts that brought frames of it */

	struct interval *intervals;

	_Atomic uint64_t sent_so_far, received_so_far;
};

/* The first frame that was none of ours: who sent it can be seen from how it begins. */
struct stranger {
	uint16_t port;
	uint16_t nb_bytes; /* kept; 0 while none has come */
	uint32_t length;   /* bytes without FCS */
	uint8_t bytes[TRIAL_STRANGER];
};

enum trial_state { TRIAL_RUNNING, TRIAL_WAITING, TRIAL_DONE, TRIAL_FAILED };

struct trial {
	/* what is asked */
	double duration, wait, interval; /* seconds */
	double record;			 /* seconds of an interval record; 0: none */
	double age;			 /* for tests: seconds that the trial seems to have run already */
	uint64_t clock_ahead;		 /* for tests: cycles that its clock is ahead of the TSC */
	uint64_t first_sequence;
	uint64_t window; /* of the analyser, in frames */
	uint32_t key;	 /* of the signatures */
	bool learn;	 /* learning frames are sent first */
	uint16_t nb_streams;
	struct stream *streams;

	/* what happened */
	double started_at;		 /* seconds since 1970 */
	uint64_t started, ended;	 /* TSC, of the sending */
	bool stopped;			 /* before its time */
	uint64_t interval_cycles;	 /* doubles each time the intervals are full */
	uint64_t interval_end;		 /* TSC */
	uint32_t nb_intervals;		 /* the last one is under way */
	uint64_t foreign[TRIAL_STREAMS]; /* frames that are none of ours, at the port of this number */
	struct stranger stranger;
	char reason[TRIAL_REASON]; /* why it failed */
	struct worst worst;
	struct samples samples;
	struct records records;

	_Atomic int state;
	_Atomic uint64_t elapsed; /* cycles since the start */
	_Atomic bool stop;	  /* asked for */
};

/* The trial's clock. */
static inline uint64_t trial_now(const struct trial *trial)
{
	return rte_rdtsc() + trial->clock_ahead;
}

/*
 * A trial of `nb_streams` empty streams, its memory resident so that no page fault is measured; NULL without
 * memory.  trial_free() also closes what the streams have open.
 */
struct trial *trial_make(uint16_t nb_streams);
void trial_free(struct trial *trial);

/*
 * Make every count, number and time what it would be had the trial run for `age` seconds already, all of its frames
 * back in order after 1 µs.  For tests, which cannot wait for days: what follows is the end of a long run.
 */
void trial_pretend_age(struct trial *trial, const struct clock_rate *rate);

/* By the polling thread while the trial runs, then by the control thread. */
struct trial_counts trial_counts(const struct trial *trial, uint16_t stream);

/* Begin the first interval at `now`. */
void trial_begin_intervals(struct trial *trial, const struct clock_rate *rate, uint64_t now);

/* Begin the interval that `now` lies in; called when now >= interval_end. */
void trial_next_interval(struct trial *trial, uint64_t now);

/* Room for interval records.  Returns 0 or -ENOMEM. */
int trial_open_records(struct trial *trial, const struct clock_rate *rate);
void trial_close_records(struct trial *trial);

/*
 * By the polling thread: begin the first; go on to the next, and close the one before, where it is time; close the very
 * last, which ends with the sending and counts what came in the wait after it.
 */
void trial_begin_records(struct trial *trial, uint64_t now);
void trial_look_at_records(struct trial *trial, uint64_t now);
void trial_end_records(struct trial *trial);

/* Merge the records that have been closed into their streams' totals; by the control thread. */
void trial_merge_records(struct trial *trial);

/* Give back all records below `number`, which have been kept; by the control thread. */
void trial_release_records(struct trial *trial, uint64_t number);

#endif
