/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as nearly all are: TCP or UDP in whole datagrams of IPv4 without options, without tags.  Whether a frame is
 * one, and what inspect() would say of it, is found from four words, each read once; a hostile peer may change the
 * bytes meanwhile.  Whatever does not hold is left to inspect(), which knows why.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_PLAIN_H
#define TAILRACE_FUNCTIONS_PLAIN_H

#include <netinet/in.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_tcp.h>

#include "inspect.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken apart as they lie");

enum {
	PLAIN_NETWORK = RTE_ETHER_HDR_LEN,
	PLAIN_TRANSPORT = PLAIN_NETWORK + 20,
	PLAIN_UDP = PLAIN_TRANSPORT + 8, /* bytes that are looked at */
	PLAIN_TCP = PLAIN_TRANSPORT + 20,
	PLAIN_VERSION = 0x45,
	PLAIN_LOOPBACK = 127,
	PLAIN_MULTICAST = 224,
};

/* Of a word, the bytes of a MAC address. */
#define PLAIN_MAC ((UINT64_C(1) << 48) - 1)

/* What a plain frame says. */
struct plain {
	uint32_t source, destination; /* addresses as they lie */
	uint32_t ports;		      /* in the machine's order, the source's in the lower half */
	uint8_t protocol;
	uint8_t event; /* enum event; of another frame, too */
};

/* The fields of a key behind the addresses, as they lie in struct headers. */
#define PLAIN_KINDS ((uint64_t)RTE_ETHER_TYPE_IPV4 << 32 | (uint64_t)HEADERS_IPV4 << 48)
#define PLAIN_PORTS (UINT64_C(1) << 32)
/* And behind the key: no fragment, nothing malformed, no datagram within; where the IP header begins. */
#define PLAIN_REST ((uint64_t)PLAIN_NETWORK << 56)

static inline uint64_t plain_word(const uint8_t *bytes, unsigned at)
{
	typedef uint64_t word __attribute__((aligned(1), may_alias));

	return *(const volatile word *)(bytes + at);
}

/* The last two of four bytes, in the machine's order. */
static inline uint32_t plain_half(uint64_t four)
{
	return rte_bswap32((uint32_t)four) & UINT16_MAX;
}

/* Source and destination, as struct headers has them. */
static inline uint32_t plain_ports(uint64_t four)
{
	const uint32_t both = rte_bswap32((uint32_t)four);

	return both << 16 | both >> 16;
}

/* Ones' complement: the sum of all is a multiple of 65535. */
static inline bool plain_sum_holds(uint64_t first, uint64_t second, uint32_t third)
{
	return ((first & UINT32_MAX) + (first >> 32) + (second & UINT32_MAX) + (second >> 32) + third) % UINT16_MAX ==
	       0;
}

/* By the first byte of its address: neither nobody's, nor this host's, nor many's. */
static inline bool plain_station(uint8_t first)
{
	return (uint8_t)(first - 1) < PLAIN_MULTICAST - 1 && first != PLAIN_LOOPBACK;
}

static inline bool plain_addresses(uint32_t source, uint32_t destination)
{
	const uint8_t to = (uint8_t)destination;

	return plain_station((uint8_t)source) && to != 0 && to != PLAIN_LOOPBACK && source != destination;
}

/* What the segment does; EVENTS: the general check says what is wrong with it. */
static inline enum event plain_tcp_event(uint64_t flags, uint32_t payload)
{
	const uint32_t header = (flags >> 52 & 15) * 4; /* the byte before the flags */

	if (unlikely(header < 20 || header > payload))
		return EVENTS;
	return (enum event)inspect_tcp_event((uint8_t)(flags >> 56));
}

/* The first word of these. */
static inline uint64_t plain_kind(uint8_t protocol)
{
	return PLAIN_KINDS | (uint64_t)protocol << 56;
}

/* Returns false if it is another one; then the frame is to be inspected. */
static inline bool plain_read(const struct rte_mbuf *mbuf, struct plain *words)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint64_t first, second, third;
	uint32_t payload;
	uint8_t protocol;

	if (unlikely(mbuf->data_len < PLAIN_UDP))
		return false;
	first = plain_word(bytes, PLAIN_NETWORK);
	second = plain_word(bytes, PLAIN_NETWORK + 8);
	third = plain_word(bytes, PLAIN_NETWORK + 16); /* the ports too */
	/* Version and length of the header; fragments. */
	if (unlikely(plain_half(plain_word(bytes, PLAIN_NETWORK - 8) >> 32) != RTE_ETHER_TYPE_IPV4 ||
		     (first & 0xff3f0000000000ff) != PLAIN_VERSION))
		return false;
	payload = plain_half(first) - 20;
	protocol = (uint8_t)(second >> 8);
	if (unlikely(payload > mbuf->pkt_len - PLAIN_TRANSPORT || !plain_sum_holds(first, second, (uint32_t)third) ||
		     !plain_addresses((uint32_t)(second >> 32), (uint32_t)third)))
		return false;
	if (protocol == IPPROTO_UDP) {
		const uint32_t length = plain_half(plain_word(bytes, PLAIN_UDP - 8) >> 16);

		if (unlikely(length < 8 || length > payload))
			return false;
		words->event = EVENT_DATAGRAM;
	} else if (protocol == IPPROTO_TCP && mbuf->data_len >= PLAIN_TCP) {
		words->event = plain_tcp_event(plain_word(bytes, PLAIN_TRANSPORT + 6), payload);
		if (unlikely(words->event >= EVENTS))
			return false;
	} else {
		return false;
	}
	words->source = (uint32_t)(second >> 32);
	words->destination = (uint32_t)third;
	words->ports = plain_ports(third >> 32);
	words->protocol = protocol;
	return true;
}

/*
 * Of a frame that may be plain: its ends and protocol alone.  Those of one that is not, but seems to be, mean nothing:
 * whoever looks at all of it drops it.  Returns false if it is another kind of frame.
 */
static inline bool plain_ends(const struct rte_mbuf *mbuf, struct plain *words)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint64_t first, second, third;

	if (unlikely(mbuf->data_len < PLAIN_UDP))
		return false;
	first = plain_word(bytes, PLAIN_NETWORK);
	second = plain_word(bytes, PLAIN_NETWORK + 8);
	third = plain_word(bytes, PLAIN_NETWORK + 16);
	words->protocol = (uint8_t)(second >> 8);
	if (unlikely(plain_half(plain_word(bytes, PLAIN_NETWORK - 8) >> 32) != RTE_ETHER_TYPE_IPV4 ||
		     (first & 0xff3f0000000000ff) != PLAIN_VERSION ||
		     (words->protocol != IPPROTO_UDP && words->protocol != IPPROTO_TCP)))
		return false;
	words->source = (uint32_t)(second >> 32);
	words->destination = (uint32_t)third;
	words->ports = plain_ports(third >> 32);
	words->event = EVENTS; /* not looked at */
	return true;
}

/* The same as inspect() has it. */
static inline void plain_fill(const struct plain *words, struct inspected *frame)
{
	*frame = (struct inspected){
		.headers = {.key = {words->source, 0, words->destination, 0, plain_kind(words->protocol),
				    PLAIN_PORTS | words->ports}},
		.event = words->event,
		.transport = PLAIN_TRANSPORT - PLAIN_NETWORK,
	};
	frame->headers.rest = PLAIN_REST;
}

#endif
