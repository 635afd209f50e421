/* SPDX-License-Identifier: Apache-2.0 */
#include "steer/direct.h"
#include "port/device_io.h"
#include "steer/egress.h"
#include "steer/watch.h"
#include "vring/hop.h"

/* The sender is gone; the receiver may still have to be notified of what it sent last. */
static void notify_receiver(const struct egress *egress)
{
	struct virtqueue *vring = egress->port->kind == PORT_GUEST ? port_receiver(egress->port, egress->queue) : NULL;

	if (vring != NULL)
		vring_notify(vring, NULL);
}

/* Drop what a guest sent because of the receiver, at once. */
static unsigned discard_full(struct source *source, struct virtqueue *from)
{
	unsigned dropped = vring_discard(from, &egress_counters(&source->egress)->drop_receiver_full);

	EGRESS_COUNT(&source->egress, drop_receiver_full, dropped);
	return dropped;
}

static unsigned discard_down(struct source *source, struct virtqueue *from)
{
	unsigned dropped = vring_discard(from, &egress_counters(&source->egress)->drop_receiver_down);

	EGRESS_COUNT(&source->egress, drop_receiver_down, dropped);
	return dropped;
}

/*
 * The guest's ring for the egress's frames is not there.  It may be set up anew at this moment.  Or the guest is there
 * with another one and is changing how many it uses: the control side is about to compile that.  Till then frames wait.
 */
static unsigned guest_gone(struct source *source, struct virtqueue *from, const struct round *round)
{
	const struct port *to = source->egress.port;
	const unsigned queue = source->egress.queue;

	vring_notify(from, NULL);
	/* Asked after the frames were seen: while this worker was kept off its core, the ring may have come, then they.
	 */
	if (vring_available(from, 1) == 0)
		return 0;
	if ((port_pauses(to, queue) ||
	     (queue > 0 && port_receiver(to, 0) != NULL && !port_receiver_faulted(to, queue))) &&
	    (port_receiver(to, queue) != NULL || !source_patience_ended(source, round)))
		return 0;
	source_unblocked(source, round);
	return discard_down(source, from);
}

static unsigned guest_to_guest(struct source *source, struct virtqueue *from, const struct round *round)
{
	const struct egress *egress = &source->egress;
	struct virtqueue *to = port_receiver(egress->port, egress->queue);
	struct queue_counters *counters = egress_counters(egress);
	uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	uint64_t too_small = counters->drop_receiver_too_small;
	unsigned taken;

	if (unlikely(to == NULL))
		return guest_gone(source, from, round);
	if (unlikely(egress->watch != NULL) && vring_available(from, 1) > 0 && !egress_turn(egress, round)) {
		vring_notify(from, to);
		return 0;
	}
	taken = vring_hop(from, to);
	if (unlikely(egress->watch != NULL))
		egress_turned(egress, counters->sent_bytes - bytes, taken, vring_waiting(from) > 0, round);
	/* By what the hop has seen: a frame that arrived after it has not been refused by anybody. */
	if (likely(taken > 0) || vring_waiting(from) == 0) {
		source_unblocked(source, round);
		if (taken == 0) {
			/* What another worker writes to as well, it would only take away from that one. */
			if (likely(!egress->locked))
				vring_expect(to);
			return 0;
		}
		packets = counters->sent_packets - packets;
		EGRESS_COUNT(egress, packets, packets);
		EGRESS_COUNT(egress, bytes, counters->sent_bytes - bytes);
		/* Not by how many were taken: a long segment may leave as many frames. */
		if (unlikely(from->dropped > 0)) {
			too_small = counters->drop_receiver_too_small - too_small;
			EGRESS_COUNT(egress, drop_receiver_too_small, too_small);
			EGRESS_COUNT(egress, drop_frame, from->dropped - too_small);
		}
		return taken;
	}
	return source_patience_ended(source, round) ? discard_full(source, from) : 0;
}

/* ------- devices ------- */

/* Of this worker, for one round. */
static _Thread_local struct burst burst;

/* The packets of a burst, all of them in order. */
static const uint8_t all[] = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
	22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
	44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};
static_assert(sizeof(all) == VRING_BURST, "each once");

/* Is the receiving device ready for more?  Sends what is held; drops it once patience has ended. */
static bool device_ready(struct source *source, const struct round *round)
{
	const struct egress *egress = &source->egress;
	struct queue_counters *counters = egress_counters(egress);
	const uint64_t packets = counters->sent_packets;
	bool ready = egress_send_held(egress);

	if (ready || counters->sent_packets != packets)
		source_unblocked(source, round);
	if (!ready && source_patience_ended(source, round)) {
		unsigned dropped = device_forget(egress->port, egress->queue);

		counters->drop_receiver_full += dropped;
		EGRESS_COUNT(egress, drop_receiver_full, dropped);
	}
	return ready;
}

/* Write the burst to the device.  Returns how many of its packets are dealt with. */
static unsigned write_burst(struct source *source)
{
	const struct egress *egress = &source->egress;
	struct queue_counters *counters = egress_counters(egress);
	const uint64_t too_small = counters->drop_receiver_too_small, down = counters->drop_receiver_down;
	unsigned done = device_write(egress->port, egress->queue, &burst, all, burst.count, true);

	EGRESS_COUNT(egress, drop_receiver_too_small, counters->drop_receiver_too_small - too_small);
	EGRESS_COUNT(egress, drop_receiver_down, counters->drop_receiver_down - down);
	return done;
}

/* What else was read there was no packet buffer for, or it was no frame. */
static void drop_rest(struct source *source, unsigned done)
{
	source_entry(source)->counters->drop_no_buffer += burst.count - done;
	EGRESS_COUNT(&source->egress, drop_frame, burst.taken - done);
}

