/* SPDX-License-Identifier: Apache-2.0
 *
 * What events.c opens and events_read.c reads out.
 */
#ifndef TAILRACE_RECORDER_EVENTS_STATE_H
#define TAILRACE_RECORDER_EVENTS_STATE_H

#include <linux/perf_event.h>

#include "recorder/events.h"
#include "recorder/known.h"
#include "recorder/often.h"
#include "recorder/tracepoints.h"

enum {
	EVENTS_BUFFER = 1 << 21, /* bytes for each CPU: some 20,000 events, of which we read 100 times a second */
	EVENTS_SAMPLE = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
};

struct buffer {
	struct perf_event_mmap_page *page;
	uint8_t *data;
	int leader; /* the event that the buffer belongs to, or -1 */
};

struct events {
	struct tracepoint tracepoints[KNOWN]; /* number 0: not there */
	struct buffer buffers[RECORD_CPUS];
	char line_names[RECORD_CPUS][RECORD_NAME]; /* whose interrupt was entered last */
	struct often *often;			   /* or NULL */
	uint8_t by_point[OFTEN_NB_POINTS];	   /* which of `known` each of its points is */
	const int *cpus;
	unsigned nb_cpus;
	int *files;
	unsigned nb_files;
};

#endif
