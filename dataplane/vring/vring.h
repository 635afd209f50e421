/* SPDX-License-Identifier: Apache-2.0
 *
 * One direction of a guest's queue pair, read and written safely: a split or a packed virtqueue as in the virtio 1.1
 * specification, sections 2.6 and 2.7, with the network header of section 5.1.6.
 *
 * The guest is hostile.  Each value of a ring is read once, into a local copy, checked, and only then used.
 * A ring that breaks the rules is stopped (its `fault` says why) until the guest sets it up again; nothing
 * else is touched.  The work of each call is bounded.
 *
 * A struct virtqueue is a snapshot: the control side builds it from what the guest negotiated and publishes it;
 * one worker owns it from then on; the control side takes it back after the worker has let go of it.
 *
 * Both layouts share all of the code.  A position in a ring is said as so many *slots* ahead of the ring's own: a
 * slot is an entry of the available ring (split) or a descriptor (packed), so a chain takes one slot in a split
 * ring and as many as it has descriptors in a packed one.  Functions that run for each frame take `packed` as a
 * constant, so that the compiler makes one function for each layout and neither pays for the other.
 */
#ifndef TAILRACE_VRING_VRING_H
#define TAILRACE_VRING_VRING_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_ring.h>
#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_prefetch.h>

#include "vring/account.h"
#include "vring/counters.h"
#include "vring/dirty.h"
#include "vring/memory.h"

enum {
	VRING_BURST = 64,     /* frames moved in one call */
	VRING_PIECES = 128,   /* pieces that one frame may be scattered over */
	VRING_FRAME_MIN = 14, /* an Ethernet header */
	VRING_DONE =
		1024, /* completions that a packed ring keeps until they are published: a burst of long segments cut */
	VRING_FRAME_MAX = 65535 + 14 + 16, /* the largest IPv4 packet, Ethernet header, four VLAN tags */
	VRING_CHAIN = 256,		   /* slots of a packed ring that a chain may take: its end has to be found */

	/*
	 * What one visit to a ring may cost (docs/threat-model.md).  Plain frames, one buffer each, move many at a time
	 * and are bounded by their number and length.  All others move one by one, and a visit ends with the frame that
	 * brings their cost to VRING_WORK: descriptors looked at, whosever, and cache lines of frames.
	 */
	VRING_RUN_FRAME = 16384, /* bytes of a plain frame, network header included */
	VRING_WORK = 16384,
	VRING_WORK_MOST = 3 * VRING_WORK +
			  2048, /* with that last frame: 128 segments, each for a chain of VRING_CHAIN */
	VRING_WORK_PAGE = 128,	/* a page that was missing costs as much as so many of these */
	VRING_LARGE_PAGE = 64,	/* a large one as much as so many small ones */
};

/*
 * Pages of guests' memory that were missing when this thread touched them and have been made or mapped
 * (port/guest_pages.h), by what they cost: counts on, and wraps.
 */
extern _Thread_local uint32_t vring_pages_made;

/* What those cost that have been made since there were `before`. */
static inline uint32_t vring_work_of_pages(uint32_t before)
{
	return RTE_MIN(vring_pages_made - before, (uint32_t)VRING_WORK) * VRING_WORK_PAGE;
}

#define VRING_FAULTS(X)                                                                \
	X(alignment, "a ring is not aligned as the specification asks")                \
	X(ring_address, "a ring does not lie within one region of the guest's memory") \
	X(ring_size, "a split ring's size is no power of two")                         \
	X(kick_descriptor, "the descriptor that the guest kicks with is no eventfd")   \
	X(call_descriptor, "the descriptor to wake the guest with is no eventfd")      \
	X(call_blocks, "the descriptor to wake the guest with is full, and blocks")    \
	X(call_slow, "waking the guest takes long, again and again")                   \
	X(memory_cut, "the guest cut its memory file short while it was served")       \
	X(memory_taken, "the guest gives back memory again and again that is used")    \
	X(memory_swapped, "the guest's memory is read from swap again and again")      \
	X(available_index, "the available index is more than a ring ahead")            \
	X(head_index, "a head index lies outside the descriptor table")                \
	X(next_index, "a next index lies outside the descriptor table")                \
	X(endless_chain, "a descriptor chain has no end")                              \
	X(broken_chain, "a descriptor chain goes on where nothing was made available") \
	X(long_chain, "a descriptor chain takes more than 256 slots")                  \
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

/* A chain that was taken: what the guest knows it by, and how far the next one is. */
struct vring_chain {
	uint16_t id;
	uint16_t slots;
};

