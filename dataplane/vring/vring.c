/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include <rte_atomic.h>
#include <rte_cycles.h>

#include "vring/vring.h"

_Thread_local uint32_t vring_pages_made;
void (*vring_on_quarantine)(void);

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

/* ------- which notifications we ask for ------- */

/* Note that the device's side of a ring was written, `offset` bytes into it. */
static void note_ring(const struct virtqueue *vring, size_t offset, size_t length)
{
	if (unlikely(vring->log.bits != NULL))
		dirty_note(&vring->log, vring->log.ring + offset, length);
}

/* Split: the guest kicks when its available index passes this one. */
static void set_available_event(struct virtqueue *vring, uint16_t index)
{
	uint16_t *event = (uint16_t *)(void *)&vring->used->ring[vring->size];

	__atomic_store_n(event, index, __ATOMIC_RELAXED);
	note_ring(vring, (uintptr_t)event - (uintptr_t)vring->used, sizeof(*event));
}

static void set_kicks(struct virtqueue *vring, bool wanted)
{
	if (vring->packed) {
		__atomic_store_n(&vring->device_event->flags,
				 wanted ? VRING_PACKED_EVENT_FLAG_ENABLE : VRING_PACKED_EVENT_FLAG_DISABLE,
				 __ATOMIC_RELAXED);
		if (unlikely(vring->log.bits != NULL))
			dirty_note_at(&vring->log, vring->memory, vring->device_event, sizeof(*vring->device_event));
		return;
	}
	/* With the event index the guest never looks at the flags, and passes the index left here once in 65536. */
	if (vring->event_index)
		set_available_event(vring, wanted ? vring->index : vring->index - 1);
	else
		__atomic_store_n(&vring->used->flags, wanted ? 0 : VRING_USED_F_NO_NOTIFY, __ATOMIC_RELAXED);
	note_ring(vring, 0, sizeof(vring->used->flags));
}

void vring_disarm(struct virtqueue *vring)
{
	set_kicks(vring, false);
}

bool vring_arm(struct virtqueue *vring)
{
	/* It may not even lie in the guest's memory. */
	if (vring->fault != VRING_FAULT_NONE)
		return true;
	set_kicks(vring, true);
	/* The guest makes available and then reads our wish; we state the wish and then look what is available. */
	rte_atomic_thread_fence(__ATOMIC_SEQ_CST);
	return vring->fault != VRING_FAULT_NONE || vring_available(vring, 1) == 0;
}

/*
 * A packed ring has no index in memory.  The word that says to the guest at which descriptor to kick has no meaning
 * while kicks are asked for at every one or at none, which is all we do, and the guest clears it when it sets the ring
 * up: it keeps our position for a successor, and whether the ring is plain.  Never 0, which says that there is none.
 */
enum { RECORD_PLAIN = 1 << 14 };

/* The largest rings have no bit left for it. */
static bool can_record_plain(const struct virtqueue *vring)
{
	return vring->size < RECORD_PLAIN;
}

/* Record the slot `ahead` of the ring's position. */
static void record_position(struct virtqueue *vring, unsigned ahead)
{
	const unsigned slot = vring->index + ahead;
	const bool wrapped = slot >= vring->size, wrap = vring->wrap != wrapped;
	uint16_t position = (wrapped ? slot - vring->size : slot) | wrap << VRING_PACKED_EVENT_F_WRAP_CTR;

	/* The end of the round before is the beginning of this one; only the largest ring has no number left for it. */
	if (position == 0 && vring->size < 1 << VRING_PACKED_EVENT_F_WRAP_CTR)
		position = vring->size | 1 << VRING_PACKED_EVENT_F_WRAP_CTR;
	if (vring->plain)
		position |= RECORD_PLAIN;
	__atomic_store_n(&vring->device_event->off_wrap, position, __ATOMIC_RELEASE);
	if (unlikely(vring->log.bits != NULL))
		dirty_note_at(&vring->log, vring->memory, vring->device_event, sizeof(*vring->device_event));
}

void vring_forget_position(struct virtqueue *vring)
{
	if (!vring->packed)
		return;
	__atomic_store_n(&vring->device_event->off_wrap, 0, __ATOMIC_RELAXED);
	if (unlikely(vring->log.bits != NULL))
		dirty_note_at(&vring->log, vring->memory, vring->device_event, sizeof(*vring->device_event));
}

static void advance(struct virtqueue *vring, unsigned slots)
{
	vring->wrap = vring->wrap != (vring->index + slots >= vring->size);
	vring->index = (vring->index + slots) % vring->size;
}

/* The part of a packed descriptor that says it is used: length, id and flags. */
union completion {
	struct {
		uint32_t length;
		uint16_t id;
		uint16_t flags;
	};
	uint64_t word;
};

