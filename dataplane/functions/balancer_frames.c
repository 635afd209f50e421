/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "balancer_frames.h"

enum { TTL = 64, WINDOW = 1024 };

struct echo {
	struct rte_icmp_hdr header;
	uint32_t nonce;
};

/* ------- reading ------- */

bool balancer_frame_asks(const struct balancer_table *table, const uint8_t *head, uint32_t size, uint16_t in)
{
	struct neighbour neighbour;
	unsigned whose;

	if (!neighbour_read(head, size, &neighbour))
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

/* Where what IP carries begins. */
static uint8_t *payload_of(uint8_t *frame, uint8_t family)
{
	return frame + RTE_ETHER_HDR_LEN +
	       (family == HEADERS_IPV6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr));
}

/* A probe, whose payload is there. */
static uint32_t write_probe(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct ip_address *to, uint8_t protocol, uint16_t length, unsigned checksum)
{
	const uint8_t *source = own->station.addresses[ip_version(to->family)].bytes;
	const bool six = to->family == HEADERS_IPV6;

	station_write_ethernet(frame, &own->station, mac, six ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	return six ? station_write_ip6(frame, source, to->bytes, protocol, TTL, length, checksum)
		   : station_write_ip4(frame, source, to->bytes, protocol, TTL, length, checksum);
}

uint32_t balancer_write_tcp(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct ip_address *to, const struct balancer_segment *segment)
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
			     const struct ip_address *to, uint16_t identifier, uint32_t nonce)
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
