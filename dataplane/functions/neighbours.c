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
	SOLICITED = 0x40, /* RFC 4861, 4.4 */
	OVERRIDE = 0x20,
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

static bool unspecified(const struct ip_address *address)
{
	static const uint8_t nobody[sizeof(address->bytes)];

	return memcmp(address->bytes, nobody, sizeof(nobody)) == 0;
}

/* RFC 4291, 2.7.1: those whose addresses end so. */
static void solicited_group(uint8_t *group, const uint8_t *target)
{
	static const uint8_t begins[13] = {0xff, 2, [11] = 1, [12] = 0xff};

	memcpy(group, begins, sizeof(begins));
	memcpy(group + sizeof(begins), target + sizeof(begins), 3);
}

/* Find the option with a MAC address.  Returns false if options do not hold (RFC 4861, 4.6). */
static bool read_options(const uint8_t *option, const uint8_t *end, uint8_t type, const uint8_t **mac)
{
	*mac = NULL;
	for (; option < end; option += option[1] * 8) {
		if (end - option < 8 || option[1] == 0 || option[1] * 8 > end - option)
			return false;
		if (option[0] == type && option[1] == 1)
			*mac = option + 2;
	}
	return true;
}

/*
 * What does not hold says nothing (RFC 4861, 7.1; the hop limit is inspect()'s), and so does what is longer than the
 * copy, which no host sends.  A frame without the option has its sender's address in front.
 */
static bool read_discovery(const uint8_t *head, uint32_t size, struct neighbour *neighbour)
{
	const struct rte_ipv6_hdr *ip = (const struct rte_ipv6_hdr *)(head + RTE_ETHER_HDR_LEN);
	const uint8_t *message = (const uint8_t *)(ip + 1), *mac;
	const uint32_t least = offsetof(struct discovery, option);
	uint8_t group[16];
	uint32_t length;

	if (size < RTE_ETHER_HDR_LEN + sizeof(*ip) + least || ip->proto != IPPROTO_ICMPV6)
		return false;
	length = rte_be_to_cpu_16(ip->payload_len);
	neighbour->answer = message[0] == ND_NEIGHBOR_ADVERT;
	if ((!neighbour->answer && message[0] != ND_NEIGHBOR_SOLICIT) ||
	    message[offsetof(struct discovery, code)] != 0 || length < least ||
	    length > size - RTE_ETHER_HDR_LEN - sizeof(*ip) || rte_ipv6_udptcp_cksum(ip, message) != 0 ||
	    !read_options(message + least, message + length, neighbour->answer ? OPTION_TARGET : OPTION_SOURCE, &mac))
		return false;
	set6(neighbour->answer ? &neighbour->source : &neighbour->target, message + offsetof(struct discovery, target));
	if (neighbour->answer) {
		set6(&neighbour->target, &ip->dst_addr);
	} else {
		set6(&neighbour->source, &ip->src_addr);
		solicited_group(group, neighbour->target.bytes);
		if (unspecified(&neighbour->source) &&
		    (mac != NULL || memcmp(&ip->dst_addr, group, sizeof(group)) != 0))
			return false;
	}
	memcpy(neighbour->mac, mac != NULL ? mac : head + RTE_ETHER_ADDR_LEN, sizeof(neighbour->mac));
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
	uint8_t group[16], mac[RTE_ETHER_ADDR_LEN] = {0x33, 0x33, 0xff};
	struct discovery discovery = {.type = ND_NEIGHBOR_SOLICIT, .option = OPTION_SOURCE};
	const uint8_t *source = station->addresses[ip_version(target->family)].bytes;

	if (target->family == HEADERS_IPV4)
		return write_arp(frame, station, everybody, RTE_ARP_OP_REQUEST, source, target->bytes);
	memcpy(discovery.target, target->bytes, sizeof(discovery.target));
	solicited_group(group, target->bytes);
	memcpy(mac + 3, target->bytes + 13, 3);
	return write_discovery(frame, station, mac, &discovery, source, group);
}

uint32_t neighbour_write_answer(uint8_t *frame, const struct station *station, const struct neighbour *question)
{
	static const uint8_t all[16] = {0xff, 2, [15] = 1}, all_mac[RTE_ETHER_ADDR_LEN] = {0x33, 0x33, [5] = 1};
	struct discovery discovery = {.type = ND_NEIGHBOR_ADVERT, .flags = OVERRIDE, .option = OPTION_TARGET};

	if (question->target.family == HEADERS_IPV4)
		return write_arp(frame, station, question->mac, RTE_ARP_OP_REPLY, question->target.bytes,
				 question->source.bytes);
	memcpy(discovery.target, question->target.bytes, sizeof(discovery.target));
	/* Who tries whether an address is free has none yet (RFC 4861, 7.2.4; RFC 4862, 5.4). */
	if (unspecified(&question->source))
		return write_discovery(frame, station, all_mac, &discovery, question->target.bytes, all);
	discovery.flags |= SOLICITED;
	return write_discovery(frame, station, question->mac, &discovery, question->target.bytes,
			       question->source.bytes);
}