/*
 * One completion of a packed ring.  A single store: the guest sees it whole or not at all, and so does the next switch
 * if this one is killed here.  That it stands for several `slots` is said by the flag of a chain, which drivers are to
 * ignore in a used descriptor (2.7.6).
 */
static void show(struct virtqueue *vring, const struct vring_done *done, unsigned slots)
{
	bool wrap;
	struct vring_packed_desc *desc = vring_packed_slot(vring, done->ahead, &wrap);
	const union completion used = {
		.length = done->length,
		.id = done->id,
		.flags = (wrap ? VRING_FLAG_AVAILABLE | VRING_FLAG_USED : 0) |
			 (done->length > 0 ? VRING_DESC_F_WRITE : 0) | (slots > 1 ? VRING_DESC_F_NEXT : 0),
	};

	_Static_assert(offsetof(struct vring_packed_desc, len) == 8, "length, id and flags are one word");
	__atomic_store_n(&((uint64_t *)(void *)desc)[1], used.word, __ATOMIC_RELEASE);
	note_ring(vring, (uintptr_t)desc - (uintptr_t)vring->packed_desc, sizeof(*desc));
}

/*
 * How many slots the completion at the ring's position stands for: up to the descriptor that bears its id (2.7.11).
 * `looks` is how many descriptors may still be looked at.
 */
static unsigned completed_slots(struct virtqueue *vring, uint16_t id, unsigned *looks)
{
	for (unsigned ahead = 1; *looks != 0 && ahead < vring->size; ahead++, --*looks) {
		bool wrap;
		const struct vring_packed_desc *desc = vring_packed_slot(vring, ahead, &wrap);
		const uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
		const uint16_t available = wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED;

		if ((flags & (VRING_FLAG_AVAILABLE | VRING_FLAG_USED)) != available)
			return 1;
		if (!(flags & VRING_DESC_F_NEXT) && __atomic_load_n(&desc->id, __ATOMIC_RELAXED) == id)
			return ahead + 1;
		/* Without in-order use only the rest of its own chain belongs to it. */
		if (!(flags & VRING_DESC_F_NEXT) && !vring->in_order)
			return 1;
	}
	return 1;
}

/*
 * Pass the descriptors at the position that the guest has been given back, with `looks` at most.  Returns how many
 * slots.
 */
static unsigned pass_done(struct virtqueue *vring, unsigned looks)
{
	unsigned passed = 0;

	for (unsigned shown = 0; passed < vring->size && shown < VRING_DONE; shown++) {
		const struct vring_packed_desc *desc = &vring->packed_desc[vring->index];
		const uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
		const bool available = flags & VRING_FLAG_AVAILABLE, used = flags & VRING_FLAG_USED;
		unsigned slots = 1;

		if (!vring_looks_done(vring, flags))
			break;
		/* A ring that was never filled so far is all zeros, which looks used to a wrap counter of 0. */
		if (desc->addr == 0 && desc->len == 0)
			break;
		/* Of another's completion nobody knows; its id may be a new frame's by now, so one slot it is. */
		if (available == used && flags & VRING_DESC_F_NEXT)
			slots = completed_slots(vring, __atomic_load_n(&desc->id, __ATOMIC_RELAXED), &looks);
		if (slots > 1)
			vring->plain = false;
		advance(vring, slots);
		passed += slots;
	}
	return passed;
}

/* Whether the guest was woken for what was shown to it on the last `slots` slots, nobody knows. */
static void ask_again(struct virtqueue *vring, unsigned slots)
{
	if (vring->call_fd >= 0)
		vring->unnotified = RTE_MIN(vring->unnotified + slots, (unsigned)vring->size);
}

void vring_pass_done(struct virtqueue *vring)
{
	const unsigned passed = pass_done(vring, RTE_MIN(2 * vring->size, VRING_WORK));

	if (passed == 0)
		return;
	record_position(vring, 0);
	ask_again(vring, passed);
}

/* Whether nothing from the position on looks done, where nothing is: so the round before left no rest of a chain. */
static bool is_plain(const struct virtqueue *vring)
{
	for (unsigned ahead = 0; ahead < vring->size; ahead++) {
		bool wrap;
		const struct vring_packed_desc *desc = vring_packed_slot(vring, ahead, &wrap);

		if (!!(__atomic_load_n(&desc->flags, __ATOMIC_RELAXED) & VRING_FLAG_USED) == wrap)
			return false;
	}
	return true;
}

/*
 * Killed while it showed the buffers of one frame, the last one first.  The frame is whole, and all its buffers but the
 * last are full: show the rest.  Returns how many buffers that was.
 */
