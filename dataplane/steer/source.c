/* SPDX-License-Identifier: Apache-2.0 */
#include "common/gaps.h"
#include "port/device_io.h"
#include "steer/direct.h"
#include "steer/steer.h"
#include "steer/watch.h"

enum { SAMPLE_MOST = 4096 /* frames that are counted: in a packed ring each is looked at */ };

/*
 * Nobody gives frames to this queue any more.  The guest may sleep, and not know of the last ones; a device may not
 * have had the room for them.
 */
static void flush_orphan(const struct source *source, const struct round *round)
{
	egress_flush(&(const struct egress){.port = source->from, .queue = source->queue}, round);
}

unsigned source_poll(struct source *source, const struct round *round)
{
	if (unlikely(source->orphan))
		flush_orphan(source, round);
	if (unlikely(source->kind == SOURCE_WATCHED))
		return watched_poll(source, round);
	if (source->kind == SOURCE_STEERED)
		return steer_poll(source, round);
	return direct_poll(source, round);
}

void source_waited(struct source *source, const struct round *round)
{
	struct port_queue *queue = source_entry(source);

	if (round->gaps != NULL && source->egress.port != NULL)
		gaps_waited(round->gaps, queue->blocked_since, round->now, source->from->number,
			    source->egress.port->number);
	queue->blocked_since = 0;
	queue->patient_since = 0;
}

void source_begin(struct source *source)
{
	struct watch *watch = source->watch;

	source_entry(source)->kept_off = false;
	if (watch != NULL) {
		watch->held.count = 0;
		tap_owe(&watch->held, watch->taps, watch->nb_taps);
		if (source->egress.watch != NULL)
			tap_owe(&watch->held, source->egress.watch->taps, source->egress.watch->nb_taps);
	}
	if (source->kind == SOURCE_STEERED)
		steer_begin(source);
}

bool source_owes(const struct source *source)
{
	const struct egress *egress = &source->egress;

	if (source_entry(source)->kept_off)
		return true;
	if (source->watch != NULL && source->watch->held.count > 0)
		return true;
	if (source->orphan && source->from->queues[source->queue].nb_held > 0)
		return true;
	if (source->kind == SOURCE_STEERED)
		return steer_owes(source);
	if (egress->port != NULL && egress_shapes(egress))
		return true;
	return egress->port != NULL && egress->port->queues[egress->queue].nb_held > 0;
}

void source_sample(const struct source *source)
{
	struct virtqueue *vring;
	uint64_t waiting;

	if (source->from->kind == PORT_GUEST) {
		vring = port_sender(source->from, source->queue);
		waiting = vring != NULL ? vring_available(vring, SAMPLE_MOST) : 0;
	} else {
		waiting = device_waiting(source->from, source->queue);
	}
	source->from->queues[source->queue].counters->waiting_packets = waiting;
}
