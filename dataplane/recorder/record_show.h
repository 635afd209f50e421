/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recorder's file knows of some spans of time, as lines of text: for who cannot map the file, because it is in
 * a machine.  The recorder goes on writing meanwhile.
 */
#ifndef TAILRACE_RECORDER_RECORD_SHOW_H
#define TAILRACE_RECORDER_RECORD_SHOW_H

#include <stdint.h>
#include <stdio.h>

enum {
	RECORD_SHOW_SPANS = 128,
	RECORD_SHOW_EVENTS = 4000, /* at most; a span that does not fit whole is not shown */
};

/* From `begin` to `end` (TSC). */
struct record_span {
	uint64_t begin, end;
};

/*
 * Write to `out`, a line each:
 *
 *   until TSC oldest TSC lost N clock CYCLES   all that ended from `oldest` to `until` is there, on every CPU
 *   lacks WHAT: WHY                            a source that the system does not have
 *   event BEGIN END CPU KIND ID EXTRA NAME     that lies in or reaches into the span that is shown next
 *   span BEGIN END                             is shown
 *
 * A span that began after `oldest`, and of which something was written over since that was told, is left out.
 *
 * Returns 0 or -errno: -EPROTO if it is no file of a recorder of this version.
 */
int record_show(const char *path, const struct record_span *spans, unsigned nb_spans, FILE *out);

#endif
