/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include <rte_branch_prediction.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "inspect.h"

enum {
	DATAGRAM_MOST = 65535,
	ICMP_LEAST = 8,
	ROUTING_TYPE_0 = 0, /* deprecated by RFC 5095 */
	OPTION_LENGTH_LEAST = 2,
	MLD2_REPORT = 143, /* RFC 3810 */
	HOP_LIMIT_ND = 255,
	HOP_LIMIT_MLD = 1,
};

/* What IP carries: where it begins, and how many bytes of it the datagram has, and the copy. */
struct payload {
	const uint8_t *bytes;
	uint32_t length, there;
};

const uint8_t inspect_tcp_events[] = {
	[RTE_TCP_SYN_FLAG] = EVENT_SYN + 1,
	[RTE_TCP_SYN_FLAG | RTE_TCP_ACK_FLAG] = EVENT_SYN_ACK + 1,
	[RTE_TCP_ACK_FLAG] = EVENT_ACK + 1,
	[RTE_TCP_FIN_FLAG | RTE_TCP_ACK_FLAG] = EVENT_FIN + 1,
	[RTE_TCP_RST_FLAG] = EVENT_RST + 1,
	[RTE_TCP_RST_FLAG | RTE_TCP_ACK_FLAG] = EVENT_RST + 1,
	[0x1f] = 0,
};

static enum verdict check_tcp(const struct payload *payload, struct inspected *frame)
{
	const struct rte_tcp_hdr *header = (const struct rte_tcp_hdr *)payload->bytes;

	if (unlikely(payload->there < sizeof(*header)))
		return frame->headers.fragment ? VERDICT_DROP_tiny : VERDICT_DROP_short;
	if (unlikely(header->data_off >> 4 < 5 || (header->data_off >> 4) * 4u > payload->length))
		return frame->headers.fragment ? VERDICT_DROP_tiny : VERDICT_DROP_transport;
	frame->event = (uint8_t)inspect_tcp_event(header->tcp_flags);
	return likely(frame->event < EVENTS) ? VERDICT_FLOW : VERDICT_DROP_transport;
}

static enum verdict check_udp(const struct payload *payload, struct inspected *frame)
{
	const struct rte_udp_hdr *header = (const struct rte_udp_hdr *)payload->bytes;
	uint32_t length;

	if (unlikely(payload->there < sizeof(*header)))
		return frame->headers.fragment ? VERDICT_DROP_tiny : VERDICT_DROP_short;
	length = rte_be_to_cpu_16(header->dgram_len);
	if (unlikely(length < sizeof(*header) || (length > payload->length && !frame->headers.fragment)))
		return VERDICT_DROP_transport;
	return VERDICT_FLOW;
}

static enum verdict query(struct inspected *frame, enum event event, uint8_t type)
{
	frame->event = event;
	frame->query = type;
	return VERDICT_FLOW;
}

static enum verdict check_icmp4(const struct payload *payload, struct inspected *frame)
{
	if (payload->there < ICMP_LEAST)
		return frame->headers.fragment ? VERDICT_DROP_tiny : VERDICT_DROP_short;
	switch (payload->bytes[0]) {
	case ICMP_ECHO:
	case ICMP_TIMESTAMP:
		return query(frame, EVENT_QUERY, payload->bytes[0]);
	case ICMP_ECHOREPLY:
		return query(frame, EVENT_ANSWER, ICMP_ECHO);
	case ICMP_TIMESTAMPREPLY:
		return query(frame, EVENT_ANSWER, ICMP_TIMESTAMP);
	case ICMP_DEST_UNREACH:
	case ICMP_TIME_EXCEEDED:
	case ICMP_PARAMETERPROB:
		return frame->headers.embedded != 0 ? VERDICT_ERROR : VERDICT_DROP_icmp;
	}
	return VERDICT_DROP_icmp;
}

static bool link_local(const uint8_t *address)
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

