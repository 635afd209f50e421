/* SPDX-License-Identifier: Apache-2.0
 *
 * What a router makes of a frame before it looks for a route: whether its headers hold, and whether the fast path may
 * forward it.  Reads the frame and nothing else, so any thread may call it.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_HEADERS_H
#define TAILRACE_FUNCTIONS_ROUTER_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_ip.h>

#include "plain.h"

/* Why a router drops a frame, each with a counter of this name (drop_...). */
#define ROUTER_DROPS(X)                                                                       \
	X(short)     /* it ends within a header */                                            \
	X(down)	     /* the port is down in the router's namespace */                         \
	X(station)   /* its MAC address is another's */                                       \
	X(version)   /* the header is of another version than the type says */                \
	X(length)    /* longer than the frame, or than its own header says */                 \
	X(checksum)  /* of the IPv4 header */                                                 \
	X(martian)   /* addresses that no router forwards (RFC 1812, 5.3.7; RFC 4291, 2.5) */ \
	X(blackhole) /* its route says so */                                                  \
	X(port_full) /* too many go out where they came in */                                 \
	X(kernel_neighbours)                                                                  \
	X(kernel_itself)                                                                      \
	X(kernel_others) /* more for the kernel than it takes, by class */

/* What goes to the kernel waits in a queue for each class: a flood of one does not keep out the others. */
enum router_class {
	ROUTER_NEIGHBOURS, /* ARP, neighbour discovery, multicast, and all that is not IP */
	ROUTER_ITSELF,	   /* to an address of the router's own */
	ROUTER_OTHERS,	   /* what the kernel answers or forwards: no neighbour yet, TTL, MTU, options, no route */
	ROUTER_CLASSES,
};

enum router_verdict {
	/* The kernel decides: the first ones are classes. */
	ROUTER_KERNEL_NEIGHBOURS = ROUTER_NEIGHBOURS,
	ROUTER_KERNEL_OTHERS = ROUTER_OTHERS,
	ROUTER_IPV4 = ROUTER_CLASSES, /* a route is looked for */
	ROUTER_IPV6,
#define X(name) ROUTER_DROP_##name,
	ROUTER_DROPS(X)
#undef X
		ROUTER_VERDICTS
};

/* A MAC address in the low 48 bits, as it lies in memory. */
static inline uint64_t router_mac(const void *address)
{
	uint64_t mac = 0;

	__builtin_memcpy(&mac, address, RTE_ETHER_ADDR_LEN);
	return mac;
}

/* Above a link's MAC address: the link is down, so no frame has it. */
#define ROUTER_MAC_DOWN (UINT64_C(1) << 48)

/* Of IPv6 (RFC 4291, 2.5.6). */
static inline bool router_link_local(const uint8_t *address)
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

/*
 * `size` bytes of the frame are in one piece, `length` are there in all, `layer2` of them before the IP header: the
 * Ethernet header, and a tag that the caller has looked at.  `mac` is the link's, or ROUTER_MAC_DOWN beside it.
 * ROUTER_IPV4 and ROUTER_IPV6 say that the whole header is in that piece, and what it says of lengths and addresses
 * holds.
 */
enum router_verdict router_check(const uint8_t *frame, uint32_t size, uint32_t length, uint32_t layer2, uint64_t mac);

/*
 * Whether router_check() would find an untagged frame to be ROUTER_IPV4: for nearly all frames a few words tell.  If
 * not, router_check() is to be asked.  `mac` is the link's.
 */
static inline bool router_is_plain4(const uint8_t *frame, uint32_t size, uint32_t length, uint64_t mac)
{
	uint64_t first, second;
	uint32_t third;

	if (unlikely(size < PLAIN_TRANSPORT || (plain_word(frame, 0) & PLAIN_MAC) != mac))
		return false;
	first = plain_word(frame, PLAIN_NETWORK);
	second = plain_word(frame, PLAIN_NETWORK + 8);
	third = (uint32_t)(plain_word(frame, PLAIN_NETWORK + 12) >> 32);
	return likely(plain_half(plain_word(frame, PLAIN_NETWORK - 8) >> 32) == RTE_ETHER_TYPE_IPV4 &&
		      (uint8_t)first == PLAIN_VERSION && plain_half(first) - 20 <= length - PLAIN_TRANSPORT &&
		      plain_sum_holds(first, second, third) && plain_station((uint8_t)(second >> 32)) &&
		      plain_station((uint8_t)third));
}

/* Of a frame that was found to be ROUTER_IPV4 or ROUTER_IPV6: bytes without the Ethernet header and its padding. */
static inline uint32_t router_length4(const struct rte_ipv4_hdr *header)
{
	return rte_be_to_cpu_16(header->total_length);
}

static inline uint32_t router_length6(const struct rte_ipv6_hdr *header)
{
	return sizeof(*header) + rte_be_to_cpu_16(header->payload_len);
}

/* One less TTL, and the checksum that follows from that (RFC 1624, equation 3). */
static inline void router_decrease_ttl(struct rte_ipv4_hdr *header)
{
	uint32_t checksum = header->hdr_checksum + (uint32_t)RTE_BE16(0x0100);

	header->hdr_checksum = checksum + (checksum >= 0xffff);
	header->time_to_live--;
}

/* The same number for all frames of a flow, of which `size` bytes are in one piece from the IP header on.  Fragments
 * have no ports: those of one datagram go one way. */
uint32_t router_flow4(const struct rte_ipv4_hdr *header, uint32_t size);
uint32_t router_flow6(const struct rte_ipv6_hdr *header, uint32_t size);

#endif
