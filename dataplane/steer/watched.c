/* SPDX-License-Identifier: Apache-2.0
 *
 * The direct hop of a source that somebody watches: what direct.c does without looking, frame by frame.
 */
#include "port/device_io.h"
#include "steer/egress.h"
#include "steer/watch.h"

static uint64_t bytes_of(const struct burst *burst, unsigned count)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < count; i++)
		bytes += burst->packets[i].received;
	return bytes;
}

static void number_packets(uint8_t *which, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		which[i] = (uint8_t)i;
}

/* Nowhere to go. */
static unsigned drop_all(struct source *source, struct burst *burst)
{
	source_entry(source)->counters->drop_no_chain += burst->count;
	for (unsigned i = 0; i < burst->count; i++)
		FOLLOW(source, burst, i, NO_CHAIN, source->from->name);
	return burst->count;
}

/*
 * Give what was read to the only egress.  Returns how many packets are done with; the others wait where they came from,
 * if `may_wait`, for the receiver's room or rate.  Only room is waited for with limited patience: a rate comes round.
 */
static unsigned give_all(struct source *source, struct burst *burst, bool may_wait, const struct round *round)
{
	const struct egress *egress = &source->egress;
	uint8_t which[VRING_BURST];
	struct given given;

	number_packets(which, burst->count);
	/* What comes in is copied for those who want it when it is known not to wait. */
	given = egress_give(source, egress, burst, which, burst->count, source->watch->nb_taps == 0, round);
	if (given.dealt > 0 || given.admitted == 0)
		source_unblocked(source, round);
	if (given.dealt + given.shaped + given.refused == burst->count)
		return burst->count;
	if (unlikely(given.kept_off) && may_wait)
		return 0;
	if (!egress_gone(egress) && may_wait &&
	    (given.dealt > 0 || given.admitted == 0 || !source_patience_ended(source, round)))
		return given.dealt;
	egress_drop(source, egress, burst, which, burst->count, given, round);
	return burst->count;
}

static unsigned from_guest(struct source *source, struct virtqueue *from, unsigned limit, const struct round *round)
{
	struct burst burst;
	unsigned done;

	if (vring_read(from, &burst, limit) == 0) {
		source_unblocked(source, round);
		vring_read_done(from, &burst);
		return 0;
	}
	watch_read(source, &burst, round);
	/* Frames that were dropped on reading lie between the others: then all are done with at once. */
	done = source->egress.port == NULL ? drop_all(source, &burst)
					   : give_all(source, &burst, burst.count == burst.taken, round);
	watch_in(source, &burst, done, round);
	if (done < burst.count) {
		watch_stay(source, &burst, done);
		burst.count = done;
		burst.taken = done;
	}
	watch_spend(source, bytes_of(&burst, done), burst.taken);
	done = burst.taken;
	vring_read_done(from, &burst);
	if (source->egress.port != NULL)
		egress_send(&source->egress);
	return done;
}

static unsigned from_device(struct source *source, unsigned limit, const struct round *round)
{
	struct burst burst;
	unsigned done;

	device_read(source->from, source->queue, &burst, limit);
	if (burst.taken > 0) {
		watch_read(source, &burst, round);
		/* Where a rate is waited for in its shaper, what finds no room there is dropped. */
		done = source->egress.port == NULL
			       ? drop_all(source, &burst)
			       : give_all(source, &burst, !egress_is_shaped(&source->egress), round);
		watch_in(source, &burst, done, round);
		if (done < burst.count) {
			watch_stay(source, &burst, done);
			device_unread(source->from, source->queue, &burst, done);
		}
		watch_spend(source, bytes_of(&burst, burst.count), burst.taken);
	}
	done = burst.taken;
	device_read_done(source->from, source->queue, &burst);
	if (source->egress.port != NULL)
		egress_send(&source->egress);
	return done;
}

/*
 * How many frames the receiver has room for, as far as that can be known.  Looking at frames that then have to wait
 * would be in vain.
 */
static unsigned room(const struct source *source)
{
	const struct egress *egress = &source->egress;
	struct virtqueue *to;

	if (egress->port == NULL)
		return VRING_BURST;
	if (egress->port->kind == PORT_DEVICE)
		return egress_send_held(egress) ? VRING_BURST : 0;
	to = port_receiver(egress->port, egress->queue);
	if (to == NULL && egress->watch != NULL && egress->watch->park != NULL)
		return VRING_BURST; /* to be put aside */
	if (to != NULL && egress_parks(egress)) {
		vring_notify(to, NULL);
		/* Those come first.  These wait where they are, if that has room: a device's ring has little. */
		return source->from->kind == PORT_GUEST ? 0 : VRING_BURST;
	}
	if (to == NULL) /* to be dropped, unless it comes back */
		return port_pauses(egress->port, egress->queue) ? 0 : VRING_BURST;
	vring_notify(to, NULL);
	return RTE_MIN(vring_available(to, VRING_BURST), (unsigned)VRING_BURST);
}

static unsigned poll_taken(struct source *source, const struct round *round)
{
	struct virtqueue *from = NULL;
	unsigned limit, free;

	if (egress_shapes(&source->egress))
		egress_drain(source, &source->egress, round);
	if (source->from->kind == PORT_GUEST) {
		from = port_sender(source->from, source->queue);
		if (from == NULL) {
			room(source);
			return 0;
		}
		vring_notify(from, NULL);
	}
	/* Also where nothing may be given now: the receiver may still have to be notified, or to send what it holds. */
	free = room(source);
	limit = watch_limit(source, round);
	if (limit == 0)
		return 0;
	if (free == 0) {
		if (from != NULL && vring_available(from, 1) == 0)
			return 0;
		egress_refused(&source->egress, round);
		if (!source_patience_ended(source, round))
			return 0;
		free = VRING_BURST; /* to be dropped */
	}
	limit = RTE_MIN(limit, free);
	return from != NULL ? from_guest(source, from, limit, round) : from_device(source, limit, round);
}

unsigned watched_poll(struct source *source, const struct round *round)
{
	unsigned moved;

	if (source->egress.port != NULL && unlikely(!source_take(source)))
		return 0;
	moved = poll_taken(source, round);
	if (source->egress.port != NULL)
		egress_release(&source->egress);
	watch_done(source, round);
	return moved;
}
