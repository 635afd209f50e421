/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole TCP segments, UDP datagrams and ICMP messages with sound checksums, for tests of functions that change them.
 */
#ifndef TAILRACE_TEST_SEGMENTS_H
#define TAILRACE_TEST_SEGMENTS_H

#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include <netinet/in.h>

#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

enum { SYN = 2, ACK = 16, FIN = 1, RST = 4, MORE = 0x2000 };

static inline struct rte_ipv4_hdr *ip_of(struct frame *frame)
{
	return (struct rte_ipv4_hdr *)(frame->bytes + 14);
}

static inline struct rte_ipv6_hdr *ip6_of(struct frame *frame)
{
	return (struct rte_ipv6_hdr *)(frame->bytes + 14);
}

static inline bool is_six(const struct frame *frame)
{
	return frame->bytes[14] >> 4 == 6;
}

static inline uint8_t protocol_of(struct frame *frame)
{
	return is_six(frame) ? ip6_of(frame)->proto : ip_of(frame)->next_proto_id;
}

static inline uint8_t *payload_of(struct frame *frame)
{
	return is_six(frame) ? (uint8_t *)(ip6_of(frame) + 1) : (uint8_t *)(ip_of(frame) + 1);
}

/* Where the checksum of what IP carries lies. */
static inline uint8_t *checksum_of(struct frame *frame)
{
	switch (protocol_of(frame)) {
	case IPPROTO_TCP:
		return payload_of(frame) + offsetof(struct rte_tcp_hdr, cksum);
	case IPPROTO_UDP:
		return payload_of(frame) + offsetof(struct rte_udp_hdr, dgram_cksum);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return payload_of(frame) + offsetof(struct rte_icmp_hdr, icmp_cksum);
	}
	return NULL;
}

/* Write the checksums. */
static inline void finish(struct frame *frame)
{
	uint16_t sum = 0;

	if (checksum_of(frame) != NULL)
		memcpy(checksum_of(frame), &sum, sizeof(sum));
	if (is_six(frame)) {
		sum = rte_ipv6_udptcp_cksum(ip6_of(frame), payload_of(frame));
	} else {
		ip_of(frame)->hdr_checksum = 0;
		ip_of(frame)->hdr_checksum = rte_ipv4_cksum(ip_of(frame));
		sum = protocol_of(frame) == IPPROTO_ICMP
			      ? (uint16_t)~rte_raw_cksum(payload_of(frame), ntohs(ip_of(frame)->total_length) - 20)
			      : rte_ipv4_udptcp_cksum(ip_of(frame), payload_of(frame));
	}
	if (checksum_of(frame) != NULL)
		memcpy(checksum_of(frame), &sum, sizeof(sum));
}

static inline void add_tcp(struct frame *frame, uint16_t from, uint16_t to, uint8_t flags)
{
	frame_add16(frame, from);
	frame_add16(frame, to);
	frame_add32(frame, 1);
	frame_add32(frame, 1);
	frame_add8(frame, 0x50);
	frame_add8(frame, flags);
	frame_add16(frame, 1000);
	frame_add32(frame, 0);
}

static inline struct frame tcp(uint32_t source, uint16_t from, uint32_t destination, uint16_t to, uint8_t flags)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_TCP, 20, 0, 0);
	add_tcp(&frame, from, to, flags);
	finish(&frame);
	return frame;
}

/* Of IPv6, the last four bytes of addresses are given, as frame_ipv6() has it. */
static inline struct frame tcp6(uint32_t source, uint16_t from, uint32_t destination, uint16_t to, uint8_t flags)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, source, destination, IPPROTO_TCP, 20);
	add_tcp(&frame, from, to, flags);
	finish(&frame);
	return frame;
}

static inline struct frame udp(uint32_t source, uint16_t from, uint32_t destination, uint16_t to)
{
	struct frame frame;

	frame_udp4(&frame, source, destination, from, to);
	finish(&frame);
	return frame;
}

static inline struct frame udp6(uint32_t source, uint16_t from, uint32_t destination, uint16_t to)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, source, destination, IPPROTO_UDP, 8);
	frame_ports(&frame, from, to);
	finish(&frame);
	return frame;
}

static inline struct frame icmp(uint32_t source, uint32_t destination, uint8_t type, uint16_t identifier)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8, 0, 0);
	frame_add16(&frame, type << 8);
	frame_add16(&frame, 0);
	frame_add16(&frame, identifier);
	frame_add16(&frame, 1);
	finish(&frame);
	return frame;
}

/* Destination unreachable or, of IPv6, packet too big, with so many bytes of what a frame carries. */
static inline struct frame error(uint32_t source, uint32_t destination, const struct frame *about, unsigned quoted)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	if (is_six(about))
		frame_ipv6(&frame, source, destination, IPPROTO_ICMPV6, 8 + quoted);
	else
		frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8 + quoted, 0, 0);
	frame_add16(&frame, is_six(about) ? 2 << 8 : 3 << 8 | 4);
	frame_add16(&frame, 0);
	frame_add32(&frame, 1400);
	frame_add(&frame, about->bytes + 14, quoted);
	finish(&frame);
	return frame;
}

/* Of UDP: a fragment, of which the first one has no checksum. */
static inline struct frame fragment(uint32_t source, uint32_t destination, uint16_t place)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_UDP, 16, 77, place);
	frame_ports(&frame, 2000, 53);
	frame_ports(&frame, 0, 0);
	ip_of(&frame)->hdr_checksum = rte_ipv4_cksum(ip_of(&frame));
	((struct rte_udp_hdr *)payload_of(&frame))->dgram_cksum = 0;
	return frame;
}

/* Of TCP: a first fragment that ends before the flags (RFC 1858, 2.1). */
static inline struct frame tiny(uint32_t source, uint32_t destination)
{
	struct frame frame = tcp(source, 1000, destination, 80, SYN);

	frame.length -= 12;
	ip_of(&frame)->total_length = htons(28);
	ip_of(&frame)->fragment_offset = htons(MORE);
	ip_of(&frame)->hdr_checksum = 0;
	ip_of(&frame)->hdr_checksum = rte_ipv4_cksum(ip_of(&frame));
	return frame;
}

/* The IPv4 header that an error quotes. */
static inline const struct rte_ipv4_hdr *quoted_in(struct frame *frame)
{
	return (const struct rte_ipv4_hdr *)(payload_of(frame) + 8);
}

static inline void check_sums(struct frame *frame)
{
	const uint8_t protocol = protocol_of(frame), *payload = payload_of(frame);
	uint32_t sum;

	if (is_six(frame)) {
		sum = rte_ipv6_phdr_cksum(ip6_of(frame), 0) + rte_raw_cksum(payload, ntohs(ip6_of(frame)->payload_len));
		assert_int_equal((sum >> 16) + (sum & 0xffff), 0xffff);
		return;
	}
	assert_int_equal(rte_raw_cksum(ip_of(frame), 20), 0xffff);
	sum = rte_raw_cksum(payload, ntohs(ip_of(frame)->total_length) - 20);
	if (protocol == IPPROTO_ICMP) {
		assert_int_equal(sum, 0xffff);
	} else if (protocol != IPPROTO_UDP || ((const struct rte_udp_hdr *)payload)->dgram_cksum != 0) {
		sum += rte_ipv4_phdr_cksum(ip_of(frame), 0);
		assert_int_equal((sum >> 16) + (sum & 0xffff), 0xffff);
	}
}

#endif
