/* SPDX-License-Identifier: Apache-2.0
 *
 * One direction of a guest's queue pair, read and written safely: a split virtqueue as in the virtio 1.1
 * specification, section 2.6, with the network header of section 5.1.6.
 *
 * The guest is hostile.  Each value of a ring is read once, into a local copy, checked, and only then used.
 * A ring that breaks the rules is stopped (its `fault` says why) until the guest sets it up again; nothing
 * else is touched.  The work of each call is bounded.
 *
 * A struct virtqueue is a snapshot: the control side builds it from what the guest negotiated and publishes it;
 * one worker owns it from then on; the control side takes it back after the worker has let go of it.
 */
#ifndef TAILRACE_VRING_VRING_H
#define TAILRACE_VRING_VRING_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_ring.h>
#include <rte_branch_prediction.h>

#include "vring/counters.h"
#include "vring/memory.h"

enum {
	VRING_BURST = 64,		  /* frames moved in one call */
	VRING_PIECES = 128,		  /* places one frame may be scattered over */
	VRING_FRAME_MIN = 14,		  /* an Ethernet header */
	VRING_FRAME_MAX = 65535 + 14 + 8, /* the largest IPv4 packet, Ethernet header, two VLAN tags */
};

#define VRING_FAULTS(X)                                                                \
	X(alignment, "a ring is not aligned as the specification asks")                \
	X(ring_address, "a ring does not lie within one region of the guest's memory") \
	X(call_descriptor, "the descriptor to wake the guest with is no eventfd")      \
	X(call_blocks, "the descriptor to wake the guest with is full, and blocks")    \
	X(memory_cut, "the guest cut its memory file short while it was served")       \
	X(available_index, "the available index is more than a ring ahead")            \
	X(head_index, "a head index lies outside the descriptor table")                \
	X(next_index, "a next index lies outside the descriptor table")                \
	X(endless_chain, "a descriptor chain has no end")                              \
	X(indirect_table, "an indirect table is empty, ragged, too long or nested")    \
	X(address, "a buffer lies outside the guest's memory")                         \
	X(direction, "a buffer has the wrong direction for its queue")                 \
	X(empty_buffer, "a receive buffer has no room at all")                         \
	X(no_header, "a buffer has no room for the network header")

enum vring_fault {
	VRING_FAULT_NONE,
#define VRING_FAULT_VALUE(name, text) VRING_FAULT_##name,
	VRING_FAULTS(VRING_FAULT_VALUE)
#undef VRING_FAULT_VALUE
};

/* What the fault means, as a sentence for the operator. */
const char *vring_fault_text(enum vring_fault fault);

struct virtqueue {
	/* Fixed by the snapshot. */
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	const struct guest_memory *memory;
	struct queue_counters *counters;
	int call_fd;	  /* wakes the guest; -1: the guest polls */
	uint16_t size;	  /* descriptors, a power of two */
	uint8_t header;	  /* bytes of the network header before each frame: 10 or 12 */
	bool mergeable;	  /* a frame may take several receive buffers */
	bool in_order;	  /* the guest takes one completion for a batch of frames it sent */
	bool event_index; /* the guest says at which index it wants to be woken */

	/* The worker's own.  Frames complete in order, so one index serves as last seen and last used. */
	uint16_t index;
	uint16_t known;	    /* the available index as last read */
	uint16_t pending;   /* completed since the last vring_publish() */
	uint16_t unsettled; /* published since the guest was last asked whether it wants to be woken */
	bool asleep;	    /* when last asked it wanted to be */
	enum vring_fault fault;
	int *report; /* where the fault is told to the control side, which outlives the snapshot */
};

/* Stop the ring, and tell the control side.  The first fault stays: what follows may be its consequence. */
static inline void vring_quarantine(struct virtqueue *vring, enum vring_fault fault)
{
	if (__atomic_load_n(&vring->fault, __ATOMIC_RELAXED) != VRING_FAULT_NONE)
		return;
	vring->counters->quarantines++;
	vring->fault = fault;
	__atomic_store_n(vring->report, fault, __ATOMIC_RELAXED);
}

/*
 * Returns how many chains the guest has made available from the ring's position on, 0 on a stopped ring.
 * The guest's index is read only if fewer than `wanted` are known: each reading takes the cache line away from the
 * guest, which writes it.  The acquire makes the descriptors behind the index visible.
 */
