/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "bfd.h"
#include "inspect.h"
#include "tunnel_bytes.h"
#include "tunnel_headers.h"

enum { NOT_CAPABLE = 0, CAPABLE_1 = 1, CAPABLE_0 = 2 }; /* of ECN (RFC 3168, 5) */

/* Of a header without options. */
static inline bool sum_holds(const struct rte_ipv4_hdr *ip)
{
	uint32_t words[5];
	uint64_t sum = 0;

	memcpy(words, ip, sizeof(words));
	for (unsigned i = 0; i < RTE_DIM(words); i++)
		sum += words[i];
	sum = (sum & UINT16_MAX) + (sum >> 16 & UINT16_MAX) + (sum >> 32);
	return (sum & UINT16_MAX) + (sum >> 16) == UINT16_MAX;
}

/* Returns where UDP begins, or 0 with the verdict. */
static inline uint16_t read_ip4(const struct tunnel_headers *headers, const uint8_t *head, uint32_t size,
				uint32_t length, struct tunnel_read *read, enum tunnel_verdict *verdict)
{
	struct rte_ipv4_hdr ip;
	uint32_t begins, total;

	*verdict = TUNNEL_DROP_short;
	if (size < RTE_ETHER_HDR_LEN + sizeof(ip))
		return 0;
	memcpy(&ip, head + RTE_ETHER_HDR_LEN, sizeof(ip));
	begins = rte_ipv4_hdr_len(&ip);
	total = rte_be_to_cpu_16(ip.total_length);
	*verdict = TUNNEL_DROP_length;
	if (ip.version_ihl >> 4 != 4 || begins < sizeof(ip) || total < begins || total > length - RTE_ETHER_HDR_LEN ||
	    size < RTE_ETHER_HDR_LEN + begins)
		return 0;
	*verdict = TUNNEL_DROP_checksum;
	if (!(likely(begins == sizeof(ip)) ? sum_holds(&ip)
					   : rte_raw_cksum(head + RTE_ETHER_HDR_LEN, begins) == UINT16_MAX))
		return 0;
	*verdict = TUNNEL_DROP_ends;
	if (memcmp(&ip.src_addr, headers->ends.remote.bytes, 4) != 0 ||
	    memcmp(&ip.dst_addr, headers->ends.local.bytes, 4) != 0)
		return 0;
	*verdict = TUNNEL_DROP_fragment;
	if ((ip.fragment_offset & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0)
		return 0;
	*verdict = TUNNEL_DROP_protocol;
	if (ip.next_proto_id != IPPROTO_UDP)
		return 0;
	read->end = RTE_ETHER_HDR_LEN + total;
	read->ecn = ip.type_of_service & TUNNEL_ECN;
	read->hops = ip.time_to_live;
	return (uint16_t)(RTE_ETHER_HDR_LEN + begins);
}

/* An extension header is none that a tunnel's end sends. */
static inline uint16_t read_ip6(const struct tunnel_headers *headers, const uint8_t *head, uint32_t size,
				uint32_t length, struct tunnel_read *read, enum tunnel_verdict *verdict)
{
	struct rte_ipv6_hdr ip;
	uint32_t total, first;

	*verdict = TUNNEL_DROP_short;
	if (size < RTE_ETHER_HDR_LEN + sizeof(ip))
		return 0;
	memcpy(&ip, head + RTE_ETHER_HDR_LEN, sizeof(ip));
	first = rte_be_to_cpu_32(ip.vtc_flow);
	total = sizeof(ip) + rte_be_to_cpu_16(ip.payload_len);
	*verdict = TUNNEL_DROP_length;
	if (first >> 28 != 6 || total > length - RTE_ETHER_HDR_LEN)
		return 0;
	*verdict = TUNNEL_DROP_ends;
	if (memcmp(&ip.src_addr, headers->ends.remote.bytes, 16) != 0 ||
	    memcmp(&ip.dst_addr, headers->ends.local.bytes, 16) != 0)
		return 0;
	*verdict = ip.proto == IPPROTO_FRAGMENT ? TUNNEL_DROP_fragment : TUNNEL_DROP_protocol;
	if (ip.proto != IPPROTO_UDP)
		return 0;
	read->end = RTE_ETHER_HDR_LEN + total;
	read->ecn = first >> 20 & TUNNEL_ECN;
	read->hops = ip.hop_limits;
	return RTE_ETHER_HDR_LEN + sizeof(ip);
}

/* The header itself, of which the first 8 bytes are there; `*options`: bytes that follow it. */
static inline enum tunnel_verdict read_header(const struct tunnel_headers *headers, const uint8_t *at,
					      uint32_t *options)
{
	const uint32_t vni = (uint32_t)at[4] << 16 | (uint32_t)at[5] << 8 | at[6];

	*options = 0;
	if (headers->ends.protocol == TUNNEL_VXLAN) {
		if ((at[0] & TUNNEL_VNI_IS_THERE) == 0)
			return TUNNEL_DROP_header;
	} else {
		if (at[0] >> 6 != 0 || (at[2] << 8 | at[3]) != TUNNEL_ETHERNET)
			return TUNNEL_DROP_header;
		if ((at[1] & TUNNEL_CONTROL) != 0)
			return TUNNEL_DROP_control;
		if ((at[1] & TUNNEL_CRITICAL) != 0)
			return TUNNEL_DROP_option;
		*options = (at[0] & 0x3fu) * 4;
	}
	return vni == headers->ends.vni ? TUNNEL_PASS : TUNNEL_DROP_vni;
}

/* A datagram of the session with the other end, with UDP's header. */
static enum tunnel_verdict read_liveness(const struct tunnel_headers *headers, const struct rte_udp_hdr *udp,
					 struct tunnel_read *read)
{
	const uint32_t datagram = rte_be_to_cpu_16(udp->dgram_len);

	if (headers->ends.liveness == BFD_PORT && read->hops != BFD_TTL)
		return TUNNEL_DROP_hops;
	if (datagram < sizeof(*udp) || datagram > read->end - read->udp)
		return TUNNEL_DROP_length;
	/* IPv6 has none of its own, and only a tunnel's frames may do without (RFC 8200, 8.1; RFC 6936). */
	if (headers->size == TUNNEL_HEADERS6 && udp->dgram_cksum == 0)
		return TUNNEL_DROP_checksum;
	read->checksum = udp->dgram_cksum;
	read->end = read->udp + datagram;
	read->inner = (uint16_t)(read->udp + sizeof(*udp));
	return TUNNEL_LIVENESS;
}

static bool asks_neighbours(const uint8_t *head, uint32_t size, uint16_t type)
{
	const uint8_t *ip = head + RTE_ETHER_HDR_LEN;

	return type == RTE_BE16(RTE_ETHER_TYPE_ARP) ||
	       (type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && size > RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv6_hdr) &&
		ip[offsetof(struct rte_ipv6_hdr, proto)] == IPPROTO_ICMPV6);
}

