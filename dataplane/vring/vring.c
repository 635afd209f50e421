/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include <rte_atomic.h>

#include "vring/vring.h"

const char *vring_fault_text(enum vring_fault fault)
{
	switch (fault) {
#define VRING_FAULT_CASE(name, text) \
	case VRING_FAULT_##name:     \
		return text;
		VRING_FAULTS(VRING_FAULT_CASE)
#undef VRING_FAULT_CASE
	case VRING_FAULT_NONE:
		break;
	}
	return "none";
}

void vring_start(struct virtqueue *vring)
{
	/* With the event index a guest kicks only when it passes the index left here: once in 65536. */
	if (vring->event_index)
		__atomic_store_n((uint16_t *)(void *)&vring->used->ring[vring->size], vring->index - 1,
				 __ATOMIC_RELAXED);
	__atomic_store_n(&vring->used->flags, VRING_USED_F_NO_NOTIFY, __ATOMIC_RELAXED);
}

/* Does the guest want to hear that the used index went from `before` to `after`?  Section 2.6.7. */
static bool wants_notification(const struct virtqueue *vring, uint16_t before, uint16_t after)
{
	if (vring->event_index)
		return vring_need_event(__atomic_load_n(&vring->avail->ring[vring->size], __ATOMIC_RELAXED), after,
					before);
	return !(__atomic_load_n(&vring->avail->flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT);
}

/* After the fence. */
static void wake(struct virtqueue *vring)
{
	uint64_t one = 1;

	if (vring->unsettled == 0)
		return;
	vring->asleep = wants_notification(vring, vring->index - vring->unsettled, vring->index);
	vring->unsettled = 0;
	if (!vring->asleep)
		return;
	if (write(vring->call_fd, &one, sizeof(one)) == sizeof(one))
		vring->counters->notifications++;
	else if (errno == EINTR)
		vring_quarantine(vring, VRING_FAULT_call_blocks);
}

void vring_settle_now(struct virtqueue *vring, struct virtqueue *other)
{
	/* The guest sets its wish and then reads the used index; we write the index and then read its wish. */
	rte_atomic_thread_fence(__ATOMIC_SEQ_CST);
	wake(vring);
	if (other != NULL)
		wake(other);
}

void vring_publish(struct virtqueue *vring)
{
	if (vring->pending == 0)
		return;
	vring->index += vring->pending;
	if (vring->call_fd >= 0)
		vring->unsettled += vring->pending;
	vring->pending = 0;
	__atomic_store_n(&vring->used->idx, vring->index, __ATOMIC_RELEASE);
	if (vring->asleep)
		vring_settle_now(vring, NULL);
}

unsigned vring_discard(struct virtqueue *vring, uint64_t *reason)
{
	uint16_t ready = vring_available(vring, 1);

	vring_settle(vring, NULL);
	if (ready > VRING_BURST)
		ready = VRING_BURST;
	for (uint16_t i = 0; i < ready; i++) {
		uint16_t head = vring_head(vring, i);

		if (head >= vring->size) {
			vring_quarantine(vring, VRING_FAULT_head_index);
			ready = i;
			break;
		}
		vring_complete_sent(vring, i, head);
	}
	vring->pending = ready;
	vring_publish(vring);
	vring->counters->received_packets += ready;
	*reason += ready;
	return ready;
}

/* Add one buffer to the frame, in as many pieces as memory regions it lies in. */
static enum vring_walk add_buffer(struct virtqueue *vring, const struct vring_desc *desc, bool write,
				  struct vring_frame *frame)
{
	uint64_t address = desc->addr;
	uint32_t left = desc->len;

	if (frame->nb_descriptors++ == VRING_PIECES)
		return VRING_WALK_FRAGMENTED;
	if (!!(desc->flags & VRING_DESC_F_WRITE) != write) {
		vring_quarantine(vring, VRING_FAULT_direction);
		return VRING_WALK_FAULT;
	}
	while (left > 0) {
		uint32_t length = left;
		uint8_t *at = guest_memory_piece(vring->memory, address, &length);

		if (at == NULL) {
			vring_quarantine(vring, VRING_FAULT_address);
			return VRING_WALK_FAULT;
		}
		if (frame->nb_pieces == VRING_PIECES)
			return VRING_WALK_FRAGMENTED;
		frame->pieces[frame->nb_pieces++] = (struct vring_piece){at, length};
		/* A chain of long buffers must not wrap the sum; nothing this long is carried anyway. */
		if (__builtin_add_overflow(frame->length, length, &frame->length))
			return VRING_WALK_FRAGMENTED;
		address += length;
		left -= length;
	}
	return VRING_WALK_DONE;
}

/* Read entry `i` of an indirect table in guest memory; its 16 bytes may cross regions too. */
static bool indirect_entry(const struct virtqueue *vring, uint64_t table, uint32_t i, struct vring_desc *entry)
{
	uint64_t address = table + (uint64_t)i * sizeof(*entry);
	uint8_t *to = (uint8_t *)entry;
	uint32_t left = sizeof(*entry);

	while (left > 0) {
		uint32_t length = left;
		const uint8_t *at = guest_memory_piece(vring->memory, address, &length);

		if (at == NULL)
			return false;
		for (uint32_t byte = 0; byte < length; byte++)
			*to++ = __atomic_load_n(&at[byte], __ATOMIC_RELAXED);
		address += length;
		left -= length;
	}
	return true;
}

static enum vring_walk walk_indirect(struct virtqueue *vring, const struct vring_desc *table, bool write,
				     struct vring_frame *frame)
{
	uint32_t entries = table->len / sizeof(struct vring_desc);
	uint32_t next = 0;

	/* Section 2.6.5.3.1: no chain is longer than the queue; an indirect descriptor ends its chain. */
	if (table->len % sizeof(struct vring_desc) != 0 || entries == 0 || entries > vring->size ||
	    (table->flags & VRING_DESC_F_NEXT))
		goto fault;
	for (uint32_t seen = 0; seen < entries; seen++) {
		struct vring_desc entry;
		enum vring_walk walk;

		if (!indirect_entry(vring, table->addr, next, &entry)) {
			vring_quarantine(vring, VRING_FAULT_address);
			return VRING_WALK_FAULT;
		}
		if (entry.flags & VRING_DESC_F_INDIRECT)
			goto fault;
		walk = add_buffer(vring, &entry, write, frame);
		if (walk != VRING_WALK_DONE || !(entry.flags & VRING_DESC_F_NEXT))
			return walk;
		next = entry.next;
		if (next >= entries) {
			vring_quarantine(vring, VRING_FAULT_next_index);
			return VRING_WALK_FAULT;
		}
	}
	vring_quarantine(vring, VRING_FAULT_endless_chain);
	return VRING_WALK_FAULT;

fault:
	vring_quarantine(vring, VRING_FAULT_indirect_table);
	return VRING_WALK_FAULT;
}

enum vring_walk vring_walk(struct virtqueue *vring, uint16_t head, bool write, struct vring_frame *frame)
{
	uint16_t next = head;

	for (uint32_t seen = 0; seen < vring->size; seen++) {
		struct vring_desc desc = vring_descriptor(&vring->desc[next]);
		enum vring_walk walk;

		if (desc.flags & VRING_DESC_F_INDIRECT)
			return walk_indirect(vring, &desc, write, frame);
		walk = add_buffer(vring, &desc, write, frame);
		if (walk != VRING_WALK_DONE || !(desc.flags & VRING_DESC_F_NEXT))
			return walk;
		next = desc.next;
		if (next >= vring->size) {
			vring_quarantine(vring, VRING_FAULT_next_index);
			return VRING_WALK_FAULT;
		}
	}
	vring_quarantine(vring, VRING_FAULT_endless_chain);
	return VRING_WALK_FAULT;
}