static inline uint16_t vring_available(struct virtqueue *vring, uint16_t wanted)
{
	uint16_t ready = vring->known - vring->index;

	if (unlikely(vring->fault != VRING_FAULT_NONE))
		return 0;
	if (ready >= wanted)
		return ready;
	vring->known = __atomic_load_n(&vring->avail->idx, __ATOMIC_ACQUIRE);
	ready = vring->known - vring->index;
	if (unlikely(ready > vring->size)) {
		vring_quarantine(vring, VRING_FAULT_available_index);
		return 0;
	}
	return ready;
}

/* How many chains were there when the guest's index was last read and have not been taken; 0 on a stopped ring. */
static inline uint16_t vring_waiting(const struct virtqueue *vring)
{
	return vring->fault == VRING_FAULT_NONE ? vring->known - vring->index : 0;
}

/* The head of the chain `ahead` places after the ring's position; may be out of range. */
static inline uint16_t vring_head(const struct virtqueue *vring, uint16_t ahead)
{
	return __atomic_load_n(&vring->avail->ring[(uint16_t)(vring->index + ahead) & (vring->size - 1)],
			       __ATOMIC_RELAXED);
}

/* A private copy of a descriptor: every check and every use sees the same values. */
static inline struct vring_desc vring_descriptor(const struct vring_desc *shared)
{
	union {
		struct vring_desc desc;
		uint64_t words[2];
	} copy;

	copy.words[0] = __atomic_load_n(&((const uint64_t *)shared)[0], __ATOMIC_RELAXED);
	copy.words[1] = __atomic_load_n(&((const uint64_t *)shared)[1], __ATOMIC_RELAXED);
	return copy.desc;
}

/* Note the chain at `ahead` as done, with `length` bytes written to it; the guest sees it at vring_publish(). */
static inline void vring_complete(struct virtqueue *vring, uint16_t ahead, uint16_t head, uint32_t length)
{
	struct vring_used_elem element = {.id = head, .len = length};

	vring->used->ring[(uint16_t)(vring->index + ahead) & (vring->size - 1)] = element;
}

/*
 * Note the frame at `ahead` as taken.  With in-order use one element, at the place of the batch's first chain, names
 * its last chain (section 2.6.9); every other place is left alone, which spares a cache line for each eight frames.
 */
static inline void vring_complete_sent(struct virtqueue *vring, uint16_t ahead, uint16_t head)
{
	vring_complete(vring, vring->in_order ? 0 : ahead, head, 0);
}

/*
 * Hand all completed chains to the guest.  A guest that slept when last asked is woken at once, if it still wants to
 * be; any other is asked by vring_settle(), which must follow.
 */
void vring_publish(struct virtqueue *vring);

/*
 * Ask the guests of two rings whether they want to be woken for what was published, and do it.
 * Asking needs a full fence, which waits until all stores have left this core, so a busy worker asks on its next
 * visit, when they have; one fence serves both.  `other` may be NULL.
 */
void vring_settle_now(struct virtqueue *vring, struct virtqueue *other);

static inline void vring_settle(struct virtqueue *vring, struct virtqueue *other)
{
	if (vring->unsettled > 0 || (other != NULL && other->unsettled > 0))
		vring_settle_now(vring, other);
}

/* Set up a snapshot whose fields above are filled in: no kicks wanted, since the switch polls. */
void vring_start(struct virtqueue *vring);

/* Take up to VRING_BURST frames from the guest and drop them, counting each in `*reason`.  Returns how many. */
unsigned vring_discard(struct virtqueue *vring, uint64_t *reason);

/* ------- a frame as pieces of guest memory ------- */

struct vring_piece {
	uint8_t *at;
	uint32_t length;
};

struct vring_frame {
	unsigned nb_pieces;
	unsigned nb_descriptors; /* looked at, empty ones too: this is what bounds the work */
	uint32_t length;	 /* bytes, network header included */
	struct vring_piece pieces[VRING_PIECES];
};

static inline void vring_frame_clear(struct vring_frame *frame)
{
	frame->nb_pieces = 0;
	frame->nb_descriptors = 0;
	frame->length = 0;
}

enum vring_walk {
	VRING_WALK_DONE,
	VRING_WALK_FAULT,      /* the ring was stopped */
	VRING_WALK_FRAGMENTED, /* more pieces or descriptors than VRING_PIECES */
};

/*
 * Add the buffers of the chain at `head` to the frame.  `write` says which direction every buffer must have.
 * Follows chained and indirect descriptors and buffers that cross memory regions.
 */
enum vring_walk vring_walk(struct virtqueue *vring, uint16_t head, bool write, struct vring_frame *frame);

#endif
