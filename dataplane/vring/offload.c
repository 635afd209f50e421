/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/in.h>
#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mpls.h>
#include <rte_tcp.h>

#include "vring/offload.h"
#include "vring/vring.h"

enum {
	STEERED_TAGS = 4,    /* VLAN tags that steering looks behind */
	IPV6_EXTENSIONS = 8, /* that are looked through */
	PORTS = 4,	     /* bytes of both ports, with which TCP and UDP begin */

	PROTOCOL_HIP = 139,
	PROTOCOL_SHIM6 = 140,
};

uint8_t offload_of_features(uint64_t features, bool sends)
{
	static const struct {
		uint8_t bit, offload;
	} sending[] = {{VIRTIO_NET_F_HOST_TSO4, OFFLOAD_TCP4},
		       {VIRTIO_NET_F_HOST_TSO6, OFFLOAD_TCP6},
		       {VIRTIO_NET_F_HOST_ECN, OFFLOAD_ECN}},
	  receiving[] = {{VIRTIO_NET_F_GUEST_TSO4, OFFLOAD_TCP4},
			 {VIRTIO_NET_F_GUEST_TSO6, OFFLOAD_TCP6},
			 {VIRTIO_NET_F_GUEST_ECN, OFFLOAD_ECN}};
	uint8_t offloads = OFFLOAD_CHECKSUM;

	/* All others build on the checksum (section 5.1.3.1). */
	if (!(features & 1ULL << (sends ? VIRTIO_NET_F_CSUM : VIRTIO_NET_F_GUEST_CSUM)))
		return 0;
	for (unsigned i = 0; i < RTE_DIM(sending); i++) {
		if (features & 1ULL << (sends ? sending[i].bit : receiving[i].bit))
			offloads |= sends ? sending[i].offload : receiving[i].offload;
	}
	return offloads;
}

/* ------- the frame's headers ------- */

static uint16_t word_at(const uint8_t *at)
{
	uint16_t word;

	memcpy(&word, at, sizeof(word));
	return rte_be_to_cpu_16(word);
}

static void put_word(uint8_t *at, uint16_t word)
{
	word = rte_cpu_to_be_16(word);
	memcpy(at, &word, sizeof(word));
}

/* What is behind VLAN tags, up to `most` of them: where that begins, and its type; 0 when it is not in the head. */
static uint32_t behind_tags(const uint8_t *head, uint32_t head_length, unsigned most, uint16_t *type)
{
	uint32_t at = RTE_ETHER_HDR_LEN;

	for (unsigned tags = 0; at <= head_length; tags++, at += sizeof(struct rte_vlan_hdr)) {
		*type = word_at(head + at - 2);
		if (tags == most || (*type != RTE_ETHER_TYPE_VLAN && *type != RTE_ETHER_TYPE_QINQ))
			return at;
	}
	return 0;
}

/* Where the IP header of a long segment begins, behind tags and MPLS labels (RFC 3032, 2.1), and its type; or 0. */
static uint32_t network_layer(const uint8_t *head, uint32_t head_length, uint16_t *type)
{
	uint32_t at = behind_tags(head, head_length, UINT32_MAX, type);
	bool bottom = false;

	if (*type != RTE_ETHER_TYPE_MPLS && *type != RTE_ETHER_TYPE_MPLSM)
		return at;
	while (!bottom) {
		if (at == 0 || at + sizeof(struct rte_mpls_hdr) >= head_length)
			return 0;
		bottom = head[at + 2] & 1;
		at += sizeof(struct rte_mpls_hdr);
	}
	*type = head[at] >> 4 == 6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4;
	return at;
}

/* Where TCP begins behind an IPv4 header; 0 when it does not. */
static uint32_t tcp_behind_ipv4(const uint8_t *head, uint32_t head_length, uint32_t at)
{
	if (at + sizeof(struct rte_ipv4_hdr) > head_length || head[at] >> 4 != 4 || (head[at] & 15) < 5 ||
	    head[at + offsetof(struct rte_ipv4_hdr, next_proto_id)] != IPPROTO_TCP)
		return 0;
	return at + (head[at] & 15) * 4;
}

