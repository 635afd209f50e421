/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/in.h>

#include "capture_frame.h"

enum {
	TAGS = 4,	/* VLAN tags at most */
	EXTENSIONS = 8, /* IPv6 extension headers */
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	UDP_HEADER = 8,
	TCP_HEADER = 20,
	ICMP_HEADER = 8,
	SCTP_HEADER = 12,
	MORE_FRAGMENTS = 0x2000,
	FRAGMENT_OFFSET = 0x1fff,
};

/* Of a frame with a whole IP datagram, offsets. */
struct datagram {
	uint16_t begin;	    /* of the IP header */
	uint16_t end;	    /* behind the last byte */
	uint16_t transport; /* of what IP carries */
	uint16_t payload;   /* of what may be overwritten */
	uint16_t checksum;  /* 0: none that could be made */
	uint8_t protocol;
	bool six;
	bool fragment, last; /* a fragment; the last one */
};

static uint16_t read16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void write16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* Sum of 16-bit words in network order; an odd byte at the end is followed by a zero. */
static uint32_t sum_words(const uint8_t *at, uint32_t length)
{
	uint64_t sum = 0;

	for (; length > 1; length -= 2, at += 2)
		sum += read16(at);
	if (length > 0)
		sum += (uint32_t)at[0] << 8;
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint32_t)sum;
}

/* Follow the extension headers.  Returns false if one is cut off. */
static bool walk_extensions(const uint8_t *bytes, struct datagram *datagram, bool *elsewhere)
{
	uint32_t at = datagram->begin + IPV6_HEADER;
	uint8_t next = bytes[datagram->begin + 6];

	for (int i = 0; i < EXTENSIONS; i++) {
		uint32_t length;

		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_FRAGMENT && next != IPPROTO_AH)
			break;
		if (at + 8 > datagram->end)
			return false;
		length = next == IPPROTO_FRAGMENT ? 8
			 : next == IPPROTO_AH	  ? (bytes[at + 1] + 2u) * 4
						  : (bytes[at + 1] + 1u) * 8;
		if (next == IPPROTO_FRAGMENT) {
			datagram->last = (read16(bytes + at + 2) & 1) == 0;
			datagram->fragment = (read16(bytes + at + 2) & 0xfff8) != 0 || !datagram->last;
		}
		/* On its way the destination is another one than that which the checksum is of (RFC 8200, 8.1). */
		if (next == IPPROTO_ROUTING && bytes[at + 3] != 0)
			*elsewhere = true;
		next = bytes[at];
		at += length;
		if (at > datagram->end)
			return false;
	}
	datagram->transport = (uint16_t)at;
	datagram->protocol = next;
	return true;
}

static void find_payload(const uint8_t *bytes, struct datagram *datagram, bool elsewhere)
{
	const uint16_t at = datagram->transport, room = datagram->end - at;

	datagram->payload = at;
	if (datagram->fragment) /* its checksum is of all of them */
		return;
	switch (datagram->protocol) {
	case IPPROTO_UDP:
		if (room < UDP_HEADER || read16(bytes + at + 4) != room)
			return;
		datagram->payload = at + UDP_HEADER;
		if (read16(bytes + at + 6) != 0)
			datagram->checksum = at + 6;
		break;
	case IPPROTO_TCP:
		if (room < TCP_HEADER || (bytes[at + 12] >> 4) * 4 < TCP_HEADER || (bytes[at + 12] >> 4) * 4 > room)
			return;
		datagram->payload = at + (bytes[at + 12] >> 4) * 4;
		datagram->checksum = at + 16;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (room < ICMP_HEADER || (datagram->protocol == IPPROTO_ICMPV6) != datagram->six)
			return;
		datagram->payload = at + ICMP_HEADER;
		datagram->checksum = at + 2;
		break;
	case IPPROTO_SCTP: /* its CRC is left as it was */
		if (room >= SCTP_HEADER)
			datagram->payload = at + SCTP_HEADER;
		break;
	}
	if (elsewhere)
		datagram->checksum = 0;
}

