/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest's memory and rings in ordinary memory, and as much of a driver as tests of vring/ need, for both layouts.
 * Guest-physical addresses start at GUEST_BASE, so that an address used untranslated shows.
 */
#ifndef TAILRACE_TEST_SIMULATED_GUEST_H
#define TAILRACE_TEST_SIMULATED_GUEST_H

#include <stdlib.h>
#include <string.h>

#include "vring/vring.h"

enum {
	RING = 16,	      /* descriptors, unless a test says otherwise */
	GUEST_HALF = 1 << 18, /* bytes of each of two memory regions, neighbours for the guest and apart here */
	GUEST_RINGS_SIZE = 1 << 20,
};
#define GUEST_BASE  0x40000000ULL
#define GUEST_RINGS 0x10000000ULL

/* What the driver knows of a completion. */
struct guest_used {
	uint32_t id, length;
};

struct simulated_guest {
	struct guest_memory memory;
	struct queue_counters counters;
	struct virtqueue ring;
	int report;

	/* The driver's side. */
	uint16_t next_desc;	 /* where the next descriptor is written */
	bool wrap;		 /* packed: its wrap counter */
	uint16_t staged;	 /* packed: descriptors written and not yet made available */
	uint16_t added;		 /* split: the available index */
	uint16_t used_at;	 /* where the next completion is looked for */
	bool used_wrap;		 /* packed */
	uint16_t slots[1 << 16]; /* packed: descriptors of the chain with this id */
	struct guest_used *used; /* completions in the order of their arrival */
	unsigned nb_used, max_used;
};

/* Where a guest-physical address of the simulated guest is mapped. */
static inline uint8_t *guest_at(struct simulated_guest *guest, uint64_t address)
{
	uint32_t one = 1;

	return guest_memory_piece(&guest->memory, address, &one);
}

/* A zeroed guest with rings of `size` descriptors; the caller may still change the ring, and starts it. */
static inline void guest_prepare(struct simulated_guest *guest, bool packed, uint16_t size)
{
	memset(guest, 0, sizeof(*guest));
	guest->memory.nb_regions = 3;
	for (unsigned i = 0; i < 2; i++)
		guest->memory.regions[i] = (struct guest_region){
			.guest = GUEST_BASE + (uint64_t)i * GUEST_HALF,
			.size = GUEST_HALF,
			.host = aligned_alloc(4096, GUEST_HALF),
		};
	guest->memory.regions[2] = (struct guest_region){
		.guest = GUEST_RINGS, .size = GUEST_RINGS_SIZE, .host = aligned_alloc(4096, GUEST_RINGS_SIZE)};
	for (unsigned i = 0; i < 3; i++)
		memset(guest->memory.regions[i].host, 0, guest->memory.regions[i].size);
	guest->wrap = guest->used_wrap = true;
	guest->ring = (struct virtqueue){
		.desc = (void *)guest_at(guest, GUEST_RINGS),
		.avail = (void *)guest_at(guest, GUEST_RINGS + 0x80000),
		.used = (void *)guest_at(guest, GUEST_RINGS + 0xa0000),
		.memory = &guest->memory,
		.counters = &guest->counters,
		.notifications = &guest->counters.notifications,
		.call_fd = -1,
		.size = size,
		.header = 12,
		.packed = packed,
		.wrap = packed,
		.asleep = true,
		.report = &guest->report,
	};
}

static inline void guest_start(struct simulated_guest *guest, bool packed, bool mergeable)
{
	guest_prepare(guest, packed, RING);
	guest->ring.mergeable = mergeable;
	vring_start(&guest->ring);
}

static inline void guest_end(struct simulated_guest *guest)
{
	for (unsigned i = 0; i < 3; i++)
		free(guest->memory.regions[i].host);
	free(guest->used);
}

/* The flags of a packed descriptor that is available under this wrap counter. */
static inline uint16_t guest_available_flags(bool wrap)
{
	return wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED;
}

/* Write one descriptor in the next slot, not yet available.  Returns that slot. */
static inline uint16_t guest_desc(struct simulated_guest *guest, uint64_t address, uint32_t length, uint16_t flags)
{
	const uint16_t at = guest->next_desc, next = (at + 1) % guest->ring.size;

	if (guest->ring.packed) {
		struct vring_packed_desc *desc = &guest->ring.packed_desc[at];
		const uint16_t seen = desc->flags & (VRING_FLAG_AVAILABLE | VRING_FLAG_USED);

		*desc = (struct vring_packed_desc){address, length, at - guest->staged, flags | seen};
		/* The chain is known by its first descriptor; its id stands in the last. */
		if (guest->staged > at)
			desc->id = at + guest->ring.size - guest->staged;
		guest->staged++;
	} else {
		guest->ring.desc[at] = (struct vring_desc){address, length, flags, next};
	}
	guest->next_desc = next;
	return at;
}