static bool unspecified(const uint8_t *address)
{
	static const uint8_t zero[16];

	return memcmp(address, zero, sizeof(zero)) == 0;
}

/* RFC 4890, 4.3: what a firewall has to let through, and with which signs that it comes from this link. */
static enum verdict check_icmp6(const struct rte_ipv6_hdr *ip, const struct payload *payload, struct inspected *frame)
{
	const uint8_t *source = frame->headers.source;
	bool whole = frame->headers.fragment == FRAGMENT_NONE;

	if (payload->there < ICMP_LEAST)
		return whole ? VERDICT_DROP_short : VERDICT_DROP_tiny;
	switch (payload->bytes[0]) {
	case ICMP6_ECHO_REQUEST:
		return query(frame, EVENT_QUERY, ICMP6_ECHO_REQUEST);
	case ICMP6_ECHO_REPLY:
		return query(frame, EVENT_ANSWER, ICMP6_ECHO_REQUEST);
	case ICMP6_DST_UNREACH:
	case ICMP6_PACKET_TOO_BIG:
	case ICMP6_TIME_EXCEEDED:
	case ICMP6_PARAM_PROB:
		return frame->headers.embedded != 0 ? VERDICT_ERROR : VERDICT_DROP_icmp;
	case ND_ROUTER_SOLICIT:
	case ND_ROUTER_ADVERT:
	case ND_NEIGHBOR_SOLICIT:
	case ND_NEIGHBOR_ADVERT:
	case ND_REDIRECT:
		return whole && ip->hop_limits == HOP_LIMIT_ND && payload->bytes[1] == 0 ? VERDICT_PASS
											 : VERDICT_DROP_neighbour;
	case MLD_LISTENER_QUERY:
	case MLD_LISTENER_REPORT:
	case MLD_LISTENER_REDUCTION:
	case MLD2_REPORT:
		return whole && ip->hop_limits == HOP_LIMIT_MLD && (link_local(source) || unspecified(source))
			       ? VERDICT_PASS
			       : VERDICT_DROP_neighbour;
	}
	return VERDICT_DROP_icmp;
}

static enum verdict check_payload(const struct payload *payload, struct inspected *frame)
{
	frame->event = EVENT_DATAGRAM;
	switch (frame->headers.protocol) {
	case IPPROTO_TCP:
		return check_tcp(payload, frame);
	case IPPROTO_UDP:
		return check_udp(payload, frame);
	case IPPROTO_ICMP: /* each of these in the other's IP */
	case IPPROTO_ICMPV6:
		return VERDICT_DROP_icmp;
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
	case IPPROTO_DCCP:
		if (!frame->headers.has_ports)
			return frame->headers.fragment ? VERDICT_DROP_tiny : VERDICT_DROP_short;
	}
	return VERDICT_FLOW;
}

/* The place of a fragment; returns whether one can be there. */
static bool place_fragment(struct inspected *frame, uint32_t offset, uint32_t length, bool more)
{
	frame->first = offset / 8;
	frame->end = (offset + length + 7) / 8;
	return length > 0 && offset + length <= DATAGRAM_MOST && (!more || length % 8 == 0);
}

/* ------- IPv4 ------- */

static bool martian4(const struct rte_ipv4_hdr *header)
{
	uint32_t source = rte_be_to_cpu_32(header->src_addr), destination = rte_be_to_cpu_32(header->dst_addr);

	/* 0.0.0.0 is who asks for an address (DHCP). */
	return (source >> 24 == 0 && source != 0) || source >> 24 == IN_LOOPBACKNET || source >= 0xe0000000 ||
	       destination >> 24 == 0 || destination >> 24 == IN_LOOPBACKNET || source == destination;
}

/* Of a known length it is a few additions. */
static bool sound_checksum(const struct rte_ipv4_hdr *header, uint32_t length)
{
	if (likely(length == sizeof(*header)))
		return rte_raw_cksum(header, sizeof(*header)) == 0xffff;
	return rte_raw_cksum(header, length) == 0xffff;
}

