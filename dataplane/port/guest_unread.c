/* SPDX-License-Identifier: Apache-2.0 */
#include "port/guest_unread.h"
#include "port/guest_backend.h"

enum { STILL = 4 /* looks in which neither side has moved: a guest that polls has taken all */ };

/* Of a packed ring: is the descriptor so many slots ahead available? */
static bool available(const struct virtqueue *vring, unsigned position, unsigned ahead)
{
	bool wrap = vring->wrap;
	unsigned slot = position + ahead;
	uint16_t flags;

	if (slot >= vring->size) {
		slot -= vring->size;
		wrap = !wrap;
	}
	flags = __atomic_load_n(&vring->packed_desc[slot].flags, __ATOMIC_RELAXED);
	return (flags & (VRING_FLAG_AVAILABLE | VRING_FLAG_USED)) == (wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED);
}

uint16_t guest_unread_buffers(const struct virtqueue *vring)
{
	/* A worker may be moving it: what is found then is one look that is a little wrong. */
	const uint16_t position = __atomic_load_n(&vring->index, __ATOMIC_RELAXED);
	unsigned low = 0, high = vring->size;

	if (!vring->packed) {
		const uint16_t ahead = __atomic_load_n(&vring->avail->idx, __ATOMIC_RELAXED) - position;

		return ahead <= vring->size ? ahead : 0;
	}
	if (position >= vring->size)
		return 0;
	/* The first that is not available, of those that are so from the position on. */
	while (low < high) {
		const unsigned middle = (low + high) / 2;

		if (available(vring, position, middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool guest_unread_look(struct guest_unread *unread, const struct virtqueue *vring)
{
	const uint16_t position = __atomic_load_n(&vring->index, __ATOMIC_RELAXED);
	const uint16_t buffers = guest_unread_buffers(vring);
	const bool moved = !unread->known || position != unread->position || buffers != unread->buffers;

	unread->still = moved ? 0 : unread->still < STILL ? unread->still + 1 : STILL;
	if (!unread->known || buffers > unread->empty || (unread->still == STILL && buffers > 0))
		unread->empty = buffers;
	unread->known = true;
	unread->position = position;
	unread->buffers = buffers;
	return buffers < unread->empty;
}

bool guest_unread_count(struct guest_backend *backend)
{
	struct guest *guest = backend->guest;

	if (!atomic_load_explicit(&guest->unread, memory_order_relaxed))
		return false;
	for (unsigned pair = 0; pair < guest->pairs; pair++) {
		const unsigned which = GUEST_VRINGS_EACH * pair + GUEST_RECEIVES;
		const struct virtqueue *vring = atomic_load_explicit(&guest->live[which], memory_order_acquire);
		struct queue_counters *counters = backend->counters[pair];

		if (vring == NULL || vring->fault != VRING_FAULT_NONE) {
			backend->unread[pair] = (struct guest_unread){0};
			continue;
		}
		/* No worker writes these. */
		counters->looks_unread += guest_unread_look(&backend->unread[pair], vring);
		counters->looks++;
	}
	return true;
}
