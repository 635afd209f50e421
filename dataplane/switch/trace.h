/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of the hop trace (steer/hop_trace.h), which describes itself as the counter page does.  Owned by the control
 * thread; workers write records while it is open, and let go of it within a grace period.
 *
 *   0   "TAILHOPS"       8 bytes
 *   8   version          u32, TRACE_VERSION
 *   12  schema length    u32, bytes of JSON at offset 64
 *   64  schema           {"tsc_hz", "every", "margin", "record": {"format", "fields"},
 *                         "ports": {"offset", "size", "count"},
 *                         "rings": [{"worker", "kind": "sampled" or "recent", "head", "records", "length"}, ...]}
 *
 * `format` is Python's struct module's; `head`, `records` and `offset` are offsets in the file.  A head is a u64 that
 * counts records; record n lies at n modulo length.  A port's name stands at its number.
 */
#ifndef TAILRACE_SWITCH_TRACE_H
#define TAILRACE_SWITCH_TRACE_H

#include "steer/hop_trace.h"

enum {
	TRACE_VERSION = 1,
	TRACE_PORTS = 1024,
	TRACE_NAME = 48,
	TRACE_SAMPLED = 1 << 18, /* records */
	TRACE_RECENT_LEAST = 1 << 10,
	TRACE_RECENT_MOST = 1 << 24,
	TRACE_EVERY_MOST = 1 << 30,
};

struct trace_options {
	unsigned every;	 /* a power of two */
	unsigned recent; /* records in each ring of all frames, a power of two; 0: none */
	unsigned workers;
};

struct trace {
	struct hop_trace hops; /* what workers see */
	struct trace_options options;
	char path[256];
	uint8_t *file;
	size_t size;
	char *names;
};

/* Make the file at `path`, replacing an older one.  Returns NULL after logging what failed, with errno set. */
struct trace *trace_open(const char *path, const struct trace_options *options);

/* Name the port of this number, before a worker notes it; NULL: it is gone. */
void trace_name_port(struct trace *trace, unsigned number, const char *name);

/* From now on frames signed with this key are noted. */
void trace_set_key(struct trace *trace, uint32_t key);

/* Remove the file; no worker uses it any more. */
void trace_close(struct trace *trace);

#endif