static bool sound_options(const uint8_t *option, const uint8_t *end)
{
	while (option < end && *option != RTE_IPV4_HDR_OPT_EOL) {
		if (*option == RTE_IPV4_HDR_OPT_NOP) {
			option++;
			continue;
		}
		if (end - option < OPTION_LENGTH_LEAST || option[1] < OPTION_LENGTH_LEAST || option[1] > end - option)
			return false;
		if (*option == IPOPT_LSRR || *option == IPOPT_SSRR)
			return false;
		option += option[1];
	}
	return true;
}

static enum verdict check4(const uint8_t *bytes, uint32_t size, uint32_t length, struct inspected *frame)
{
	const struct rte_ipv4_hdr *header = (const struct rte_ipv4_hdr *)bytes;
	uint32_t header_length, total, fragment;
	struct payload payload;

	if (unlikely(size < sizeof(*header)))
		return VERDICT_DROP_short;
	if (unlikely(header->version_ihl >> 4 != 4))
		return VERDICT_DROP_version;
	header_length = rte_ipv4_hdr_len(header);
	total = rte_be_to_cpu_16(header->total_length);
	if (unlikely(header_length < sizeof(*header) || total < header_length || total > length))
		return VERDICT_DROP_length;
	if (unlikely(size < header_length))
		return VERDICT_DROP_short;
	if (unlikely(!sound_checksum(header, header_length)))
		return VERDICT_DROP_checksum;
	if (unlikely(martian4(header)))
		return VERDICT_DROP_martian;
	if (unlikely(header_length > sizeof(*header) && !sound_options(bytes + sizeof(*header), bytes + header_length)))
		return VERDICT_DROP_options;
	payload.bytes = bytes + header_length;
	payload.length = total - header_length;
	payload.there = RTE_MIN(total, size) - header_length;
	frame->transport = (uint8_t)header_length;
	if (unlikely(frame->headers.fragment != FRAGMENT_NONE)) {
		fragment = rte_be_to_cpu_16(header->fragment_offset);
		if (!place_fragment(frame, (fragment & RTE_IPV4_HDR_OFFSET_MASK) * 8, payload.length,
				    fragment & RTE_IPV4_HDR_MF_FLAG))
			return VERDICT_DROP_length;
		if (frame->headers.fragment == FRAGMENT_LATER)
			return VERDICT_LATER;
	}
	if (frame->headers.protocol == IPPROTO_ICMP)
		return check_icmp4(&payload, frame);
	return check_payload(&payload, frame);
}

/* ------- IPv6 ------- */

static bool martian6(const struct headers *headers)
{
	static const uint8_t loopback[16] = {[15] = 1};

	return headers->source[0] == 0xff || unspecified(headers->destination) || inspect_is_mapped(headers->source) ||
	       inspect_is_mapped(headers->destination) || memcmp(headers->source, loopback, sizeof(loopback)) == 0 ||
	       memcmp(headers->destination, loopback, sizeof(loopback)) == 0 ||
	       memcmp(headers->source, headers->destination, sizeof(loopback)) == 0;
}

/*
 * Pass over the extension headers, which parse_frame() has found to end within the copy.  RFC 8200, 4.1: hop-by-hop
 * options stand first, and each occurs once but for destination options, of which there may be two.
 */
static enum verdict pass_extensions(uint8_t next, struct payload *payload, struct inspected *frame)
{
	unsigned options = 0;
	uint64_t seen = 0;

