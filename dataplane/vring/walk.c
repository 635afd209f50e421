/* SPDX-License-Identifier: Apache-2.0
 *
 * From a chain of descriptors to pieces of guest memory: chained and indirect descriptors of both layouts, and buffers
 * that cross memory regions.
 */
#include "vring/vring.h"

static enum vring_walk fault(struct virtqueue *vring, enum vring_fault reason)
{
	vring_quarantine(vring, reason);
	return VRING_WALK_FAULT;
}

/* Add one buffer to the frame, in as many pieces as memory regions it lies in. */
static enum vring_walk add_buffer(struct virtqueue *vring, const struct vring_descriptor *desc, bool write,
				  struct vring_frame *frame)
{
	uint64_t address = desc->address;
	uint32_t left = desc->length;

	if (frame->nb_descriptors++ >= VRING_PIECES)
		return VRING_WALK_FRAGMENTED;
	if (!!(desc->flags & VRING_DESC_F_WRITE) != write)
		return fault(vring, VRING_FAULT_direction);
	while (left > 0) {
		uint32_t length = left;
		uint8_t *at = guest_memory_piece(vring->memory, address, &length);

		if (at == NULL)
			return fault(vring, VRING_FAULT_address);
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
static bool indirect_entry(const struct virtqueue *vring, uint64_t table, uint32_t i, struct vring_descriptor *entry)
{
	uint64_t address = table + (uint64_t)i * sizeof(struct vring_desc);
	uint64_t words[2];
	uint8_t *to = (uint8_t *)words;
	uint32_t left = sizeof(words);

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
	*entry = vring_descriptor_of(vring->packed, words[0], words[1]);
	return true;
}

/*
 * Entries of a split table are chained by `next` (section 2.6.5.3); those of a packed one follow each other, all of
 * them (section 2.7.7).
 */
static enum vring_walk walk_indirect(struct virtqueue *vring, const struct vring_descriptor *table, bool write,
				     struct vring_frame *frame)
{
	const uint32_t entries = table->length / sizeof(struct vring_desc);
	uint32_t next = 0;

	/* No chain is longer than the queue; an indirect descriptor ends its chain. */
	if (table->length % sizeof(struct vring_desc) != 0 || entries == 0 || entries > vring->size ||
	    (table->flags & VRING_DESC_F_NEXT))
		return fault(vring, VRING_FAULT_indirect_table);
	for (uint32_t seen = 0; seen < entries; seen++) {
		struct vring_descriptor entry;
		enum vring_walk walk;

		vring->work++;
		if (!indirect_entry(vring, table->address, next, &entry))
			return fault(vring, VRING_FAULT_address);
		if (entry.flags & VRING_DESC_F_INDIRECT)
			return fault(vring, VRING_FAULT_indirect_table);
		/* DPDK's driver leaves the flag of a receive buffer on what it sends by a packed ring's table. */
		if (vring->packed && !write)
			entry.flags &= ~VRING_DESC_F_WRITE;
		walk = add_buffer(vring, &entry, write, frame);
		if (walk != VRING_WALK_DONE)
			return walk;
		if (vring->packed) {
			next++;
			continue;
		}
		if (!(entry.flags & VRING_DESC_F_NEXT))
			return VRING_WALK_DONE;
		next = entry.link;
		if (next >= entries)
			return fault(vring, VRING_FAULT_next_index);
	}
	return vring->packed ? VRING_WALK_DONE : fault(vring, VRING_FAULT_endless_chain);
}

static enum vring_walk walk_split(struct virtqueue *vring, uint16_t ahead, bool write, struct vring_frame *frame,
				  struct vring_chain *chain)
{
	uint16_t next = vring_head(vring, ahead);

	*chain = (struct vring_chain){.id = next, .slots = 1};
	if (next >= vring->size)
		return fault(vring, VRING_FAULT_head_index);
	for (uint32_t seen = 0; seen < vring->size; seen++) {
		const struct vring_descriptor desc = vring_descriptor(false, &vring->desc[next]);
		enum vring_walk walk;

		vring->work++;
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return walk_indirect(vring, &desc, write, frame);
		walk = add_buffer(vring, &desc, write, frame);
		if (walk != VRING_WALK_DONE || !(desc.flags & VRING_DESC_F_NEXT))
			return walk;
		next = desc.link;
		if (next >= vring->size)
			return fault(vring, VRING_FAULT_next_index);
	}
	return fault(vring, VRING_FAULT_endless_chain);
}

/*
 * The whole chain is followed even when its frame cannot be carried, since where it ends is where the next one begins.
 * That is bounded too: no driver makes chains of more than VRING_CHAIN, and a ring that has one is stopped.
 */
static enum vring_walk walk_packed(struct virtqueue *vring, uint16_t ahead, bool write, struct vring_frame *frame,
				   struct vring_chain *chain)
{
	enum vring_walk walk = VRING_WALK_DONE;

	for (uint32_t seen = 0; ahead + seen < vring->size; seen++) {
		struct vring_descriptor desc;
		bool wrap;

		if (seen == VRING_CHAIN)
			return fault(vring, VRING_FAULT_long_chain);
		/* The guest makes the first descriptor of a chain available last. */
		if (vring_available(vring, ahead + seen + 1) <= ahead + seen)
			return fault(vring, VRING_FAULT_broken_chain);
		vring->work++;
		desc = vring_descriptor(true, vring_packed_slot(vring, ahead + seen, &wrap));
		*chain = (struct vring_chain){.id = desc.link, .slots = seen + 1};
		if (desc.flags & VRING_DESC_F_INDIRECT) {
			if (seen > 0)
				return fault(vring, VRING_FAULT_indirect_table);
			return frame != NULL ? walk_indirect(vring, &desc, write, frame) : VRING_WALK_DONE;
		}
		if (walk == VRING_WALK_DONE && frame != NULL)
			walk = add_buffer(vring, &desc, write, frame);
		if (walk == VRING_WALK_FAULT || !(desc.flags & VRING_DESC_F_NEXT))
			return walk;
	}
	return fault(vring, VRING_FAULT_endless_chain);
}

enum vring_walk vring_walk(struct virtqueue *vring, uint16_t ahead, bool write, struct vring_frame *frame,
			   struct vring_chain *chain)
{
	return vring->packed ? walk_packed(vring, ahead, write, frame, chain)
			     : walk_split(vring, ahead, write, frame, chain);
}

bool vring_skip(struct virtqueue *vring, uint16_t ahead, struct vring_chain *chain)
{
	if (vring->packed)
		return walk_packed(vring, ahead, false, NULL, chain) != VRING_WALK_FAULT;
	*chain = (struct vring_chain){.id = vring_head(vring, ahead), .slots = 1};
	if (chain->id < vring->size)
		return true;
	vring_quarantine(vring, VRING_FAULT_head_index);
	return false;
}