enum tunnel_verdict tunnel_read(const struct tunnel_headers *headers, const uint8_t *head, uint32_t size,
				uint32_t length, struct tunnel_read *read)
{
	const bool six = headers->size == TUNNEL_HEADERS6;
	struct rte_udp_hdr udp;
	enum tunnel_verdict verdict;
	uint32_t datagram, options;
	uint16_t type;

	if (size < RTE_ETHER_HDR_LEN)
		return TUNNEL_DROP_short;
	memcpy(&type, head + TUNNEL_TYPE, sizeof(type));
	if (unlikely(asks_neighbours(head, size, type)))
		return TUNNEL_ITSELF;
	if (memcmp(head, headers->ends.mac, RTE_ETHER_ADDR_LEN) != 0)
		return TUNNEL_DROP_station;
	if (type != (six ? RTE_BE16(RTE_ETHER_TYPE_IPV6) : RTE_BE16(RTE_ETHER_TYPE_IPV4)))
		return TUNNEL_DROP_type;
	read->udp = six ? read_ip6(headers, head, size, length, read, &verdict)
			: read_ip4(headers, head, size, length, read, &verdict);
	if (read->udp == 0)
		return verdict;
	if (size < read->udp + sizeof(udp) + TUNNEL_HEADER)
		return TUNNEL_DROP_short;
	memcpy(&udp, head + read->udp, sizeof(udp));
	if (headers->ends.liveness != 0 && udp.dst_port == rte_cpu_to_be_16(headers->ends.liveness))
		return read_liveness(headers, &udp, read);
	if (udp.dst_port != rte_cpu_to_be_16(headers->ends.port))
		return TUNNEL_DROP_protocol;
	datagram = rte_be_to_cpu_16(udp.dgram_len);
	if (datagram < sizeof(udp) + TUNNEL_HEADER || datagram > read->end - read->udp)
		return TUNNEL_DROP_length;
	verdict = read_header(headers, head + read->udp + sizeof(udp), &options);
	if (verdict != TUNNEL_PASS)
		return verdict;
	read->checksum = udp.dgram_cksum;
	read->end = read->udp + datagram;
	read->inner = (uint16_t)(read->udp + sizeof(udp) + TUNNEL_HEADER + options);
	return read->end >= read->inner + (uint32_t)RTE_ETHER_HDR_LEN ? TUNNEL_PASS : TUNNEL_DROP_short;
}

