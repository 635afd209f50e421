/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "firewall_reject.h"
#include "function.h"

enum {
	HEADERS_MOST = RTE_ETHER_HDR_LEN + 2 * sizeof(struct rte_vlan_hdr), /* of layer 2 */
	HOPS = 64,
	ICMP_HEADER = 8,
	PRECEDENCE = 0xc0, /* RFC 1812, 4.3.2.5: of the network's own control */
	TCP_OFFSET = 5 << 4,
};

/* A frame of which no more than that is looked at or quoted: a copy, because who shares it may change it meanwhile. */
struct rejected {
	uint8_t bytes[HEADERS_MOST + FIREWALL_QUOTE_IPV6];
	uint32_t size;
	unsigned network, transport;
	bool six;
	uint8_t protocol;
};

static uint32_t read_frame(struct rejected *rejected, const struct rte_mbuf *mbuf, const struct inspected *frame)
{
	const bool six = frame->headers.family == HEADERS_IPV6;
	const unsigned network = frame->headers.network;
	uint32_t most = network + (six ? FIREWALL_QUOTE_IPV6 : FIREWALL_QUOTE_IPV4);
	const void *bytes;

	rejected->size = RTE_MIN(most, mbuf->pkt_len);
	rejected->network = network;
	rejected->transport = network + frame->transport;
	rejected->six = six;
	rejected->protocol = frame->headers.protocol;
	bytes = rte_pktmbuf_read(mbuf, 0, rejected->size, rejected->bytes);
	if (bytes != rejected->bytes)
		memcpy(rejected->bytes, bytes, rejected->size);
	return rejected->size;
}

/*
 * RFC 1122, 3.2.2; RFC 4443, 2.4 (e): no error is sent about what went to many, or came from nobody or from many.
 * Errors, fragments but for the first, and segments that do not begin a connection are not looked up in the rules.
 */
static bool may_be_answered(const struct rejected *rejected)
{
	const uint8_t *bytes = rejected->bytes, *ip = bytes + rejected->network;

	if ((bytes[0] | bytes[RTE_ETHER_ADDR_LEN]) & 1) /* the group bit */
		return false;
	if (rejected->six)
		return ip[8] != 0xff && ip[24] != 0xff;
	return ip[12] != 0 && ip[12] != IN_LOOPBACKNET && ip[12] < 224 && ip[16] < 224;
}

/* ------- the answer's headers ------- */

/* The MAC addresses the other way round, and the tags and the type as they are. */
static uint8_t *put_layer2(uint8_t *to, const struct rejected *rejected)
{
	const uint8_t *bytes = rejected->bytes;

	memcpy(to, bytes + RTE_ETHER_ADDR_LEN, RTE_ETHER_ADDR_LEN);
	memcpy(to + RTE_ETHER_ADDR_LEN, bytes, RTE_ETHER_ADDR_LEN);
	memcpy(to + 2 * RTE_ETHER_ADDR_LEN, bytes + 2 * RTE_ETHER_ADDR_LEN, rejected->network - 2 * RTE_ETHER_ADDR_LEN);
	return to + rejected->network;
}

/* It goes back to where the frame came from, as if from where that was going: a firewall has no address. */
static uint8_t *put_ip(uint8_t *to, const struct rejected *rejected, uint8_t protocol, uint8_t precedence,
		       uint32_t payload)
{
	const uint8_t *ip = rejected->bytes + rejected->network;
	struct rte_ipv4_hdr four = {
		.version_ihl = 0x45,
		.type_of_service = precedence,
		.total_length = rte_cpu_to_be_16((uint16_t)(sizeof(four) + payload)),
		.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG), /* RFC 6864: so it needs no identification */
		.time_to_live = HOPS,
		.next_proto_id = protocol,
	};
	struct rte_ipv6_hdr six = {
		.vtc_flow = RTE_BE32(6u << 28),
		.payload_len = rte_cpu_to_be_16((uint16_t)payload),
		.proto = protocol,
		.hop_limits = HOPS,
	};

	if (rejected->six) {
		memcpy(&six.src_addr, ip + 24, 16);
		memcpy(&six.dst_addr, ip + 8, 16);
		memcpy(to, &six, sizeof(six));
		return to + sizeof(six);
	}
	memcpy(&four.src_addr, ip + 16, 4);
	memcpy(&four.dst_addr, ip + 12, 4);
	four.hdr_checksum = rte_ipv4_cksum(&four);
	memcpy(to, &four, sizeof(four));
	return to + sizeof(four);
}

/* Ones' complement of what stands there, and of the pseudo header where there is one. */
static uint16_t checksum(const uint8_t *payload, uint32_t length, uint32_t pseudo)
{
	uint32_t sum = rte_raw_cksum(payload, length) + pseudo;

	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (uint16_t)~sum;
}

static uint32_t pseudo_header(const uint8_t *network, bool six)
{
	struct rte_ipv4_hdr header4;
	struct rte_ipv6_hdr header6;

	if (six) {
		memcpy(&header6, network, sizeof(header6));
		return rte_ipv6_phdr_cksum(&header6, 0);
	}
	memcpy(&header4, network, sizeof(header4));
	return rte_ipv4_phdr_cksum(&header4, 0);
}

/* ------- answers; each returns the length, or 0 if there is none ------- */