/* What lies behind an IPv6 header and its extensions, `*protocol`; 0 when that does not lie in the head. */
static uint32_t behind_ipv6(const uint8_t *head, uint32_t head_length, uint32_t at, uint8_t *protocol)
{
	if (at + sizeof(struct rte_ipv6_hdr) > head_length || head[at] >> 4 != 6)
		return 0;
	*protocol = head[at + offsetof(struct rte_ipv6_hdr, proto)];
	at += sizeof(struct rte_ipv6_hdr);
	for (unsigned i = 0;
	     *protocol == IPPROTO_HOPOPTS || *protocol == IPPROTO_DSTOPTS || *protocol == IPPROTO_ROUTING; i++) {
		if (i == IPV6_EXTENSIONS || at + 2 > head_length)
			return 0;
		*protocol = head[at];
		at += (head[at + 1] + 1) * 8;
	}
	return at;
}

static uint32_t tcp_behind_ipv6(const uint8_t *head, uint32_t head_length, uint32_t at)
{
	uint8_t protocol;

	at = behind_ipv6(head, head_length, at, &protocol);
	return at != 0 && protocol == IPPROTO_TCP ? at : 0;
}

static bool has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_UDPLITE || protocol == IPPROTO_DCCP;
}

/* Headers of IPv6 that steering looks behind, and nobody leaves a checksum behind. */
static bool hides_ports(uint8_t protocol)
{
	return protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH || protocol == IPPROTO_MH ||
	       protocol == PROTOCOL_HIP || protocol == PROTOCOL_SHIM6;
}

/*
 * The first byte that a checksum may be written to.  Steering decides by tags, addresses, protocol and ports, and the
 * sum is the guest's to choose: were it written there, the frame that is delivered would not be the one that was
 * decided on.  Behind the ports it may lie anywhere, since frames in tunnels have theirs there, and so it may behind
 * all that steering looks at, whatever that is.
 */
