/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's tracepoints as places in memory: what each is called, its number, and where in a raw event its fields
 * lie. Read from tracefs, which is mounted for this process alone where it is not mounted yet.
 */
#ifndef TAILRACE_RECORDER_TRACEPOINTS_H
#define TAILRACE_RECORDER_TRACEPOINTS_H

#include <stdint.h>

enum { TRACEPOINT_FIELDS = 7 };

struct tracepoint {
	uint32_t number; /* its id; raw events begin with it */
	uint16_t at[TRACEPOINT_FIELDS];
};

/* Find tracefs, or mount it where nobody else sees it.  Returns 0, or -errno with the reason in `why`. */
int tracepoints_open(char *why, unsigned size);

/*
 * Read the format of a tracepoint, such as "sched/sched_switch", and where each of `fields` (the last one NULL) is.
 * Returns 0, -ENOENT if this kernel has no such tracepoint or field, or another -errno.
 */
int tracepoint_read(const char *name, const char *const *fields, struct tracepoint *tracepoint);

/* The same of a format that was read.  Returns 0 or -ENOENT. */
int tracepoint_parse(const char *format, const char *const *fields, struct tracepoint *tracepoint);

#endif
