/* SPDX-License-Identifier: Apache-2.0
 *
 * The outer headers of a tunnel: Ethernet, IPv4 or IPv6, UDP, and VXLAN (RFC 7348) or Geneve (RFC 8926).  What stands
 * in each frame alike is written once, into a template.  Outer headers that come are read once, from a private copy of
 * the frame's first bytes.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_TUNNEL_HEADERS_H
#define TAILRACE_FUNCTIONS_TUNNEL_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "neighbours.h"

/* Why a frame is dropped, each with a counter of this name (drop_...): on its way into the tunnel ... */
#define TUNNEL_DROPS_IN(X)                                                                            \
	X(too_long)	/* with the outer headers it is longer than the MTU between the ends */       \
	X(no_neighbour) /* the MAC address of the other end, or of the gateway, is not known (yet) */ \
	X(lost)		/* the other end was there, and is not any more (tunnel_liveness.h) */        \
	X(no_room)	/* no room before the frame in its buffer */

/* ... on its way out of it ... */
#define TUNNEL_DROPS_OUT(X)                                                                              \
	X(station)   /* its MAC address is another's */                                                  \
	X(type)	     /* not the tunnel's version of IP */                                                \
	X(length)    /* lengths that contradict each other or the frame */                               \
	X(checksum)  /* of the IPv4 header, or of UDP */                                                 \
	X(hops)	     /* of the other end's liveness, by more than the one link there is (RFC 5881, 5) */ \
	X(fragment)  /* of the outer datagram (RFC 7348, 4.3) */                                         \
	X(protocol)  /* not UDP, or to another port */                                                   \
	X(ends)	     /* not from the other end to this one */                                            \
	X(header)    /* a VXLAN or Geneve header that says nothing of a frame */                         \
	X(vni)	     /* another network's */                                                             \
	X(control)   /* a control message of Geneve's (RFC 8926, 3.4) */                                 \
	X(option)    /* a critical option of Geneve's: none is known (RFC 8926, 3.4) */                  \
	X(crowded)   /* more of the other end's liveness at once than is taken */                        \
	X(congested) /* was marked on the way, and its sender would not understand it (RFC 6040, 4.2) */

/* ... and either way. */
#define TUNNEL_DROPS(X)                                                                       \
	X(short)  /* it ends within a header, or within the inner Ethernet header */          \
	X(tagged) /* the inner frame has a VLAN tag, and none may be there (RFC 7348, 6.1) */ \
	TUNNEL_DROPS_IN(X) TUNNEL_DROPS_OUT(X)

enum tunnel_verdict {
	TUNNEL_PASS,
	TUNNEL_ITSELF,	 /* ARP or neighbour discovery, for the tunnel's own end or not */
	TUNNEL_LIVENESS, /* the other end's, of the session with it */
#define X(name) TUNNEL_DROP_##name,
	TUNNEL_DROPS(X)
#undef X
		TUNNEL_VERDICTS
};

enum tunnel_protocol { TUNNEL_VXLAN, TUNNEL_GENEVE };

enum {
	TUNNEL_HEADER = 8, /* of VXLAN, and of Geneve without options */
	TUNNEL_HEADERS4 = 14 + 20 + 8 + TUNNEL_HEADER,
	TUNNEL_HEADERS6 = 14 + 40 + 8 + TUNNEL_HEADER,
	TUNNEL_WORDS = (TUNNEL_HEADERS6 + 7) / 8,
	TUNNEL_VXLAN_PORT = 4789,
	TUNNEL_GENEVE_PORT = 6081,
	TUNNEL_VNI_IS_THERE = 0x08, /* a flag of VXLAN's */
	TUNNEL_CONTROL = 0x80,	    /* flags of Geneve's */
	TUNNEL_CRITICAL = 0x40,
	TUNNEL_ETHERNET = 0x6558,  /* what is within, for Geneve */
	TUNNEL_FIRST_PORT = 49152, /* of the sources (RFC 7348, 5) */
	TUNNEL_ECN = 3,		   /* the bits of a traffic class; all of them: congestion experienced */
};

struct tunnel_ends {
	enum tunnel_protocol protocol;
	uint32_t vni;
	struct ip_address local, remote;
	uint8_t mac[6];
	uint16_t port;	   /* UDP's, of the destination */
	uint16_t liveness; /* the same of what says that the other end is there; 0: nothing does */
	uint16_t mtu;	   /* of the outer IP packet */
	bool checksum;	   /* UDP's is written */
	bool tagged;	   /* inner frames may have VLAN tags */
};

/* Never changes once it is made. */
struct tunnel_headers {
	struct tunnel_ends ends;
	uint16_t size;	  /* of all that stands before the inner frame */
	uint16_t network; /* of those: from the IP header on */
	uint32_t longest; /* inner frame */
	uint32_t sum;	  /* of an IPv4 header without length and traffic class */
	bool summed;	  /* what comes without UDP's checksum is dropped */
	uint8_t bytes[TUNNEL_HEADERS6];

	/* Of headers that come: what stands in nearly all of them alike, and which bits that are. */
	uint64_t expected[TUNNEL_WORDS], mask[TUNNEL_WORDS];
};

void tunnel_headers_make(struct tunnel_headers *headers, const struct tunnel_ends *ends);

/* Whether an inner frame begins with a VLAN tag. */
bool tunnel_has_tag(const uint8_t *inner);

/* The ones' complement sum over a UDP datagram that begins there, with its addresses.  Returns false if it is not all
 * there.  Which end sends it makes no difference. */
bool tunnel_sum(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf, uint16_t udp, uint32_t length,
		uint16_t *sum);

/*
 * Put the outer headers before a frame, to this MAC address (in the low 48 bits as they lie in memory).  Returns
 * TUNNEL_PASS, or why it is to be dropped.
 */
enum tunnel_verdict tunnel_wrap(const struct tunnel_headers *headers, struct rte_mbuf *mbuf, uint64_t mac);

/* What the outer headers say of what is within. */
struct tunnel_read {
	uint16_t inner;	   /* where the inner frame begins */
	uint32_t end;	   /* and where it ends */
	uint16_t checksum; /* UDP's, as it lies; 0: there is none */
	uint16_t udp;	   /* where UDP's header begins */
	uint8_t ecn;	   /* of the outer IP header */
	uint8_t hops;	   /* its time to live, or hop limit */
};

/*
 * Of a frame of `length` bytes, of which the first `size`, PARSE_BYTES at most, were copied: TUNNEL_PASS if a frame of
 * this tunnel is within, TUNNEL_LIVENESS if `inner` is where the payload begins.
 */
enum tunnel_verdict tunnel_read(const struct tunnel_headers *headers, const uint8_t *head, uint32_t size,
				uint32_t length, struct tunnel_read *read);

/*
 * The same of the frame itself, of which the headers are copied and compared at once, if they are as most are: no
 * options, whole datagrams.  Returns false if something is otherwise; what, is for tunnel_read() to find.
 */
bool tunnel_read_most(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf, struct tunnel_read *read);

/* Whether UDP's checksum holds, of a frame that was read, or none has to be there.  What others change meanwhile at
 * most makes it wrong. */
bool tunnel_checksum_holds(const struct tunnel_headers *headers, const struct rte_mbuf *mbuf,
			   const struct tunnel_read *read);

/* Take the outer headers off a frame that was read.  Returns TUNNEL_PASS, or why it is to be dropped. */
enum tunnel_verdict tunnel_unwrap(const struct tunnel_headers *headers, struct rte_mbuf *mbuf,
				  const struct tunnel_read *read);

#endif
