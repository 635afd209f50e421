/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_udp.h>

#include "circulate_frames.h"

enum {
	STATIONS = 16, /* behind each guest */
	FIRST_PORT = 1024,
	OTHER_PORT = 9,
	ADDRESSES = 256,
	MAC_GUEST = 4, /* bytes of a station's address */
	MAC_STATION = 5,
};

unsigned frame_length(const struct frames *frames, unsigned number)
{
	static const uint16_t imix[] = {64, 570, 64, 64, 570, 64, 1518, 64, 570, 64, 570, 64};

	return (frames->length > 0 ? frames->length : imix[number % RTE_DIM(imix)]) - FRAME_FCS;
}

bool frame_is_unfinished(const struct frames *frames, unsigned number)
{
	return frames->unfinished > 0 && number % frames->unfinished == 0;
}

static struct rte_ether_addr station(unsigned guest, unsigned number)
{
	struct rte_ether_addr address = {{0x02, 0x54, 0x52}};

	address.addr_bytes[MAC_GUEST] = guest;
	address.addr_bytes[MAC_STATION] = number % STATIONS;
	return address;
}

void frame_make(const struct frames *frames, unsigned from, unsigned to, unsigned number, uint8_t *frame)
{
	const bool answers = to < from;
	const unsigned flow = number % frames->flows, length = frame_length(frames, number);
	const rte_be32_t address = rte_cpu_to_be_32(RTE_IPV4(198u, 18, 1, flow % ADDRESSES));
	const rte_be32_t other_address = RTE_BE32(RTE_IPV4(198u, 19, 1, 1));
	const rte_be16_t port = rte_cpu_to_be_16(FIRST_PORT + flow / ADDRESSES), other_port = RTE_BE16(OTHER_PORT);
	struct rte_ether_hdr ethernet = {
		.src_addr = station(from, number),
		.dst_addr = station(to, number),
		.ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4),
	};
	struct rte_ipv4_hdr ip = {
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16(length - sizeof(ethernet)),
		.packet_id = rte_cpu_to_be_16(number),
		.time_to_live = 64,
		.next_proto_id = IPPROTO_UDP,
		.src_addr = answers ? other_address : address,
		.dst_addr = answers ? address : other_address,
	};
	struct rte_udp_hdr udp = {
		.src_port = answers ? other_port : port,
		.dst_port = answers ? port : other_port,
		.dgram_len = rte_cpu_to_be_16(length - FRAME_HEADERS),
	};

	ip.hdr_checksum = rte_ipv4_cksum(&ip);
	if (frame_is_unfinished(frames, number))
		udp.dgram_cksum = rte_ipv4_phdr_cksum(&ip, 0);
	memset(frame, 0, length);
	memcpy(frame, &ethernet, sizeof(ethernet));
	memcpy(frame + sizeof(ethernet), &ip, sizeof(ip));
	memcpy(frame + FRAME_HEADERS, &udp, sizeof(udp));
}

void frame_read(const uint8_t *frame, unsigned *from, unsigned *number)
{
	const struct rte_ether_hdr *ethernet = (const struct rte_ether_hdr *)frame;
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ethernet + 1);

	*from = ethernet->src_addr.addr_bytes[MAC_GUEST];
	*number = rte_be_to_cpu_16(ip->packet_id);
}

bool frame_is(const struct frames *frames, unsigned from, unsigned to, unsigned number, const uint8_t *frame,
	      unsigned length)
{
	uint8_t made[FRAME_MOST];

	if (length != frame_length(frames, number))
		return false;
	frame_make(frames, from, to, number, made);
	return memcmp(frame, made, length) == 0;
}
