/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaps: when a polling loop took longer for a round than a limit, noted by the loop itself as an interval of the TSC.
 * Whatever keeps a poller from its work shows here, also what no kernel knows of.  It costs a loop one comparison of
 * two times, one of which it has anyway.
 *
 * The intervals lie in a memfd of the process named GAPS_FILE, sealed against a change of its size.  Readers open it as
 * /proc/PID/fd/N, so neither a sandbox nor a dropped privilege is in the way, and nothing of it outlives the process:
 *
 *   0    "TAILGAPS"   8 bytes
 *   8    version      u32, GAPS_VERSION
 *   12   loops        u32
 *   16   limit        u64, TSC cycles.  The one word that a reader may write: loops heed it from their next round on.
 *   24   tsc_hz       u64
 *   64   loops        of GAPS_LOOP bytes: name 48 bytes, thread i32 (Linux's id, in the process's own namespace),
 *                     records u32 (their place in the file), length u32 (how many the ring holds)
 *   then for each loop a head, u64 on a cache line of its own (how many records were ever written), and the ring:
 *   begin u64, end u64, frames u64 (moved in that round).  Record n lies at n modulo length.
 *
 * A loop writes its own ring and nothing else; it never waits for a reader.
 */
#ifndef TAILRACE_COMMON_GAPS_H
#define TAILRACE_COMMON_GAPS_H

#include <stdint.h>

#define GAPS_FILE "tailrace-gaps"

enum {
	GAPS_VERSION = 1,
	GAPS_LOOP = 64,
	GAPS_LENGTH = 1 << 14,
	GAPS_LIMIT_US = 5,
};

struct gap {
	uint64_t begin, end; /* TSC */
	uint64_t frames;
};

/* A loop's end of its ring. */
struct gap_log {
	const uint64_t *limit;
	uint64_t *head;
	struct gap *ring;
	int32_t *thread;
};

/* Make the file, with room for `count` loops.  Fills in their logs and returns 0, or -errno after logging. */
int gaps_open(struct gap_log *logs, const char *const *names, unsigned count, uint64_t tsc_hz);

/* Called by the loop's own thread before its first round. */
void gaps_begin(struct gap_log *log);

void gaps_note(struct gap_log *log, uint64_t begin, uint64_t end, uint64_t frames);

/* A round lasted from `begin` to `end` and moved `frames`. */
static inline void gaps_check(struct gap_log *log, uint64_t begin, uint64_t end, uint64_t frames)
{
	if (__builtin_expect(end - begin > __atomic_load_n(log->limit, __ATOMIC_RELAXED), 0))
		gaps_note(log, begin, end, frames);
}

#endif