static unsigned finish_frame(struct virtqueue *vring)
{
	unsigned missing;

	for (missing = 0;; missing++) {
		const uint16_t both = VRING_FLAG_AVAILABLE | VRING_FLAG_USED;
		bool wrap;
		const struct vring_packed_desc *desc;
		uint16_t flags;

		if (missing == vring->size || missing > UINT8_MAX)
			return 0;
		desc = vring_packed_slot(vring, missing, &wrap);
		flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
		/* A buffer that was shown has something in it, so this is set in either. */
		if (!(flags & VRING_DESC_F_WRITE) || flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT))
			return 0;
		if ((flags & both) == (wrap ? both : 0))
			break;
		if ((flags & both) != (wrap ? VRING_FLAG_AVAILABLE : VRING_FLAG_USED))
			return 0;
	}
	for (unsigned ahead = missing; ahead-- > 0;) {
		bool wrap;
		const struct vring_packed_desc *desc = vring_packed_slot(vring, ahead, &wrap);

		show(vring, &(struct vring_done){.ahead = ahead, .id = desc->id, .length = desc->len}, 1);
	}
	return missing;
}

static void resume_packed(struct virtqueue *vring, uint16_t base)
{
	const uint16_t recorded = __atomic_load_n(&vring->device_event->off_wrap, __ATOMIC_ACQUIRE);
	uint16_t slot = (recorded != 0 ? recorded : base) & 0x7fff;

	vring->index = 0;
	vring->wrap = (recorded != 0 ? recorded : base) >> VRING_PACKED_EVENT_F_WRAP_CTR;
	vring->known = 0;
	if (recorded != 0 && can_record_plain(vring))
		slot &= RECORD_PLAIN - 1;
	advance(vring, slot % (vring->size + 1u));
	vring->plain = can_record_plain(vring) && (recorded != 0 ? recorded & RECORD_PLAIN : is_plain(vring));
	/*
	 * Killed after it had shown completions and before it had recorded them: they are not ours to do again, and the
	 * guest may have used their slots for something new.
	 */
	if (recorded != 0) {
		/* Every slot once, and once more for an id that is not found. */
		pass_done(vring, 2 * vring->size);
		if (vring->mergeable && finish_frame(vring) > 0)
			pass_done(vring, 2 * vring->size);
		ask_again(vring, vring->size);
	}
	record_position(vring, 0);
}

void vring_resume(struct virtqueue *vring, uint16_t base)
{
	if (vring->packed) {
		resume_packed(vring, base);
		return;
	}
	vring->index = vring->known = __atomic_load_n(&vring->used->idx, __ATOMIC_ACQUIRE);
	if (vring->index != 0)
		ask_again(vring, vring->size);
}

void vring_start(struct virtqueue *vring)
{
	vring->traits = (vring->packed ? VRING_PACKED : 0) | (vring->offloads != 0 ? VRING_OFFLOADS : 0) |
			(vring->log.bits != NULL ? VRING_LOGGED : 0);
	if (!vring->packed)
		__atomic_store_n(&vring->used->flags, VRING_USED_F_NO_NOTIFY, __ATOMIC_RELAXED);
	vring_disarm(vring);
}

/* ------- how we notify the guest ------- */

/* Does the guest want to hear that the used index went from `before` to `after`?  Section 2.6.7. */
static bool split_wants_notification(const struct virtqueue *vring, uint16_t before, uint16_t after)
{
	if (vring->event_index)
		return vring_need_event(__atomic_load_n(&vring->avail->ring[vring->size], __ATOMIC_RELAXED), after,
					before);
	return !(__atomic_load_n(&vring->avail->flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT);
}

/* The same for the last `slots` slots of a packed ring.  Section 2.7.10. */
static bool packed_wants_notification(const struct virtqueue *vring, uint16_t slots)
{
	/* One load, so that slot and flags belong together. */
	const uint32_t event = __atomic_load_n((const uint32_t *)(const void *)vring->driver_event, __ATOMIC_RELAXED);
	const uint16_t flags = event >> 16 & 3;
	const bool wrap = event >> VRING_PACKED_EVENT_F_WRAP_CTR & 1;
	int32_t slot = event & ((1 << VRING_PACKED_EVENT_F_WRAP_CTR) - 1);

	if (flags != VRING_PACKED_EVENT_FLAG_DESC || !vring->event_index)
		return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	/* In one line of numbers that ends at our position: what has the other wrap counter lies a ring before. */
	if (wrap != vring->wrap)
		slot -= vring->size;
	return slot < vring->index && slot >= vring->index - slots;
}

void (*vring_on_wake)(void);

/*
 * A waking takes a microsecond or so, and as much more for each three or so who wait for the descriptor, of whom the
 * guest can have any number, in the thread that wakes.  One that takes longer than WAKE_US may also have lost its core
 * meanwhile, so the next ones are measured in the thread's own time.
 */
enum { WAKE_US = 100, TIMED_S = 10 };

static uint64_t thread_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * 1000000ULL + used.tv_nsec / 1000;
}

