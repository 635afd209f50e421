/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a guest's rings and a device's packet buffers.
 */
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "common/copy.h"
#include "vring/hop.h"
#include "vring/segments.h"

/* ------- from a device ------- */

/*
 * Leave the TCP checksum to the receiver: the field holds the sum of the pseudo header.  A guest's stack that cuts the
 * segment takes its length off again; a device that does (`for_device`) expects a sum without one.
 */
static void unfinish_tcp(uint8_t *head, const struct rte_net_hdr_lens *at, bool ipv6, bool for_device)
{
	struct rte_tcp_hdr *tcp = (void *)(head + at->l2_len + at->l3_len);
	const uint64_t flags = for_device ? RTE_MBUF_F_TX_TCP_SEG : 0;
	uint8_t *ip = head + at->l2_len;

	tcp->cksum = ipv6 ? rte_ipv6_phdr_cksum((void *)ip, flags) : rte_ipv4_phdr_cksum((void *)ip, flags);
}

/*
 * Has the sender left it without a checksum, as UDP may over IPv4 (RFC 768)?  DPDK's driver for TAPs says of that what
 * others say of one that is unfinished.  Of such a one the field holds the sum of the pseudo header, which is not 0.
 */
static bool without_checksum(const struct rte_mbuf *mbuf, uint32_t type, uint32_t field)
{
	return RTE_ETH_IS_IPV4_HDR(type) && (type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP &&
	       *rte_pktmbuf_mtod_offset(mbuf, const unaligned_uint16_t *, field) == 0;
}

/* What a device says about a frame, as a network header.  A device is no guest: its word is taken. */
static struct virtio_net_hdr offload_of_mbuf(struct rte_mbuf *mbuf)
{
	const uint64_t checksum = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	const bool joined = (mbuf->ol_flags & RTE_MBUF_F_RX_LRO) && mbuf->tso_segsz >= OFFLOAD_SEGMENT_MIN;
	struct virtio_net_hdr offload = {0};
	struct rte_net_hdr_lens at = {0};
	uint32_t type;

	if (!joined && checksum == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
		offload.flags = VIRTIO_NET_HDR_F_DATA_VALID;
	if (!joined && checksum != RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return offload;
	type = rte_net_get_ptype(mbuf, &at, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	offload.csum_start = at.l2_len + at.l3_len;
	switch (type & RTE_PTYPE_L4_MASK) {
	case RTE_PTYPE_L4_TCP:
		offload.csum_offset = offsetof(struct rte_tcp_hdr, cksum);
		break;
	case RTE_PTYPE_L4_UDP:
		offload.csum_offset = offsetof(struct rte_udp_hdr, dgram_cksum);
		break;
	default:
		return (struct virtio_net_hdr){0};
	}
	if (offload.csum_start + offload.csum_offset + sizeof(uint16_t) > mbuf->data_len)
		return (struct virtio_net_hdr){0};
	if (without_checksum(mbuf, type, offload.csum_start + offload.csum_offset))
		return (struct virtio_net_hdr){0};
	offload.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	if (joined && (type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_TCP && RTE_ETH_IS_IPV4_HDR(type)) {
		offload.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
	} else if (joined && (type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_TCP && RTE_ETH_IS_IPV6_HDR(type)) {
		offload.gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
	} else {
		return joined ? (struct virtio_net_hdr){0} : offload;
	}
	offload.gso_size = mbuf->tso_segsz;
	if (checksum != RTE_MBUF_F_RX_L4_CKSUM_NONE)
		unfinish_tcp(rte_pktmbuf_mtod(mbuf, uint8_t *), &at, RTE_ETH_IS_IPV6_HDR(type), false);
	/* Short enough for whoever cuts it; or else the frame is delivered as it came. */
	if (!offload_check(&offload, UINT8_MAX, rte_pktmbuf_mtod(mbuf, uint8_t *),
			   RTE_MIN(mbuf->data_len, (uint16_t)OFFLOAD_HEADERS), mbuf->pkt_len))
		return (struct virtio_net_hdr){0};
	return offload;
}

void packet_of_mbuf(struct packet *packet, struct rte_mbuf *mbuf)
{
	packet->mbuf = mbuf;
	packet->head = rte_pktmbuf_mtod(mbuf, uint8_t *);
	packet->head_length = mbuf->data_len;
	packet->length = packet->received = mbuf->pkt_len;
	packet->delivered = false;
	packet->nb_pieces = 1;
	packet->offload = offload_of_mbuf(mbuf);
	for (struct rte_mbuf *segment = mbuf->next; segment != NULL; segment = segment->next)
		if (segment->data_len > 0)
			packet->pieces[packet->nb_pieces++] = (struct vring_piece){rte_pktmbuf_mtod(segment, uint8_t *),
										   segment->data_len};
}

/* ------- to a device ------- */

/* Append bytes to a packet buffer, or to others chained to it.  Returns false when the pool is empty. */
static bool append(struct rte_mempool *pool, struct rte_mbuf *mbuf, struct rte_mbuf **last, const uint8_t *at,
		   uint32_t length)
{
	while (length > 0) {
		const uint32_t step = RTE_MIN(length, (uint32_t)rte_pktmbuf_tailroom(*last));

		if (step == 0) {
			struct rte_mbuf *next = rte_pktmbuf_alloc(pool);

			if (next == NULL)
				return false;
			next->data_off = 0;
			(*last)->next = next;
			*last = next;
			mbuf->nb_segs++;
			continue;
		}
		copy_frame(rte_pktmbuf_mtod_offset(*last, uint8_t *, (*last)->data_len), at, step);
		(*last)->data_len += step;
		mbuf->pkt_len += step;
		at += step;
		length -= step;
	}
	return true;
}

/* A frame in pieces as a packet buffer.  Returns NULL when the pool is empty. */
static struct rte_mbuf *mbuf_of_pieces(struct rte_mempool *pool, const struct vring_piece *pieces, unsigned count)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool), *last = mbuf;

	if (mbuf == NULL)
		return NULL;
	for (unsigned i = 0; i < count; i++) {
		if (!append(pool, mbuf, &last, pieces[i].at, pieces[i].length)) {
			rte_pktmbuf_free(mbuf);
			return NULL;
		}
	}
	return mbuf;
}

/* The device's offloads that would do what is left to do, or 0: none of them can do it. */
static uint64_t transmits_needed(const struct packet *packet)
{
	const struct virtio_net_hdr *offload = &packet->offload;

	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
		       RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (offload->csum_offset == offsetof(struct rte_tcp_hdr, cksum))
		return RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	if (offload->csum_offset == offsetof(struct rte_udp_hdr, dgram_cksum))
		return RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	return 0;
}

/* Leave the rest to the device.  Returns false when the frame's headers are not such as a device understands. */
static bool leave_to_device(struct rte_mbuf *mbuf, const struct virtio_net_hdr *offload)
{
	struct rte_net_hdr_lens at = {0};
	const uint32_t type = rte_net_get_ptype(mbuf, &at, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	const bool ipv4 = RTE_ETH_IS_IPV4_HDR(type), tcp = (type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_TCP;

	if ((!ipv4 && !RTE_ETH_IS_IPV6_HDR(type)) || at.l2_len + at.l3_len != offload->csum_start ||
	    (!tcp && (type & RTE_PTYPE_L4_MASK) != RTE_PTYPE_L4_UDP) ||
	    tcp != (offload->csum_offset == offsetof(struct rte_tcp_hdr, cksum)))
		return false;
	/* Its sum of the pseudo header would not know of a routing header. */
	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE && !ipv4 && at.l3_len != sizeof(struct rte_ipv6_hdr))
		return false;
	mbuf->l2_len = at.l2_len;
	mbuf->l3_len = at.l3_len;
	mbuf->ol_flags |= ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;
	mbuf->ol_flags |= tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
	if (offload->gso_type == VIRTIO_NET_HDR_GSO_NONE)
		return true;
	mbuf->l4_len = offload->hdr_len - offload->csum_start;
	mbuf->tso_segsz = offload->gso_size;
	mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG | (ipv4 ? RTE_MBUF_F_TX_IP_CKSUM : 0);
	unfinish_tcp(rte_pktmbuf_mtod(mbuf, uint8_t *), &at, !ipv4, true);
	return true;
}

/* One packet buffer for each segment. */
static int cut_to_mbufs(const struct packet *packet, struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned room)
{
	struct segments cut;
	unsigned count;

	segments_begin(&cut, packet);
	if (cut.count > OFFLOAD_SEGMENTS)
		return -EMSGSIZE;
	if (cut.count > room)
		return -ENOSPC;
	for (uint32_t i = 0; (count = segments_next(&cut)) > 0; i++) {
		mbufs[i] = mbuf_of_pieces(pool, cut.pieces, count);
		if (mbufs[i] == NULL) {
			rte_pktmbuf_free_bulk(mbufs, i);
			return -ENOBUFS;
		}
	}
	return cut.count;
}

int packet_to_mbufs(struct packet *packet, struct rte_mempool *pool, uint64_t transmits, struct rte_mbuf **mbufs,
		    unsigned room)
{
	const uint64_t needed = transmits_needed(packet);
	const bool leave = offload_wanted(&packet->offload) && needed != 0 && (needed & ~transmits) == 0;

	packet->pieces[0] = (struct vring_piece){packet->head, packet->head_length};
	if (offload_wanted(&packet->offload) && !leave) {
		if (packet->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE)
			return cut_to_mbufs(packet, pool, mbufs, room);
		offload_checksum(&packet->offload, packet->pieces, packet->nb_pieces);
		packet->offload = (struct virtio_net_hdr){0};
	}
	if (room == 0)
		return -ENOSPC;
	mbufs[0] = mbuf_of_pieces(pool, packet->pieces, packet->nb_pieces);
	if (mbufs[0] == NULL)
		return -ENOBUFS;
	if (mbufs[0]->nb_segs > 1 && !(transmits & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)) {
		rte_pktmbuf_free(mbufs[0]);
		return -EMSGSIZE;
	}
	if (leave && !leave_to_device(mbufs[0], &packet->offload)) {
		/* Not what a device understands after all: done here. */
		rte_pktmbuf_free(mbufs[0]);
		return packet_to_mbufs(packet, pool, transmits & RTE_ETH_TX_OFFLOAD_MULTI_SEGS, mbufs, room);
	}
	return 1;
}