static uint32_t checksum_least(const uint8_t *head, uint32_t head_length)
{
	uint16_t type = 0;
	uint32_t at = behind_tags(head, head_length, STEERED_TAGS, &type);
	uint8_t protocol = 0;

	if (type == RTE_ETHER_TYPE_IPV4) {
		if (at + sizeof(struct rte_ipv4_hdr) > head_length || head[at] >> 4 != 4 || (head[at] & 15) < 5)
			return OFFLOAD_STEERED;
		protocol = head[at + offsetof(struct rte_ipv4_hdr, next_proto_id)];
		at += (head[at] & 15) * 4;
	} else if (type == RTE_ETHER_TYPE_IPV6) {
		at = behind_ipv6(head, head_length, at, &protocol);
		if (hides_ports(protocol))
			return OFFLOAD_STEERED;
	}
	/* An ICMP error tells its flow by what it quotes. */
	if (at == 0 || protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		return OFFLOAD_STEERED;
	return RTE_MIN(has_ports(protocol) ? at + PORTS : at, (uint32_t)OFFLOAD_STEERED);
}

/* Check the fields of a long segment. */
static bool check_segment(struct virtio_net_hdr *offload, uint8_t offloads, const uint8_t *head, uint32_t head_length,
			  uint32_t length)
{
	const bool ipv6 = (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_TCPV6;
	uint16_t type = 0;
	const uint32_t network = network_layer(head, RTE_MIN(head_length, (uint32_t)OFFLOAD_STEERED), &type);
	uint32_t tcp, headers;

	if (!ipv6 && (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_TCPV4)
		return false;
	if (!offload_taken(offload, offloads) || network == 0 ||
	    type != (ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4) ||
	    network + sizeof(struct rte_ipv6_hdr) > OFFLOAD_STEERED)
		return false;
	tcp = ipv6 ? tcp_behind_ipv6(head, head_length, network) : tcp_behind_ipv4(head, head_length, network);
	if (tcp == 0 || tcp != offload->csum_start || offload->csum_offset != offsetof(struct rte_tcp_hdr, cksum) ||
	    tcp + sizeof(struct rte_tcp_hdr) > head_length)
		return false;
	headers = tcp + (head[tcp + offsetof(struct rte_tcp_hdr, data_off)] >> 4) * 4;
	if (headers < tcp + sizeof(struct rte_tcp_hdr) || headers > head_length || headers >= length)
		return false;
	offload->hdr_len = headers;
	return offload->gso_size >= OFFLOAD_SEGMENT_MIN;
}

bool offload_check(struct virtio_net_hdr *offload, uint8_t offloads, const uint8_t *head, uint32_t head_length,
		   uint32_t length)
{
	const uint32_t field = (uint32_t)offload->csum_start + offload->csum_offset;

	/* No other flag means anything in this direction. */
	offload->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
	if (offload->flags == 0) {
		const bool whole = offload->gso_type == VIRTIO_NET_HDR_GSO_NONE;

		*offload = (struct virtio_net_hdr){0};
		return whole;
	}
	if (!(offloads & OFFLOAD_CHECKSUM) || offload->csum_start < RTE_ETHER_HDR_LEN ||
	    field + sizeof(uint16_t) > length ||
	    field < checksum_least(head, RTE_MIN(head_length, (uint32_t)OFFLOAD_STEERED)))
		return false;
	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return check_segment(offload, offloads, head, head_length, length);
	offload->hdr_len = 0;
	offload->gso_size = 0;
	return true;
}

/* ------- checksums ------- */

/* Add bytes to a checksum; `odd` says whether an odd number of bytes came before. */
static uint32_t sum_bytes(uint32_t sum, const uint8_t *at, uint32_t length, bool odd)
{
	const uint16_t raw = rte_raw_cksum(at, length);

	sum += odd ? rte_bswap16(raw) : raw;
	return (sum & 0xffff) + (sum >> 16);
}

/* The checksum of what lies in the pieces from byte `start` of them on, in network order, not inverted. */
static uint16_t sum_pieces(const struct vring_piece *pieces, unsigned count, uint32_t start, uint32_t sum)
{
	bool odd = false;
	unsigned i = 0;

	for (; i < count && start >= pieces[i].length; i++)
		start -= pieces[i].length;
	for (; i < count; i++, start = 0) {
		sum = sum_bytes(sum, pieces[i].at + start, pieces[i].length - start, odd);
		odd ^= (pieces[i].length - start) & 1;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void store_checksum(uint8_t *at, uint16_t sum)
{
	sum = ~sum;
	/* To UDP 0 means that there is none; to all others both are the same. */
	if (sum == 0)
		sum = 0xffff;
	memcpy(at, &sum, sizeof(sum));
}

bool offload_checksum(const struct virtio_net_hdr *offload, const struct vring_piece *pieces, unsigned count)
{
	uint32_t at = (uint32_t)offload->csum_start + offload->csum_offset;
	unsigned i = 0;

	for (; i < count && at >= pieces[i].length; i++)
		at -= pieces[i].length;
	if (i == count || at + sizeof(uint16_t) > pieces[i].length)
		return false;
	/* The field holds the sum of the pseudo header, and is summed with the rest. */
	store_checksum(pieces[i].at + at, sum_pieces(pieces, count, offload->csum_start, 0));
	return true;
}

/* ------- segments ------- */

uint32_t offload_segments(const struct virtio_net_hdr *offload, uint32_t length)
{
	return (length - offload->hdr_len + offload->gso_size - 1) / offload->gso_size;
}

static bool is_ipv6(const struct virtio_net_hdr *offload)
{
	return (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_TCPV6;
}

/*
 * The network layer of a frame that offload_check() has seen, maybe with tags pushed or popped since.  It lies in the
 * head, so it is the one that was checked, whatever a guest has written meanwhile.
 */
static uint32_t known_network_layer(const struct virtio_net_hdr *offload, const uint8_t *head)
{
	uint16_t type = 0;

	return network_layer(head, offload->csum_start, &type);
}

uint32_t offload_segment(const struct virtio_net_hdr *offload, const uint8_t *head, uint32_t length, uint32_t number,
			 uint8_t *header)
{
	const uint32_t payload = length - offload->hdr_len, offset = number * offload->gso_size;
	const uint32_t own = RTE_MIN(payload - offset, (uint32_t)offload->gso_size);
	const uint32_t network = known_network_layer(offload, head);
	uint8_t *ip = header + network, *tcp = header + offload->csum_start;
	uint32_t sequence;

	memcpy(header, head, offload->hdr_len);
	if (is_ipv6(offload)) {
		put_word(ip + offsetof(struct rte_ipv6_hdr, payload_len),
			 offload->hdr_len - network - sizeof(struct rte_ipv6_hdr) + own);
	} else {
		uint16_t sum = 0;

		put_word(ip + offsetof(struct rte_ipv4_hdr, total_length), offload->hdr_len - network + own);
		put_word(ip + offsetof(struct rte_ipv4_hdr, packet_id),
			 word_at(ip + offsetof(struct rte_ipv4_hdr, packet_id)) + number);
		memcpy(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), &sum, sizeof(sum));
		sum = ~rte_raw_cksum(ip, offload->csum_start - network);
		memcpy(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), &sum, sizeof(sum));
	}
	memcpy(&sequence, tcp + offsetof(struct rte_tcp_hdr, sent_seq), sizeof(sequence));
	sequence = rte_cpu_to_be_32(rte_be_to_cpu_32(sequence) + offset);
	memcpy(tcp + offsetof(struct rte_tcp_hdr, sent_seq), &sequence, sizeof(sequence));
	if (number > 0)
		tcp[offsetof(struct rte_tcp_hdr, tcp_flags)] &= ~RTE_TCP_CWR_FLAG;
	if (offset + own < payload)
		tcp[offsetof(struct rte_tcp_hdr, tcp_flags)] &= ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
	return own;
}

/* The sum of the pseudo header: both addresses, the protocol, the length of what follows (RFC 9293, section 3.1). */
static uint32_t pseudo_sum(const struct virtio_net_hdr *offload, uint32_t frame_length, const uint8_t *header,
			   uint32_t length)
{
	const uint32_t network = known_network_layer(offload, header);
	uint32_t sum;

	if (is_ipv6(offload) && network + sizeof(struct rte_ipv6_hdr) < offload->csum_start) {
		uint16_t whole;

		/*
		 * With a routing header the destination is another one (RFC 8200, section 8.1), which the sender knew:
		 * the field holds its sum for the whole frame, whose length this segment's takes the place of.
		 */
		memcpy(&whole, header + offload->csum_start + offsetof(struct rte_tcp_hdr, cksum), sizeof(whole));
		sum = whole + (uint16_t)~rte_cpu_to_be_16((uint16_t)(frame_length - offload->csum_start));
	} else {
		sum = is_ipv6(offload) ? rte_raw_cksum(header + network + offsetof(struct rte_ipv6_hdr, src_addr), 32)
				       : rte_raw_cksum(header + network + offsetof(struct rte_ipv4_hdr, src_addr), 8);
		sum += rte_cpu_to_be_16(IPPROTO_TCP);
	}
	sum += rte_cpu_to_be_16(length);
	return (sum & 0xffff) + (sum >> 16);
}

void offload_segment_checksum(const struct virtio_net_hdr *offload, uint32_t length, const struct vring_piece *pieces,
			      unsigned count)
{
	uint8_t *field = pieces[0].at + offload->csum_start + offsetof(struct rte_tcp_hdr, cksum);
	uint32_t own = pieces[0].length - offload->csum_start, sum;

	for (unsigned i = 1; i < count; i++)
		own += pieces[i].length;
	sum = pseudo_sum(offload, length, pieces[0].at, own);
	memset(field, 0, sizeof(uint16_t));
	store_checksum(field, sum_pieces(pieces, count, offload->csum_start, sum));
}
