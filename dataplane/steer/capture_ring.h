/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames on their way to a capture file.  A ring of bytes in a file that the reader maps: one worker writes, one reader
 * takes, and what finds no room is counted.  The bytes are the records of a pcap file with nanoseconds, one after the
 * other, so the reader copies them out without looking at them.
 *
 *   0    "TAILCAPT"
 *   8    version   u32
 *   12   snaplen   u32
 *   16   size      u64, bytes of the ring, a power of two
 *   64   head      u64, bytes ever written
 *   72   frames    u64, ever written
 *   80   dropped   u64, frames that found no room
 *   128  tail      u64, bytes ever taken; the reader's
 *   4096 the ring
 *
 * The reader is trusted with its capture and with nothing else: whatever `tail` says, the worker stays in the ring.
 */
#ifndef TAILRACE_STEER_CAPTURE_RING_H
#define TAILRACE_STEER_CAPTURE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "vring/packet.h"

enum { CAPTURE_VERSION = 1, CAPTURE_DATA = 4096, CAPTURE_RECORD = 16 /* bytes of a record's header */ };

struct capture_header {
	char magic[8];
	uint32_t version, snaplen;
	uint64_t size;
	_Alignas(64) uint64_t head;
	uint64_t frames, dropped;
	_Alignas(64) uint64_t tail;
};

/* What the TSC says as time of day: updated now and then, since the two drift. */
struct capture_clock {
	uint64_t tsc;
	uint64_t ns;	       /* since 1970, at that moment */
	uint64_t ns_per_cycle; /* a fraction of 2^32 */
};

static inline uint64_t capture_clock_ns(const struct capture_clock *clock, uint64_t tsc)
{
	return clock->ns + (uint64_t)(((__int128)(int64_t)(tsc - clock->tsc) * clock->ns_per_cycle) >> 32);
}

/* What the worker keeps of one ring. */
struct capture_ring {
	struct capture_header *header;
	uint8_t *data;
	uint64_t head; /* as in the header, which is updated once a burst */
	uint64_t frames, dropped;
	uint64_t size;
	uint32_t snaplen;
};

/* Add the packet, which was seen at `ns` since 1970; shown by capture_ring_show(). */
void capture_ring_add(struct capture_ring *ring, const struct packet *packet, uint64_t ns);

void capture_ring_show(struct capture_ring *ring);

#endif
