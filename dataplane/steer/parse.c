/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/in.h>
#include <rte_branch_prediction.h>
#include <rte_ether.h>

#include "steer/parse.h"

enum {
	IPV4_LEAST = 20,
	IPV6_LENGTH = 40,
	PORTS = 4, /* bytes of both */
	PROTOCOL_DCCP = 33,
	PROTOCOL_HIP = 139,
	PROTOCOL_SHIM6 = 140,
	PROTOCOL_UDPLITE = 136,
	PROTOCOL_MOBILITY = 135,
};

static uint16_t read16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t read32(const uint8_t *at)
{
	return (uint32_t)read16(at) << 16 | read16(at + 2);
}

/* Which ICMP messages have an identifier that request and answer share, and which carry the datagram they are about. */
static void parse_icmp(const uint8_t *bytes, unsigned at, unsigned end, struct headers *headers)
{
	bool six = headers->protocol == IPPROTO_ICMPV6;
	uint8_t type;

	if (at + 8 > end)
		return;
	type = bytes[at];
	if (six ? type == 128 || type == 129 : type == 0 || type == 8 || type == 13 || type == 14)
		headers->source_port = headers->destination_port = read16(bytes + at + 4);
	else if (headers->fragment == FRAGMENT_NONE &&
		 (six ? type >= 1 && type <= 4 : type == 3 || type == 4 || type == 5 || type == 11 || type == 12))
		headers->embedded = at + 8;
}

/* The header that IP carries lies at `at`, and the datagram or what we have of it ends at `end`. */
static void parse_transport(const uint8_t *bytes, unsigned at, unsigned end, struct headers *headers)
{
	switch (headers->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case PROTOCOL_UDPLITE:
	case PROTOCOL_DCCP:
		if (at + PORTS > end)
			return;
		headers->source_port = read16(bytes + at);
		headers->destination_port = read16(bytes + at + 2);
		headers->has_ports = 1;
		return;
	case IPPROTO_ICMP:
		if (headers->family == HEADERS_IPV4)
			parse_icmp(bytes, at, end, headers);
		return;
	case IPPROTO_ICMPV6:
		if (headers->family == HEADERS_IPV6)
			parse_icmp(bytes, at, end, headers);
		return;
	}
}

static void parse_ipv4(const uint8_t *bytes, unsigned at, unsigned end, struct headers *headers)
{
	unsigned header, total, fragment;

	if (unlikely(at + IPV4_LEAST > end)) {
		headers->malformed = true;
		return;
	}
	header = (bytes[at] & 15) * 4;
	total = read16(bytes + at + 2);
	/* A total of 0 is how some stacks write a segment that is still to be cut up. */
	if (unlikely(bytes[at] >> 4 != 4 || header < IPV4_LEAST || (total != 0 && total < header))) {
		headers->malformed = true;
		return;
	}
	headers->family = HEADERS_IPV4;
	headers->network = at;
	headers->protocol = bytes[at + 9];
	memset(headers->source, 0, 32);
	memcpy(headers->source, bytes + at + 12, 4);
	memcpy(headers->destination, bytes + at + 16, 4);
	fragment = read16(bytes + at + 6) & 0x3fff;
	if (unlikely(fragment != 0)) {
		headers->fragment_id = read16(bytes + at + 4);
		headers->fragment = (fragment & 0x1fff) != 0 ? FRAGMENT_LATER : FRAGMENT_FIRST;
		if (headers->fragment == FRAGMENT_LATER)
			return;
	}
	/* What follows the datagram is padding. */
	if (total != 0 && at + total < end)
		end = at + total;
	parse_transport(bytes, at + header, end, headers);
}

static bool extension(uint8_t protocol)
{
	switch (protocol) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case PROTOCOL_MOBILITY:
	case PROTOCOL_HIP:
	case PROTOCOL_SHIM6:
		return true;
	}
	return false;
}

