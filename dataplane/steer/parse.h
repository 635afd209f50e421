/* SPDX-License-Identifier: Apache-2.0
 *
 * What a frame says about itself: tags, addresses, protocol, ports, fragment.  Reads a private copy of the frame's
 * first bytes and never past them.  A header that is cut off or contradicts itself counts as not there, and so do
 * all after it: every frame has a defined result, and none is refused here.  Pure; any thread.
 *
 * IPv6's extension headers may be longer than what is looked at: with a routing header of four segments the ports of a
 * frame without tags are behind byte 128.  Such a frame has no ports; its protocol is what the last header that was
 * read says comes next, which is TCP's behind a routing header of any length, and an extension header's where several
 * go on.
 */
#ifndef TAILRACE_STEER_PARSE_H
#define TAILRACE_STEER_PARSE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	PARSE_BYTES = 128,   /* of a frame are looked at */
	PARSE_TAGS = 4,	     /* VLAN tags; what lies behind more is not looked for */
	PARSE_EXTENSIONS = 8 /* IPv6 extension headers */
};

#define HEADERS_VLAN 0x1000 /* beside the 12-bit identifier: there is a tag */

#define HEADERS_IP 4 /* a bit that the two families of IP have in common */

enum headers_family { HEADERS_OTHER = 0, HEADERS_IPV4 = HEADERS_IP, HEADERS_IPV6 = HEADERS_IP | 2 };

enum headers_fragment {
	FRAGMENT_NONE,	/* a whole datagram */
	FRAGMENT_FIRST, /* has the ports */
	FRAGMENT_LATER, /* has none */
};

struct headers {
	/*
	 * What rules match and flows are known by.  Addresses are in network order and begin at the first byte, an
	 * IPv4 address is followed by zeros; numbers are in the machine's order.
	 */
	union {
		struct {
			uint8_t source[16]; /* of a frame without an IP header: its MAC address */
			uint8_t destination[16];
			uint16_t vlan; /* the outermost tag's identifier and HEADERS_VLAN; 0: no tag */
			uint16_t inner_vlan;
			uint16_t ethertype; /* behind the tags */
			uint8_t family;	    /* enum headers_family */
			uint8_t protocol;   /* what IP carries, behind the extension headers */
			uint16_t source_port;
			uint16_t destination_port; /* ICMP's echo and timestamp: both are the identifier */
			uint8_t has_ports;	   /* TCP, UDP, UDP-Lite, SCTP, DCCP */
			uint8_t zero[3];
		};
		uint64_t key[6];
	};
	union {
		struct {
			uint32_t fragment_id;
			uint8_t fragment;   /* enum headers_fragment */
			bool malformed : 1; /* a header contradicts itself */
			bool unread : 1;    /* IPv6's extension headers go on where nobody looks: ports, and maybe the
					       protocol, are not known */
			uint8_t embedded;   /* where the datagram begins that an ICMP error is about; 0: this is none */
			uint8_t network;    /* where the IP header begins; 0: none */
		};
		uint64_t rest;
	};
};
static_assert(sizeof(((struct headers *)0)->key) == 48, "the key is the fields, and nothing else");

/* Look at the frame's first `length` bytes; more than PARSE_BYTES are not looked at. */
void parse_frame(const uint8_t *bytes, unsigned length, struct headers *headers);

/*
 * Of an ICMP error whose `headers` are given: the addresses, protocol and ports of the datagram it is about take the
 * place of its own.  Of any other frame: nothing.
 */
void parse_embedded(const uint8_t *bytes, unsigned length, struct headers *headers);

/* The other way round: what the answer to a frame with these headers says. */
void headers_mirror(struct headers *headers);

#endif
