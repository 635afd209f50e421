/* SPDX-License-Identifier: Apache-2.0 */
#include "steer/give.h"
#include "port/device_io.h"

bool exit_up(const struct exit *exit)
{
	return exit->port->kind == PORT_DEVICE ? device_sends(&exit->port->device)
					       : port_receiver(exit->port, exit->queue) != NULL;
}

bool exit_lacks_buffers(const struct exit *exit)
{
	return exit->port->kind == PORT_DEVICE && exit->port->queues[exit->queue].nb_held == 0 && exit_up(exit);
}

bool exit_send_held(const struct exit *exit)
{
	struct queue_counters *counters = exit_counters(exit);
	const uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	bool flushed;

	if (likely(exit->port->queues[exit->queue].nb_held == 0))
		return true;
	if (!exit_up(exit)) {
		exit_drop_rest(exit, device_forget(exit->port, exit->queue));
		return true;
	}
	flushed = device_flush(exit->port, exit->queue);
	EXIT_COUNT(exit, packets, counters->sent_packets - packets);
	EXIT_COUNT(exit, bytes, counters->sent_bytes - bytes);
	return flushed;
}

bool exit_flush(const struct exit *exit, const struct round *round)
{
	struct port_queue *queue = &exit->port->queues[exit->queue];
	struct virtqueue *to;

	if (exit->port->kind == PORT_GUEST) {
		to = port_receiver(exit->port, exit->queue);
		if (to != NULL)
			vring_notify(to, NULL);
		return true;
	}
	if (exit_send_held(exit))
		return true;
	if (queue->held_since == 0)
		queue->held_since = round->now;
	if (round->now - queue->held_since <= round->patience)
		return false;
	exit_drop_rest(exit, device_forget(exit->port, exit->queue));
	return true;
}

unsigned exit_write(const struct exit *exit, struct burst *burst, const uint8_t *which, unsigned n, bool only)
{
	struct queue_counters *counters = exit_counters(exit);
	const uint64_t packets = counters->sent_packets, bytes = counters->sent_bytes;
	const uint64_t too_small = counters->drop_receiver_too_small;
	unsigned dealt = 0;

	if (exit->port->kind == PORT_GUEST) {
		struct virtqueue *to = port_receiver(exit->port, exit->queue);

		dealt = to != NULL ? vring_write(to, burst, which, n) : 0;
	} else if (exit_send_held(exit) && exit_up(exit)) {
		dealt = device_write(exit->port, exit->queue, burst, which, n, only);
	}
	EXIT_COUNT(exit, packets, counters->sent_packets - packets);
	EXIT_COUNT(exit, bytes, counters->sent_bytes - bytes);
	EXIT_COUNT(exit, drop_receiver_too_small, counters->drop_receiver_too_small - too_small);
	return dealt;
}

unsigned exit_write_noting(const struct exit *exit, struct burst *burst, const uint8_t *which, unsigned n, bool only,
			   uint64_t *delivered)
{
	uint64_t before = 0;
	unsigned dealt;

	for (unsigned i = 0; i < n; i++) {
		before |= (uint64_t)burst->packets[which[i]].delivered << i;
		burst->packets[which[i]].delivered = false;
	}
	dealt = exit_write(exit, burst, which, n, only);
	*delivered = 0;
	for (unsigned i = 0; i < n; i++) {
		*delivered |= (uint64_t)burst->packets[which[i]].delivered << i;
		burst->packets[which[i]].delivered = before >> i & 1;
	}
	return dealt;
}

void exit_drop_rest(const struct exit *exit, unsigned n)
{
	struct queue_counters *counters = exit_counters(exit);

	if (exit_up(exit)) {
		counters->drop_receiver_full += n;
		EXIT_COUNT(exit, drop_receiver_full, n);
	} else {
		counters->drop_receiver_down += n;
		EXIT_COUNT(exit, drop_receiver_down, n);
	}
}