/* A completion of a packed ring that the guest does not see yet. */
struct vring_done {
	uint16_t ahead;
	uint16_t id;
	uint32_t length : 24;
	uint32_t more : 8; /* buffers of the same frame that follow this one */
};

/* What a ring needs besides the plain case. */
enum {
	VRING_PACKED = 1,   /* the layout of section 2.7 */
	VRING_OFFLOADS = 2, /* a sender's network headers have to be read */
	VRING_LOGGED = 4,   /* what is written is noted for a migration */
};

struct virtqueue {
	/*
	 * Fixed by the snapshot.  For a packed ring: `packed_desc`, `driver_event`, `device_event`, `packed`, and from
	 * the base that the front end gave (bit 15: wrap counter) `index` and `wrap`; `known` is 0.
	 */
	union {
		struct vring_desc *desc;
		struct vring_packed_desc *packed_desc;
	};
	union {
		struct vring_avail *avail;
		struct vring_packed_desc_event *driver_event;
	};
	union {
		struct vring_used *used;
		struct vring_packed_desc_event *device_event;
	};
	const struct guest_memory *memory;
	struct queue_counters *counters;
	uint64_t *notifications; /* times the guest was woken; of `counters`, by direction */
	struct dirty_log log;	 /* all zeros: nothing is logged */
	int call_fd;		 /* wakes the guest; -1: the guest polls */
	uint16_t size;		 /* descriptors; of a split ring a power of two, of a packed one at most 32768 */
	uint8_t header;		 /* bytes of the network header before each frame: 10 or 12 */
	uint8_t offloads;	 /* OFFLOAD_...: what this sender may ask for, or this receiver takes (offload.h) */
	uint8_t traits;		 /* VRING_PACKED ...; set by vring_start() */
	bool packed;
	bool mergeable;	  /* a frame may take several receive buffers */
	bool in_order;	  /* the guest takes one completion for a batch of frames it sent */
	bool event_index; /* the guest says at which index it wants to be woken */

	/* The worker's own.  Frames complete in order, so one index serves as last seen and last used. */
	uint16_t index;	     /* split: counts chains, and wraps at 65536; packed: the descriptor, less than `size` */
	bool wrap;	     /* packed: the wrap counter that goes with `index` */
	uint16_t known;	     /* split: the available index as last read; packed: slots known to be available */
	uint16_t pending;    /* slots completed since the last vring_publish(): the guest does not see them yet */
	uint16_t unnotified; /* slots published since the guest was last asked whether it wants to be woken */
	uint16_t nb_done;    /* packed: entries of `done` */
	bool asleep;	     /* when last asked it wanted to be */
	bool plain;	     /* packed: every completion so far stood for one slot */
	uint8_t expected;    /* how far vring_expect() has come since frames were last written */
	uint8_t last;	     /* how many these were, at most VRING_BURST */
	uint16_t dropped;    /* frames that the last hop took from here and could not carry; counted by reason */
	uint32_t work;	     /* counts on, and wraps: descriptors looked at and lines of frames, one frame at a time */
	enum vring_fault fault;
	struct virtqueue *next_unshown; /* of the rings that a burst was written to (packet.h) */
	int *report;		 /* where the fault is reported to the control side, which outlives the snapshot */
	struct account *account; /* of the guest's, outlives it too; NULL: nobody is charged */
	struct vring_done done[VRING_DONE];
};

/* Called in the thread that has stopped a ring, if it is set: once, before any ring. */
extern void (*vring_on_quarantine)(void);

/* Stop the ring, and notify the control side.  The first fault stays: what follows may be its consequence. */
static inline void vring_quarantine(struct virtqueue *vring, enum vring_fault fault)
{
	if (__atomic_load_n(&vring->fault, __ATOMIC_RELAXED) != VRING_FAULT_NONE)
		return;
	/* Also in another thread, when a ring is set up. */
	__atomic_fetch_add(&vring->counters->quarantines, 1, __ATOMIC_RELAXED);
	vring->fault = fault;
	__atomic_store_n(vring->report, fault, __ATOMIC_RELAXED);
	if (vring_on_quarantine != NULL)
		vring_on_quarantine();
}

/* ------- slots ------- */

/* Packed: the flags by which a descriptor is available or used, seen from a wrap counter of 1. */
enum { VRING_FLAG_AVAILABLE = 1 << VRING_PACKED_DESC_F_AVAIL, VRING_FLAG_USED = 1 << VRING_PACKED_DESC_F_USED };

/*
 * Packed: has the guest been given back the descriptor at the position?  Then it still says that it is used, or the
 * guest has made it available for the next round.  So does the rest of a chain of the round before, which nobody wrote
 * to since: where there were such, only the first can be recognised.
 */