/* Returns as write() does. */
static ssize_t write_call(struct virtqueue *vring)
{
	struct account *account = vring->account;
	const uint64_t one = 1, began = rte_rdtsc();
	const bool timed = account != NULL && began < __atomic_load_n(&account->timed_until, __ATOMIC_RELAXED);
	const uint64_t before = timed ? thread_us() : 0;
	const ssize_t written = write(vring->call_fd, &one, sizeof(one));
	const int error = errno;
	const uint64_t now = rte_rdtsc(), hz = rte_get_tsc_hz();

	if (account != NULL && unlikely(now - began > hz / 1000000 * WAKE_US)) {
		const uint64_t used = timed ? thread_us() - before : 0;

		__atomic_store_n(&account->timed_until, now + TIMED_S * hz, __ATOMIC_RELAXED);
		if (used > WAKE_US && !account_charge(account, used * (hz / 1000000), now, hz))
			vring_quarantine(vring, VRING_FAULT_call_slow);
	}
	errno = error;
	return written;
}

/* After the fence. */
static void wake(struct virtqueue *vring)
{
	if (vring->unnotified == 0)
		return;
	vring->asleep = vring->packed ? packed_wants_notification(vring, vring->unnotified)
				      : split_wants_notification(vring, vring->index - vring->unnotified, vring->index);
	vring->unnotified = 0;
	if (!vring->asleep)
		return;
	if (vring_on_wake != NULL)
		vring_on_wake();
	if (write_call(vring) == sizeof(uint64_t))
		++*vring->notifications;
	else if (errno == EINTR)
		vring_quarantine(vring, VRING_FAULT_call_blocks);
}

void vring_notify_now(struct virtqueue *vring, struct virtqueue *other)
{
	/* The guest sets its wish and then reads the used index; we write the index and then read its wish. */
	rte_atomic_thread_fence(__ATOMIC_SEQ_CST);
	wake(vring);
	if (other != NULL)
		wake(other);
}

static void publish_packed(struct virtqueue *vring)
{
	for (unsigned i = 0; i < vring->nb_done;) {
		const unsigned count = 1 + vring->done[i].more, begin = vring->done[i].ahead;
		const unsigned end = i + count < vring->nb_done ? vring->done[i + count].ahead : vring->pending;
		const bool one_each = end - begin == count;

		/* A successor that takes the ring for plain must find no such completion. */
		if (!one_each && vring->plain) {
			vring->plain = false;
			record_position(vring, begin);
		}
		/* The buffers of one frame belong together: the guest looks for them from the first on. */
		for (unsigned j = count, next = end; j-- > 0;) {
			const struct vring_done *done = &vring->done[i + j];

			show(vring, done, next - done->ahead);
			next = done->ahead;
		}
		i += count;
		/*
		 * Of a ring that is not plain a successor could not tell whether the guest has used a slot again, so
		 * it must not have to: no more than one frame is shown that is not recorded.
		 */
		if (!vring->plain)
			record_position(vring, end);
	}
	vring->nb_done = 0;
	advance(vring, vring->pending);
	vring->known -= vring->pending;
	record_position(vring, 0);
}

static void publish_split(struct virtqueue *vring)
{
	if (unlikely(vring->log.bits != NULL))
		for (unsigned i = 0; i < vring->pending; i++)
			note_ring(vring,
				  offsetof(struct vring_used, ring) +
					  ((vring->index + i) & (vring->size - 1u)) * sizeof(vring->used->ring[0]),
				  sizeof(vring->used->ring[0]));
	vring->index += vring->pending;
	__atomic_store_n(&vring->used->idx, vring->index, __ATOMIC_RELEASE);
	note_ring(vring, offsetof(struct vring_used, idx), sizeof(vring->used->idx));
}

void vring_publish(struct virtqueue *vring)
{
	if (vring->pending == 0)
		return;
	if (vring->packed)
		publish_packed(vring);
	else
		publish_split(vring);
	if (vring->call_fd >= 0)
		vring->unnotified += vring->pending;
	vring->pending = 0;
	if (vring->asleep)
		vring_notify_now(vring, NULL);
}

unsigned vring_discard(struct virtqueue *vring, uint64_t *reason)
{
	uint16_t ready = vring_available(vring, 1), ahead = 0;
	unsigned taken;

	vring_notify(vring, NULL);
	for (taken = 0; taken < VRING_BURST && ahead < ready; taken++) {
		struct vring_chain chain;

		if (!vring_skip(vring, ahead, &chain))
			break;
		vring_complete_sent(vring, vring->packed, ahead, chain.id);
		ahead += chain.slots;
		if (vring->packed)
			ready = vring_available(vring, ahead + 1);
	}
	vring->pending = ahead;
	vring_publish(vring);
	vring->counters->received_packets += taken;
	*reason += taken;
	return taken;
}
