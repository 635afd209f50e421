/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "steer/hash.h"
#include "tunnel_bytes.h"
#include "tunnel_headers.h"

enum { NOT_CAPABLE = 0 }; /* of ECN */

static inline bool has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_UDP || protocol == IPPROTO_TCP || protocol == IPPROTO_SCTP;
}

/* Of an inner frame: a number that is the same for all frames of its flow, and the ECN bits. */
struct flow {
	uint32_t hash;
	uint8_t ecn;
};

static inline struct flow flow4(const uint8_t *ip, uint32_t size)
{
	const uint64_t first = word(ip), addresses = word(ip + 12);
	const uint8_t protocol = ip[9];
	const uint32_t ports = (uint32_t)(first & 15) * 4;
	const bool whole = (first >> 48 & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) == 0;
	uint64_t rest = (uint64_t)protocol << 32;

	if (whole && has_ports(protocol) && ports >= 20 && size >= ports + 4)
		rest |= (uint64_t)half(ip + ports) << 16 | half(ip + ports + 2);
	return (struct flow){(uint32_t)(hash_mix(addresses ^ HASH_0, rest ^ HASH_1) >> 32),
			     (uint8_t)(first >> 8) & TUNNEL_ECN};
}

static inline struct flow flow6(const uint8_t *ip, uint32_t size)
{
	const uint64_t first = word(ip);
	const uint8_t protocol = (uint8_t)(first >> 48);
	uint64_t rest = (uint64_t)protocol << 32;

	if (has_ports(protocol) && size >= 44)
		rest |= (uint64_t)half(ip + 40) << 16 | half(ip + 42);
	rest = hash_mix(word(ip + 8) ^ HASH_0, word(ip + 16) ^ HASH_1) ^
	       hash_mix(word(ip + 24) ^ HASH_2, word(ip + 32) ^ HASH_3) ^ hash_mix(rest ^ HASH_4, HASH_5);
	/* The traffic class is the low half of the first byte, and the high one of the second. */
	return (struct flow){(uint32_t)(rest >> 32), (uint8_t)(first >> 12) & TUNNEL_ECN};
}

/* `size` bytes are in one piece, of which an Ethernet header is there. */
static inline struct flow flow_of(const uint8_t *inner, uint32_t size)
{
	uint32_t at = RTE_ETHER_HDR_LEN;
	uint16_t type = half(inner + TUNNEL_TYPE);

	for (unsigned tags = 0; unlikely(is_tag(type)) && tags < 2 && size >= at + TUNNEL_TAG; tags++) {
		type = half(inner + at + 2);
		at += TUNNEL_TAG;
	}
	if (likely(type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) && size >= at + 20)
		return flow4(inner + at, size - at);
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && size >= at + 40)
		return flow6(inner + at, size - at);
	return (struct flow){(uint32_t)(hash_mix(word(inner) ^ HASH_0, word(inner + 4) ^ HASH_1) >> 32), NOT_CAPABLE};
}

static inline void put_ip4(const struct tunnel_headers *headers, uint8_t *ip, uint16_t length, uint8_t ecn)
{
	uint32_t sum = headers->sum + rte_cpu_to_be_16(length) + rte_cpu_to_be_16(ecn);

	ip[1] = ecn;
	put16(ip + 2, rte_cpu_to_be_16(length));
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum += sum >> 16;
	put16(ip + 10, (uint16_t)~sum);
}

/* The flow label is the flow's too (RFC 6438). */
static inline void put_ip6(uint8_t *ip, uint16_t length, struct flow flow)
{
	const uint32_t first = rte_cpu_to_be_32(6u << 28 | (uint32_t)flow.ecn << 20 | (flow.hash & 0xfffff));

	memcpy(ip, &first, sizeof(first));
	put16(ip + 4, rte_cpu_to_be_16(length));
}

static void put_checksum(const struct tunnel_headers *headers, struct rte_mbuf *mbuf, uint32_t length)
{
	const uint16_t udp = headers->size - TUNNEL_HEADER - (uint16_t)sizeof(struct rte_udp_hdr);
	uint16_t sum = 0;

	tunnel_sum(headers, mbuf, udp, length, &sum);
	/* 0 says that there is none. */
	put16(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, udp + offsetof(struct rte_udp_hdr, dgram_cksum)),
	      sum == UINT16_MAX ? UINT16_MAX : (uint16_t)~sum);
}

enum tunnel_verdict tunnel_wrap(const struct tunnel_headers *headers, struct rte_mbuf *mbuf, uint64_t mac)
{
	const uint8_t *inner = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	const uint32_t length = mbuf->pkt_len;
	const uint16_t outer = (uint16_t)(headers->network + length);
	const uint32_t datagram = TUNNEL_HEADER + sizeof(struct rte_udp_hdr) + length;
	struct flow flow;
	uint8_t *at;

	if (unlikely(mbuf->data_len < RTE_ETHER_HDR_LEN))
		return TUNNEL_DROP_short;
	if (unlikely(length > headers->longest))
		return TUNNEL_DROP_too_long;
	if (unlikely(!headers->ends.tagged && tunnel_has_tag(inner)))
		return TUNNEL_DROP_tagged;
	flow = flow_of(inner, mbuf->data_len);
	at = (uint8_t *)rte_pktmbuf_prepend(mbuf, headers->size);
	if (unlikely(at == NULL))
		return TUNNEL_DROP_no_room;
	if (likely(headers->size == TUNNEL_HEADERS4)) {
		memcpy(at, headers->bytes, TUNNEL_HEADERS4);
		put_ip4(headers, at + RTE_ETHER_HDR_LEN, outer, flow.ecn);
	} else {
		memcpy(at, headers->bytes, TUNNEL_HEADERS6);
		put_ip6(at + RTE_ETHER_HDR_LEN, outer - (uint16_t)sizeof(struct rte_ipv6_hdr), flow);
	}
	memcpy(at, &mac, RTE_ETHER_ADDR_LEN);
	at += headers->size - TUNNEL_HEADER - sizeof(struct rte_udp_hdr);
	put16(at, rte_cpu_to_be_16((uint16_t)(TUNNEL_FIRST_PORT | flow.hash >> 18)));
	put16(at + 4, rte_cpu_to_be_16((uint16_t)datagram));
	if (headers->ends.checksum)
		put_checksum(headers, mbuf, datagram);
	return TUNNEL_PASS;
}
