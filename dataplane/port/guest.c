/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/grace.h"
#include "port/guest_socket.h"

enum { BAR_LEAST_MS = 1000, BAR_MOST_MS = 60000 };

static void (*notify_change)(void);

void guest_on_change(void (*changed)(void))
{
	notify_change = changed;
}

int guest_eventfd(int fd)
{
	static const char expected[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(expected)];
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target)) != (ssize_t)strlen(expected) ||
	    memcmp(target, expected, strlen(expected)) != 0)
		return -1;
	/* The guest can undo it: then a write may block, which worker_watch() ends. */
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? fd : -1;
}

/* ------- what workers see ------- */

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
	backend->announcement = guest_announce_before(vring, &backend->announced, guest_socket_wake_fd());
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
		/* What the guest did to the descriptor since is undone first; what it does now, guest_watch() ends. */
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
	if (!ring->barred &&
	    (fault == VRING_FAULT_call_blocks || fault == VRING_FAULT_call_slow || fault == VRING_FAULT_memory_taken))
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

/* ------- for the control thread ------- */

int guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size)
{
	struct guest_backend *backend;
	int rc = -EINVAL;

	if (options->queues < 1 || options->queues > GUEST_PAIRS) {
		snprintf(why, why_size, "queues: expected 1 to %d, got %u", GUEST_PAIRS, options->queues);
		return rc;
	}
	if (options->path[0] == '\0' || strlen(options->path) >= sizeof(guest->path)) {
		snprintf(why, why_size, "socket %s: the path is longer than %zu bytes", options->path,
			 sizeof(guest->path) - 1);
		return options->path[0] == '\0' ? rc : -ENAMETOOLONG;
	}
	backend = calloc(1, sizeof(*backend));
	if (backend != NULL)
		backend->closer = guest_closer_open();
	if (backend == NULL || backend->closer == NULL) {
		snprintf(why, why_size, "out of memory");
		free(backend);
		return -ENOMEM;
	}
	pthread_mutex_init(&backend->facts_lock, NULL);
	memset(guest, 0, sizeof(*guest));
	strcpy(guest->path, options->path);
	guest->client = options->client;
	guest->pairs = options->queues;
	guest->backend = backend;
	backend->guest = guest;
	snprintf(backend->name, sizeof(backend->name), "%s", options->name);
	memcpy(backend->counters, options->counters, sizeof(backend->counters));
	backend->memory.most = options->memory != 0 ? options->memory : guest_memory_unless_said();
	backend->offered = guest_message_features(options->queues, options->offloads);
	backend->listener = backend->connection = -1;
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		atomic_store(&guest->kick[i], -1);
		backend->rings[i].kick_fd = backend->rings[i].call_fd = -1;
	}
	if (!options->client) {
		backend->listener = guest_socket_listen(options, why, why_size);
		if (backend->listener < 0) {
			rc = backend->listener;
			goto free_backend;
		}
	}
	rc = guest_socket_adopt(backend);
	if (rc != 0) {
		snprintf(why, why_size, "socket %s cannot be served: %s", options->path, strerror(-rc));
		goto close_listener;
	}
	return 0;

close_listener:
	if (backend->listener >= 0) {
		close(backend->listener);
		unlink(options->path);
	}
free_backend:
	guest_closer_close(backend->closer);
	free(backend);
	guest->backend = NULL;
	return rc;
}

void guest_close(struct guest *guest)
{
	if (guest->backend == NULL)
		return;
	guest_socket_abandon(guest->backend);
	if (!guest->client)
		unlink(guest->path);
	free(guest->backend);
	guest->backend = NULL;
}

enum guest_state guest_state(const struct guest *guest, enum vring_fault *fault)
{
	*fault = VRING_FAULT_NONE;
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		enum vring_fault found = __atomic_load_n(&guest->fault[i], __ATOMIC_RELAXED);

		if (found != VRING_FAULT_NONE)
			*fault = found;
	}
	if (*fault != VRING_FAULT_NONE)
		return GUEST_QUARANTINED;
	return guest_pairs(guest) > 0 ? GUEST_UP : GUEST_WAITING;
}

bool guest_takes(const struct guest *guest)
{
	const unsigned pairs = guest_pairs(guest);

	for (unsigned pair = 0; pair < pairs; pair++)
		if (__atomic_load_n(&guest->fault[GUEST_VRINGS_EACH * pair + GUEST_RECEIVES], __ATOMIC_RELAXED) ==
		    VRING_FAULT_NONE)
			return true;
	return false;
}

unsigned guest_pairs(const struct guest *guest)
{
	return atomic_load(&guest->used);
}