/* Make the chain that starts at `head` available: in a packed ring all descriptors written since the last one. */
static inline void guest_offer(struct simulated_guest *guest, uint16_t head)
{
	const uint16_t size = guest->ring.size;

	if (!guest->ring.packed) {
		guest->ring.avail->ring[guest->added++ % size] = head;
		__atomic_store_n(&guest->ring.avail->idx, guest->added, __ATOMIC_RELEASE);
		return;
	}
	/* From the last to the first. */
	guest->slots[head] = guest->staged;
	for (unsigned i = guest->staged; i-- > 0;) {
		const unsigned at = (head + i) % size;
		const bool wrap = guest->wrap != (head + i >= size);
		struct vring_packed_desc *desc = &guest->ring.packed_desc[at];

		desc->flags = (desc->flags & ~(VRING_FLAG_AVAILABLE | VRING_FLAG_USED)) | guest_available_flags(wrap);
	}
	guest->wrap = guest->wrap != (head + guest->staged >= size);
	guest->staged = 0;
}

static inline void guest_note_used(struct simulated_guest *guest, uint32_t id, uint32_t length)
{
	if (guest->nb_used == guest->max_used) {
		guest->max_used = guest->max_used * 2 + 16;
		guest->used = realloc(guest->used, guest->max_used * sizeof(guest->used[0]));
	}
	guest->used[guest->nb_used++] = (struct guest_used){id, length};
}

/* Take what the switch has given back.  Returns how many chains in all. */
static inline unsigned guest_taken(struct simulated_guest *guest)
{
	struct virtqueue *ring = &guest->ring;

	while (!ring->packed && guest->used_at != __atomic_load_n(&ring->used->idx, __ATOMIC_ACQUIRE)) {
		const struct vring_used_elem *element = &ring->used->ring[guest->used_at++ % ring->size];

		guest_note_used(guest, element->id, element->len);
	}
	while (ring->packed) {
		const struct vring_packed_desc *desc = &ring->packed_desc[guest->used_at];
		const uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
		const bool available = flags & VRING_FLAG_AVAILABLE, used = flags & VRING_FLAG_USED;

		if (used != guest->used_wrap || available != used)
			break;
		guest_note_used(guest, desc->id, desc->len);
		guest->used_at += guest->slots[desc->id];
		if (guest->used_at >= ring->size) {
			guest->used_at -= ring->size;
			guest->used_wrap = !guest->used_wrap;
		}
	}
	return guest->nb_used;
}

/* Let the rings stand where a long run would have brought them. */
static inline void guest_move_to(struct simulated_guest *guest, uint16_t index)
{
	struct virtqueue *ring = &guest->ring;

	if (ring->packed) {
		ring->index = guest->next_desc = guest->used_at = index % ring->size;
		for (unsigned i = 0; i < ring->index; i++)
			ring->packed_desc[i].flags = VRING_FLAG_AVAILABLE | VRING_FLAG_USED;
		return;
	}
	ring->index = ring->known = guest->added = guest->used_at = index;
	ring->used->idx = ring->avail->idx = index;
}

/* The flags of the descriptor at `at`. */
static inline uint16_t *guest_flags(struct simulated_guest *guest, uint16_t at)
{
	return guest->ring.packed ? &guest->ring.packed_desc[at].flags : &guest->ring.desc[at].flags;
}

/* Say whether the guest wants to be woken. */
static inline void guest_sleep(struct simulated_guest *guest, bool sleeps)
{
	if (guest->ring.packed)
		guest->ring.driver_event->flags = sleeps ? VRING_PACKED_EVENT_FLAG_ENABLE
							 : VRING_PACKED_EVENT_FLAG_DISABLE;
	else
		guest->ring.avail->flags = sleeps ? 0 : VRING_AVAIL_F_NO_INTERRUPT;
}

/* Say that it wants to be woken when this completion, counted from its position on, has been made. */
static inline void guest_sleep_until(struct simulated_guest *guest, uint16_t ahead)
{
	const struct virtqueue *ring = &guest->ring;

	if (ring->packed) {
		const unsigned at = ring->index + ahead;
		const bool wrap = ring->wrap != (at >= ring->size);

		ring->driver_event->off_wrap = at % ring->size | wrap << VRING_PACKED_EVENT_F_WRAP_CTR;
		ring->driver_event->flags = VRING_PACKED_EVENT_FLAG_DESC;
	} else {
		ring->avail->ring[ring->size] = ring->index + ahead;
	}
}

#endif
