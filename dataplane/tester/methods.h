/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tester answers on its control socket: version, port.list, trial.start, .status, .stop and .result; and of
 * single frames, as [stream, sequence, sent, received] with times by the TSC: trial.worst, the slowest 100 of those
 * that were not under way together, also while the trial runs; trial.samples, those whose sequence is a multiple of
 * trial.start's `sample`, after it.  With `key`, trial.start signs with a key that others know too; with `window`, its
 * analyser looks back over so many frames; `first_sequence` is the first frame's, so that a test can begin right before
 * it wraps.  With `learn`, learning frames go ahead of the trial's own (RFC 2544, section 23), so that a bridge knows
 * where to send these: one from each stream's receiving port to the sending one.  A stream's `count` ends it after so
 * many frames: a burst, where its rate is 0.  Of its `unsent` frames, `refused` became so while its port took none;
 * `held` counts the bursts that the port did not take whole; `longest_gap_ns` is the longest time without any of its
 * frames, between two that came. With `record` (seconds), trial.records gives the interval
 * records (records.h) that have been closed, also while the trial runs, and again until they are given back: those
 * below `kept` are.  It says whether the trial has `ended`, so that no more will come.  Their counts are those since
 * the trial's start; their latency is the interval's. For tests of what takes days, trial.start begins with `age` as at
 * that many seconds of a trial, and with `clock_wraps_in` so that the 48 bits of time in a frame wrap after so many.
 * All of it runs in the control thread.
 */
#ifndef TAILRACE_TESTER_METHODS_H
#define TAILRACE_TESTER_METHODS_H

#include "common/control.h"
#include "frames.h"
#include "loop.h"

struct tester {
	struct loop loop;
	struct frame_pools pools;
	struct trial *trial; /* the last one started, or NULL */
};

extern const struct control_method tester_methods[];
extern const size_t nb_tester_methods;

#endif
