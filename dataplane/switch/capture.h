/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: what a port or chain carries, copied into rings that a reader takes from (steer/capture_ring.h).  A capture
 * belongs to whoever asked for it and lasts as long as that one keeps asking after it: a reader that has died leaves
 * nothing behind that costs packets.
 * Owned by the control thread; workers see the part in steer/tap.h.
 */
#ifndef TAILRACE_SWITCH_CAPTURE_H
#define TAILRACE_SWITCH_CAPTURE_H

#include <stdbool.h>
#include <sys/queue.h>

#include "common/control.h"
#include "steer/tap.h"

enum {
	CAPTURES = 16,
	CAPTURE_SNAPLEN = 262144, /* the most; tcpdump's own limit */
	CAPTURE_LEASE = 10,	  /* seconds without a question after which a capture ends */
};

struct capture_session {
	struct capture capture; /* what workers see */
	unsigned id;
	bool in, out;
	bool of_chain;
	char name[48];	   /* of the port or chain */
	uint64_t asked_at; /* TSC */
	size_t ring_size;
	char paths[TAP_WORKERS][256];
	TAILQ_ENTRY(capture_session) entry;
};

TAILQ_HEAD(capture_sessions, capture_session);

struct capture_options {
	bool in, out, of_chain;
	const char *name;
	struct classifier *match; /* taken over */
	unsigned snaplen;
	size_t ring; /* bytes for each worker, a power of two */
	unsigned workers;
	const char *folder_path; /* rings are FOLDER_PATH.capture-ID.WORKER */
};

/* Make the rings.  Returns NULL with errno set; the match has been freed. */
struct capture_session *capture_open(const struct capture_options *options, unsigned id);

/* Tell the clock anew: the TSC and the time of day drift apart. */
void capture_set_clock(struct capture_session *session);

/* {"capture", "frames", "dropped", "rings": [paths]} */
json_t *capture_describe(const struct capture_session *session);

/* Remove the rings' files; a reader that has them open still reads the rest.  No worker uses them any more. */
void capture_close(struct capture_session *session);

#endif
