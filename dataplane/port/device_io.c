/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "port/device_io.h"
#include "vring/hop.h"

/* ------- receiving ------- */

/*
 * A packet's head lies in the buffer itself, to be edited: it has to be whole, with room in front, and nobody else's.
 * Returns the buffer, another one with the same frame, or NULL.
 */
static struct rte_mbuf *make_editable(struct rte_mbuf *mbuf, struct rte_mempool *pool)
{
	struct rte_mbuf *copy;

	if (likely(rte_mbuf_refcnt_read(mbuf) == 1 && RTE_MBUF_DIRECT(mbuf) &&
		   rte_pktmbuf_headroom(mbuf) >= PACKET_ROOM &&
		   mbuf->data_len >= RTE_MIN(mbuf->pkt_len, (uint32_t)PACKET_HEAD)))
		return mbuf;
	copy = rte_pktmbuf_copy(mbuf, pool, 0, UINT32_MAX);
	rte_pktmbuf_free(mbuf);
	return copy;
}

/* Returns the packet, or NULL: the frame was dropped, and counted. */
static struct packet *add_whole(struct port_queue *queue, struct burst *burst, struct rte_mbuf *mbuf)
{
	struct packet *packet;

	if (unlikely(mbuf->pkt_len < VRING_FRAME_MIN || mbuf->pkt_len > VRING_FRAME_MAX)) {
		*(mbuf->pkt_len < VRING_FRAME_MIN ? &queue->counters->drop_frame_too_short
						  : &queue->counters->drop_frame_too_long) += 1;
		rte_pktmbuf_free(mbuf);
		return NULL;
	}
	packet = burst_add_mbuf(burst, mbuf);
	if (unlikely(packet == NULL)) {
		queue->counters->drop_frame_fragmented++;
		rte_pktmbuf_free(mbuf);
	}
	return packet;
}

/* Add the next segments of the frame that is being cut, until there are `limit` packets. */
static void add_segments(struct port *from, struct port_queue *queue, struct burst *burst, unsigned limit)
{
	while (burst->count < limit && burst->nb_pieces < BURST_PIECES / 2 && queue->cut.frame != NULL) {
		struct rte_mbuf *segment = device_cut_next(&queue->cut, from->device.pool);

		if (unlikely(segment == NULL)) {
			queue->counters->drop_no_buffer += device_cut_left(&queue->cut);
			burst->taken += device_cut_left(&queue->cut);
			device_cut_end(&queue->cut);
			return;
		}
		burst->taken++;
		add_whole(queue, burst, segment);
	}
}

/* Add a frame that Linux has left unfinished; it is the last of those that were received. */
static void add_unfinished(struct port *from, struct port_queue *queue, struct burst *burst, struct rte_mbuf *mbuf,
			   unsigned limit)
{
	struct virtio_net_hdr offload = *packet_unfinished(mbuf);
	struct packet *packet;

	switch (device_finish(mbuf, &offload, &queue->cut)) {
	case DEVICE_WHOLE:
		packet = add_whole(queue, burst, mbuf);
		if (packet != NULL)
			packet->offload = offload;
		break;
	case DEVICE_CUT:
		burst->taken--; /* it is its segments that are taken */
		add_segments(from, queue, burst, limit);
		break;
	case DEVICE_MALFORMED:
		queue->counters->drop_offload_malformed++;
		rte_pktmbuf_free(mbuf);
		break;
	}
}

static void add(struct port *from, struct port_queue *queue, struct burst *burst, struct rte_mbuf *mbuf, unsigned limit)
{
	mbuf = make_editable(mbuf, from->device.pool);
	if (unlikely(mbuf == NULL))
		queue->counters->drop_no_buffer++;
	else if (unlikely(packet_unfinished(mbuf) != NULL))
		add_unfinished(from, queue, burst, mbuf, limit);
	else
		add_whole(queue, burst, mbuf);
}

/* What has been read before, or the driver's next frames.  Returns how many. */
static unsigned receive(struct port *from, uint16_t which, struct rte_mbuf **mbufs, unsigned limit)
{
	struct port_queue *queue = &from->queues[which];
	const unsigned unread = RTE_MIN(queue->nb_unread, limit);

	if (likely(unread == 0))
		return device_receive(&from->device.device, which, mbufs, limit);
	memcpy(mbufs, queue->unread, unread * sizeof(mbufs[0]));
	queue->nb_unread -= unread;
	memmove(queue->unread, queue->unread + unread, queue->nb_unread * sizeof(mbufs[0]));
	return unread;
}

unsigned device_read(struct port *from, uint16_t which, struct burst *burst, unsigned limit)
{
	struct port_queue *queue = &from->queues[which];
	struct rte_mbuf *mbufs[VRING_BURST];
	unsigned received;

	burst_start(burst);
	if (unlikely(!device_receives(&from->device)))
		return 0;
	limit = RTE_MIN(limit, (unsigned)VRING_BURST);
	if (unlikely(queue->cut.frame != NULL && queue->nb_unread == 0)) {
		add_segments(from, queue, burst, limit);
		return burst->taken;
	}
	received = burst->taken = receive(from, which, mbufs, limit);
	for (unsigned i = 0; i < received; i++) {
		if (i + 2 < received)
			rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 2], void *));
		add(from, queue, burst, mbufs[i], limit);
	}
	return burst->taken;
}

