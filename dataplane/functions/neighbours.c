/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include <netinet/icmp6.h>
#include <netinet/in.h>

#include <rte_arp.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "neighbours.h"
#include "steer/hash.h"

enum {
	HOP_LIMIT_ND = 255,
	OPTION_SOURCE = 1, /* RFC 4861, 4.6.1 */
	OPTION_TARGET = 2,
	SOLICITED_OVERRIDE = 0x60, /* RFC 4861, 4.4 */
};

/* RFC 4861, 4.3 and 4.4, with one option. */
struct discovery {
	uint8_t type, code;
	uint16_t checksum;
	uint8_t flags, reserved[3];
	uint8_t target[16];
	uint8_t option, length;
	uint8_t mac[6];
};

/* ------- addresses ------- */

bool ip_address_read(const char *text, struct ip_address *address)
{
	*address = (struct ip_address){.family = HEADERS_IPV4};
	if (inet_pton(AF_INET, text, address->bytes) == 1)
		return true;
	address->family = HEADERS_IPV6;
	return inet_pton(AF_INET6, text, address->bytes) == 1;
}

void station_make_mac(struct station *station)
{
	const struct ip_address *source = &station->addresses[station->addresses[0].family == HEADERS_OTHER];
	uint64_t words[2], hash;

	memcpy(words, source->bytes, sizeof(words));
	hash = hash_mix(words[0] ^ HASH_0, words[1] ^ HASH_1);
	station->mac[0] = 0x02;
	memcpy(station->mac + 1, &hash, sizeof(station->mac) - 1);
}

/* ------- reading ------- */

static void set4(struct ip_address *address, const void *bytes)
{
	*address = (struct ip_address){.family = HEADERS_IPV4};
	memcpy(address->bytes, bytes, 4);
}

static void set6(struct ip_address *address, const void *bytes)
{
	*address = (struct ip_address){.family = HEADERS_IPV6};
	memcpy(address->bytes, bytes, 16);
}

static bool read_arp(const uint8_t *head, uint32_t size, struct neighbour *neighbour)
{
	struct rte_arp_hdr arp;

	if (size < RTE_ETHER_HDR_LEN + sizeof(arp))
		return false;
	memcpy(&arp, head + RTE_ETHER_HDR_LEN, sizeof(arp));
	if (arp.arp_hardware != RTE_BE16(RTE_ARP_HRD_ETHER) || arp.arp_protocol != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
	    arp.arp_hlen != RTE_ETHER_ADDR_LEN || arp.arp_plen != 4)
		return false;
	neighbour->answer = arp.arp_opcode == RTE_BE16(RTE_ARP_OP_REPLY);
	if (!neighbour->answer && arp.arp_opcode != RTE_BE16(RTE_ARP_OP_REQUEST))
		return false;
	set4(&neighbour->source, &arp.arp_data.arp_sip);
	set4(&neighbour->target, &arp.arp_data.arp_tip);
	memcpy(neighbour->mac, &arp.arp_data.arp_sha, sizeof(neighbour->mac));
	return true;
}

/* A frame without the option has its sender's address in front. */
static bool read_discovery(const uint8_t *head, uint32_t size, struct neighbour *neighbour)
{
	const uint8_t *ip = head + RTE_ETHER_HDR_LEN;
	struct discovery discovery = {.type = 0};
	uint32_t there;

	if (size < RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv6_hdr) + offsetof(struct discovery, option))
		return false;
	there = size - RTE_ETHER_HDR_LEN - (uint32_t)sizeof(struct rte_ipv6_hdr);
	memcpy(&discovery, ip + sizeof(struct rte_ipv6_hdr), RTE_MIN(there, (uint32_t)sizeof(discovery)));
	if (ip[offsetof(struct rte_ipv6_hdr, proto)] != IPPROTO_ICMPV6 || discovery.code != 0)
		return false;
	neighbour->answer = discovery.type == ND_NEIGHBOR_ADVERT;
	if (!neighbour->answer && discovery.type != ND_NEIGHBOR_SOLICIT)
		return false;
	set6(neighbour->answer ? &neighbour->source : &neighbour->target, discovery.target);
	if (neighbour->answer)
		set6(&neighbour->target, ip + offsetof(struct rte_ipv6_hdr, dst_addr));
	else
		set6(&neighbour->source, ip + offsetof(struct rte_ipv6_hdr, src_addr));
	if (discovery.option == (neighbour->answer ? OPTION_TARGET : OPTION_SOURCE) && discovery.length == 1)
		memcpy(neighbour->mac, discovery.mac, sizeof(neighbour->mac));
	else
		memcpy(neighbour->mac, head + RTE_ETHER_ADDR_LEN, sizeof(neighbour->mac));
	return true;
}

bool neighbour_read(const uint8_t *head, uint32_t size, struct neighbour *neighbour)
{
	const struct rte_ether_hdr *ethernet = (const struct rte_ether_hdr *)head;

	if (size < sizeof(*ethernet))
		return false;
	if (ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_ARP))
		return read_arp(head, size, neighbour);
	return ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && read_discovery(head, size, neighbour);
}

/* ------- writing ------- */

void station_write_ethernet(uint8_t *frame, const struct station *station, const uint8_t *mac, uint16_t type)
{
	const uint16_t ether_type = rte_cpu_to_be_16(type);

	memcpy(frame, mac, RTE_ETHER_ADDR_LEN);
	memcpy(frame + RTE_ETHER_ADDR_LEN, station->mac, RTE_ETHER_ADDR_LEN);
	memcpy(frame + 2 * RTE_ETHER_ADDR_LEN, &ether_type, sizeof(ether_type));
}

