/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "tunnel_bytes.h"
#include "tunnel_headers.h"

enum { TTL = 64 };

static uint8_t *write_ip4(struct tunnel_headers *headers, uint8_t *at)
{
	struct rte_ipv4_hdr ip = {
		.version_ihl = RTE_IPV4_VHL_DEF,
		.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG),
		.time_to_live = TTL,
		.next_proto_id = IPPROTO_UDP,
	};

	memcpy(&ip.src_addr, headers->ends.local.bytes, 4);
	memcpy(&ip.dst_addr, headers->ends.remote.bytes, 4);
	headers->sum = rte_raw_cksum(&ip, sizeof(ip));
	memcpy(at, &ip, sizeof(ip));
	return at + sizeof(ip);
}

static uint8_t *write_ip6(const struct tunnel_headers *headers, uint8_t *at)
{
	struct rte_ipv6_hdr ip = {.vtc_flow = RTE_BE32(6u << 28), .proto = IPPROTO_UDP, .hop_limits = TTL};

	memcpy(&ip.src_addr, headers->ends.local.bytes, 16);
	memcpy(&ip.dst_addr, headers->ends.remote.bytes, 16);
	memcpy(at, &ip, sizeof(ip));
	return at + sizeof(ip);
}

static void expect(uint8_t *expected, uint8_t *mask, unsigned at, const void *bytes, unsigned size)
{
	memcpy(expected + at, bytes, size);
	memset(mask + at, 0xff, size);
}

/* Those of most frames that come: no IP options, whole datagrams, no options of Geneve's. */
static void expect_headers(struct tunnel_headers *headers)
{
	const struct tunnel_ends *ends = &headers->ends;
	const bool six = headers->size == TUNNEL_HEADERS6;
	const unsigned ip = RTE_ETHER_HDR_LEN, udp = headers->size - TUNNEL_HEADER - sizeof(struct rte_udp_hdr);
	const unsigned tunnel = headers->size - TUNNEL_HEADER, addresses = six ? 16 : 4;
	uint8_t *expected = (uint8_t *)headers->expected, *mask = (uint8_t *)headers->mask;

	expect(expected, mask, 0, ends->mac, RTE_ETHER_ADDR_LEN);
	expect(expected, mask, TUNNEL_TYPE, headers->bytes + TUNNEL_TYPE, 3); /* and the version */
	if (six) {
		mask[ip] = 0xf0;
		expect(expected, mask, ip + offsetof(struct rte_ipv6_hdr, proto), (uint8_t[]){IPPROTO_UDP}, 1);
	} else {
		expect(expected, mask, ip + offsetof(struct rte_ipv4_hdr, fragment_offset), (uint8_t[]){0, 0}, 2);
		mask[ip + offsetof(struct rte_ipv4_hdr, fragment_offset)] = RTE_IPV4_HDR_MF_FLAG >> 8 | 0x1f;
		expect(expected, mask, ip + offsetof(struct rte_ipv4_hdr, next_proto_id), (uint8_t[]){IPPROTO_UDP}, 1);
	}
	expect(expected, mask, udp - 2 * addresses, ends->remote.bytes, addresses);
	expect(expected, mask, udp - addresses, ends->local.bytes, addresses);
	expect(expected, mask, udp + 2, headers->bytes + udp + 2, 2);
	expect(expected, mask, tunnel + 4, headers->bytes + tunnel + 4, 3);
	if (ends->protocol == TUNNEL_VXLAN) {
		expect(expected, mask, tunnel, headers->bytes + tunnel, 1);
		mask[tunnel] = TUNNEL_VNI_IS_THERE;
	} else {
		expect(expected, mask, tunnel, headers->bytes + tunnel, 4);
		mask[tunnel + 1] = TUNNEL_CONTROL | TUNNEL_CRITICAL;
	}
}

void tunnel_headers_make(struct tunnel_headers *headers, const struct tunnel_ends *ends)
{
	const bool six = ends->local.family == HEADERS_IPV6;
	const uint16_t type = rte_cpu_to_be_16(six ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	const struct rte_udp_hdr udp = {.dst_port = rte_cpu_to_be_16(ends->port)};
	const uint32_t vni = rte_cpu_to_be_32(ends->vni << 8);
	uint8_t *at = headers->bytes;

	*headers = (struct tunnel_headers){.ends = *ends, .size = six ? TUNNEL_HEADERS6 : TUNNEL_HEADERS4};
	headers->network = headers->size - RTE_ETHER_HDR_LEN;
	/* VXLAN's that has none is taken whatever is sent (RFC 7348, 4.1). */
	headers->summed = six && ends->checksum && ends->protocol == TUNNEL_GENEVE;
	headers->longest = ends->mtu > headers->network ? ends->mtu - headers->network : 0;
	memcpy(at + RTE_ETHER_ADDR_LEN, ends->mac, RTE_ETHER_ADDR_LEN);
	memcpy(at + TUNNEL_TYPE, &type, sizeof(type));
	at += RTE_ETHER_HDR_LEN;
	at = six ? write_ip6(headers, at) : write_ip4(headers, at);
	memcpy(at, &udp, sizeof(udp));
	at += sizeof(udp);
	if (ends->protocol == TUNNEL_VXLAN) {
		at[0] = TUNNEL_VNI_IS_THERE;
	} else {
		at[2] = TUNNEL_ETHERNET >> 8;
		at[3] = TUNNEL_ETHERNET & 0xff;
	}
	memcpy(at + 4, &vni, sizeof(vni));
	expect_headers(headers);
}

/* ------- of both ways ------- */

bool tunnel_has_tag(const uint8_t *inner)
{
	return is_tag(half(inner + TUNNEL_TYPE));
}

bool tunnel_sum(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf, uint16_t udp, uint32_t length,
		uint16_t *sum)
{
	const uint32_t addresses = headers->size == TUNNEL_HEADERS6 ? 16 : 4;
	uint32_t all = rte_cpu_to_be_16((uint16_t)length) + (uint32_t)rte_cpu_to_be_16(IPPROTO_UDP);

	all += (uint32_t)rte_raw_cksum(headers->ends.local.bytes, addresses) +
	       rte_raw_cksum(headers->ends.remote.bytes, addresses);
	if (rte_raw_cksum_mbuf(mbuf, udp, length, sum) != 0)
		return false;
	all += *sum;
	all = (all & UINT16_MAX) + (all >> 16);
	*sum = (uint16_t)(all + (all >> 16));
	return true;
}
