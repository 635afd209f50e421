/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include <netinet/in.h>

#include <rte_byteorder.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "nat_rewrite.h"

enum { CHECKSUM = 2 };

/* Ones' complement sums of words as they lie; RFC 1624, equation 3: of each ~m and m'. */
static uint32_t replace16(uint8_t *at, uint16_t value)
{
	uint16_t before;

	memcpy(&before, at, sizeof(before));
	memcpy(at, &value, sizeof(value));
	return (uint16_t)~before + (uint32_t)value;
}

static uint32_t replace32(uint8_t *at, uint32_t value)
{
	uint16_t words[2];

	memcpy(words, &value, sizeof(words));
	return replace16(at, words[0]) + replace16(at + 2, words[1]);
}

/* Returns what that changes in a sum that the checksum is part of. */
static uint32_t adjust(uint8_t *at, uint32_t change)
{
	uint32_t sum;
	uint16_t checksum;

	memcpy(&checksum, at, sizeof(checksum));
	sum = (uint16_t)~checksum + (change >> 16) + (change & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	return replace16(at, (uint16_t)~sum);
}

static unsigned address_offset(enum nat_side side)
{
	return side == NAT_SOURCE ? offsetof(struct rte_ipv4_hdr, src_addr) : offsetof(struct rte_ipv4_hdr, dst_addr);
}

/* Changes the address; returns that change, and adds all changes to `all`. */
static uint32_t change_address(uint8_t *ip, enum nat_side side, uint32_t address, uint32_t *all)
{
	const uint32_t change = replace32(ip + address_offset(side), rte_cpu_to_be_32(address));

	*all += change + adjust(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), change);
	return change;
}

/* RFC 768: a checksum of 0 is none, and a sum of 0 is sent as its complement. */
static uint32_t adjust_udp(uint8_t *at, uint32_t change)
{
	static const uint8_t none[CHECKSUM];
	uint32_t changed;

	if (memcmp(at, none, sizeof(none)) == 0)
		return 0;
	changed = adjust(at, change);
	if (memcmp(at, none, sizeof(none)) == 0)
		changed += replace16(at, UINT16_MAX);
	return changed;
}

/* What IP carries, of which so many bytes are there: all that is changed in it. */
static uint32_t change_port(uint8_t *payload, unsigned there, uint8_t protocol, enum nat_side side, uint16_t port,
			    uint32_t address_change)
{
	const uint16_t value = rte_cpu_to_be_16(port);
	unsigned checksum;
	uint32_t change;

	if (protocol == IPPROTO_ICMP) {
		if (there < offsetof(struct rte_icmp_hdr, icmp_seq_nb))
			return 0;
		change = replace16(payload + offsetof(struct rte_icmp_hdr, icmp_ident), value);
		return change + adjust(payload + offsetof(struct rte_icmp_hdr, icmp_cksum), change);
	}
	if (there < offsetof(struct rte_udp_hdr, dgram_len))
		return 0;
	change = replace16(payload + (side == NAT_SOURCE ? 0 : offsetof(struct rte_udp_hdr, dst_port)), value);
	checksum = protocol == IPPROTO_TCP ? offsetof(struct rte_tcp_hdr, cksum)
					   : offsetof(struct rte_udp_hdr, dgram_cksum);
	if (there < checksum + CHECKSUM)
		return change; /* of a datagram that an error quotes */
	if (protocol == IPPROTO_TCP)
		return change + adjust(payload + checksum, change + address_change);
	return change + adjust_udp(payload + checksum, change + address_change);
}

/* Returns all that is changed. */
static uint32_t change_end(uint8_t *ip, unsigned there, enum nat_side side, uint32_t address, uint16_t port)
{
	const unsigned length = (ip[0] & 15u) * 4;
	uint32_t all = 0, change = change_address(ip, side, address, &all);

	if (there < length)
		return all;
	return all + change_port(ip + length, there - length, ip[offsetof(struct rte_ipv4_hdr, next_proto_id)], side,
				 port, change);
}

void nat_rewrite_address(const struct nat_place *place, enum nat_side side, uint32_t address)
{
	uint32_t all = 0;

	change_address(place->bytes + place->network, side, address, &all);
}

void nat_rewrite(const struct nat_place *place, enum nat_side side, uint32_t address, uint16_t port)
{
	change_end(place->bytes + place->network, place->end - place->network, side, address, port);
}

void nat_rewrite_quoted(const struct nat_place *place, unsigned embedded, enum nat_side side, uint32_t address,
			uint16_t port)
{
	uint8_t *ip = place->bytes + place->network;
	const uint32_t change = change_end(place->bytes + embedded, place->end - embedded, side, address, port);

	adjust(ip + (ip[0] & 15u) * 4 + offsetof(struct rte_icmp_hdr, icmp_cksum), change);
}
