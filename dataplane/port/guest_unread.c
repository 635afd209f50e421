/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_common.h>

#include "port/guest_backend.h"
#include "port/guest_unread.h"

enum { KEPT_BACK = 32 /* Linux's driver and DPDK's keep back no more, in a ring that has twice as many */ };

/* Where the switch stands in a ring. */
struct place {
	uint16_t index;
	bool wrap;
};

static struct place place_of(const struct virtqueue *vring)
{
	return (struct place){__atomic_load_n(&vring->index, __ATOMIC_ACQUIRE),
			      __atomic_load_n(&vring->wrap, __ATOMIC_ACQUIRE)};
}

/* Of a packed ring: is the descriptor so many slots ahead available? */
static bool available(const struct virtqueue *vring, struct place place, unsigned ahead)
{
	unsigned slot = place.index + ahead;
	uint16_t flags;

	if (slot >= vring->size) {
		slot -= vring->size;
		place.wrap = !place.wrap;
	}
	flags = __atomic_load_n(&vring->packed_desc[slot].flags, __ATOMIC_ACQUIRE);
	return (flags & (VRING_FLAG_AVAILABLE | VRING_FLAG_USED)) ==
	       (place.wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED);
}

static uint16_t buffers_from(const struct virtqueue *vring, struct place place)
{
	const uint32_t pages = vring_pages_made;
	unsigned low = 0, high = vring->size;

	if (!vring->packed) {
		const uint16_t ahead = __atomic_load_n(&vring->avail->idx, __ATOMIC_ACQUIRE) - place.index;

		return ahead <= vring->size ? ahead : 0;
	}
	if (place.index >= vring->size)
		return 0;
	/* The first that is not available, of those that are so from the place on.  One missing page is enough. */
	while (low < high && vring_pages_made == pages) {
		const unsigned middle = (low + high) / 2;

		if (available(vring, place, middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint16_t guest_unread_buffers(const struct virtqueue *vring)
{
	return buffers_from(vring, place_of(vring));
}

bool guest_unread_look(struct guest_unread *unread, const struct virtqueue *vring)
{
	const struct place before = place_of(vring);
	const uint16_t buffers = buffers_from(vring, before);
	const struct place after = place_of(vring);
	const unsigned kept = RTE_MAX(vring->size / 4, RTE_MIN(vring->size / 2, KEPT_BACK));

	/* Where a worker moved on meanwhile, buffers that it has used may be among them. */
	if (before.index == after.index && before.wrap == after.wrap)
		unread->most = RTE_MAX(unread->most, buffers);
	return unread->most > (buffers > 0 ? buffers + kept : 0);
}

unsigned guest_unread_count(struct guest_backend *backend)
{
	struct guest *guest = backend->guest;

	if (!atomic_load_explicit(&guest->unread, memory_order_relaxed))
		return 0;
	for (unsigned pair = 0; pair < guest->pairs; pair++) {
		const unsigned which = GUEST_VRINGS_EACH * pair + GUEST_RECEIVES;
		const struct virtqueue *vring = atomic_load_explicit(&guest->live[which], memory_order_acquire);
		struct queue_counters *counters = backend->counters[pair];
		const uint32_t pages = vring_pages_made;
		bool found;

		if (vring == NULL || vring->fault != VRING_FAULT_NONE) {
			backend->unread[pair] = (struct guest_unread){0};
			continue;
		}
		found = guest_unread_look(&backend->unread[pair], vring);
		/* This guest has cost enough: its other rings are looked at when it is its turn again, and this one. */
		if (vring_pages_made != pages)
			break;
		/* No worker writes these. */
		counters->looks_unread += found;
		counters->looks++;
	}
	return guest->pairs;
}