/* The device has no link: what is for it is dropped at once. */
static unsigned device_gone(struct source *source, struct virtqueue *from)
{
	egress_send_held(&source->egress);
	return discard_down(source, from);
}

static unsigned guest_to_device(struct source *source, struct virtqueue *from, const struct round *round)
{
	const struct egress *egress = &source->egress;
	unsigned taken, done;

	vring_notify(from, NULL);
	if (unlikely(!device_sends(&egress->port->device)))
		return device_gone(source, from);
	if (!device_ready(source, round))
		return 0;
	vring_read(from, &burst, DEVICE_BURST);
	done = write_burst(source);
	/*
	 * Long segments are many buffers each.  Those that there is no room for stay with the guest, unless frames that
	 * were dropped on reading lie between them: then all are done with at once.
	 */
	if (unlikely(done < burst.count) && !egress_lacks_buffers(egress) && burst.count == burst.taken)
		burst.count = burst.taken = done;
	drop_rest(source, done);
	taken = burst.taken;
	vring_read_done(from, &burst);
	egress_send(egress);
	return taken;
}

/* Read a burst and drop it. */
static unsigned device_drop(struct source *source, uint64_t *reason)
{
	unsigned received = device_read(source->from, source->queue, &burst, DEVICE_BURST);

	*reason += burst.count;
	device_read_done(source->from, source->queue, &burst);
	return received;
}

static unsigned device_to_guest(struct source *source, const struct round *round)
{
	const struct egress *egress = &source->egress;
	struct queue_counters *counters = egress_counters(egress);
	struct virtqueue *to = port_receiver(egress->port, egress->queue);
	const uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	const uint64_t too_small = counters->drop_receiver_too_small;
	const unsigned limit = DEVICE_BURST;
	unsigned received, given, room;

	if (to == NULL) {
		if (port_pauses(egress->port, egress->queue))
			return 0;
		received = device_drop(source, &counters->drop_receiver_down);
		EGRESS_COUNT(egress, drop_receiver_down, received);
		return received;
	}
	vring_notify(to, NULL);
	room = vring_available(to, DEVICE_BURST);
	/* The device's own ring is the back pressure.  What is there after the wait goes to the guest if that has room
	 * by then, and is dropped otherwise; if nothing is there, nothing has waited. */
	if (room == 0 && !source_patience_ended(source, round))
		return 0;
	received = device_read(source->from, source->queue, &burst, room > 0 ? RTE_MIN(room, limit) : limit);
	given = vring_write(to, &burst, all, burst.count);
	if (given > 0 || burst.count == 0)
		source_unblocked(source, round);
	/* A frame that takes several buffers may find fewer than it needs, and waits for them. */
	if (given < burst.count && to->fault == VRING_FAULT_NONE && !source_patience_ended(source, round))
		device_unread(source->from, source->queue, &burst, given);
	EGRESS_COUNT(egress, packets, counters->sent_packets - packets);
	EGRESS_COUNT(egress, bytes, counters->sent_bytes - bytes);
	EGRESS_COUNT(egress, drop_receiver_too_small, counters->drop_receiver_too_small - too_small);
	EGRESS_COUNT(egress, drop_frame, burst.taken - burst.count);
	if (to->fault == VRING_FAULT_NONE) {
		counters->drop_receiver_full += burst.count - given;
		EGRESS_COUNT(egress, drop_receiver_full, burst.count - given);
	} else {
		counters->drop_receiver_down += burst.count - given;
		EGRESS_COUNT(egress, drop_receiver_down, burst.count - given);
	}
	received = burst.taken;
	device_read_done(source->from, source->queue, &burst);
	return received;
}

static unsigned device_to_device(struct source *source, const struct round *round)
{
	const struct egress *egress = &source->egress;
	unsigned received, done;

	if (device_sends(&egress->port->device) && !device_ready(source, round))
		return 0;
	device_read(source->from, source->queue, &burst, DEVICE_BURST);
	done = write_burst(source);
	if (unlikely(done < burst.count) && !egress_lacks_buffers(egress))
		device_unread(source->from, source->queue, &burst, done);
	drop_rest(source, done);
	received = burst.taken;
	device_read_done(source->from, source->queue, &burst);
	egress_send(egress);
	return received;
}

/* No chain: what arrives is dropped. */
static unsigned drop(struct source *source, struct virtqueue *from)
{
	struct queue_counters *counters = source_entry(source)->counters;

	if (source->from->kind == PORT_DEVICE)
		return device_drop(source, &counters->drop_no_chain);
	return from != NULL ? vring_discard(from, &counters->drop_no_chain) : 0;
}

static unsigned poll_taken(struct source *source, struct virtqueue *from, const struct round *round)
{
	const enum port_kind to = source->egress.port->kind;

	if (source->from->kind == PORT_DEVICE)
		return to == PORT_DEVICE ? device_to_device(source, round) : device_to_guest(source, round);
	if (unlikely(from == NULL)) {
		notify_receiver(&source->egress);
		return 0;
	}
	return to == PORT_DEVICE ? guest_to_device(source, from, round) : guest_to_guest(source, from, round);
}

unsigned direct_poll(struct source *source, const struct round *round)
{
	struct virtqueue *from = source->from->kind == PORT_GUEST ? port_sender(source->from, source->queue) : NULL;
	unsigned moved;

	if (unlikely(source->egress.port == NULL))
		return drop(source, from);
	if (unlikely(!source_take(source)))
		return 0;
	moved = poll_taken(source, from, round);
	egress_release(&source->egress);
	return moved;
}
