/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <rte_common.h>

#include "port/guest_ring.h"
#include "vring/offload.h"

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
	const struct guest_table *table = atomic_load(&backend->memory.table);

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

struct virtqueue *guest_ring_snapshot(struct guest_backend *backend, unsigned which)
{
	const struct guest_ring *ring = &backend->rings[which];
	const struct guest_table *table = atomic_load(&backend->memory.table);
	const uint64_t features = backend->features;
	struct queue_counters *counters = backend->counters[which / GUEST_VRINGS_EACH];
	int *report = &backend->guest->fault[which];
	const bool packed = features & 1ULL << VIRTIO_F_RING_PACKED;
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
		.packed = packed,
		/* Where one that is not served will go on; of others vring_resume() finds out where they stand. */
		.index = packed ? ring->base & INT16_MAX : ring->base,
		.wrap = packed && ring->base >> 15,
		.offloads = offload_of_features(features, which % GUEST_VRINGS_EACH == GUEST_SENDS),
		.asleep = true,
		.fault = __atomic_load_n(report, __ATOMIC_RELAXED),
		.report = report,
		.account = &backend->account,
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

void guest_ring_forget_position(struct guest_backend *backend, unsigned which)
{
	const struct guest_ring *ring = &backend->rings[which];
	const struct guest_table *table = atomic_load(&backend->memory.table);
	struct virtqueue vring = {.packed = true};

	if (table == NULL || !ring->addressed || !(backend->features & 1ULL << VIRTIO_F_RING_PACKED))
		return;
	vring.memory = &table->memory;
	vring.log = log_of(backend, ring);
	if (place_packed(&vring, table, ring) != VRING_FAULT_NONE)
		return;
	vring_forget_position(&vring);
	/*
	 * QEMU may serve the ring until we do again, to throw away what the guest sends, and begins at a wrong slot
	 * (get_vring_base()).  So the guest shall not kick it.
	 */
	vring_disarm(&vring);
}
