/* SPDX-License-Identifier: Apache-2.0
 *
 * What a function that follows connections makes of a frame before it looks for its flow: whether its headers hold, and
 * what it does to a flow.  Reads a private copy of the frame's first bytes, once; any thread may call it.
 */
#ifndef TAILRACE_FUNCTIONS_INSPECT_H
#define TAILRACE_FUNCTIONS_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>
#include <rte_memcpy.h>

#include "steer/parse.h"

/* Why a frame is dropped, each with a counter of this name (drop_...). */
#define VERDICT_DROPS(X)                                                                                           \
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
	X(table_full) /* no room for one more flow */

/* Of the firewall alone. */
#define FIREWALL_DROPS(X) X(rule) /* a rule denies it, or the default does */

/* Of the NAT and the balancer. */
#define ADDRESS_DROPS(X) X(spoofed) /* from an address that nobody has on either side */

/* Of the balancer alone. */
#define BALANCER_DROPS(X)                                                                    \
	X(no_service)  /* to a virtual address, but no service is there */                   \
	X(no_back_end) /* to a service of which no back end is up, but for those in drain */ \
	X(back_side)   /* to a virtual address, from the back ends' side */                  \
	X(wrong_end)   /* from a back end, of a connection that is another one's */          \
	X(itself)      /* to the balancer's own address, and no answer that it waits for */

/* Of the NAT alone. */
#define NAT_DROPS(X)                                                                            \
	X(protocol)	    /* from inside, and neither TCP, UDP nor ICMP */                    \
	X(multicast)	    /* from inside to many */                                           \
	X(inside)	    /* from outside to an inside address itself */                      \
	X(unmapped)	    /* to an address of the pool, where nobody has that port */         \
	X(filtered)	    /* somebody has it, and has not sent to who sends this */           \
	X(no_ports)	    /* its host has all blocks that it may have, or no block is left */ \
	X(host_connections) /* its host has as many connections as it may have */               \
	X(hairpin_full)	    /* from inside to inside, and too many of these in a burst */

enum verdict {
	VERDICT_PASS,  /* ARP, and neighbour discovery and multicast listeners, which do not leave the link */
	VERDICT_FLOW,  /* has addresses, and ports or what stands for them */
	VERDICT_ERROR, /* an ICMP error */
	VERDICT_LATER, /* a fragment that has no ports */
#define X(name) VERDICT_DROP_##name,
	VERDICT_DROPS(X) FIREWALL_DROPS(X) ADDRESS_DROPS(X) NAT_DROPS(X) BALANCER_DROPS(X)
#undef X
		VERDICTS
};

/* What a frame does to its flow. */
enum event {
	EVENT_SYN,
	EVENT_SYN_ACK,
	EVENT_ACK, /* TCP, and none of the others */
	EVENT_FIN,
	EVENT_RST,
	EVENT_QUERY, /* ICMP's echo and timestamp (RFC 5508, 3) */
	EVENT_ANSWER,
	EVENT_DATAGRAM, /* any other protocol */
	EVENTS,
};

/* By the flags FIN, SYN, RST and ACK: what the segment does, and 1 more.  Others are not looked at; no other
 * combination is one that RFC 9293 lets a host send. */
extern const uint8_t inspect_tcp_events[0x20];

/* EVENTS: no segment has these. */
static inline unsigned inspect_tcp_event(uint8_t flags)
{
	const uint8_t event = inspect_tcp_events[flags & 0x17];

	return likely(event != 0) ? event - 1u : EVENTS;
}

struct inspected {
	struct headers headers;
	uint8_t event;	/* enum event */
	uint8_t query;	/* of ICMP: the type of the query, of the answer too; otherwise 0 */
	uint16_t first; /* of a fragment: its place, and the place of what follows, in units of 8 bytes */
	uint16_t end;
	uint8_t transport; /* where what IP carries begins, from its header on */
};

/*
 * The frame's first bytes, PARSE_BYTES at most; a copy, because who shares this memory may change it meanwhile.
 * Returns how many.
 */
static inline uint32_t inspect_copy(const struct rte_mbuf *mbuf, uint8_t *head)
{
	uint32_t size = RTE_MIN(mbuf->data_len, (uint32_t)PARSE_BYTES);

	if (unlikely(size < PARSE_BYTES && mbuf->nb_segs > 1)) {
		const void *bytes;

		size = RTE_MIN(mbuf->pkt_len, (uint32_t)PARSE_BYTES);
		bytes = rte_pktmbuf_read(mbuf, 0, size, head);
		if (bytes != head) /* the first piece is empty, and the next one has all of it */
			memcpy(head, bytes, size);
		return size;
	}
	rte_memcpy(head, rte_pktmbuf_mtod(mbuf, const void *), size);
	return size;
}

/* RFC 6890, table 20: ::ffff:0:0/96 stands for IPv4 in programs, and for nobody in a frame. */
static inline bool inspect_is_mapped(const uint8_t *address)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(address, prefix, sizeof(prefix)) == 0;
}

/* The copy has `size` bytes, PARSE_BYTES at most, of a frame of `length`. */
enum verdict inspect(const uint8_t *bytes, uint32_t size, uint32_t length, struct inspected *frame);

/*
 * What the frame said that an ICMP error quotes.  Returns false if it is not one that who gets the error can have sent,
 * or does not say which flow it was of.
 */
bool inspect_quoted(const uint8_t *bytes, uint32_t size, const struct inspected *error, struct inspected *quoted);

#endif
