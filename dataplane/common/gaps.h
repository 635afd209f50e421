/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaps: when a polling loop took longer for a round than a limit, noted by the loop itself as an interval of the TSC.
 * Whatever keeps a poller from its work shows here, also what no kernel knows of.  It costs a loop one comparison of
 * two times, one of which it has anyway.
 *
 * Waits, of two sorts.  Frames waited longer than that for a receiver that took none: the loop that has them to give is
 * held up by nothing, and yet its frames are, by whoever should have made room.  Or the loop rested: it wanted to sleep
 * until there was something to do, and who knows when the kernel let it run again sees what its way back took.
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
 *                     records u32 (their offset in the file), length u32 (how many the ring holds),
 *                     waits u32 (the offset of a second ring, as long), busy u64 (cycles of rounds that moved
 *                     frames, of loops that say so), and room up to the next cache line
 *   then each ring: on a cache line of its own a head, u64 (how many records were ever written), then the records:
 *   begin u64, end u64, and of a gap frames u64 (moved in that round), of a wait the switch's numbers of two ports,
 *   u64: the receiver's, and from bit 16 on the sender's; or GAPS_REST.  Record n lies at n modulo length.  Ends never
 *   go back.
 *
 * A loop writes its own rings and nothing else; it never waits for a reader.
 */
#ifndef TAILRACE_COMMON_GAPS_H
#define TAILRACE_COMMON_GAPS_H

#include <stdint.h>

#define GAPS_FILE "tailrace-gaps"
#define GAPS_REST UINT64_MAX

enum {
	GAPS_VERSION = 2,
	GAPS_LOOP = 128,
	GAPS_LENGTH = 1 << 14,
	GAPS_LIMIT_US = 5,
};

struct gap {
	uint64_t begin, end; /* TSC */
	uint64_t what;	     /* of a gap the frames moved; of a wait the ports, or GAPS_REST */
};

struct gap_ring {
	uint64_t *head;
	struct gap *records;
};

/* A loop's end of its rings. */
struct gap_log {
	const uint64_t *limit;
	int32_t *thread;
	uint64_t *busy;
	struct gap_ring gaps, waits;
};

/* Make the file, with room for `count` loops.  Fills in their logs and returns 0, or -errno after logging. */
int gaps_open(struct gap_log *logs, const char *const *names, unsigned count, uint64_t tsc_hz);

/* Called by the loop's own thread before its first round. */
void gaps_begin(struct gap_log *log);

void gaps_note(struct gap_ring *ring, uint64_t begin, uint64_t end, uint64_t what);

/* A round lasted from `begin` to `end` and moved `frames`. */
static inline void gaps_check(struct gap_log *log, uint64_t begin, uint64_t end, uint64_t frames)
{
	if (__builtin_expect(end - begin > __atomic_load_n(log->limit, __ATOMIC_RELAXED), 0))
		gaps_note(&log->gaps, begin, end, frames);
}

/* A round from `begin` to `end` found its rings not empty: a loop that polls is known to be at work by that alone. */
static inline void gaps_busy(struct gap_log *log, uint64_t begin, uint64_t end)
{
	__atomic_store_n(log->busy, *log->busy + (end - begin), __ATOMIC_RELAXED);
}

/* From `begin` to `end` frames of port `from` waited for port `to`. */
static inline void gaps_waited(struct gap_log *log, uint64_t begin, uint64_t end, uint16_t from, uint16_t to)
{
	if (end - begin > __atomic_load_n(log->limit, __ATOMIC_RELAXED))
		gaps_note(&log->waits, begin, end, (uint64_t)from << 16 | to);
}

/* From `begin` to `end` the loop did nothing because there was nothing to do. */
static inline void gaps_rested(struct gap_log *log, uint64_t begin, uint64_t end)
{
	if (end - begin > __atomic_load_n(log->limit, __ATOMIC_RELAXED))
		gaps_note(&log->waits, begin, end, GAPS_REST);
}

#endif
