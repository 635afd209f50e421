/* SPDX-License-Identifier: Apache-2.0
 *
 * A long TCP segment with everything left to others, as a Linux guest sends it, and the check that what became of it is
 * right.  Include cmocka's headers first.
 */
#ifndef TAILRACE_TEST_LONG_SEGMENT_H
#define TAILRACE_TEST_LONG_SEGMENT_H

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "test/ring_pair.h"
#include "vring/offload.h"

enum {
	ALL = OFFLOAD_CHECKSUM | OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_ECN,
	PAYLOAD = 10000,
	SEGMENT = 1448,
	TIMESTAMP = 12, /* bytes of TCP options */
};

/* A long segment as a Linux guest sends it, and the network header that goes with it. */
struct segment {
	struct virtio_net_hdr offload;
	uint32_t network, tcp, headers, length;
	uint8_t bytes[70000];
};

static inline void put_word(uint8_t *at, uint16_t word)
{
	word = rte_cpu_to_be_16(word);
	memcpy(at, &word, sizeof(word));
}

static inline struct segment long_segment(bool ipv6, unsigned tags, uint32_t payload)
{
	struct segment segment = {.network = RTE_ETHER_HDR_LEN + 4 * tags};
	struct rte_tcp_hdr tcp = {
		.sent_seq = rte_cpu_to_be_32(UINT32_MAX - 2000),
		.data_off = (sizeof(tcp) + TIMESTAMP) / 4 << 4,
		.tcp_flags = RTE_TCP_ACK_FLAG | RTE_TCP_PSH_FLAG | RTE_TCP_FIN_FLAG | RTE_TCP_CWR_FLAG,
	};
	uint8_t *at = segment.bytes + 12;

	for (unsigned i = 0; i < 12; i++)
		segment.bytes[i] = 2 + i;
	for (unsigned i = 0; i < tags; i++, at += 4)
		put_word(at, RTE_ETHER_TYPE_VLAN);
	put_word(at, ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	segment.tcp = segment.network + (ipv6 ? 40 : 20);
	segment.headers = segment.tcp + sizeof(tcp) + TIMESTAMP;
	segment.length = segment.headers + payload;
	if (ipv6) {
		struct rte_ipv6_hdr ip = {
			.vtc_flow = rte_cpu_to_be_32(6u << 28),
			.payload_len = rte_cpu_to_be_16(segment.length - segment.tcp),
			.proto = IPPROTO_TCP,
		};

		memset(&ip.src_addr, 0x11, 16);
		memset(&ip.dst_addr, 0x22, 16);
		memcpy(segment.bytes + segment.network, &ip, sizeof(ip));
		tcp.cksum = rte_ipv6_phdr_cksum(&ip, 0);
	} else {
		struct rte_ipv4_hdr ip = {
			.version_ihl = 0x45,
			.total_length = rte_cpu_to_be_16(segment.length - segment.network),
			.packet_id = rte_cpu_to_be_16(65534),
			.next_proto_id = IPPROTO_TCP,
			.src_addr = 0x01020304,
			.dst_addr = 0x05060708,
		};

		ip.hdr_checksum = rte_ipv4_cksum(&ip);
		memcpy(segment.bytes + segment.network, &ip, sizeof(ip));
		tcp.cksum = rte_ipv4_phdr_cksum(&ip, 0);
	}
	memcpy(segment.bytes + segment.tcp, &tcp, sizeof(tcp));
	for (uint32_t i = segment.headers; i < segment.length; i++)
		segment.bytes[i] = i * 13 + (i >> 8);
	segment.offload = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = ipv6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4,
		.hdr_len = 17, /* guests are known to be careless with it */
		.gso_size = SEGMENT,
		.csum_start = segment.tcp,
		.csum_offset = offsetof(struct rte_tcp_hdr, cksum),
	};
	return segment;
}

/* Offer the frame, its header in front, in parts of at most `part` bytes, from `place` on. */
static inline void send_segment_at(struct simulated_guest *guest, const struct segment *segment, uint64_t place,
				   uint32_t part)
{
	const uint32_t total = HEADER + segment->length;
	uint16_t head = 0;

	memset(guest_at(guest, place), 0, HEADER);
	memcpy(guest_at(guest, place), &segment->offload, sizeof(segment->offload));
	memcpy(guest_at(guest, place + HEADER), segment->bytes, segment->length);
	for (uint32_t at = 0; at < total; at += part) {
		const uint32_t length = RTE_MIN(part, total - at);
		uint16_t slot = guest_desc(guest, place + at, length, at + length < total ? VRING_DESC_F_NEXT : 0);

		if (at == 0)
			head = slot;
	}
	guest_offer(guest, head);
}

static inline void send_segment(struct simulated_guest *guest, const struct segment *segment, uint32_t part)
{
	send_segment_at(guest, segment, FRAMES, part);
}

/* Is every checksum of this TCP frame right, by DPDK's own code? */
static inline void expect_right_checksums(const uint8_t *frame, const struct segment *segment, bool ipv6)
{
	const void *ip = frame + segment->network, *tcp = frame + segment->tcp;

	if (ipv6) {
		assert_int_equal(rte_ipv6_udptcp_cksum(ip, tcp), 0);
	} else {
		assert_int_equal(rte_ipv4_udptcp_cksum(ip, tcp), 0);
		assert_int_equal((uint16_t)~rte_raw_cksum(ip, 20), 0);
	}
}

#endif
