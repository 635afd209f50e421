/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst of a source that has to look: read it, decide on all of it, sort it by outlet, take the outlets, write to
 * each, give the frames back.
 *
 * Nobody waits for a receiver that is full: its frames are dropped, and counted there.  An outlet that another worker
 * is just using is waited for for about a microsecond.  After that the burst stays where it is until the next round, if
 * it can; what a device has handed over cannot, and those frames are dropped and counted here.
 */

#include "port/device_io.h"
#include "steer/egress.h"
#include "steer/passage.h"

static struct queue_counters *sender_counters(const struct source *source)
{
	return source->from->queues[source->queue].counters;
}

static void count_reasons(const struct source *source, const struct reasons *reasons)
{
	struct queue_counters *counters = sender_counters(source);

	counters->drop_no_chain += reasons->no_chain;
	counters->drop_no_match += reasons->no_match;
	counters->drop_no_replica += reasons->no_replica;
	counters->drop_vlan += reasons->vlan;
	counters->drop_source_address += reasons->source_address;
	counters->drop_reserved_address += reasons->reserved_address;
	counters->drop_same_port += reasons->same_port;
	counters->drop_flood_limited += reasons->flood_limited;
	counters->address_flaps += reasons->flaps;
}

/* ------- giving ------- */

static bool take(const struct egress *egress)
{
	return likely(!egress->locked) || lock_shortly(&egress->port->queues[egress->queue].lock);
}

/* Hops are counted for each frame: those of one outlet may belong to different chains. */
#define COUNT_HOP(target, field, count)                                                                 \
	do {                                                                                            \
		if (unlikely((target)->shared))                                                         \
			__atomic_fetch_add(&(target)->hop->field, (uint64_t)(count), __ATOMIC_RELAXED); \
		else                                                                                    \
			(target)->hop->field += (count);                                                \
	} while (0)

static void count_hops(const struct passage *passage, const struct egress *egress, const uint8_t *which, unsigned n,
		       struct given given)
{
	for (unsigned i = 0; i < n; i++) {
		const struct target *target = &passage->steering->targets[passage->targets[which[i]]];
		const struct packet *packet = &passage->burst->packets[which[i]];

		if (target->hop == NULL)
			continue;
		if (likely(i < given.dealt && packet->delivered)) {
			COUNT_HOP(target, packets, 1);
			COUNT_HOP(target, bytes, packet->length);
		} else if (i < given.dealt) {
			COUNT_HOP(target, drop_receiver_too_small, 1);
		} else if (unlikely(given.kept_off || i >= n - given.refused)) {
			COUNT_HOP(target, drop_receiver_down, 1);
		} else if (i >= given.admitted + given.shaped) {
			COUNT_HOP(target, drop_rate, 1);
		} else if (i >= given.admitted) {
			continue; /* it is counted when it leaves the shaper */
		} else if (egress_lacks_buffers(egress)) {
			COUNT_HOP(target, drop_frame, 1);
		} else if (egress_up(egress)) {
			COUNT_HOP(target, drop_receiver_full, 1);
		} else {
			COUNT_HOP(target, drop_receiver_down, 1);
		}
	}
}

static void give(struct passage *passage, const struct outlet *outlet)
{
	const struct egress *egress = &outlet->egress;
	uint8_t which[VRING_BURST];
	struct given given;
	unsigned n = 0;

	if (passage->steering->bridge != NULL)
		passage_set_tags(passage, outlet);
	for (uint64_t rest = outlet->packets; rest != 0; rest &= rest - 1)
		which[n++] = (uint8_t)__builtin_ctzll(rest);
	given = egress_give(passage->source, egress, passage->burst, which, n, passage->flooded == 0, passage->round);
	if (unlikely(given.dealt + given.shaped + given.refused < n))
		egress_drop(passage->source, egress, passage->burst, which, n, given, passage->round);
	if (passage->steering->bridge == NULL)
		count_hops(passage, egress, which, n, given);
}

/* ------- a burst ------- */

/* Visit the touched outlets in their order: FOR_OUTLETS(steering, number) { ... } */
#define FOR_OUTLETS(steering, number)                                           \
	for (unsigned word_ = 0; word_ <= (steering)->nb_outlets / 64; word_++) \
		for (uint64_t rest_ = (steering)->touched[word_];               \
		     rest_ != 0 && (number = word_ * 64 + __builtin_ctzll(rest_), true); rest_ &= rest_ - 1)

/* An outlet of a queue that an outlet before it has taken, too, needs no taking. */
static bool taken_before(const struct steering *steering, unsigned number)
{
	for (; steering->outlets[number].same_queue; number--)
		if (steering->outlets[number - 1].packets != 0)
			return true;
	return false;
}

