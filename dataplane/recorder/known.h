/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the kernel's events are recorded: by which tracepoints, with which of their fields, and what each means.
 */
#ifndef TAILRACE_RECORDER_KNOWN_H
#define TAILRACE_RECORDER_KNOWN_H

#include "recorder/timeline.h"

enum event_kind { ENTER, LEAVE, SWITCH, FAULT, NMI, FREQUENCY, MIGRATE, EXIT, ENTRY };

struct event {
	enum event_kind kind;
	enum nesting nesting;
	const char *name; /* of the tracepoint */
	const char *const *fields;
	unsigned source;    /* its index in the list of sources */
	const char *whose;  /* of an interrupt that names nobody */
	const char *filter; /* the field that must be a watched thread */
};

enum {
	SOURCE_INTERRUPTS,
	SOURCE_LINES,
	SOURCE_SOFTIRQS,
	SOURCE_SWITCHES,
	SOURCE_FAULTS,
	SOURCE_MIGRATIONS,
	SOURCE_NMIS,
	SOURCE_FREQUENCY,
	SOURCE_EXITS, /* only where they are asked for */
	SOURCES
};

enum { KNOWN = 31 };

/* What a source of events is called in the list that users see. */
extern const char *const source_names[SOURCES];

extern const struct event known[]; /* KNOWN of them */

/* What Linux calls a softirq; "?" for a number that it did not have. */
const char *softirq_name(uint32_t number);

#endif
