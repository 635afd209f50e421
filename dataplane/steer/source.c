/* SPDX-License-Identifier: Apache-2.0 */
#include "port/device_io.h"
#include "steer/direct.h"
#include "steer/steer.h"
#include "steer/watch.h"

/* Nobody gives frames to this queue any more; the guest may sleep, and not know of the last ones. */
static void settle(const struct source *source)
{
	struct virtqueue *vring = source->from->kind == PORT_GUEST ? port_receiver(source->from, source->queue) : NULL;

	if (vring != NULL)
		vring_settle(vring, NULL);
}

unsigned source_poll(struct source *source, const struct round *round)
{
	if (unlikely(source->orphan))
		settle(source);
	if (unlikely(source->kind == SOURCE_WATCHED))
		return watched_poll(source, round);
	if (source->kind == SOURCE_STEERED)
		return steer_poll(source, round);
	return direct_poll(source, round);
}

void source_sample(const struct source *source)
{
	struct virtqueue *vring;
	uint64_t waiting;

	if (source->from->kind == PORT_GUEST) {
		vring = port_sender(source->from, source->queue);
		waiting = vring != NULL ? vring_available(vring, vring->size) : 0;
	} else {
		waiting = device_waiting(source->from, source->queue);
	}
	source->from->queues[source->queue].counters->waiting_packets = waiting;
}