static void forget_packets(struct steering *steering, unsigned number)
{
	steering->outlets[number].packets = 0;
	steering->touched[number / 64] &= ~(UINT64_C(1) << number % 64);
}

/* Send what was given to the outlets before `end`, and let go of them. */
static void release(struct steering *steering, unsigned end)
{
	unsigned number;

	FOR_OUTLETS(steering, number)
	if (number < end && !taken_before(steering, number)) {
		egress_send(&steering->outlets[number].egress);
		egress_release(&steering->outlets[number].egress);
	}
}

/* Take all outlets.  False: one is busy, none is taken, and the burst may stay where it is. */
static bool take_all(struct passage *passage, bool may_stay)
{
	struct steering *steering = passage->steering;
	unsigned number;

	FOR_OUTLETS(steering, number)
	{
		struct outlet *outlet = &steering->outlets[number];

		if (likely(!outlet->egress.locked) || taken_before(steering, number) || take(&outlet->egress))
			continue;
		if (may_stay) {
			release(steering, number);
			return false;
		}
		for (uint64_t rest = outlet->packets; rest != 0; rest &= rest - 1)
			FOLLOW(passage->source, passage->burst, __builtin_ctzll(rest),
			       "dropped: another worker kept port %s too long (drop_receiver_busy)",
			       outlet->egress.port->name);
		sender_counters(passage->source)->drop_receiver_busy += __builtin_popcountll(outlet->packets);
		forget_packets(steering, number);
	}
	return true;
}

/* Nowhere to go. */
static void drop_all(struct passage *passage)
{
	passage->reasons.no_chain = passage->burst->count;
	for (unsigned i = 0; i < passage->burst->count; i++)
		FOLLOW(passage->source, passage->burst, i, NO_CHAIN, passage->source->from->name);
}

/* Decide on the burst and deliver it.  False: it has to stay; nothing has been done. */
static bool pass(struct source *source, struct burst *burst, bool may_stay, const struct round *round)
{
	struct steering *steering = source->steering;
	struct passage passage;
	bool taken;
	unsigned number;

	passage.source = source;
	passage.steering = steering;
	passage.burst = burst;
	passage.round = round;
	passage.flooded = 0;
	passage.reasons = (struct reasons){0};
	if (steering->bridge != NULL)
		steer_by_bridge(&passage);
	else if (steering->classifier != NULL || steering->otherwise != STEERING_DROP)
		steer_by_rules(&passage);
	else
		drop_all(&passage);
	taken = take_all(&passage, may_stay);
	if (likely(taken)) {
		count_reasons(source, &passage.reasons);
		FOR_OUTLETS(steering, number)
		if (egress_shapes(&steering->outlets[number].egress))
			egress_drain(source, &steering->outlets[number].egress, round);
		watch_in(source, burst, burst->count, round);
		FOR_OUTLETS(steering, number)
		give(&passage, &steering->outlets[number]);
	} else if (steering->bridge != NULL) {
		/* It will be decided on again; what was learned from it stays learned. */
		bridge_unflood(steering->bridge, steering->bridge_port, passage.flooded);
		sender_counters(source)->address_flaps += passage.reasons.flaps;
	}
	return taken;
}

/*
 * Flush the outlets that were given frames before, and none now: no write does it for them.  One that is busy, or a
 * device that has no room yet, is looked at again in the next round.
 */
static void flush_outlets(struct source *source, const struct round *round)
{
	struct steering *steering = source->steering;

	steering->owes = false;
	for (unsigned word = 0; word <= steering->nb_outlets / 64; word++) {
		for (uint64_t rest = steering->owed[word] & ~steering->touched[word]; rest != 0; rest &= rest - 1) {
			const struct egress *egress = &steering->outlets[word * 64 + __builtin_ctzll(rest)].egress;

			if (!egress_take(egress))
				continue;
			if (egress_shapes(egress))
				egress_drain(source, egress, round);
			if (likely(egress_flush(egress, round)) && !egress_shapes(egress) && !egress_parks(egress))
				steering->owed[word] &= ~(rest & -rest);
			egress_release(egress);
		}
		steering->owes |= steering->owed[word] != 0;
	}
}

static void flush(struct source *source, const struct round *round)
{
	if (unlikely(source->steering->owes))
		flush_outlets(source, round);
}

/* ------- waiting ------- */

/* Buffers of a guest's that the longest plain frame may take. */
enum { BUFFERS = 5 };

/*
 * How many frames each of the outlets has room for, which are one receiver's queues; any of them may be all of a
 * burst's.  0: one is full, is just being set up, or another worker has it.
 */