static inline bool vring_looks_done(const struct virtqueue *vring, uint16_t flags)
{
	const bool available = flags & VRING_FLAG_AVAILABLE, used = flags & VRING_FLAG_USED;

	return used == vring->wrap && (available == used || vring->plain);
}

/* Packed: the descriptor `ahead` (at most `size`) slots after the ring's position, and its wrap counter. */
static inline struct vring_packed_desc *vring_packed_slot(const struct virtqueue *vring, unsigned ahead, bool *wrap)
{
	const unsigned slot = vring->index + ahead;
	const bool wrapped = slot >= vring->size;

	*wrap = vring->wrap != wrapped;
	return &vring->packed_desc[wrapped ? slot - vring->size : slot];
}

/*
 * The guest has been given back the descriptor at the position of a packed ring already, and not by us.  Pass it and
 * what follows it of the kind.  QEMU does that: when the switch goes it serves its guest's ring itself, to throw away
 * what the guest sends, and begins where the ring stood long ago (it cannot know better).  The guest takes it for what
 * it sent there.
 */
void vring_pass_done(struct virtqueue *vring);

static inline uint16_t vring_packed_available(struct virtqueue *vring, unsigned wanted)
{
	unsigned ready = vring->known;

	if (wanted > vring->size)
		wanted = vring->size;
	for (; ready < wanted; ready++) {
		bool wrap;
		const struct vring_packed_desc *desc = vring_packed_slot(vring, ready, &wrap);
		const uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
		const uint16_t expected = wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED;

		if ((flags & (VRING_FLAG_AVAILABLE | VRING_FLAG_USED)) != expected) {
			if (unlikely(ready == 0 && vring_looks_done(vring, flags)))
				vring_pass_done(vring);
			break;
		}
	}
	vring->known = ready;
	return ready;
}

