/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest's memory and rings in ordinary memory, for tests of vring/ without a front end.
 * Guest-physical addresses start at GUEST_BASE, so that an address used untranslated shows.
 */
#ifndef TAILRACE_TEST_SIMULATED_GUEST_H
#define TAILRACE_TEST_SIMULATED_GUEST_H

#include <stdlib.h>
#include <string.h>

#include "vring/vring.h"

enum {
	RING = 16,
	GUEST_HALF = 1 << 18, /* bytes of each of two memory regions, neighbours for the guest and apart here */
};
#define GUEST_BASE 0x40000000ULL

struct simulated_guest {
	struct guest_memory memory;
	struct queue_counters counters;
	struct virtqueue ring;
	int report;
	uint16_t added; /* chains made available */
	uint16_t next_desc;
};

/* Where a guest-physical address of the simulated guest is mapped. */
static inline uint8_t *guest_at(struct simulated_guest *guest, uint64_t address)
{
	uint32_t one = 1;

	return guest_memory_piece(&guest->memory, address, &one);
}

static inline void guest_start(struct simulated_guest *guest, bool mergeable)
{
	memset(guest, 0, sizeof(*guest));
	guest->memory.nb_regions = 2;
	for (unsigned i = 0; i < 2; i++)
		guest->memory.regions[i] = (struct guest_region){
			.guest = GUEST_BASE + (uint64_t)i * GUEST_HALF,
			.size = GUEST_HALF,
			.host = aligned_alloc(4096, GUEST_HALF),
		};
	for (unsigned i = 0; i < 2; i++)
		memset(guest->memory.regions[i].host, 0, GUEST_HALF);
	guest->ring = (struct virtqueue){
		.desc = (void *)guest_at(guest, GUEST_BASE),
		.avail = (void *)guest_at(guest, GUEST_BASE + 0x1000),
		.used = (void *)guest_at(guest, GUEST_BASE + 0x2000),
		.memory = &guest->memory,
		.counters = &guest->counters,
		.call_fd = -1,
		.size = RING,
		.header = 12,
		.mergeable = mergeable,
		.asleep = true,
		.report = &guest->report,
	};
	vring_start(&guest->ring);
}

static inline void guest_end(struct simulated_guest *guest)
{
	free(guest->memory.regions[0].host);
	free(guest->memory.regions[1].host);
}

/* Write one descriptor, in the table's next place.  Returns that place. */
static inline uint16_t guest_desc(struct simulated_guest *guest, uint64_t address, uint32_t length, uint16_t flags)
{
	uint16_t at = guest->next_desc++ % RING;

	guest->ring.desc[at] = (struct vring_desc){address, length, flags, (at + 1) % RING};
	return at;
}

/* Make the chain that starts at `head` available. */
static inline void guest_offer(struct simulated_guest *guest, uint16_t head)
{
	guest->ring.avail->ring[guest->added++ % RING] = head;
	__atomic_store_n(&guest->ring.avail->idx, guest->added, __ATOMIC_RELEASE);
}

#endif
