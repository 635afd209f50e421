/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest's memory as the switch sees it: a private copy of the memory table, largest region first, because
 * that is where packets lie.  Immutable once published; a changed table is a new snapshot.
 */
#ifndef TAILRACE_VRING_MEMORY_H
#define TAILRACE_VRING_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { GUEST_REGIONS = 32 };

struct guest_region {
	uint64_t guest; /* first guest-physical address */
	uint64_t size;	/* bytes */
	uint8_t *host;	/* where it is mapped here */
};

struct guest_memory {
	unsigned nb_regions;
	struct guest_region regions[GUEST_REGIONS];
};

/*
 * Translate a guest-physical range that lies within one region.
 * Returns NULL when it does not: the range may cross regions (see guest_memory_piece()) or be outside.
 */
static inline uint8_t *guest_memory_at(const struct guest_memory *memory, uint64_t address, uint32_t length)
{
	for (unsigned i = 0; i < memory->nb_regions; i++) {
		const struct guest_region *region = &memory->regions[i];
		uint64_t offset = address - region->guest;

		if (offset < region->size && length <= region->size - offset)
			return region->host + offset;
	}
	return NULL;
}

/*
 * Translate the start of a range that may cross regions.
 * `length` is cut to what lies in the region found.  Returns NULL when the address is outside the guest's memory.
 */
static inline uint8_t *guest_memory_piece(const struct guest_memory *memory, uint64_t address, uint32_t *length)
{
	for (unsigned i = 0; i < memory->nb_regions; i++) {
		const struct guest_region *region = &memory->regions[i];
		uint64_t offset = address - region->guest;

		if (offset >= region->size)
			continue;
		if (*length > region->size - offset)
			*length = region->size - offset;
		return region->host + offset;
	}
	return NULL;
}

#endif
