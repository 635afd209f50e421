/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "steer/direct.h"
#include "vring/hop.h"

/* The guest's ring for frames towards it; NULL while nobody is attached or the ring is stopped. */
static struct virtqueue *receiver(const struct port *port)
{
	struct virtqueue *vring = atomic_load_explicit(&port->guest.live[GUEST_RECEIVES], memory_order_acquire);

	return vring != NULL && vring->fault == VRING_FAULT_NONE ? vring : NULL;
}

static struct virtqueue *sender(const struct port *port)
{
	return atomic_load_explicit(&port->guest.live[GUEST_SENDS], memory_order_acquire);
}

/* Nobody sends to this port any more; what was sent last may still have to be told. */
static void settle(const struct port *port)
{
	struct virtqueue *vring = port->kind == PORT_GUEST ? receiver(port) : NULL;

	if (vring != NULL)
		vring_settle(vring, NULL);
}

/* The receiver took nothing.  Has it been full for longer than frames are kept waiting? */
static bool patience_ended(struct direct *direct, uint64_t now, uint64_t patience)
{
	direct->to->counters->blocked_polls++;
	if (direct->blocked_since == 0)
		direct->blocked_since = now;
	return now - direct->blocked_since > patience;
}

static unsigned guest_to_guest(struct direct *direct, struct virtqueue *from, uint64_t now, uint64_t patience)
{
	struct virtqueue *to = receiver(direct->to);
	unsigned moved;

	if (unlikely(to == NULL))
		return vring_discard(from, &direct->to->counters->drop_receiver_down);
	moved = vring_hop(from, to);
	/* By what the hop has seen: a frame that arrived after it has not been refused by anybody. */
	if (likely(moved > 0) || vring_waiting(from) == 0) {
		direct->blocked_since = 0;
		return moved;
	}
	if (patience_ended(direct, now, patience))
		return vring_discard(from, &direct->to->counters->drop_receiver_full);
	return 0;
}

/* Send frames by the device, and hold those it has no room for; none may be held yet. */
static void device_send(struct port *port, struct rte_mbuf **mbufs, unsigned count)
{
	struct device_queue *device = &port->device;
	uint32_t bytes[DEVICE_BURST];
	unsigned sent;

	for (unsigned i = 0; i < count; i++)
		bytes[i] = mbufs[i]->pkt_len;
	sent = rte_eth_tx_burst(device->port_id, 0, mbufs, count);
	port->counters->sent_packets += sent;
	for (unsigned i = 0; i < sent; i++)
		port->counters->sent_bytes += bytes[i];
	for (unsigned i = sent; i < count; i++)
		device->held[device->nb_held++] = mbufs[i];
}

/* Is the receiving device ready for more?  Sends what is held; drops it once patience has ended. */
static bool device_ready(struct direct *direct, uint64_t now, uint64_t patience)
{
	struct device_queue *device = &direct->to->device;
	struct rte_mbuf *held[DEVICE_BURST];
	unsigned count = device->nb_held;

	if (likely(count == 0))
		return true;
	memcpy(held, device->held, count * sizeof(held[0]));
	device->nb_held = 0;
	device_send(direct->to, held, count);
	if (device->nb_held < count)
		direct->blocked_since = 0;
	if (device->nb_held == 0)
		return true;
	if (patience_ended(direct, now, patience)) {
		direct->to->counters->drop_receiver_full += device->nb_held;
		rte_pktmbuf_free_bulk(device->held, device->nb_held);
		device->nb_held = 0;
	}
	return false;
}

static unsigned device_receive(const struct port *port, struct rte_mbuf **mbufs, unsigned count)
{
	unsigned received = rte_eth_rx_burst(port->device.port_id, 0, mbufs, count);

	port->counters->received_packets += received;
	for (unsigned i = 0; i < received; i++)
		port->counters->received_bytes += mbufs[i]->pkt_len;
	return received;
}

static unsigned device_drop(const struct port *port, uint64_t *reason)
{
	struct rte_mbuf *mbufs[DEVICE_BURST];
	unsigned received = device_receive(port, mbufs, DEVICE_BURST);

	rte_pktmbuf_free_bulk(mbufs, received);
	*reason += received;
	return received;
}

static unsigned guest_to_device(struct direct *direct, struct virtqueue *from, uint64_t now, uint64_t patience)
{
	struct rte_mbuf *mbufs[DEVICE_BURST];
	unsigned filled, taken;

	vring_settle(from, NULL);
	if (!device_ready(direct, now, patience))
		return 0;
	taken = vring_to_mbufs(from, direct->to->device.pool, mbufs, DEVICE_BURST, &filled);
	device_send(direct->to, mbufs, filled);
	return taken;
}

static unsigned device_to_guest(struct direct *direct, uint64_t now, uint64_t patience)
{
	struct queue_counters *counters = direct->to->counters;
	struct virtqueue *to = receiver(direct->to);
	struct rte_mbuf *mbufs[DEVICE_BURST];
	unsigned received, given, room;

	if (to == NULL)
		return device_drop(direct->from, &counters->drop_receiver_down);
	vring_settle(to, NULL);
	room = vring_available(to, DEVICE_BURST);
	if (room == 0) {
		/* The device's own ring is the back pressure. */
		if (patience_ended(direct, now, patience))
			return device_drop(direct->from, &counters->drop_receiver_full);
		return 0;
	}
	direct->blocked_since = 0;
	received = device_receive(direct->from, mbufs, RTE_MIN(room, (unsigned)DEVICE_BURST));
	given = vring_from_mbufs(to, mbufs, received);
	/* A frame that takes several buffers may find fewer than it needs; or the ring has just been stopped. */
	if (to->fault == VRING_FAULT_NONE)
		counters->drop_receiver_full += received - given;
	else
		counters->drop_receiver_down += received - given;
	rte_pktmbuf_free_bulk(mbufs, received);
	return received;
}

static unsigned device_to_device(struct direct *direct, uint64_t now, uint64_t patience)
{
	struct rte_mbuf *mbufs[DEVICE_BURST];
	unsigned received;

	if (!device_ready(direct, now, patience))
		return 0;
	received = device_receive(direct->from, mbufs, DEVICE_BURST);
	device_send(direct->to, mbufs, received);
	return received;
}

unsigned direct_poll(struct direct *direct, uint64_t now, uint64_t patience)
{
	struct virtqueue *from;

	if (direct->from->kind == PORT_DEVICE) {
		if (unlikely(direct->to == NULL))
			return device_drop(direct->from, &direct->from->counters->drop_no_chain);
		if (direct->to->kind == PORT_DEVICE)
			return device_to_device(direct, now, patience);
		return device_to_guest(direct, now, patience);
	}
	from = sender(direct->from);
	if (unlikely(from == NULL || direct->to == NULL)) {
		settle(direct->to != NULL ? direct->to : direct->from);
		return from != NULL ? vring_discard(from, &direct->from->counters->drop_no_chain) : 0;
	}
	if (direct->to->kind == PORT_DEVICE)
		return guest_to_device(direct, from, now, patience);
	return guest_to_guest(direct, from, now, patience);
}