static unsigned room(struct source *source)
{
	const struct steering *steering = source->steering;
	unsigned least = VRING_BURST;

	source_entry(source)->kept_off = false;
	for (unsigned i = 0; i < steering->nb_outlets && least > 0; i++) {
		const struct egress *egress = &steering->outlets[i].egress;
		struct virtqueue *to = port_receiver(egress->port, egress->queue);

		if (!egress_take(egress)) {
			source_entry(source)->kept_off = true;
			return 0;
		}
		if (to != NULL)
			least = RTE_MIN(least, vring_available(to, VRING_BURST * BUFFERS) / (unsigned)BUFFERS);
		else if (port_pauses(egress->port, egress->queue))
			least = 0;
		egress_release(egress);
	}
	return least;
}

/* How many frames may be read of so many at most, where they wait for their only receiver: when they have waited too
 * long, as many as there are, to be dropped. */
static unsigned limit_by_room(struct source *source, struct virtqueue *from, unsigned limit, const struct round *round)
{
	unsigned free;

	if (from != NULL && vring_available(from, 1) == 0)
		return limit; /* to find nothing */
	free = room(source);
	if (likely(free > 0)) {
		source_unblocked(source, round);
		return RTE_MIN(limit, free);
	}
	return !source_entry(source)->kept_off && source_patience_ended(source, round) ? limit : 0;
}

/* What was given has been shown: others may use the outlets. */
static void finish(struct source *source, bool taken, const struct round *round)
{
	struct steering *steering = source->steering;
	unsigned number;

	if (likely(taken))
		release(steering, UINT32_MAX);
	FOR_OUTLETS(steering, number)
	steering->outlets[number].packets = 0;
	for (unsigned word = 0; unlikely(!taken) && word <= steering->nb_outlets / 64; word++)
		steering->touched[word] = 0;
	if (steering->owes)
		flush_outlets(source, round);
	for (unsigned word = 0; word <= steering->nb_outlets / 64; word++) {
		steering->owed[word] |= steering->touched[word];
		steering->owes |= steering->touched[word] != 0;
		steering->touched[word] = 0;
	}
}

static uint64_t bytes_of(const struct burst *burst)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < burst->count; i++)
		bytes += burst->packets[i].received;
	return bytes;
}

static unsigned poll_guest(struct source *source, struct virtqueue *from, unsigned limit, const struct round *round)
{
	struct burst burst;
	bool taken = true;
	unsigned done;

	if (vring_read(from, &burst, limit) == 0) {
		vring_read_done(from, &burst);
		flush(source, round);
		return 0;
	}
	watch_read(source, &burst, round);
	if (burst.count > 0) {
		/* Frames that were dropped on reading lie between the others, and are counted: they cannot stay. */
		taken = pass(source, &burst, burst.count == burst.taken, round);
		if (unlikely(!taken)) {
			watch_stay(source, &burst, 0);
			burst.count = 0;
			burst.taken = 0;
		}
	}
	watch_spend(source, bytes_of(&burst), burst.taken);
	done = burst.taken;
	vring_read_done(from, &burst);
	finish(source, taken, round);
	return done;
}

static unsigned poll_device(struct source *source, unsigned limit, const struct round *round)
{
	struct burst burst;
	unsigned received = device_read(source->from, source->queue, &burst, limit);

	if (received > 0) {
		watch_read(source, &burst, round);
		if (burst.count > 0)
			pass(source, &burst, false, round);
		watch_spend(source, bytes_of(&burst), received);
	}
	device_read_done(source->from, source->queue, &burst);
	if (received > 0)
		finish(source, true, round);
	else
		flush(source, round);
	return received;
}

void steer_begin(struct source *source)
{
	struct steering *steering = source->steering;

	for (unsigned i = 0; i < steering->nb_outlets; i++) {
		const struct egress *egress = &steering->outlets[i].egress;

		steering->owed[i / 64] |= UINT64_C(1) << i % 64;
		if (egress->watch != NULL && source->watch != NULL)
			tap_owe(&source->watch->held, egress->watch->taps, egress->watch->nb_taps);
	}
	steering->owes = steering->nb_outlets > 0;
}

bool steer_owes(const struct source *source)
{
	return source->steering->owes;
}

unsigned steer_poll(struct source *source, const struct round *round)
{
	struct virtqueue *from = NULL;
	unsigned limit, moved;

	if (source->from->kind == PORT_GUEST)
		from = port_sender(source->from, source->queue);
	limit = watch_limit(source, round);
	if (source->steering->waits && (from != NULL || source->from->kind == PORT_DEVICE))
		limit = limit_by_room(source, from, limit, round);
	if (unlikely(limit == 0 || (from == NULL && source->from->kind == PORT_GUEST))) {
		flush(source, round);
		moved = 0;
	} else if (from != NULL) {
		moved = poll_guest(source, from, limit, round);
	} else {
		moved = poll_device(source, limit, round);
	}
	watch_done(source, round);
	return moved;
}