static void parse_ipv6(const uint8_t *bytes, unsigned at, unsigned end, struct headers *headers)
{
	unsigned payload, i;

	if (unlikely(at + IPV6_LENGTH > end || bytes[at] >> 4 != 6)) {
		headers->malformed = true;
		return;
	}
	headers->family = HEADERS_IPV6;
	headers->network = at;
	headers->protocol = bytes[at + 6];
	memcpy(headers->source, bytes + at + 8, 32);
	payload = read16(bytes + at + 4);
	at += IPV6_LENGTH;
	if (payload != 0 && at + payload < end)
		end = at + payload;
	for (i = 0; unlikely(extension(headers->protocol)); i++) {
		uint8_t protocol = headers->protocol;

		/* An extension header that is cut off, or one too many: what is behind it is not known. */
		if (i == PARSE_EXTENSIONS || at + 8 > end) {
			headers->unread = true;
			return;
		}
		headers->protocol = bytes[at];
		if (protocol == IPPROTO_FRAGMENT) {
			unsigned fragment = read16(bytes + at + 2);

			at += 8;
			/* All of it in one piece (RFC 6946): not a fragment. */
			if ((fragment & 0xfff9) == 0)
				continue;
			headers->fragment_id = read32(bytes + at - 4);
			headers->fragment = (fragment & 0xfff8) != 0 ? FRAGMENT_LATER : FRAGMENT_FIRST;
			if (headers->fragment == FRAGMENT_LATER)
				return;
		} else if (protocol == IPPROTO_AH) {
			at += (bytes[at + 1] + 2) * 4;
		} else {
			at += (bytes[at + 1] + 1) * 8;
		}
	}
	headers->unread = unlikely(i > 0) && at + PORTS > end;
	parse_transport(bytes, at, end, headers);
}

void parse_frame(const uint8_t *bytes, unsigned length, struct headers *headers)
{
	unsigned at = RTE_ETHER_HDR_LEN, tags = 0;
	uint16_t type;

	memset(headers, 0, sizeof(*headers));
	if (length > PARSE_BYTES)
		length = PARSE_BYTES;
	if (unlikely(length < RTE_ETHER_HDR_LEN)) {
		headers->malformed = true;
		return;
	}
	memcpy(headers->destination, bytes, 6);
	memcpy(headers->source, bytes + 6, 6);
	type = read16(bytes + 12);
	while (type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ) {
		uint16_t vlan;

		if (unlikely(at + 4 > length)) {
			headers->malformed = true;
			break;
		}
		if (tags == PARSE_TAGS)
			break;
		vlan = (read16(bytes + at) & 0xfff) | HEADERS_VLAN;
		if (tags == 0)
			headers->vlan = vlan;
		else if (tags == 1)
			headers->inner_vlan = vlan;
		tags++;
		type = read16(bytes + at + 2);
		at += 4;
	}
	headers->ethertype = type;
	if (type == RTE_ETHER_TYPE_IPV4)
		parse_ipv4(bytes, at, length, headers);
	else if (type == RTE_ETHER_TYPE_IPV6)
		parse_ipv6(bytes, at, length, headers);
}

void parse_embedded(const uint8_t *bytes, unsigned length, struct headers *headers)
{
	struct headers inner = {0};
	unsigned at = headers->embedded;

	if (length > PARSE_BYTES)
		length = PARSE_BYTES;
	if (at == 0 || at >= length)
		return;
	if (headers->family == HEADERS_IPV4)
		parse_ipv4(bytes, at, length, &inner);
	else
		parse_ipv6(bytes, at, length, &inner);
	if (inner.family == HEADERS_OTHER)
		return;
	memcpy(headers->source, inner.source, 32);
	headers->protocol = inner.protocol;
	headers->source_port = inner.source_port;
	headers->destination_port = inner.destination_port;
	headers->has_ports = inner.has_ports;
	/* Only what has no ports needs to be looked up. */
	headers->fragment = inner.fragment == FRAGMENT_LATER ? FRAGMENT_LATER : FRAGMENT_NONE;
	headers->fragment_id = inner.fragment_id;
	headers->unread = inner.unread;
}

void headers_mirror(struct headers *headers)
{
	const uint16_t port = headers->source_port;
	uint8_t address[sizeof(headers->source)];

	memcpy(address, headers->source, sizeof(address));
	memcpy(headers->source, headers->destination, sizeof(address));
	memcpy(headers->destination, address, sizeof(address));
	headers->source_port = headers->destination_port;
	headers->destination_port = port;
}