/* Returns whether the frame has a whole IP datagram whose headers do not contradict themselves. */
static bool find_datagram(const uint8_t *bytes, uint16_t length, struct datagram *datagram)
{
	uint32_t at = 12, end;
	uint16_t type;
	int tags = 0;
	bool elsewhere = false;

	*datagram = (struct datagram){.last = true};
	for (;;) {
		if (at + 2 > length)
			return false;
		type = read16(bytes + at);
		at += 2;
		if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
			break;
		if (tags++ == TAGS)
			return false;
		at += 2;
	}
	if (type == 0x0800 && at + IPV4_HEADER <= length && bytes[at] >> 4 == 4) {
		const uint32_t header = (bytes[at] & 15) * 4u, total = read16(bytes + at + 2);
		const uint16_t fragment = read16(bytes + at + 6);

		if (header < IPV4_HEADER || total < header)
			return false;
		end = at + total;
		datagram->transport = (uint16_t)(at + header);
		datagram->protocol = bytes[at + 9];
		datagram->fragment = (fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)) != 0;
		datagram->last = (fragment & MORE_FRAGMENTS) == 0;
	} else if (type == 0x86dd && at + IPV6_HEADER <= length && bytes[at] >> 4 == 6) {
		end = at + IPV6_HEADER + read16(bytes + at + 4);
		datagram->six = true;
	} else {
		return false;
	}
	if (end > length)
		return false;
	datagram->begin = (uint16_t)at;
	datagram->end = (uint16_t)end;
	if (datagram->six && !walk_extensions(bytes, datagram, &elsewhere))
		return false;
	find_payload(bytes, datagram, elsewhere);
	return true;
}

/* Say in all headers that the datagram is longer by so many bytes. */
static void grow(uint8_t *bytes, struct datagram *datagram, uint16_t growth)
{
	uint8_t *ip = bytes + datagram->begin, *udp = bytes + datagram->transport + 4;

	memset(bytes + datagram->end, 0, growth);
	if (datagram->six)
		write16(ip + 4, read16(ip + 4) + growth);
	else
		write16(ip + 2, read16(ip + 2) + growth);
	if (datagram->protocol == IPPROTO_UDP && datagram->payload != datagram->transport)
		write16(udp, read16(udp) + growth);
	datagram->end += growth;
}

static void sum_header(uint8_t *bytes, const struct datagram *datagram)
{
	uint8_t *ip = bytes + datagram->begin;

	if (datagram->six)
		return;
	write16(ip + 10, 0);
	write16(ip + 10, ~sum_words(ip, (ip[0] & 15) * 4u));
}

/* The sum that the transport checksum is of, but for the signature. */
static void sum_transport(uint8_t *bytes, const struct datagram *datagram, struct capture_frame *frame)
{
	const uint8_t *ip = bytes + datagram->begin;
	const uint16_t length = datagram->end - datagram->transport;
	uint32_t sum;

	if (datagram->checksum == 0)
		return;
	write16(bytes + datagram->checksum, 0);
	sum = sum_words(bytes + datagram->transport, length);
	if (datagram->six)
		sum += sum_words(ip + 8, 32) + length + datagram->protocol;
	else if (datagram->protocol != IPPROTO_ICMP)
		sum += sum_words(ip + 12, 8) + length + datagram->protocol;
	frame->checksum = (sum & 0xffff) + (sum >> 16);
	frame->checksum_at = datagram->checksum;
	frame->odd = (frame->signature_at - datagram->transport) % 2 != 0;
	frame->udp = datagram->protocol == IPPROTO_UDP;
}

int capture_frame_make(const uint8_t *bytes, uint16_t length, uint8_t *to, struct capture_frame *frame)
{
	struct datagram datagram;
	int changes = CAPTURE_AS_IT_WAS;

	*frame = (struct capture_frame){.length = length};
	memcpy(to, bytes, length);
	if (find_datagram(to, length, &datagram)) {
		const int lacks = SIGNATURE_SIZE - (datagram.end - datagram.payload);

		if (lacks > 0 && !datagram.last)
			return -1;
		if (datagram.end < length)
			changes |= CAPTURE_CUT;
		if (lacks > 0) {
			changes |= CAPTURE_GROWN;
			grow(to, &datagram, (uint16_t)lacks);
		}
		frame->length = datagram.end;
		frame->signature_at = datagram.end - SIGNATURE_SIZE;
		memset(to + frame->signature_at, 0, SIGNATURE_SIZE);
		sum_header(to, &datagram);
		sum_transport(to, &datagram, frame);
	}
	if (frame->length < CAPTURE_SHORTEST) {
		memset(to + frame->length, 0, CAPTURE_SHORTEST - frame->length);
		frame->length = CAPTURE_SHORTEST;
		changes |= CAPTURE_PADDED;
	}
	if (frame->signature_at == 0)
		frame->signature_at = frame->length - SIGNATURE_SIZE;
	return changes;
}

uint16_t capture_datagram_end(const uint8_t *bytes, uint16_t length)
{
	struct datagram datagram;

	return find_datagram(bytes, length, &datagram) ? datagram.end : length;
}