/* The bytes that the segment carries, of which the header says how many. */
static uint32_t segment_length(const struct rejected *rejected, const struct rte_tcp_hdr *tcp)
{
	const uint8_t *ip = rejected->bytes + rejected->network;
	const uint32_t header = (tcp->data_off >> 4) * 4u;
	const uint32_t behind = rejected->transport - rejected->network + header;
	const uint32_t length = rejected->six ? (ip[4] << 8 | ip[5]) + (uint32_t)sizeof(struct rte_ipv6_hdr)
					      : (uint32_t)(ip[2] << 8 | ip[3]);

	return length > behind ? length - behind : 0;
}

/* RFC 9293, 3.10.7.1: to a segment without ACK, the sequence number 0 and the acknowledgment of all that it has. */
static uint32_t write_reset(uint8_t *answer, const struct rejected *rejected)
{
	struct rte_tcp_hdr asked, tcp;
	uint8_t *network, *transport;

	if (rejected->size < rejected->transport + sizeof(asked))
		return 0;
	memcpy(&asked, rejected->bytes + rejected->transport, sizeof(asked));
	tcp = (struct rte_tcp_hdr){
		.src_port = asked.dst_port,
		.dst_port = asked.src_port,
		.recv_ack = rte_cpu_to_be_32(rte_be_to_cpu_32(asked.sent_seq) + 1 + segment_length(rejected, &asked)),
		.data_off = TCP_OFFSET,
		.tcp_flags = RTE_TCP_RST_FLAG | RTE_TCP_ACK_FLAG,
	};
	network = put_layer2(answer, rejected);
	transport = put_ip(network, rejected, IPPROTO_TCP, 0, sizeof(tcp));
	memcpy(transport, &tcp, sizeof(tcp));
	tcp.cksum = checksum(transport, sizeof(tcp), pseudo_header(network, rejected->six));
	memcpy(transport, &tcp, sizeof(tcp));
	return (uint32_t)(transport + sizeof(tcp) - answer);
}

static uint32_t write_error(uint8_t *answer, const struct rejected *rejected)
{
	const uint32_t quoted = rejected->size - rejected->network, length = ICMP_HEADER + quoted;
	uint8_t header[ICMP_HEADER] = {rejected->six ? ICMP6_DST_UNREACH : ICMP_DEST_UNREACH,
				       rejected->six ? ICMP6_DST_UNREACH_ADMIN : ICMP_PKT_FILTERED};
	uint8_t *network = put_layer2(answer, rejected), *transport;
	uint16_t sum;

	transport = put_ip(network, rejected, rejected->six ? IPPROTO_ICMPV6 : IPPROTO_ICMP,
			   rejected->six ? 0 : PRECEDENCE, length);
	memcpy(transport, header, sizeof(header));
	memcpy(transport + sizeof(header), rejected->bytes + rejected->network, quoted);
	sum = checksum(transport, length, rejected->six ? pseudo_header(network, true) : 0);
	memcpy(transport + 2, &sum, sizeof(sum));
	return (uint32_t)(transport + length - answer);
}

/* ------- rate ------- */

/* What was not used is kept for no more than may leave at once. */
static bool spend(struct firewall_rejects *rejects, uint64_t tsc)
{
	const uint64_t cost = rte_get_tsc_hz() * rejects->nb_queues / FIREWALL_REJECTS,
		       most = cost * FIREWALL_REJECTS_ONCE;
	const uint64_t passed = tsc - rejects->before;

	rejects->credit = passed >= most ? most : RTE_MIN(most, rejects->credit + passed);
	rejects->before = tsc;
	if (rejects->credit < cost || rejects->nb == FIREWALL_REJECTS_ONCE)
		return false;
	rejects->credit -= cost;
	return true;
}

static bool answer(struct firewall_rejects *rejects, const struct rte_mbuf *mbuf, const struct inspected *frame,
		   uint64_t tsc)
{
	const bool tcp = frame->headers.protocol == IPPROTO_TCP;
	struct rejected rejected;
	struct rte_mbuf *made;
	uint32_t length;

	/* How long a segment in fragments is, nobody knows yet. */
	if (tcp && frame->headers.fragment != FRAGMENT_NONE)
		return false;
	read_frame(&rejected, mbuf, frame);
	if (rejected.size <= rejected.transport || !may_be_answered(&rejected) || !spend(rejects, tsc))
		return false;
	made = rte_pktmbuf_alloc(rejects->pool);
	if (made == NULL)
		return false;
	length = rte_pktmbuf_tailroom(made) < sizeof(rejected.bytes) + sizeof(struct rte_ipv6_hdr) + ICMP_HEADER ? 0
		 : tcp ? write_reset(rte_pktmbuf_mtod(made, uint8_t *), &rejected)
		       : write_error(rte_pktmbuf_mtod(made, uint8_t *), &rejected);
	if (length == 0) {
		rte_pktmbuf_free(made);
		return false;
	}
	rte_pktmbuf_append(made, (uint16_t)length);
	rejects->answers[rejects->nb++] = made;
	return true;
}

void firewall_reject(struct firewall_rejects *rejects, const struct rte_mbuf *mbuf, const struct inspected *frame,
		     uint64_t tsc)
{
	function_count(answer(rejects, mbuf, frame, tsc) ? &rejects->answered : &rejects->unanswered, 1);
}

uint16_t firewall_rejects_take(struct firewall_rejects *rejects, struct rte_mbuf **burst)
{
	const uint16_t nb = rejects->nb;

	memcpy(burst, rejects->answers, nb * sizeof(burst[0]));
	rejects->nb = 0;
	return nb;
}
