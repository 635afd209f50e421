/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include <rte_arp.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "balancer_frames.h"

enum {
	TTL = 64,
	HOP_LIMIT_ND = 255,
	OPTION_SOURCE = 1, /* RFC 4861, 4.6.1 */
	OPTION_TARGET = 2,
	SOLICITED_OVERRIDE = 0x60, /* RFC 4861, 4.4 */
	WINDOW = 1024,
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

struct echo {
	struct rte_icmp_hdr header;
	uint32_t nonce;
};

/* ------- reading ------- */

static void set4(struct balancer_address *address, const void *bytes)
{
	*address = (struct balancer_address){.family = HEADERS_IPV4};
	memcpy(address->bytes, bytes, 4);
}

static void set6(struct balancer_address *address, const void *bytes)
{
	*address = (struct balancer_address){.family = HEADERS_IPV6};
	memcpy(address->bytes, bytes, 16);
}

static bool read_arp(const uint8_t *head, uint32_t size, struct balancer_neighbour *neighbour)
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
static bool read_discovery(const uint8_t *head, uint32_t size, struct balancer_neighbour *neighbour)
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

bool balancer_read_neighbour(const uint8_t *head, uint32_t size, struct balancer_neighbour *neighbour)
{
	const struct rte_ether_hdr *ethernet = (const struct rte_ether_hdr *)head;

	if (size < sizeof(*ethernet))
		return false;
	if (ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_ARP))
		return read_arp(head, size, neighbour);
	return ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && read_discovery(head, size, neighbour);
}

bool balancer_frame_asks(const struct balancer_table *table, const uint8_t *head, uint32_t size, uint16_t in)
{
	struct balancer_neighbour neighbour;
	unsigned whose;

	if (!balancer_read_neighbour(head, size, &neighbour))
		return false;
	whose = balancer_table_whose(table, neighbour.target.bytes, neighbour.target.family);
	if (whose == 0)
		return false;
	return table->list[whose].kind == (in == 0 ? BALANCER_VIRTUAL : BALANCER_OWN);
}

void balancer_read_tcp(const uint8_t *head, const struct inspected *frame, struct balancer_segment *segment)
{
	struct rte_tcp_hdr tcp;

	memcpy(&tcp, head + frame->headers.network + frame->transport, sizeof(tcp));
	*segment = (struct balancer_segment){
		.from = rte_be_to_cpu_16(tcp.src_port),
		.to = rte_be_to_cpu_16(tcp.dst_port),
		.sequence = rte_be_to_cpu_32(tcp.sent_seq),
		.acknowledged = rte_be_to_cpu_32(tcp.recv_ack),
		.flags = tcp.tcp_flags,
	};
}

bool balancer_read_echo(const uint8_t *head, uint32_t size, const struct inspected *frame, uint32_t *nonce)
{
	const uint32_t at = frame->headers.network + frame->transport;
	struct echo echo;

	if (size < at + sizeof(echo))
		return false;
	memcpy(&echo, head + at, sizeof(echo));
	*nonce = echo.nonce;
	return true;
}

/* ------- writing ------- */

static void write_ethernet(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac, uint16_t type)
{
	const uint16_t ether_type = rte_cpu_to_be_16(type);

	memcpy(frame, mac, RTE_ETHER_ADDR_LEN);
	memcpy(frame + RTE_ETHER_ADDR_LEN, own->mac, RTE_ETHER_ADDR_LEN);
	memcpy(frame + 2 * RTE_ETHER_ADDR_LEN, &ether_type, sizeof(ether_type));
}

static uint32_t write_arp(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac, uint16_t operation,
			  const uint8_t *source, const uint8_t *target)
{
	struct rte_arp_hdr arp = {
		.arp_hardware = RTE_BE16(RTE_ARP_HRD_ETHER),
		.arp_protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = RTE_ETHER_ADDR_LEN,
		.arp_plen = 4,
		.arp_opcode = rte_cpu_to_be_16(operation),
	};

	write_ethernet(frame, own, mac, RTE_ETHER_TYPE_ARP);
	memcpy(&arp.arp_data.arp_sha, own->mac, RTE_ETHER_ADDR_LEN);
	memcpy(&arp.arp_data.arp_sip, source, 4);
	if (operation == RTE_ARP_OP_REPLY)
		memcpy(&arp.arp_data.arp_tha, mac, RTE_ETHER_ADDR_LEN);
	memcpy(&arp.arp_data.arp_tip, target, 4);
	memcpy(frame + RTE_ETHER_HDR_LEN, &arp, sizeof(arp));
	return RTE_ETHER_HDR_LEN + sizeof(arp);
}