uint32_t station_write_ip4(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol, uint8_t ttl,
			   uint16_t length, unsigned checksum)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame + RTE_ETHER_HDR_LEN);
	uint16_t sum;

	*ip = (struct rte_ipv4_hdr){
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16((uint16_t)(sizeof(*ip) + length)),
		.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG),
		.time_to_live = ttl,
		.next_proto_id = protocol,
	};
	memcpy(&ip->src_addr, source, 4);
	memcpy(&ip->dst_addr, target, 4);
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	sum = protocol == IPPROTO_ICMP ? (uint16_t)~rte_raw_cksum(ip + 1, length) : rte_ipv4_udptcp_cksum(ip, ip + 1);
	memcpy((uint8_t *)(ip + 1) + checksum, &sum, sizeof(sum));
	return RTE_ETHER_HDR_LEN + sizeof(*ip) + length;
}

uint32_t station_write_ip6(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol,
			   uint8_t hop_limit, uint16_t length, unsigned checksum)
{
	struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(frame + RTE_ETHER_HDR_LEN);
	uint16_t sum;

	memset(ip, 0, sizeof(*ip));
	ip->vtc_flow = RTE_BE32(0x60000000);
	ip->payload_len = rte_cpu_to_be_16(length);
	ip->proto = protocol;
	ip->hop_limits = hop_limit;
	memcpy(&ip->src_addr, source, 16);
	memcpy(&ip->dst_addr, target, 16);
	sum = rte_ipv6_udptcp_cksum(ip, ip + 1);
	memcpy((uint8_t *)(ip + 1) + checksum, &sum, sizeof(sum));
	return RTE_ETHER_HDR_LEN + sizeof(*ip) + length;
}

static uint32_t write_arp(uint8_t *frame, const struct station *station, const uint8_t *mac, uint16_t operation,
			  const uint8_t *source, const uint8_t *target)
{
	struct rte_arp_hdr arp = {
		.arp_hardware = RTE_BE16(RTE_ARP_HRD_ETHER),
		.arp_protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = RTE_ETHER_ADDR_LEN,
		.arp_plen = 4,
		.arp_opcode = rte_cpu_to_be_16(operation),
	};

	station_write_ethernet(frame, station, mac, RTE_ETHER_TYPE_ARP);
	memcpy(&arp.arp_data.arp_sha, station->mac, RTE_ETHER_ADDR_LEN);
	memcpy(&arp.arp_data.arp_sip, source, 4);
	if (operation == RTE_ARP_OP_REPLY)
		memcpy(&arp.arp_data.arp_tha, mac, RTE_ETHER_ADDR_LEN);
	memcpy(&arp.arp_data.arp_tip, target, 4);
	memcpy(frame + RTE_ETHER_HDR_LEN, &arp, sizeof(arp));
	return RTE_ETHER_HDR_LEN + sizeof(arp);
}

static uint32_t write_discovery(uint8_t *frame, const struct station *station, const uint8_t *mac,
				struct discovery *discovery, const uint8_t *source, const uint8_t *to)
{
	discovery->length = 1;
	memcpy(discovery->mac, station->mac, sizeof(discovery->mac));
	memcpy(frame + RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv6_hdr), discovery, sizeof(*discovery));
	station_write_ethernet(frame, station, mac, RTE_ETHER_TYPE_IPV6);
	return station_write_ip6(frame, source, to, IPPROTO_ICMPV6, HOP_LIMIT_ND, sizeof(*discovery),
				 offsetof(struct discovery, checksum));
}

uint32_t neighbour_write_question(uint8_t *frame, const struct station *station, const struct ip_address *target)
{
	static const uint8_t everybody[RTE_ETHER_ADDR_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	/* RFC 4291, 2.7.1: those whose addresses end so. */
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff}, mac[RTE_ETHER_ADDR_LEN] = {0x33, 0x33, 0xff};
	struct discovery discovery = {.type = ND_NEIGHBOR_SOLICIT, .option = OPTION_SOURCE};
	const uint8_t *source = station->addresses[ip_version(target->family)].bytes;

	if (target->family == HEADERS_IPV4)
		return write_arp(frame, station, everybody, RTE_ARP_OP_REQUEST, source, target->bytes);
	memcpy(discovery.target, target->bytes, sizeof(discovery.target));
	memcpy(group + 13, target->bytes + 13, 3);
	memcpy(mac + 3, target->bytes + 13, 3);
	return write_discovery(frame, station, mac, &discovery, source, group);
}

uint32_t neighbour_write_answer(uint8_t *frame, const struct station *station, const struct neighbour *question)
{
	struct discovery discovery = {.type = ND_NEIGHBOR_ADVERT, .flags = SOLICITED_OVERRIDE, .option = OPTION_TARGET};

	if (question->target.family == HEADERS_IPV4)
		return write_arp(frame, station, question->mac, RTE_ARP_OP_REPLY, question->target.bytes,
				 question->source.bytes);
	memcpy(discovery.target, question->target.bytes, sizeof(discovery.target));
	return write_discovery(frame, station, question->mac, &discovery, question->target.bytes,
			       question->source.bytes);
}
