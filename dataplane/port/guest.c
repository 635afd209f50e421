/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <rte_common.h>

#include "common/grace.h"
#include "port/guest_socket.h"
#include "vring/offload.h"

enum { BAR_LEAST_MS = 1000, BAR_MOST_MS = 60000 };

static void (*tell_change)(void);

void guest_on_change(void (*changed)(void))
{
	tell_change = changed;
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

/* ------- snapshots ------- */

static bool aligned(const void *address, uintptr_t to)
{
	return ((uintptr_t)address & (to - 1)) == 0;
}

/* Where a split ring lies here, each part whole within one region, with room for the event index. */
static enum vring_fault place_split(struct virtqueue *vring, const struct guest_table *table,
				    const struct guest_ring *ring)
{
	const size_t size = ring->size, event = sizeof(uint16_t);

	vring->desc = guest_memory_user(table, ring->desc, size * sizeof(*vring->desc));
	vring->avail = guest_memory_user(table, ring->avail, sizeof(*vring->avail) + size * sizeof(uint16_t) + event);
	vring->used = guest_memory_user(table, ring->used,
					sizeof(*vring->used) + size * sizeof(*vring->used->ring) + event);
	if (vring->desc == NULL || vring->avail == NULL || vring->used == NULL)
		return VRING_FAULT_ring_address;
	if (!aligned(vring->desc, 16) || !aligned(vring->avail, 2) || !aligned(vring->used, 4))
		return VRING_FAULT_alignment;
	if ((size & (size - 1)) != 0)
		return VRING_FAULT_ring_size;
	return VRING_FAULT_NONE;
}

/* The same of a packed ring: one table, and two words with each side's wishes about notifications. */
static enum vring_fault place_packed(struct virtqueue *vring, const struct guest_table *table,
				     const struct guest_ring *ring)
{
	vring->packed_desc = guest_memory_user(table, ring->desc, ring->size * sizeof(*vring->packed_desc));
	vring->driver_event = guest_memory_user(table, ring->avail, sizeof(*vring->driver_event));
	vring->device_event = guest_memory_user(table, ring->used, sizeof(*vring->device_event));
	if (vring->packed_desc == NULL || vring->driver_event == NULL || vring->device_event == NULL)
		return VRING_FAULT_ring_address;
	if (!aligned(vring->packed_desc, 16) || !aligned(vring->driver_event, 4) || !aligned(vring->device_event, 4))
		return VRING_FAULT_alignment;
	return VRING_FAULT_NONE;
}

/*
 * The ring's own log bits only if the front end named its place; frames' in any case.  What QEMU names of a packed ring
 * is not where its completions are written, so their place is our own finding.
 */
static struct dirty_log log_of(const struct guest_backend *backend, const struct guest_ring *ring)
{
	const struct guest_table *table = atomic_load(&backend->table);

	if (!(backend->features & 1ULL << VHOST_F_LOG_ALL) || table->log.length == 0)
		return (struct dirty_log){0};
	return (struct dirty_log){
		.bits = table->log.host,
		.size = table->log.size,
		.ring = backend->features & 1ULL << VIRTIO_F_RING_PACKED ? guest_memory_physical(table, ring->desc)
			: ring->logged					 ? ring->log
									 : DIRTY_NOWHERE,
	};
}

/* A snapshot of one ring as the front end has set it up, or NULL while it is not whole. */
static struct virtqueue *snapshot(struct guest_backend *backend, unsigned which)
{
	const struct guest_ring *ring = &backend->rings[which];
	const struct guest_table *table = atomic_load(&backend->table);
	const uint64_t features = backend->features;
	struct queue_counters *counters = backend->counters[which / GUEST_VRINGS_EACH];
	int *report = &backend->guest->fault[which];
	enum vring_fault fault;
	struct virtqueue *vring;

	if (table == NULL || table->count == 0 || !ring->addressed || ring->size == 0)
		return NULL;
	vring = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*vring)));
	if (vring == NULL)
		return NULL;
	*vring = (struct virtqueue){
		.memory = &table->memory,
		.counters = counters,
		.notifications = which % GUEST_VRINGS_EACH == GUEST_RECEIVES ? &counters->notifications
									     : &counters->notifications_taken,
		.call_fd = ring->call_fd >= 0 ? guest_eventfd(ring->call_fd) : -1,
		.size = ring->size,
		.header = features & (1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_NET_F_MRG_RXBUF |
				      1ULL << VIRTIO_F_RING_PACKED)
				  ? 12
				  : 10,
		.mergeable = features & 1ULL << VIRTIO_NET_F_MRG_RXBUF,
		.in_order = features & 1ULL << VIRTIO_F_IN_ORDER,
		.event_index = features & 1ULL << VIRTIO_RING_F_EVENT_IDX,
		.packed = features & 1ULL << VIRTIO_F_RING_PACKED,
		.offloads = offload_of_features(features, which % GUEST_VRINGS_EACH == GUEST_SENDS),
		.asleep = true,
		.fault = __atomic_load_n(report, __ATOMIC_RELAXED),
		.report = report,
	};
	vring->log = log_of(backend, ring);
	if (guest_memory_gone(table))
		vring_quarantine(vring, guest_memory_gone(table));
	else if ((backend->rings[which].barred = guest_now() < backend->barred_until))
		vring_quarantine(vring, backend->barred_for);
	if (vring->fault != VRING_FAULT_NONE)
		return vring;
	fault = vring->packed ? place_packed(vring, table, ring) : place_split(vring, table, ring);
	if (fault == VRING_FAULT_NONE && ring->call_refused)
		fault = VRING_FAULT_call_descriptor;
	if (fault == VRING_FAULT_NONE && ring->kick_refused)
		fault = VRING_FAULT_kick_descriptor;
	if (fault == VRING_FAULT_NONE) {
		vring_resume(vring, ring->base);
		vring_start(vring);
		/* The file may have been cut short: then this was noticed only now. */
		fault = __atomic_load_n(report, __ATOMIC_RELAXED);
	}
	if (fault != VRING_FAULT_NONE)
		vring_quarantine(vring, fault);
	return vring;
}

