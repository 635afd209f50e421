/* SPDX-License-Identifier: Apache-2.0
 *
 * Other addresses and ports in a copy of a frame's first bytes, of which inspect() has found that its headers hold.
 * Checksums are changed by what changes (RFC 1624).  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_REWRITE_H
#define TAILRACE_FUNCTIONS_NAT_REWRITE_H

#include <stdint.h>

enum nat_side { NAT_SOURCE, NAT_DESTINATION };

/* Where one IPv4 header lies in the copy, and where what is there of its datagram ends. */
struct nat_place {
	uint8_t *bytes;
	unsigned network, end;
};

/* Both in the machine's order. */
void nat_rewrite_address(const struct nat_place *place, enum nat_side side, uint32_t address);

/* The address, and the port of TCP or UDP, or ICMP's identifier. */
void nat_rewrite(const struct nat_place *place, enum nat_side side, uint32_t address, uint16_t port);

/* The same of the datagram that an ICMP error quotes from byte `embedded` on. */
void nat_rewrite_quoted(const struct nat_place *place, unsigned embedded, enum nat_side side, uint32_t address,
			uint16_t port);

#endif