/* The payload, `length` bytes, is there, with a checksum of 0; returns where the checksum is to be written. */
static uint32_t write_ip6(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol,
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

static uint32_t write_ip4(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol,
			  uint16_t length, unsigned checksum)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame + RTE_ETHER_HDR_LEN);
	uint16_t sum;

	*ip = (struct rte_ipv4_hdr){
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16((uint16_t)(sizeof(*ip) + length)),
		.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG),
		.time_to_live = TTL,
		.next_proto_id = protocol,
	};
	memcpy(&ip->src_addr, source, 4);
	memcpy(&ip->dst_addr, target, 4);
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	sum = protocol == IPPROTO_ICMP ? (uint16_t)~rte_raw_cksum(ip + 1, length) : rte_ipv4_udptcp_cksum(ip, ip + 1);
	memcpy((uint8_t *)(ip + 1) + checksum, &sum, sizeof(sum));
	return RTE_ETHER_HDR_LEN + sizeof(*ip) + length;
}

/* Where what IP carries begins. */
static uint8_t *payload_of(uint8_t *frame, uint8_t family)
{
	return frame + RTE_ETHER_HDR_LEN +
	       (family == HEADERS_IPV6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr));
}

/* A probe, whose payload is there. */
static uint32_t write_probe(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct balancer_address *to, uint8_t protocol, uint16_t length, unsigned checksum)
{
	const uint8_t *source = own->addresses[balancer_version(to->family)].bytes;
	const bool six = to->family == HEADERS_IPV6;

	write_ethernet(frame, own, mac, six ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	return six ? write_ip6(frame, source, to->bytes, protocol, TTL, length, checksum)
		   : write_ip4(frame, source, to->bytes, protocol, length, checksum);
}

static uint32_t write_discovery(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
				struct discovery *discovery, const uint8_t *source, const uint8_t *to)
{
	discovery->length = 1;
	memcpy(discovery->mac, own->mac, sizeof(discovery->mac));
	memcpy(payload_of(frame, HEADERS_IPV6), discovery, sizeof(*discovery));
	write_ethernet(frame, own, mac, RTE_ETHER_TYPE_IPV6);
	return write_ip6(frame, source, to, IPPROTO_ICMPV6, HOP_LIMIT_ND, sizeof(*discovery),
			 offsetof(struct discovery, checksum));
}

uint32_t balancer_write_question(uint8_t *frame, const struct balancer_own *own, const struct balancer_address *target)
{
	static const uint8_t everybody[RTE_ETHER_ADDR_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	/* RFC 4291, 2.7.1: those whose addresses end so. */
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff}, mac[RTE_ETHER_ADDR_LEN] = {0x33, 0x33, 0xff};
	struct discovery discovery = {.type = ND_NEIGHBOR_SOLICIT, .option = OPTION_SOURCE};
	const uint8_t *source = own->addresses[balancer_version(target->family)].bytes;

	if (target->family == HEADERS_IPV4)
		return write_arp(frame, own, everybody, RTE_ARP_OP_REQUEST, source, target->bytes);
	memcpy(discovery.target, target->bytes, sizeof(discovery.target));
	memcpy(group + 13, target->bytes + 13, 3);
	memcpy(mac + 3, target->bytes + 13, 3);
	return write_discovery(frame, own, mac, &discovery, source, group);
}

uint32_t balancer_write_answer(uint8_t *frame, const struct balancer_own *own,
			       const struct balancer_neighbour *question)
{
	struct discovery discovery = {.type = ND_NEIGHBOR_ADVERT, .flags = SOLICITED_OVERRIDE, .option = OPTION_TARGET};

	if (question->target.family == HEADERS_IPV4)
		return write_arp(frame, own, question->mac, RTE_ARP_OP_REPLY, question->target.bytes,
				 question->source.bytes);
	memcpy(discovery.target, question->target.bytes, sizeof(discovery.target));
	return write_discovery(frame, own, question->mac, &discovery, question->target.bytes, question->source.bytes);
}

uint32_t balancer_write_tcp(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct balancer_address *to, const struct balancer_segment *segment)
{
	const struct rte_tcp_hdr tcp = {
		.src_port = rte_cpu_to_be_16(segment->from),
		.dst_port = rte_cpu_to_be_16(segment->to),
		.sent_seq = rte_cpu_to_be_32(segment->sequence),
		.recv_ack = rte_cpu_to_be_32(segment->acknowledged),
		.data_off = sizeof(tcp) / 4 << 4,
		.tcp_flags = segment->flags,
		.rx_win = RTE_BE16(WINDOW),
	};

	memcpy(payload_of(frame, to->family), &tcp, sizeof(tcp));
	return write_probe(frame, own, mac, to, IPPROTO_TCP, sizeof(tcp), offsetof(struct rte_tcp_hdr, cksum));
}

uint32_t balancer_write_echo(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			     const struct balancer_address *to, uint16_t identifier, uint32_t nonce)
{
	const bool six = to->family == HEADERS_IPV6;
	const struct echo echo = {
		.header = {.icmp_type = six ? ICMP6_ECHO_REQUEST : ICMP_ECHO,
			   .icmp_ident = rte_cpu_to_be_16(identifier),
			   .icmp_seq_nb = (uint16_t)nonce},
		.nonce = nonce,
	};

	memcpy(payload_of(frame, to->family), &echo, sizeof(echo));
	return write_probe(frame, own, mac, to, six ? IPPROTO_ICMPV6 : IPPROTO_ICMP, sizeof(echo),
			   offsetof(struct rte_icmp_hdr, icmp_cksum));
}
