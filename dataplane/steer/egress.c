/* SPDX-License-Identifier: Apache-2.0 */
#include "steer/egress.h"
#include "port/device_io.h"
#include "steer/source.h"

bool egress_up(const struct egress *egress)
{
	return egress->port->kind == PORT_DEVICE ? device_sends(&egress->port->device)
						 : port_receiver(egress->port, egress->queue) != NULL;
}

bool egress_gone(const struct egress *egress)
{
	return egress->port->kind == PORT_DEVICE ? !device_sends(&egress->port->device)
						 : !port_pauses(egress->port, egress->queue);
}

bool egress_lacks_buffers(const struct egress *egress)
{
	const struct port_queue *queue = &egress->port->queues[egress->queue];

	return egress->port->kind == PORT_DEVICE && queue->lacks_buffers && egress_up(egress);
}

bool egress_send_held(const struct egress *egress)
{
	struct queue_counters *counters = egress_counters(egress);
	const uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	bool flushed;

	if (likely(egress->port->queues[egress->queue].nb_held == 0))
		return true;
	if (!egress_up(egress)) {
		egress_drop_rest(egress, device_forget(egress->port, egress->queue));
		return true;
	}
	flushed = device_flush(egress->port, egress->queue);
	EGRESS_COUNT(egress, packets, counters->sent_packets - packets);
	EGRESS_COUNT(egress, bytes, counters->sent_bytes - bytes);
	return flushed;
}

bool egress_flush(const struct egress *egress, const struct round *round)
{
	struct port_queue *queue = &egress->port->queues[egress->queue];
	struct virtqueue *to;

	if (egress->port->kind == PORT_GUEST) {
		to = port_receiver(egress->port, egress->queue);
		if (to != NULL)
			vring_notify(to, NULL);
		return true;
	}
	if (egress_send_held(egress))
		return true;
	if (queue->held_since == 0)
		queue->held_since = round->now;
	if (round->now - queue->held_since <= round->patience)
		return false;
	egress_drop_rest(egress, device_forget(egress->port, egress->queue));
	return true;
}

unsigned egress_write(const struct egress *egress, struct burst *burst, const uint8_t *which, unsigned n, bool only)
{
	struct queue_counters *counters = egress_counters(egress);
	const uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	const uint64_t too_small = counters->drop_receiver_too_small;
	unsigned dealt = 0;

	if (egress->port->kind == PORT_GUEST) {
		struct virtqueue *to = port_receiver(egress->port, egress->queue);

		dealt = to != NULL ? vring_write(to, burst, which, n) : 0;
	} else if ((egress->port->queues[egress->queue].unoffered || egress_send_held(egress)) && egress_up(egress)) {
		dealt = device_write(egress->port, egress->queue, burst, which, n, only);
	}
	EGRESS_COUNT(egress, packets, counters->sent_packets - packets);
	EGRESS_COUNT(egress, bytes, counters->sent_bytes - bytes);
	EGRESS_COUNT(egress, drop_receiver_too_small, counters->drop_receiver_too_small - too_small);
	return dealt;
}

unsigned egress_write_noting(const struct egress *egress, struct burst *burst, const uint8_t *which, unsigned n,
			     bool only, uint64_t *delivered)
{
	uint64_t before = 0;
	unsigned dealt;

	for (unsigned i = 0; i < n; i++) {
		before |= (uint64_t)burst->packets[which[i]].delivered << i;
		burst->packets[which[i]].delivered = false;
	}
	dealt = egress_write(egress, burst, which, n, only);
	*delivered = 0;
	for (unsigned i = 0; i < n; i++) {
		*delivered |= (uint64_t)burst->packets[which[i]].delivered << i;
		burst->packets[which[i]].delivered = before >> i & 1;
	}
	return dealt;
}

void egress_drop_rest(const struct egress *egress, unsigned n)
{
	struct queue_counters *counters = egress_counters(egress);

	if (egress_up(egress)) {
		counters->drop_receiver_full += n;
		EGRESS_COUNT(egress, drop_receiver_full, n);
	} else {
		counters->drop_receiver_down += n;
		EGRESS_COUNT(egress, drop_receiver_down, n);
	}
}
