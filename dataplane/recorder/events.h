/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's events by perf_event_open(2): opened for each CPU, gathered in one buffer for each CPU, read out into
 * the timeline.  Where the kernel has no tracepoints, or shows none, its software events stand in: they know less, and
 * the list of sources says so.
 */
#ifndef TAILRACE_RECORDER_EVENTS_H
#define TAILRACE_RECORDER_EVENTS_H

#include "recorder/clock.h"
#include "recorder/timeline.h"

struct events;

/*
 * Open what there is for these CPUs, and fill in `sources` (RECORD_SOURCES of them).  Only page faults and migrations
 * of watched threads are recorded.  With `software`, tracepoints are left alone.  Returns NULL without memory.
 */
struct events *events_open(const int *cpus, unsigned nb_cpus, const struct timeline *timeline, bool software,
			   struct source *sources, unsigned *nb_sources);

/* Read what one CPU has for us; times lie between the readings. */
void events_drain(struct events *events, unsigned index, struct timeline *timeline, const struct clock_reading *before,
		  const struct clock_reading *after);

void events_close(struct events *events);

#endif