/* What has been finished of the frame since it came is not to be done again. */
static void note_finished(struct packet *packet)
{
	struct virtio_net_hdr *unfinished = packet_unfinished(packet->mbuf);

	if (offload_wanted(&packet->offload))
		return;
	packet->mbuf->ol_flags &= ~RTE_MBUF_F_RX_L4_CKSUM_MASK;
	if (unfinished != NULL)
		packet->mbuf->ol_flags &= ~packet_unfinished_flag;
}

void device_unread(struct port *from, uint16_t which, struct burst *burst, unsigned first)
{
	struct port_queue *queue = &from->queues[which];
	const unsigned count = burst->count - first;

	memmove(queue->unread + count, queue->unread, queue->nb_unread * sizeof(queue->unread[0]));
	for (unsigned i = 0; i < count; i++) {
		note_finished(&burst->packets[first + i]);
		queue->unread[i] = burst->packets[first + i].mbuf;
	}
	queue->nb_unread += count;
	burst->count = first;
	burst->taken -= count;
}

void device_forget_unread(struct port *from, uint16_t which)
{
	struct port_queue *queue = &from->queues[which];

	rte_pktmbuf_free_bulk(queue->unread, queue->nb_unread);
	queue->nb_unread = 0;
	device_cut_end(&queue->cut);
}

unsigned device_waiting(const struct port *from, uint16_t which)
{
	/* Negative: the driver has no such thing. */
	int count = device_receives(&from->device) ? rte_eth_rx_queue_count(from->device.port_id, which) : 0;

	return count > 0 ? count : 0;
}

void device_read_done(struct port *from, uint16_t which, struct burst *burst)
{
	struct queue_counters *counters = from->queues[which].counters;
	uint64_t bytes = 0;

	burst_show(burst);
	for (unsigned i = 0; i < burst->count; i++) {
		struct packet *packet = &burst->packets[i];

		bytes += packet->delivered ? packet->received : 0;
		rte_pktmbuf_free(packet->mbuf); /* NULL: it was handed over */
	}
	counters->received_packets += burst->taken;
	counters->received_bytes += bytes;
}

/* ------- sending ------- */

/* Give the device what is held, as far as it takes it.  Returns how many. */
static unsigned transmit(struct port *to, uint16_t which)
{
	struct port_queue *queue = &to->queues[which];
	uint32_t lengths[DEVICE_BURST];
	unsigned sent = 0, offered, taken;

	do {
		struct rte_mbuf **mbufs = queue->held + sent;

		offered = RTE_MIN(queue->nb_held - sent, (unsigned)DEVICE_BURST);
		for (unsigned i = 0; i < offered; i++)
			lengths[i] = mbufs[i]->pkt_len;
		taken = rte_eth_tx_burst(to->device.port_id, which, mbufs, offered);
		for (unsigned i = 0; i < taken; i++)
			queue->counters->sent_bytes += lengths[i];
		sent += taken;
	} while (taken == offered && sent < queue->nb_held);
	queue->counters->sent_packets += sent;
	return sent;
}

bool device_flush(struct port *to, uint16_t which)
{
	struct port_queue *queue = &to->queues[which];
	unsigned sent;

	if (likely(queue->nb_held == 0))
		return true;
	if (!device_sends(&to->device))
		return false;
	queue->unoffered = queue->lacks_buffers = false;
	sent = transmit(to, which);
	if (sent > 0)
		queue->held_since = 0;
	queue->nb_held -= sent;
	memmove(queue->held, queue->held + sent, queue->nb_held * sizeof(queue->held[0]));
	return queue->nb_held == 0;
}

unsigned device_forget(struct port *to, uint16_t which)
{
	struct port_queue *queue = &to->queues[which];
	unsigned count = queue->nb_held;

	rte_pktmbuf_free_bulk(queue->held, count);
	queue->nb_held = 0;
	queue->unoffered = false;
	queue->held_since = 0;
	return count;
}

/* The buffer that the packet came in, as it was edited; the packet no longer has it. */
static struct rte_mbuf *hand_over(struct packet *packet)
{
	struct rte_mbuf *mbuf = packet->mbuf;

	mbuf->data_off = packet->head - (uint8_t *)mbuf->buf_addr;
	mbuf->data_len = packet->head_length;
	mbuf->pkt_len = packet->length;
	mbuf->ol_flags = 0; /* what the other device said on receiving it */
	packet->mbuf = NULL;
	return mbuf;
}

/* Whether nothing has to be done to the frame, nobody else wants it, and the device takes it as it lies. */
static bool may_be_handed_over(const struct packet *packet, const struct device *to, bool only)
{
	return only && packet->mbuf != NULL && !offload_wanted(&packet->offload) &&
	       (packet->mbuf->nb_segs == 1 || (to->transmits & RTE_ETH_TX_OFFLOAD_MULTI_SEGS));
}