/* ------- what workers see ------- */

/* Count the pairs that may be served, and tell whoever spreads frames over them. */
static void change(struct guest *guest)
{
	unsigned pair = 0;

	while (pair < guest->pairs && atomic_load(&guest->live[GUEST_VRINGS_EACH * pair + GUEST_RECEIVES]) != NULL &&
	       atomic_load(&guest->live[GUEST_VRINGS_EACH * pair + GUEST_SENDS]) != NULL)
		pair++;
	atomic_store(&guest->used, pair);
	if (tell_change != NULL)
		tell_change();
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
			atomic_store(&guest_settles, guest_now());
			vring_settle(was[i], NULL);
			atomic_store(&guest_settles, 0);
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

		/* A front end that knows nothing of the protocol's features has no message to enable a ring. */
		if (atomic_load(&guest->live[i]) != NULL || !ring->started ||
		    !(ring->enabled || !(backend->features & 1ULL << GUEST_F_PROTOCOL_FEATURES)))
			continue;
		vring = snapshot(backend, i);
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
	backend->barred_until = 0;
	for (unsigned which = 0; which < GUEST_VRINGS; which++) {
		if (!backend->rings[which].barred)
			continue;
		guest_withdraw(backend, 1U << which);
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
	ring->enabled = false;
	if (ring->kick_fd >= 0)
		close(ring->kick_fd);
	if (ring->call_fd >= 0)
		close(ring->call_fd);
	ring->kick_fd = ring->call_fd = -1;
	ring->kick_refused = ring->call_refused = false;
	fault = __atomic_load_n(&backend->guest->fault[which], __ATOMIC_RELAXED);
	if (!ring->barred && (fault == VRING_FAULT_call_blocks || fault == VRING_FAULT_memory_taken))
		bar(backend, fault);
	ring->barred = false;
	/* The guest resets the ring: what was wrong with it is past. */
	__atomic_store_n(&backend->guest->fault[which], VRING_FAULT_NONE, __ATOMIC_RELAXED);
}

uint16_t guest_ring_tell(struct guest_backend *backend, unsigned which)
{
	const struct guest_ring *ring = &backend->rings[which];
	const struct guest_table *table = atomic_load(&backend->table);

	guest_ring_stop(backend, which);
	if (table != NULL && ring->addressed && (backend->features & 1ULL << VIRTIO_F_RING_PACKED)) {
		struct virtqueue vring = {.packed = true, .memory = &table->memory, .log = log_of(backend, ring)};

		if (place_packed(&vring, table, ring) == VRING_FAULT_NONE) {
			vring_forget_position(&vring);
			/*
			 * QEMU may serve the ring until we do again, to throw away what the guest sends, and begins at
			 * a wrong place (get_vring_base()).  So the guest shall not kick it.
			 */
			vring_disarm(&vring);
		}
	}
	return ring->base;
}

void guest_forget(struct guest_backend *backend)
{
	guest_withdraw(backend, GUEST_ALL_RINGS);
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		guest_ring_stop(backend, i);
		backend->rings[i] = (struct guest_ring){.kick_fd = -1, .call_fd = -1};
	}
	guest_memory_drop(backend);
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
	if (backend == NULL) {
		snprintf(why, why_size, "out of memory");
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
	backend->memory_most = options->memory != 0 ? options->memory : GUEST_MEMORY_MOST;
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