static __rte_always_inline uint16_t vring_available_in(struct virtqueue *vring, const bool packed, unsigned wanted)
{
	uint16_t ready;

	if (unlikely(vring->fault != VRING_FAULT_NONE))
		return 0;
	if (packed)
		return vring_packed_available(vring, wanted);
	ready = vring->known - vring->index;
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

/*
 * Returns how many slots the guest has made available from the ring's position on, 0 on a stopped ring.
 * The guest's index (split) or its descriptors (packed) are read only if fewer than `wanted` are known: each reading
 * takes the cache line away from the guest, which writes it.  The acquire makes what is behind them visible.
 */
static inline uint16_t vring_available(struct virtqueue *vring, unsigned wanted)
{
	return vring_available_in(vring, vring->packed, wanted);
}

/*
 * Ask for what a visit to the ring looks at first, while another ring is visited: whether there is anything, and where.
 * These misses come one after the other, and nothing else of the visit can run beside them.
 */
static inline void vring_look_ahead(const struct virtqueue *vring)
{
	if (unlikely(vring->fault != VRING_FAULT_NONE))
		return; /* it may not even lie in the guest's memory */
	if (vring->packed) {
		rte_prefetch0(&vring->packed_desc[vring->index]);
	} else {
		rte_prefetch0(&vring->avail->idx);
		rte_prefetch0(&vring->avail->ring[vring->index & (vring->size - 1u)]);
	}
}

/* How many slots were known to be available and have not been taken; 0 on a stopped ring. */
static inline uint16_t vring_waiting(const struct virtqueue *vring)
{
	if (vring->fault != VRING_FAULT_NONE)
		return 0;
	return vring->packed ? vring->known : vring->known - vring->index;
}

/* Split: the head of the chain `ahead` slots after the ring's position; may be out of range. */
static inline uint16_t vring_head(const struct virtqueue *vring, unsigned ahead)
{
	return __atomic_load_n(&vring->avail->ring[(vring->index + ahead) & (vring->size - 1u)], __ATOMIC_RELAXED);
}

/* ------- descriptors ------- */

/* A private copy of a descriptor of either layout: every check and every use sees the same values. */
struct vring_descriptor {
	uint64_t address;
	uint32_t length;
	uint16_t flags;
	uint16_t link; /* split: the next descriptor of the chain; packed: the buffer's id */
};

static __rte_always_inline struct vring_descriptor vring_descriptor_of(const bool packed, uint64_t first,
								       uint64_t second)
{
	const uint16_t low = second >> 32, high = second >> 48;

	return (struct vring_descriptor){
		.address = first,
		.length = second,
		.flags = packed ? high & ~(VRING_FLAG_AVAILABLE | VRING_FLAG_USED) : low,
		.link = packed ? low : high,
	};
}

static __rte_always_inline struct vring_descriptor vring_descriptor(const bool packed, const void *shared)
{
	const uint64_t *words = shared;

	return vring_descriptor_of(packed, __atomic_load_n(&words[0], __ATOMIC_RELAXED),
				   __atomic_load_n(&words[1], __ATOMIC_RELAXED));
}

/* ------- completions ------- */

/*
 * Note the chain at `ahead` as done, with `length` bytes written to it; the guest sees it at vring_publish().
 * A packed ring shows a completion by the same store that writes it, so these are kept until then.
 */
static __rte_always_inline void vring_complete(struct virtqueue *vring, const bool packed, uint16_t ahead, uint16_t id,
					       uint32_t length)
{
	if (packed) {
		vring->done[vring->nb_done++] = (struct vring_done){.ahead = ahead, .id = id, .length = length};
	} else {
		struct vring_used_elem element = {.id = id, .len = length};

		vring->used->ring[(vring->index + ahead) & (vring->size - 1u)] = element;
	}
}

/*
 * Note the frame at `ahead` as taken.  With in-order use one element, at the slot of the batch's first chain, names
 * its last chain (sections 2.6.9 and 2.7.11); every other slot is left alone, which spares cache lines.
 */
static __rte_always_inline void vring_complete_sent(struct virtqueue *vring, const bool packed, uint16_t ahead,
						    uint16_t id)
{
	if (vring->in_order)
		vring->nb_done = 0;
	vring_complete(vring, packed, vring->in_order ? 0 : ahead, id, 0);
}

/*
 * Hand all completed chains to the guest.  A guest that slept when last asked is woken at once, if it still wants to
 * be; any other is asked by vring_notify(), which must follow.
 */
void vring_publish(struct virtqueue *vring);

/*
 * Ask the guests of two rings whether they want to be woken for what was published, and do it.
 * Asking needs a full fence, which waits until all stores have left this core, so a busy worker asks on its next
 * visit, when they have; one fence serves both.  `other` may be NULL.
 */
void vring_notify_now(struct virtqueue *vring, struct virtqueue *other);

static inline void vring_notify(struct virtqueue *vring, struct virtqueue *other)
{
	if (vring->unnotified > 0 || (other != NULL && other->unnotified > 0))
		vring_notify_now(vring, other);
}

/*
 * Called before a guest is woken, by a descriptor that it can make block: for who watches over the thread that wakes
 * it. Set once, before any ring is served; NULL: nobody watches.
 */
extern void (*vring_on_wake)(void);

/*
 * Let the ring go on where it stands in the guest's memory; `base` is what the front end says about that.  Frames
 * complete in order and at once, so the guest's memory is right also when an earlier switch was killed and reported
 * nothing to the front end: a split ring's used index is the position, and in a packed ring it is recorded beside.
 * Whether the guest was woken for the last of it nobody knows, so the next visit asks once for all of the ring.
 */
void vring_resume(struct virtqueue *vring, uint16_t base);

/* The base is reported to the front end now, and what it says next is right: no record may contradict it. */
void vring_forget_position(struct virtqueue *vring);

/* Set up a snapshot whose fields above are filled in: no kicks wanted, since the switch polls. */
void vring_start(struct virtqueue *vring);

/* The base that is reported to the front end: the position, and of a packed ring the wrap counter in bit 15. */
static inline uint16_t vring_base(const struct virtqueue *vring)
{
	return vring->packed ? vring->index | vring->wrap << 15 : vring->index;
}

/*
 * Before a worker sleeps: ask the guest for a kick when it makes something available, or take that wish back.
 * vring_arm() returns false when something has been made available meanwhile, so that there is nothing to sleep for.
 */
bool vring_arm(struct virtqueue *vring);
void vring_disarm(struct virtqueue *vring);

/* A frame of so many bytes is moved by itself. */
static inline void vring_spend(struct virtqueue *vring, uint32_t bytes)
{
	vring->work += bytes / RTE_CACHE_LINE_SIZE;
}

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
 * Add the buffers of the chain at `ahead` to the frame.  `write` says which direction every buffer must have.
 * Follows chained and indirect descriptors and buffers that cross memory regions.  `*chain` is valid unless the ring
 * was stopped.
 */
enum vring_walk vring_walk(struct virtqueue *vring, uint16_t ahead, bool write, struct vring_frame *frame,
			   struct vring_chain *chain);

/* The chain at `ahead`, without a look at its buffers.  Returns false when the ring was stopped. */
bool vring_skip(struct virtqueue *vring, uint16_t ahead, struct vring_chain *chain);

#endif
