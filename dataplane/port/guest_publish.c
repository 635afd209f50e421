/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/grace.h"
#include "port/guest_publish.h"
#include "port/guest_ring.h"

enum { BAR_LEAST_MS = 1000, BAR_MOST_MS = 60000 };

static void (*notify_change)(void);

void guest_on_change(void (*changed)(void))
{
	notify_change = changed;
}

/* Count the pairs that may be served, and notify whoever spreads frames over them. */
static void change(struct guest *guest)
{
	unsigned pair = 0;

	while (pair < guest->pairs && atomic_load(&guest->live[GUEST_VRINGS_EACH * pair + GUEST_RECEIVES]) != NULL &&
	       atomic_load(&guest->live[GUEST_VRINGS_EACH * pair + GUEST_SENDS]) != NULL)
		pair++;
	atomic_store(&guest->used, pair);
	if (notify_change != NULL)
		notify_change();
}

/* The ring, or one before which a frame is sent in the guest's name if there is one to be sent. */
static struct virtqueue *with_announcement(struct guest_backend *backend, struct virtqueue *vring)
{
	if (!backend->announces || vring->fault != VRING_FAULT_NONE)
		return vring;
	backend->announcement = guest_announce_before(vring, &backend->announced, backend->wake_fd);
	return backend->announcement != NULL ? guest_announce_ring(backend->announcement) : vring;
}

/* The guest's ring of what workers had, which they have let go of. */
static struct virtqueue *without_announcement(struct guest_backend *backend, struct virtqueue *vring)
{
	if (backend->announcement == NULL)
		return vring;
	backend->announces = !guest_announce_taken(backend->announcement);
	vring = guest_announce_end(backend->announcement);
	backend->announcement = NULL;
	return vring;
}

void guest_announce(struct guest_backend *backend, const struct rte_ether_addr *mac)
{
	backend->announces = true;
	backend->announced = *mac;
}

void guest_announced(struct guest_backend *backend)
{
	if (backend->announcement == NULL || !guest_announce_taken(backend->announcement))
		return;
	guest_withdraw(backend, 1U << GUEST_SENDS);
	guest_publish(backend);
}

void guest_withdraw(struct guest_backend *backend, uint32_t rings)
{
	struct guest *guest = backend->guest;
	struct virtqueue *was[GUEST_VRINGS] = {0};
	bool any = false;

	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		if (!(rings & 1U << i))
			continue;
		was[i] = atomic_exchange(&guest->live[i], NULL);
		atomic_store(&guest->kick[i], -1);
		if (was[i] == NULL)
			was[i] = backend->rings[i].idle;
		backend->rings[i].idle = NULL;
		any |= was[i] != NULL;
	}
	if (!any)
		return;
	grace_wait();
	if (was[GUEST_SENDS] != NULL)
		was[GUEST_SENDS] = without_announcement(backend, was[GUEST_SENDS]);
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		if (was[i] == NULL)
			continue;
		/* What the guest did to the descriptor since is undone first; what it does now, guest_watchdog() ends.
		 */
		if (was[i]->fault == VRING_FAULT_NONE && guest_eventfd(was[i]->call_fd) >= 0) {
			atomic_store(&guest_notifying, guest_now());
			vring_notify(was[i], NULL);
			atomic_store(&guest_notifying, 0);
		}
		backend->rings[i].base = vring_base(was[i]);
		free(was[i]);
	}
}

void guest_publish(struct guest_backend *backend)
{
	struct guest *guest = backend->guest;

	for (unsigned i = 0; i < GUEST_VRINGS_EACH * guest->pairs; i++) {
		struct guest_ring *ring = &backend->rings[i];
		struct virtqueue *vring;

		if (atomic_load(&guest->live[i]) != NULL || !ring->started || !guest_ring_enabled(backend, i))
			continue;
		vring = guest_ring_snapshot(backend, i);
		if (vring == NULL)
			continue;
		if (i == GUEST_SENDS)
			vring = with_announcement(backend, vring);
		atomic_store(&guest->kick[i], ring->kick_fd);
		atomic_store_explicit(&guest->live[i], vring, memory_order_release);
	}
	change(guest);
}

/*
 * The guest has blocked a worker, and may set its rings up again only to do so once more.  They stay stopped for a
 * second, then for two, and so on to a minute, so that what others wait for it stays small beside the time that they
 * have.
 */
static void bar(struct guest_backend *backend, enum vring_fault why)
{
	if (guest_now() < backend->barred_until)
		return;
	backend->barred_for = why;
	backend->bar = backend->bar == 0 ? BAR_LEAST_MS : RTE_MIN(2 * backend->bar, (uint64_t)BAR_MOST_MS);
	backend->barred_until = guest_now() + backend->bar;
}

void guest_end_bar(struct guest_backend *backend)
{
	uint32_t barred = 0;

	backend->barred_until = 0;
	for (unsigned which = 0; which < GUEST_VRINGS; which++)
		barred |= backend->rings[which].barred ? 1U << which : 0;
	guest_withdraw(backend, barred);
	/* Without a fault it is up, which it shall not be before its rings are live. */
	if (barred != 0)
		atomic_store(&backend->guest->used, 0);
	for (unsigned which = 0; which < GUEST_VRINGS; which++) {
		if (!backend->rings[which].barred)
			continue;
		backend->rings[which].barred = false;
		__atomic_store_n(&backend->guest->fault[which], VRING_FAULT_NONE, __ATOMIC_RELAXED);
	}
	guest_publish(backend);
}

void guest_ring_stop(struct guest_backend *backend, unsigned which)
{
	struct guest_ring *ring = &backend->rings[which];
	enum vring_fault fault;

	guest_withdraw(backend, 1U << which);
	ring->started = false;
	ring->idle_since = 0;
	ring->enabled = false;
	if (ring->kick_fd >= 0)
		close(ring->kick_fd);
	if (ring->call_fd >= 0)
		close(ring->call_fd);
	ring->kick_fd = ring->call_fd = -1;
	ring->kick_refused = ring->call_refused = false;
	fault = __atomic_load_n(&backend->guest->fault[which], __ATOMIC_RELAXED);
	if (!ring->barred && (fault == VRING_FAULT_call_blocks || fault == VRING_FAULT_call_slow ||
			      fault == VRING_FAULT_memory_taken || fault == VRING_FAULT_memory_swapped))
		bar(backend, fault);
	ring->barred = false;
	/* The guest resets the ring: what was wrong with it is past. */
	__atomic_store_n(&backend->guest->fault[which], VRING_FAULT_NONE, __ATOMIC_RELAXED);
}

uint16_t guest_ring_report(struct guest_backend *backend, unsigned which)
{
	guest_ring_stop(backend, which);
	guest_ring_forget_position(backend, which);
	return backend->rings[which].base;
}

void guest_forget(struct guest_backend *backend)
{
	guest_withdraw(backend, GUEST_ALL_RINGS);
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		guest_ring_stop(backend, i);
		backend->rings[i] = (struct guest_ring){.kick_fd = -1, .call_fd = -1};
	}
	guest_memory_drop(&backend->memory);
	backend->features = 0;
	backend->protocol_features = 0;
	backend->status = 0;
	backend->announces = false;
	change(backend->guest);
}
