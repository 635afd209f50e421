/* SPDX-License-Identifier: Apache-2.0
 *
 * What a firewall makes of a frame before it looks for its flow: whether its headers hold, and what it does to a flow.
 * Reads a private copy of the frame's first bytes, once; any thread may call it.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_HEADERS_H
#define TAILRACE_FUNCTIONS_FIREWALL_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "steer/parse.h"

/* Why a firewall drops a frame, each with a counter of this name (drop_...). */
#define FIREWALL_DROPS(X)                                                                                          \
	X(short)      /* it ends within a header, or the header is behind what is looked at */                     \
	X(type)	      /* neither IP nor ARP, or behind too many tags */                                            \
	X(version)    /* the header is of another version than the type says */                                    \
	X(length)     /* lengths that contradict each other or the frame */                                        \
	X(checksum)   /* of the IPv4 header */                                                                     \
	X(martian)    /* addresses that no frame may have (RFC 1122, 3.2.1.3; RFC 4291, 2.5), or the same twice */ \
	X(options)    /* source routes (RFC 7126, 4.3 and 4.4), or options that do not hold */                     \
	X(extension)  /* a chain of extension headers that does not hold (RFC 7045; RFC 5095) */                   \
	X(tiny)	      /* a first fragment without the whole header (RFC 1858, RFC 7112) */                         \
	X(overlap)    /* a fragment of what the first one had (RFC 3128, RFC 5722) */                              \
	X(fragment)   /* a fragment of a datagram whose first one has not passed */                                \
	X(transport)  /* a TCP or UDP header that does not hold, or flags that no segment has */                   \
	X(icmp)	      /* a message that says nothing of a flow (RFC 4890, 4.3; RFC 6633) */                        \
	X(neighbour)  /* neighbour discovery that was forwarded, or is in fragments (RFC 4861, RFC 6980) */        \
	X(unrelated)  /* an ICMP error about nothing that passed, or to somebody else (RFC 5508, 4) */             \
	X(wrong_port) /* of a flow, but not by the port where that end is */                                       \
	X(state)      /* a segment that neither begins a connection nor belongs to one as it is */                 \
	X(rule)	      /* a rule denies it, or the default does */                                                  \
	X(table_full) /* no room for one more flow */

enum firewall_verdict {
	FIREWALL_PASS,	/* ARP, and neighbour discovery and multicast listeners, which do not leave the link */
	FIREWALL_FLOW,	/* has addresses, and ports or what stands for them */
	FIREWALL_ERROR, /* an ICMP error */
	FIREWALL_LATER, /* a fragment that has no ports */
#define X(name) FIREWALL_DROP_##name,
	FIREWALL_DROPS(X)
#undef X
		FIREWALL_VERDICTS
};

/* What a frame does to its flow. */
enum firewall_event {
	FIREWALL_SYN,
	FIREWALL_SYN_ACK,
	FIREWALL_ACK, /* TCP, and none of the others */
	FIREWALL_FIN,
	FIREWALL_RST,
	FIREWALL_QUERY, /* ICMP's echo and timestamp (RFC 5508, 3) */
	FIREWALL_ANSWER,
	FIREWALL_DATAGRAM, /* any other protocol */
	FIREWALL_EVENTS,
};

struct firewall_frame {
	struct headers headers;
	uint8_t event;	/* enum firewall_event */
	uint8_t query;	/* of ICMP: the type of the query, of the answer too; otherwise 0 */
	uint16_t first; /* of a fragment: its place, and the place of what follows, in units of 8 bytes */
	uint16_t end;
};

/* The copy has `size` bytes, PARSE_BYTES at most, of a frame of `length`. */
enum firewall_verdict firewall_check(const uint8_t *bytes, uint32_t size, uint32_t length,
				     struct firewall_frame *frame);

/*
 * What the frame said that an ICMP error quotes.  Returns false if it is not one that who gets the error can have sent,
 * or does not say which flow it was of.
 */
bool firewall_quoted(const uint8_t *bytes, uint32_t size, const struct firewall_frame *error,
		     struct firewall_frame *quoted);

#endif