/* A tag may make a frame four bytes longer than the device's MTU says. */
static bool fits(const struct packet *packet, const struct device *device)
{
	uint32_t longest = device->longest, length = packet->length;
	rte_be16_t type;

	if (packet->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		length = packet->offload.hdr_len + packet->offload.gso_size;
	if (likely(length + RTE_VLAN_HLEN <= longest))
		return true;
	memcpy(&type, packet->head + 2 * RTE_ETHER_ADDR_LEN, sizeof(type));
	if (device->kind == DEVICE_INTERFACE && type != RTE_BE16(RTE_ETHER_TYPE_VLAN) &&
	    type != RTE_BE16(RTE_ETHER_TYPE_QINQ))
		longest -= RTE_VLAN_HLEN;
	return length <= longest;
}

/* Turn a packet into buffers.  Returns how many, or a negative errno, see packet_to_mbufs(). */
static int convert(struct port *to, struct packet *packet, bool only, struct rte_mbuf **mbufs, unsigned room)
{
	if (unlikely(!fits(packet, &to->device.device)))
		return -EMSGSIZE;
	if (unlikely(room == 0))
		return -ENOSPC;
	if (may_be_handed_over(packet, &to->device.device, only)) {
		mbufs[0] = hand_over(packet);
		return 1;
	}
	return packet_to_mbufs(packet, to->device.pool, to->device.device.transmits, mbufs, room);
}

/* What packets were turned into. */
struct conversion {
	struct rte_mbuf **mbufs;
	unsigned count;
	uint8_t made[VRING_BURST]; /* buffers of each packet, in their order */
	uint64_t before;	   /* packets that had been delivered somewhere: a bit each */
};

/*
 * Some drivers have to see a frame that they are to finish before they get it.  Leaves the buffers that are fit to be
 * sent, and notes in `refused` which were not.
 */
static void leave_fit(struct port *to, uint16_t which_queue, struct conversion *all, bool *refused)
{
	struct rte_mbuf **mbufs = all->mbufs;
	unsigned prepared = 0, kept = 0;

	while (prepared < all->count) {
		unsigned good = rte_eth_tx_prepare(to->device.port_id, which_queue, mbufs + prepared,
						   all->count - prepared);

		memmove(mbufs + kept, mbufs + prepared, good * sizeof(mbufs[0]));
		kept += good;
		prepared += good;
		if (prepared < all->count) {
			to->queues[which_queue].counters->drop_receiver_too_small++;
			refused[prepared] = true;
			rte_pktmbuf_free(mbufs[prepared++]);
		}
	}
	all->count = kept;
}

/* A packet of which the driver has refused every buffer has not been delivered here. */
static void prepare(struct port *to, uint16_t which_queue, struct conversion *all, struct burst *burst,
		    const uint8_t *which, unsigned n)
{
	bool refused[DEVICE_HELD] = {false};
	unsigned at = 0;

	leave_fit(to, which_queue, all, refused);
	for (unsigned i = 0; i < n; i++) {
		bool delivered = all->before >> i & 1;

		for (unsigned last = at + all->made[i]; at < last; at++)
			delivered |= !refused[at];
		burst->packets[which[i]].delivered = delivered;
	}
}

/* Turn as many packets as have room into buffers.  Returns how many were dealt with. */
static unsigned hold(struct port *to, uint16_t which_queue, struct burst *burst, const uint8_t *which, unsigned n,
		     bool only)
{
	struct port_queue *queue = &to->queues[which_queue];
	const unsigned room = DEVICE_HELD - queue->nb_held;
	struct conversion all = {.mbufs = queue->held + queue->nb_held};
	bool unfinished = false;
	unsigned done;

	for (done = 0; done < n; done++) {
		struct packet *packet = &burst->packets[which[done]];
		int made = convert(to, packet, only, all.mbufs + all.count, room - all.count);

		all.made[done] = RTE_MAX(made, 0);
		all.before |= (uint64_t)packet->delivered << done;
		if (unlikely(made == -EMSGSIZE)) {
			queue->counters->drop_receiver_too_small++;
			continue;
		}
		if (unlikely(made < 0)) {
			queue->lacks_buffers = made == -ENOBUFS;
			break;
		}
		packet->delivered = true;
		unfinished |= all.mbufs[all.count]->ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK;
		all.count += made;
	}
	if (unfinished)
		prepare(to, which_queue, &all, burst, which, done);
	queue->nb_held += all.count;
	return done;
}

unsigned device_write(struct port *to, uint16_t which_queue, struct burst *burst, const uint8_t *which, unsigned n,
		      bool only)
{
	struct port_queue *queue = &to->queues[which_queue];

	queue->lacks_buffers = false;
	if (unlikely(!device_sends(&to->device))) {
		queue->counters->drop_receiver_down += n + device_forget(to, which_queue);
		return n;
	}
	if (!queue->unoffered && !device_flush(to, which_queue))
		return 0;
	n = hold(to, which_queue, burst, which, n, only);
	queue->unoffered = queue->nb_held > 0;
	return n;
}