bool tunnel_read_most(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf, struct tunnel_read *read)
{
	const bool six = headers->size == TUNNEL_HEADERS6;
	const uint32_t udp = headers->size - TUNNEL_HEADER - (uint32_t)sizeof(struct rte_udp_hdr);
	const uint32_t length = mbuf->pkt_len;
	uint32_t total, datagram;
	uint64_t words[TUNNEL_WORDS], other = 0;
	const uint8_t *head = (const uint8_t *)words, *ip = head + RTE_ETHER_HDR_LEN;

	if (mbuf->data_len < sizeof(words))
		return false;
	memcpy(words, rte_pktmbuf_mtod(mbuf, const void *), sizeof(words));
	for (unsigned i = 0; i < TUNNEL_WORDS; i++)
		other |= (words[i] ^ headers->expected[i]) & headers->mask[i];
	total = six ? rte_be_to_cpu_16(half(ip + 4)) + (uint32_t)sizeof(struct rte_ipv6_hdr)
		    : rte_be_to_cpu_16(half(ip + 2));
	datagram = rte_be_to_cpu_16(half(head + udp + 4));
	if (other != 0 || total > length - RTE_ETHER_HDR_LEN || datagram < headers->size - udp + RTE_ETHER_HDR_LEN ||
	    datagram + udp > total + RTE_ETHER_HDR_LEN || !(six || sum_holds((const struct rte_ipv4_hdr *)ip)))
		return false;
	*read = (struct tunnel_read){
		.inner = headers->size,
		.end = udp + datagram,
		.checksum = half(head + udp + 6),
		.udp = (uint16_t)udp,
		.ecn = (six ? ip[1] >> 4 : ip[1]) & TUNNEL_ECN,
	};
	return true;
}

bool tunnel_checksum_holds(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf,
			   const struct tunnel_read *read)
{
	uint16_t sum;

	return likely(read->checksum == 0)
		       ? !headers->summed
		       : (tunnel_sum(headers, mbuf, read->udp, read->end - read->udp, &sum) && sum == UINT16_MAX);
}

static inline bool is_news(uint8_t ecn, uint8_t outer)
{
	return ecn != outer && (outer == TUNNEL_ECN || ecn == CAPABLE_0);
}

/*
 * What was met on the way, for IP that is within (RFC 6040, 4.2): congestion, or the first sign of it, if the outer
 * bits are ECT(1) where the inner ones are ECT(0).  Returns false if that takes it for a loss alone.
 */
static bool mark(uint8_t *inner, uint32_t size, uint8_t outer)
{
	uint32_t at = RTE_ETHER_HDR_LEN;
	uint16_t type = half(inner + TUNNEL_TYPE);

	for (unsigned tags = 0; is_tag(type) && tags < 2 && size >= at + TUNNEL_TAG; tags++) {
		type = half(inner + at + 2);
		at += TUNNEL_TAG;
	}
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4) && size >= at + 20) {
		const uint16_t before = half(inner + at);
		const uint8_t ecn = rte_be_to_cpu_16(before) & TUNNEL_ECN;
		const uint16_t after = (uint16_t)(before ^ rte_cpu_to_be_16(ecn ^ outer));
		uint32_t sum = (uint16_t)~half(inner + at + 10) + (uint16_t)~before + (uint32_t)after;

		if (ecn == NOT_CAPABLE)
			return outer != TUNNEL_ECN;
		if (!is_news(ecn, outer))
			return true;
		sum = (sum & UINT16_MAX) + (sum >> 16);
		put16(inner + at, after);
		put16(inner + at + 10, (uint16_t) ~(sum + (sum >> 16)));
		return true;
	}
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && size >= at + 40) {
		const uint8_t before = (uint8_t)(half(inner + at) >> 8), ecn = before >> 4 & TUNNEL_ECN;

		if (ecn == NOT_CAPABLE)
			return outer != TUNNEL_ECN;
		if (is_news(ecn, outer))
			inner[at + 1] = (uint8_t)(before ^ (ecn ^ outer) << 4);
	}
	return true;
}

enum tunnel_verdict tunnel_unwrap(const struct tunnel_headers *headers, struct rte_mbuf *mbuf,
				  const struct tunnel_read *read)
{
	uint8_t *inner;

	if (unlikely(read->checksum != 0 || headers->summed) && !tunnel_checksum_holds(headers, mbuf, read))
		return TUNNEL_DROP_checksum;
	/* The inner Ethernet header is in one piece with all before it, as buffers are far longer. */
	if (unlikely(mbuf->data_len < read->inner + RTE_ETHER_HDR_LEN))
		return TUNNEL_DROP_short;
	if (unlikely(mbuf->pkt_len > read->end) && rte_pktmbuf_trim(mbuf, (uint16_t)(mbuf->pkt_len - read->end)) != 0)
		return TUNNEL_DROP_length;
	inner = (uint8_t *)rte_pktmbuf_adj(mbuf, read->inner);
	if (unlikely(!headers->ends.tagged && tunnel_has_tag(inner)))
		return TUNNEL_DROP_tagged;
	if (unlikely(read->ecn & CAPABLE_1) /* or all are set */ && !mark(inner, mbuf->data_len, read->ecn))
		return TUNNEL_DROP_congested;
	return TUNNEL_PASS;
}
