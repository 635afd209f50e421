/* SPDX-License-Identifier: Apache-2.0
 *
 * Other addresses and ports in a copy of a frame's first bytes, of which inspect() has found that its headers hold.
 * Checksums are changed by what changes (RFC 1624).  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_REWRITE_H
#define TAILRACE_FUNCTIONS_REWRITE_H

#include <stdint.h>

#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "checksum.h"
#include "inspect.h"
#include "plain.h"

enum rewrite_side { REWRITE_SOURCE, REWRITE_DESTINATION };

/* Where one IP header lies in the copy, where what it carries begins, and where what is there of its datagram ends. */
struct rewrite_place {
	uint8_t *bytes;
	unsigned network, transport, end;
	uint8_t protocol;
};

/* Of a frame of whose first bytes `size` were copied. */
struct rewrite_place rewrite_place(uint8_t *head, uint32_t size, const struct inspected *frame);

/* Of what an ICMP error quotes, which inspect_quoted() has found to hold. */
struct rewrite_place rewrite_place_quoted(const struct rewrite_place *error, const struct inspected *frame,
					  const struct inspected *quoted);

/* The address alone, as of a later fragment.  Addresses are in network order, ports in the machine's. */
void rewrite_address(const struct rewrite_place *place, enum rewrite_side side, const void *address);

/* The address, and the port of TCP or UDP, or ICMP's identifier. */
void rewrite_end(const struct rewrite_place *place, enum rewrite_side side, const void *address, uint16_t port);

/* The address of an ICMP error. */
void rewrite_error(const struct rewrite_place *error, enum rewrite_side side, const void *address);

/* Address and port of the datagram that it quotes. */
void rewrite_quoted(const struct rewrite_place *error, const struct rewrite_place *quoted, enum rewrite_side side,
		    const void *address, uint16_t port);

/* The address, and the port of TCP or UDP, in a plain frame (plain.h) where it is.  What stands there is not trusted.
 */
static inline void rewrite_plain(uint8_t *bytes, uint8_t protocol, enum rewrite_side side, uint32_t address,
				 uint16_t port)
{
	const bool source = side == REWRITE_SOURCE;
	uint8_t *ip = bytes + PLAIN_NETWORK, *payload = bytes + PLAIN_TRANSPORT;
	uint32_t change = checksum_replace32(
		ip + (source ? offsetof(struct rte_ipv4_hdr, src_addr) : offsetof(struct rte_ipv4_hdr, dst_addr)),
		address);

	checksum_adjust(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), change);
	change += checksum_replace16(payload + (source ? 0 : offsetof(struct rte_udp_hdr, dst_port)),
				     rte_cpu_to_be_16(port));
	if (protocol == IPPROTO_TCP)
		checksum_adjust(payload + offsetof(struct rte_tcp_hdr, cksum), change);
	else
		checksum_adjust_udp(payload + offsetof(struct rte_udp_hdr, dgram_cksum), change);
}

/* The copy takes the place of the frame's first bytes. */
void rewrite_put(struct rte_mbuf *mbuf, const uint8_t *head, uint32_t size);

#endif
