/* SPDX-License-Identifier: Apache-2.0 */
#include "port/guest_discard.h"
#include "port/guest_ring.h"

enum {
	/*
	 * A ring is disabled for a moment whenever it is set up or about to be stopped, and what waits in it then is
	 * meant to be sent.
	 */
	AFTER_MS = 100,
	BURSTS = 16, /* of all rings of a guest, at once: others have their messages to be read */
};

static bool disabled(const struct guest_backend *backend, unsigned which)
{
	return backend->rings[which].started && !guest_ring_enabled(backend, which) &&
	       __atomic_load_n(&backend->guest->fault[which], __ATOMIC_RELAXED) == VRING_FAULT_NONE;
}

/*
 * Throw away at most `bursts`.  Returns how many it were.  No worker has the ring, so what is counted of its frames has
 * no other writer.
 */
static unsigned discard(struct guest_backend *backend, unsigned which, unsigned bursts)
{
	struct virtqueue *vring = backend->rings[which].idle;
	unsigned done = 0;

	/* As where a ring is taken from the workers: the guest may want to be waited for. */
	if (vring_available(vring, 1) == 0 || guest_eventfd(vring->call_fd) != vring->call_fd)
		return 0;
	atomic_store(&guest_notifying, guest_now());
	while (done < bursts && disabled(backend, which) &&
	       vring_discard(vring, &vring->counters->drop_queue_disabled) > 0)
		done++;
	vring_notify(vring, NULL);
	atomic_store(&guest_notifying, 0);
	return done;
}

bool guest_discard(struct guest_backend *backend, uint64_t now)
{
	unsigned left = BURSTS;
	bool soon = false;

	for (unsigned i = GUEST_SENDS; i < GUEST_VRINGS_EACH * backend->guest->pairs; i += GUEST_VRINGS_EACH) {
		struct guest_ring *ring = &backend->rings[i];

		if (!disabled(backend, i))
			continue;
		if (ring->idle_since == 0)
			ring->idle_since = now;
		if (now - ring->idle_since < AFTER_MS) {
			soon = true;
			continue;
		}
		if (ring->idle == NULL)
			ring->idle = guest_ring_snapshot(backend, i);
		if (ring->idle != NULL)
			left -= discard(backend, i, left);
	}
	return soon || left < BURSTS;
}