	for (;;) {
		const uint8_t *bytes = payload->bytes;
		uint32_t length = 8;

		/* Of a later fragment that is what its sender says lies behind, which nobody looks at. */
		if (next == frame->headers.protocol && frame->headers.fragment != FRAGMENT_LATER)
			return VERDICT_FLOW;
		if (payload->there < length)
			return VERDICT_DROP_extension;
		switch (next) {
		case IPPROTO_HOPOPTS:
			if (seen != 0 || options > 0)
				return VERDICT_DROP_extension;
			length = (bytes[1] + 1u) * 8;
			break;
		case IPPROTO_DSTOPTS:
			if (++options > 2)
				return VERDICT_DROP_extension;
			length = (bytes[1] + 1u) * 8;
			break;
		case IPPROTO_ROUTING:
			if (bytes[2] == ROUTING_TYPE_0)
				return VERDICT_DROP_extension;
			length = (bytes[1] + 1u) * 8;
			break;
		case IPPROTO_AH:
			length = (bytes[1] + 2u) * 4;
			break;
		case IPPROTO_FRAGMENT:
			break;
		default: /* mobility, HIP and SHIM6 are not passed over by a firewall that looks at ports behind them */
			return VERDICT_DROP_extension;
		}
		if (next != IPPROTO_DSTOPTS && (seen & UINT64_C(1) << next))
			return VERDICT_DROP_extension;
		seen |= UINT64_C(1) << next;
		if (length > payload->there)
			return VERDICT_DROP_extension;
		payload->bytes += length;
		payload->length -= length;
		payload->there -= length;
		if (next == IPPROTO_FRAGMENT && frame->headers.fragment != FRAGMENT_NONE) {
			uint32_t place = (uint32_t)bytes[2] << 8 | bytes[3];

			if (!place_fragment(frame, place & 0xfff8, payload->length, place & 1))
				return VERDICT_DROP_length;
			if (frame->headers.fragment == FRAGMENT_LATER)
				return VERDICT_LATER;
		}
		next = bytes[0];
	}
}

static enum verdict check6(const uint8_t *bytes, uint32_t size, uint32_t length, struct inspected *frame)
{
	const struct rte_ipv6_hdr *header = (const struct rte_ipv6_hdr *)bytes;
	enum verdict verdict;
	struct payload payload;

	if (unlikely(size < sizeof(*header)))
		return VERDICT_DROP_short;
	if (unlikely(bytes[0] >> 4 != 6))
		return VERDICT_DROP_version;
	payload.bytes = bytes + sizeof(*header);
	payload.length = rte_be_to_cpu_16(header->payload_len);
	if (unlikely(payload.length > length - sizeof(*header)))
		return VERDICT_DROP_length;
	payload.there = RTE_MIN(payload.length, size - (uint32_t)sizeof(*header));
	frame->transport = sizeof(*header);
	if (unlikely(martian6(&frame->headers)))
		return VERDICT_DROP_martian;
	if (unlikely(frame->headers.unread))
		return VERDICT_DROP_extension;
	if (unlikely(header->proto != frame->headers.protocol || frame->headers.fragment != FRAGMENT_NONE)) {
		verdict = pass_extensions(header->proto, &payload, frame);
		if (verdict != VERDICT_FLOW)
			return verdict;
		frame->transport = (uint8_t)(payload.bytes - bytes);
	}
	if (frame->headers.protocol == IPPROTO_ICMPV6) {
		verdict = check_icmp6(header, &payload, frame);
		if (verdict == VERDICT_PASS)
			return verdict;
	} else {
		verdict = check_payload(&payload, frame);
	}
	/* Only neighbour discovery and the like are sent without an address. */
	return unlikely(verdict <= VERDICT_LATER && unspecified(frame->headers.source)) ? VERDICT_DROP_martian
											: verdict;
}

/* A tag with VLAN 0 has a priority alone (802.1Q, table 9-2), and what answers such a frame need not have one. */
static void leave_priorities_out(struct headers *headers)
{
	if (headers->inner_vlan == HEADERS_VLAN)
		headers->inner_vlan = 0;
	if (headers->vlan != HEADERS_VLAN)
		return;
	headers->vlan = headers->inner_vlan;
	headers->inner_vlan = 0;
}

