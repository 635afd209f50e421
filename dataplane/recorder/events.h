/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's events, read out into the timeline in the order of their times: those that come often by programs of
 * ours in the kernel (often.h), the rest by perf_event_open(2), gathered in one buffer for each CPU.  Where programs
 * cannot be loaded perf takes all; where the kernel has no tracepoints, or shows none, its software events stand in.
 * They know less, and the list of sources says so.
 */
#ifndef TAILRACE_RECORDER_EVENTS_H
#define TAILRACE_RECORDER_EVENTS_H

#include "recorder/clock.h"
#include "recorder/timeline.h"

struct events;

/* The best that may be used. */
enum events_by { EVENTS_BY_BPF, EVENTS_BY_TRACEPOINTS, EVENTS_BY_SOFTWARE };

/*
 * Open what there is for these CPUs, and fill in `sources` (RECORD_SOURCES of them).  Only page faults and migrations
 * of watched threads are recorded; with `exits` also when these, as CPUs of machines, were left for this host, where
 * KVM runs them.  Returns NULL without memory.
 */
struct events *events_open(const int *cpus, unsigned nb_cpus, const struct timeline *timeline, enum events_by best,
			   bool exits, struct source *sources, unsigned *nb_sources);

/* Leave out what happened until now, while the rest was being opened. */
void events_begin(struct events *events);

/* Read what one CPU has for us; times lie between the readings. */
void events_drain(struct events *events, unsigned index, struct timeline *timeline, const struct clock_reading *before,
		  const struct clock_reading *after);

void events_close(struct events *events);

#endif
