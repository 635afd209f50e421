/* SPDX-License-Identifier: Apache-2.0
 *
 * The dirty log of a migration: while a guest is moved to another host, everything that is written to its memory is
 * noted, one bit for each page, so that the page is sent again.  The log is shared with the front end and with the
 * workers of the guest's other queues, so each bit is set atomically; it is not cached, because a log that is updated
 * late never converges at line rate.
 *
 * Two writes are noted: frames, by the place they were written to, and completions, by the address that the front end
 * names for the ring.
 */
#ifndef TAILRACE_VRING_DIRTY_H
#define TAILRACE_VRING_DIRTY_H

#include <stddef.h>
#include <stdint.h>

#include "vring/memory.h"

enum { DIRTY_PAGE = 4096 };

#define DIRTY_NOWHERE (1ULL << 63) /* an address that is in no log */

struct dirty_log {
	uint8_t *bits; /* shared with the front end; NULL: no migration */
	uint64_t size; /* its bytes */
	uint64_t ring; /* guest-physical address of the used ring (split) or the descriptors (packed) */
};

/* Note that `length` bytes at a guest-physical address have been written.  Call it after the write. */
static inline void dirty_note(const struct dirty_log *log, uint64_t address, uint64_t length)
{
	uint64_t last;

	if (length == 0 || __builtin_add_overflow(address, length - 1, &last))
		return;
	for (uint64_t page = address / DIRTY_PAGE; page <= last / DIRTY_PAGE; page++) {
		if (page / 8 >= log->size)
			return;
		/* Release: who sees the bit, and takes it away, sees what was written before. */
		__atomic_fetch_or(&log->bits[page / 8], (uint8_t)(1u << page % 8), __ATOMIC_RELEASE);
	}
}

/* The same for a place in the guest's memory as it is mapped here. */
static inline void dirty_note_at(const struct dirty_log *log, const struct guest_memory *memory, const void *at,
				 uint64_t length)
{
	for (unsigned i = 0; i < memory->nb_regions; i++) {
		const struct guest_region *region = &memory->regions[i];
		const uint64_t offset = (uintptr_t)at - (uintptr_t)region->host;

		if (offset < region->size)
			dirty_note(log, region->guest + offset, length);
	}
}

#endif