enum verdict inspect(const uint8_t *bytes, uint32_t size, uint32_t length, struct inspected *frame)
{
	unsigned at = RTE_ETHER_HDR_LEN;
	enum verdict verdict;

	parse_frame(bytes, size, &frame->headers);
	frame->query = 0;
	frame->first = 0;
	if (unlikely(size < at))
		return VERDICT_DROP_short;
	if (unlikely(frame->headers.vlan != 0)) {
		at += sizeof(struct rte_vlan_hdr) * (frame->headers.inner_vlan != 0 ? 2 : 1);
		leave_priorities_out(&frame->headers);
	}
	if (unlikely(size < at))
		return VERDICT_DROP_short;
	if (likely(frame->headers.ethertype == RTE_ETHER_TYPE_IPV4))
		verdict = check4(bytes + at, size - at, length - at, frame);
	else if (frame->headers.ethertype == RTE_ETHER_TYPE_IPV6)
		verdict = check6(bytes + at, size - at, length - at, frame);
	else
		return frame->headers.ethertype == RTE_ETHER_TYPE_ARP ? VERDICT_PASS : VERDICT_DROP_type;
	/* Behind more than two tags its header is somewhere else. */
	return unlikely(frame->headers.network != at && verdict <= VERDICT_LATER) ? VERDICT_DROP_type : verdict;
}

/* What a quoted message does to its flow; an error about an error has none. */
static bool quoted_query(uint8_t type, bool six, struct inspected *frame)
{
	static const uint8_t queries[2][2] = {{ICMP_ECHO, ICMP_TIMESTAMP}, {ICMP6_ECHO_REQUEST, ICMP6_ECHO_REQUEST}};
	static const uint8_t answers[2][2] = {{ICMP_ECHOREPLY, ICMP_TIMESTAMPREPLY},
					      {ICMP6_ECHO_REPLY, ICMP6_ECHO_REPLY}};

	for (unsigned i = 0; i < 2; i++)
		if (type == queries[six][i] || type == answers[six][i]) {
			query(frame, type == queries[six][i] ? EVENT_QUERY : EVENT_ANSWER, queries[six][i]);
			return true;
		}
	return false;
}

/* What follows a datagram whose header holds is padding. */
static uint32_t datagram_end(const uint8_t *bytes, const struct headers *headers)
{
	const uint8_t *ip = bytes + headers->network;

	return headers->network + (headers->family == HEADERS_IPV6
					   ? (ip[4] << 8 | ip[5]) + (uint32_t)sizeof(struct rte_ipv6_hdr)
					   : (uint32_t)(ip[2] << 8 | ip[3]));
}

bool inspect_quoted(const uint8_t *bytes, uint32_t size, const struct inspected *error, struct inspected *quoted)
{
	const uint32_t inner = error->headers.embedded;
	const bool six = error->headers.family == HEADERS_IPV6;
	const struct headers *headers = &quoted->headers;

	*quoted = *error;
	quoted->event = EVENT_DATAGRAM;
	size = RTE_MIN(size, datagram_end(bytes, &error->headers));
	/* Of what does not hold the headers stay those of the error, whose source is not its destination. */
	parse_embedded(bytes, size, &quoted->headers);
	if (headers->fragment == FRAGMENT_LATER || headers->unread ||
	    memcmp(headers->source, error->headers.destination, sizeof(headers->source)) != 0)
		return false;
	switch (headers->protocol) {
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6: {
		const uint32_t at = inner + (six ? sizeof(struct rte_ipv6_hdr) : (bytes[inner] & 15u) * 4);

		if (six && bytes[inner + offsetof(struct rte_ipv6_hdr, proto)] != IPPROTO_ICMPV6)
			return false;
		return at + ICMP_LEAST <= size && quoted_query(bytes[at], six, quoted);
	}
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
	case IPPROTO_DCCP:
		return headers->has_ports;
	}
	return true;
}
