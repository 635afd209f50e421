/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include <netinet/in.h>

#include <rte_byteorder.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "rewrite.h"

enum { CHECKSUM = 2 };

static bool is_six(const struct rewrite_place *place)
{
	return place->bytes[place->network] >> 4 == 6;
}

/* Changes the address; returns that change, and adds all changes to `all`. */
static uint32_t change_address(const struct rewrite_place *place, enum rewrite_side side, const void *address,
			       uint32_t *all)
{
	uint8_t *ip = place->bytes + place->network;
	uint32_t words[4], change = 0;

	if (is_six(place)) {
		uint8_t *at = ip + (side == REWRITE_SOURCE ? offsetof(struct rte_ipv6_hdr, src_addr)
							   : offsetof(struct rte_ipv6_hdr, dst_addr));

		memcpy(words, address, sizeof(words));
		for (unsigned i = 0; i < 4; i++)
			change += checksum_replace32(at + 4 * i, words[i]);
		*all += change;
		return change;
	}
	memcpy(words, address, sizeof(words[0]));
	change = checksum_replace32(ip + (side == REWRITE_SOURCE ? offsetof(struct rte_ipv4_hdr, src_addr)
								 : offsetof(struct rte_ipv4_hdr, dst_addr)),
				    words[0]);
	*all += change + checksum_adjust(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), change);
	return change;
}

/* What IP carries: returns all that is changed in it. */
static uint32_t change_port(const struct rewrite_place *place, enum rewrite_side side, uint16_t port,
			    uint32_t address_change)
{
	const unsigned there = place->end - place->transport;
	const uint16_t value = rte_cpu_to_be_16(port);
	uint8_t *payload = place->bytes + place->transport;
	unsigned checksum;
	uint32_t change;

	if (place->protocol == IPPROTO_ICMP) {
		if (there < offsetof(struct rte_icmp_hdr, icmp_seq_nb))
			return 0;
		change = checksum_replace16(payload + offsetof(struct rte_icmp_hdr, icmp_ident), value);
		return change + checksum_adjust(payload + offsetof(struct rte_icmp_hdr, icmp_cksum), change);
	}
	if (there < offsetof(struct rte_udp_hdr, dgram_len))
		return 0;
	change = checksum_replace16(payload + (side == REWRITE_SOURCE ? 0 : offsetof(struct rte_udp_hdr, dst_port)),
				    value);
	checksum = place->protocol == IPPROTO_TCP ? offsetof(struct rte_tcp_hdr, cksum)
						  : offsetof(struct rte_udp_hdr, dgram_cksum);
	if (there < checksum + CHECKSUM)
		return change; /* of a datagram that an error quotes */
	if (place->protocol == IPPROTO_TCP)
		return change + checksum_adjust(payload + checksum, change + address_change);
	return change + checksum_adjust_udp(payload + checksum, change + address_change);
}

/* Returns all that is changed. */
static uint32_t change_end(const struct rewrite_place *place, enum rewrite_side side, const void *address,
			   uint16_t port)
{
	uint32_t all = 0, change = change_address(place, side, address, &all);

	if (place->end < place->transport)
		return all;
	return all + change_port(place, side, port, change);
}

struct rewrite_place rewrite_place(uint8_t *head, uint32_t size, const struct inspected *frame)
{
	const unsigned network = frame->headers.network;
	const bool six = frame->headers.family == HEADERS_IPV6;
	const uint8_t *length = head + network +
				(six ? offsetof(struct rte_ipv6_hdr, payload_len)
				     : offsetof(struct rte_ipv4_hdr, total_length));
	const unsigned end = network + (six ? sizeof(struct rte_ipv6_hdr) : 0) + (unsigned)(length[0] << 8 | length[1]);

	return (struct rewrite_place){
		.bytes = head,
		.network = network,
		.transport = network + frame->transport,
		.end = RTE_MIN(size, end),
		.protocol = frame->headers.protocol,
	};
}

struct rewrite_place rewrite_place_quoted(const struct rewrite_place *error, const struct inspected *frame,
					  const struct inspected *quoted)
{
	const unsigned network = frame->headers.embedded;
	const uint8_t *ip = error->bytes + network;
	struct rewrite_place place = {
		.bytes = error->bytes,
		.network = network,
		.transport = network + (ip[0] & 15u) * 4,
		.end = error->end,
		.protocol = quoted->headers.protocol,
	};

	/* Behind extension headers ports are not looked for. */
	if (is_six(error))
		place.transport = ip[offsetof(struct rte_ipv6_hdr, proto)] == place.protocol
					  ? network + (unsigned)sizeof(struct rte_ipv6_hdr)
					  : place.end;
	return place;
}

void rewrite_address(const struct rewrite_place *place, enum rewrite_side side, const void *address)
{
	uint32_t all = 0;

	change_address(place, side, address, &all);
}

void rewrite_end(const struct rewrite_place *place, enum rewrite_side side, const void *address, uint16_t port)
{
	change_end(place, side, address, port);
}

static void adjust_error(const struct rewrite_place *error, uint32_t change)
{
	checksum_adjust(error->bytes + error->transport + offsetof(struct rte_icmp_hdr, icmp_cksum), change);
}

/* RFC 4443, 2.3: the checksum of ICMPv6 is of the addresses too. */
void rewrite_error(const struct rewrite_place *error, enum rewrite_side side, const void *address)
{
	uint32_t all = 0;
	const uint32_t change = change_address(error, side, address, &all);

	if (is_six(error))
		adjust_error(error, change);
}

void rewrite_quoted(const struct rewrite_place *error, const struct rewrite_place *quoted, enum rewrite_side side,
		    const void *address, uint16_t port)
{
	adjust_error(error, change_end(quoted, side, address, port));
}

void rewrite_put(struct rte_mbuf *mbuf, const uint8_t *head, uint32_t size)
{
	if (likely(size <= mbuf->data_len)) {
		rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), head, size);
		return;
	}
	for (; mbuf != NULL && size > 0; mbuf = mbuf->next) {
		const uint32_t part = RTE_MIN(size, (uint32_t)mbuf->data_len);

		memcpy(rte_pktmbuf_mtod(mbuf, void *), head, part);
		head += part;
		size -= part;
	}
}
