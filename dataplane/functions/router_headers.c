/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_hash_crc.h>

#include "router_headers.h"

enum { WITHOUT_OPTIONS = 0x45 };

/* RFC 1812, 5.3.7, and RFC 6890: this network, loopback, multicast, reserved, broadcast. */
static bool martian_source4(uint32_t address)
{
	return address >> 24 == 0 || address >> 24 == IN_LOOPBACKNET || address >= 0xe0000000;
}

static bool martian_destination4(uint32_t address)
{
	return address >> 24 == 0 || address >> 24 == IN_LOOPBACKNET || address >= 0xf0000000;
}

/* RFC 1071: whether the checksum of a header holds.  Most have no options, and those are summed word by word. */
static bool checksum_holds(const struct rte_ipv4_hdr *header, uint32_t length)
{
	uint32_t words[sizeof(*header) / sizeof(uint32_t)];
	uint64_t sum = 0;

	if (length != sizeof(*header))
		return rte_raw_cksum(header, length) == 0xffff;
	memcpy(words, header, sizeof(words));
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		sum += words[i];
	/* Ones of 32 bits are ones of both halves, added with their carries. */
	sum = (sum & UINT32_MAX) + (sum >> 32);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return sum == 0xffff;
}

static enum router_verdict check4(const struct rte_ipv4_hdr *header, uint32_t size, uint32_t length)
{
	uint32_t header_length, destination;

	if (size < sizeof(*header))
		return ROUTER_DROP_short;
	header_length = rte_ipv4_hdr_len(header);
	if (header->version_ihl >> 4 != 4)
		return ROUTER_DROP_version;
	if (header_length < sizeof(*header) || router_length4(header) < header_length ||
	    router_length4(header) > length)
		return ROUTER_DROP_length;
	if (size < header_length)
		return ROUTER_DROP_short;
	/* RFC 1812, 5.2.2: a router verifies it of each frame. */
	if (!checksum_holds(header, header_length))
		return ROUTER_DROP_checksum;
	destination = rte_be_to_cpu_32(header->dst_addr);
	if (martian_source4(rte_be_to_cpu_32(header->src_addr)))
		return ROUTER_DROP_martian;
	if (destination == INADDR_BROADCAST || IN_MULTICAST(destination))
		return ROUTER_KERNEL_NEIGHBOURS;
	if (martian_destination4(destination))
		return ROUTER_DROP_martian;
	return header->version_ihl == WITHOUT_OPTIONS ? ROUTER_IPV4 : ROUTER_KERNEL_OTHERS;
}

/* RFC 4291, 2.5.2 and 2.5.3: the unspecified address and loopback. */
static bool unspecified_or_loopback(const uint8_t *address)
{
	static const uint8_t zero[15];

	return memcmp(address, zero, 15) == 0 && address[15] <= 1;
}

static enum router_verdict check6(const struct rte_ipv6_hdr *header, uint32_t size, uint32_t length)
{
	const uint8_t *source = (const uint8_t *)&header->src_addr, *destination = (const uint8_t *)&header->dst_addr;

	if (size < sizeof(*header))
		return ROUTER_DROP_short;
	if (rte_be_to_cpu_32(header->vtc_flow) >> 28 != 6)
		return ROUTER_DROP_version;
	if (router_length6(header) > length)
		return ROUTER_DROP_length;
	/* RFC 4291, 2.7: no packet comes from a multicast address. */
	if (source[0] == 0xff || unspecified_or_loopback(destination) || inspect_is_mapped(source) ||
	    inspect_is_mapped(destination))
		return ROUTER_DROP_martian;
	if (destination[0] == 0xff || router_link_local(destination) || router_link_local(source))
		return ROUTER_KERNEL_NEIGHBOURS;
	if (unspecified_or_loopback(source))
		return ROUTER_DROP_martian;
	/* RFC 8200, 4.3: what may be for every router on the way. */
	return header->proto == IPPROTO_HOPOPTS ? ROUTER_KERNEL_OTHERS : ROUTER_IPV6;
}

enum router_verdict router_check(const uint8_t *frame, uint32_t size, uint32_t length, uint32_t layer2, uint64_t mac)
{
	uint64_t destination;
	uint16_t type;

	if (size < layer2)
		return ROUTER_DROP_short;
	if (mac & ROUTER_MAC_DOWN)
		return ROUTER_DROP_down;
	destination = plain_word(frame, 0) & PLAIN_MAC;
	if (destination & 1) /* the group bit: multicast and broadcast */
		return ROUTER_KERNEL_NEIGHBOURS;
	if (destination != mac)
		return ROUTER_DROP_station;
	memcpy(&type, frame + layer2 - sizeof(type), sizeof(type));
	frame += layer2;
	size -= layer2;
	length -= layer2;
	switch (type) {
	case RTE_BE16(RTE_ETHER_TYPE_IPV4):
		return check4((const struct rte_ipv4_hdr *)frame, size, length);
	case RTE_BE16(RTE_ETHER_TYPE_IPV6):
		return check6((const struct rte_ipv6_hdr *)frame, size, length);
	default:
		return ROUTER_KERNEL_NEIGHBOURS;
	}
}

static bool has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

static uint32_t flow(const void *addresses, uint32_t length, uint8_t protocol, const void *ports, bool there)
{
	uint64_t words[1 + 32 / sizeof(uint64_t)] = {protocol};

	if (there && has_ports(protocol))
		memcpy((uint8_t *)words + 4, ports, 4);
	memcpy(words + 1, addresses, length);
	return rte_hash_crc(words, sizeof(words[0]) + length, 0);
}

uint32_t router_flow4(const struct rte_ipv4_hdr *header, uint32_t size)
{
	const uint16_t fragment = RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK);
	bool there = size >= sizeof(*header) + 4 && (header->fragment_offset & fragment) == 0;

	return flow(&header->src_addr, 8, header->next_proto_id, header + 1, there);
}

uint32_t router_flow6(const struct rte_ipv6_hdr *header, uint32_t size)
{
	return flow(&header->src_addr, 32, header->proto, header + 1, size >= sizeof(*header) + 4);
}
