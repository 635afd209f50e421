/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include <netinet/in.h>
#include <nmmintrin.h>
#include <rte_cycles.h>
#include <rte_ether.h>

#include "steer/follow.h"
#include "vring/packet_bytes.h"

enum {
	MARK_FIRST = 64, /* bytes of what a header carries, from its beginning */
	MARK_LAST = 32,	 /* and from its end: in a flow of equal frames the number of each is often there */
	TCP_LEAST = 20,
	IPV6_HEADER = 40,
};

static uint32_t add(uint32_t mark, const void *bytes, unsigned length)
{
	for (unsigned i = 0; i < length; i++)
		mark = _mm_crc32_u8(mark, ((const uint8_t *)bytes)[i]);
	return mark;
}

/* Add what lies from `from` to `to`, which may be beyond the head: its first bytes and its last ones. */
static uint32_t add_content(uint32_t mark, const struct packet *packet, uint32_t from, uint32_t to)
{
	uint8_t room[MARK_FIRST];
	uint32_t first, last;

	to = RTE_MIN(to, packet->length);
	if (from >= to)
		return mark;
	first = RTE_MIN(to - from, (uint32_t)MARK_FIRST);
	mark = add(mark, packet_bytes(packet, from, first, room), first);
	last = RTE_MIN(to - from - first, (uint32_t)MARK_LAST);
	return add(mark, packet_bytes(packet, to - last, last, room), last);
}

/* What IP carries lies from `from` to `to`.  A checksum may be completed on the way, by the switch too. */
static uint32_t add_transport(uint32_t mark, const struct packet *packet, const struct headers *headers, uint32_t from,
			      uint32_t to)
{
	uint8_t room[TCP_LEAST];
	const uint8_t *header;
	uint32_t length = 0;

	if (headers->protocol == IPPROTO_UDP || headers->protocol == IPPROTO_UDPLITE)
		length = 8;
	else if (headers->protocol == IPPROTO_TCP)
		length = TCP_LEAST;
	else if (headers->protocol == IPPROTO_ICMP || headers->protocol == IPPROTO_ICMPV6)
		length = 4;
	if (length == 0 || headers->fragment == FRAGMENT_LATER || from + length > RTE_MIN(to, packet->length))
		return add_content(mark, packet, from, to);
	header = packet_bytes(packet, from, length, room);
	if (length == TCP_LEAST) {
		mark = add(mark, header, 14); /* ports, positions, flags */
		length = RTE_MAX((header[12] >> 4) * 4, TCP_LEAST);
	} else {
		mark = add(mark, header, length == 8 ? 4 : 2); /* ports, or type and code */
	}
	return add_content(mark, packet, from + length, to);
}

/* Where what is behind the tags begins: its type. */
static uint32_t behind_tags(const struct packet *packet)
{
	uint32_t at = 2 * RTE_ETHER_ADDR_LEN;
	const uint8_t *type = packet->head + at;

	for (; at + 4 <= packet->head_length &&
	       ((type[0] == 0x81 && type[1] == 0) || (type[0] == 0x88 && type[1] == 0xa8));
	     at += 4)
		type += 4;
	return at;
}

uint32_t follow_mark(const struct packet *packet)
{
	const uint8_t *bytes = packet->head;
	struct headers headers;
	uint32_t mark = 0xffffffff, from, length;

	parse_frame(bytes, packet->head_length, &headers);
	if (headers.network == 0)
		return add_content(mark, packet, behind_tags(packet), UINT32_MAX);
	bytes += headers.network;
	mark = add(mark, headers.source, sizeof(headers.source) + sizeof(headers.destination));
	mark = add(mark, &headers.protocol, sizeof(headers.protocol));
	if (headers.family == HEADERS_IPV4) {
		const uint8_t place[] = {bytes[4], bytes[5], bytes[6] & 0x3f, bytes[7]}; /* identification, fragment */

		mark = add(mark, place, sizeof(place));
		from = (bytes[0] & 15) * 4;
		length = bytes[2] << 8 | bytes[3];
	} else {
		const uint8_t label[] = {bytes[1] & 15, bytes[2], bytes[3]};

		mark = add(mark, label, sizeof(label));
		from = IPV6_HEADER;
		length = bytes[4] << 8 | bytes[5];
		length += length != 0 ? IPV6_HEADER : 0;
	}
	/* Of what is behind IPv6's extension headers nothing is known to be a checksum. */
	if (headers.family == HEADERS_IPV6 && bytes[6] != headers.protocol)
		return add_content(mark, packet, headers.network + from,
				   length != 0 ? headers.network + length : UINT32_MAX);
	/* A total of 0 is how some stacks write a segment that is still to be cut up; what is behind it is padding. */
	return add_transport(mark, packet, &headers, headers.network + from,
			     length != 0 ? headers.network + length : UINT32_MAX);
}

/* May one more frame be picked at the port? */
static bool count_frame(struct follow *follow, unsigned number)
{
	return number < FOLLOW_PORTS && atomic_load_explicit(&follow->left[number], memory_order_relaxed) > 0 &&
	       atomic_fetch_sub_explicit(&follow->left[number], 1, memory_order_relaxed) > 0;
}

static uint64_t new_sighting(const struct followed *followed)
{
	return (uint64_t)followed->worker << 48 | followed->follow->rings[followed->worker]->sightings++;
}

/* Room for a note behind those that are there.  NULL: there is none, which is counted. */
static struct note *new_note(struct followed *followed, uint64_t sighting, uint32_t mark, uint32_t length)
{
	struct note_ring *ring = followed->follow->rings[followed->worker];
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed) + followed->unshown;
	struct note *note = &ring->notes[head % FOLLOW_NOTES];

	if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == FOLLOW_NOTES) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		return NULL;
	}
	followed->unshown++;
	note->time = rte_rdtsc();
	note->sighting = sighting;
	note->mark = mark;
	note->length = length;
	return note;
}

void follow_pick(struct followed *followed, const struct burst *burst, const char *port, unsigned number)
{
	struct follow *follow = followed->follow;
	struct headers headers[VRING_BURST];
	uint32_t wanted[VRING_BURST];

	followed->packets = 0;
	if (number >= FOLLOW_PORTS || atomic_load_explicit(&follow->left[number], memory_order_relaxed) <= 0)
		return;
	for (unsigned i = 0; i < burst->count; i++)
		parse_frame(burst->packets[i].head, burst->packets[i].head_length, &headers[i]);
	classify(follow->match, headers, burst->count, wanted);
	for (unsigned i = 0; i < burst->count; i++) {
		if (wanted[i] == 0 || !count_frame(follow, number))
			continue;
		followed->packets |= UINT64_C(1) << i;
		followed->marks[i] = follow_mark(&burst->packets[i]);
		followed->sightings[i] = new_sighting(followed);
		follow_say(followed, burst, i, "enters by port %s", port);
	}
}

void follow_unread(struct followed *followed, unsigned count, const char *port, unsigned number, const char *reason)
{
	if (count == 0 || classify_unread(followed->follow->match) == 0)
		return;
	for (; count > 0 && count_frame(followed->follow, number); count--) {
		const uint64_t sighting = new_sighting(followed);
		/* No other's: what is not known cannot be known again. */
		const uint32_t mark = (uint32_t)_mm_crc32_u64(0, sighting);
		struct note *note = new_note(followed, sighting, mark, 0);

		if (note != NULL)
			snprintf(note->text, sizeof(note->text), "enters by port %s", port);
		note = new_note(followed, sighting, mark, 0);
		if (note != NULL)
			snprintf(note->text, sizeof(note->text), "dropped: %s", reason);
	}
}

void follow_say(struct followed *followed, const struct burst *burst, unsigned packet, const char *format, ...)
{
	struct note *note = new_note(followed, followed->sightings[packet], followed->marks[packet],
				     burst->packets[packet].length);
	va_list arguments;

	if (note == NULL)
		return;
	va_start(arguments, format);
	vsnprintf(note->text, sizeof(note->text), format, arguments);
	va_end(arguments);
}

void follow_take_back(struct followed *followed, const struct burst *burst, unsigned first, unsigned number)
{
	struct note_ring *ring = followed->follow->rings[followed->worker];
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t earliest = UINT64_MAX;
	unsigned kept = 0;

	for (unsigned i = burst->count; i-- > first;) {
		if (!(followed->packets >> i & 1))
			continue;
		earliest = followed->sightings[i];
		followed->packets &= ~(UINT64_C(1) << i);
		atomic_fetch_add_explicit(&followed->follow->left[number], 1, memory_order_relaxed);
	}
	/* Sightings are numbered in the order of packets. */
	for (unsigned i = 0; i < followed->unshown; i++) {
		const struct note *note = &ring->notes[(head + i) % FOLLOW_NOTES];

		if (note->sighting < earliest)
			ring->notes[(head + kept++) % FOLLOW_NOTES] = *note;
	}
	followed->unshown = kept;
}

void follow_show(struct followed *followed)
{
	struct note_ring *ring = followed->follow->rings[followed->worker];
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	atomic_store_explicit(&ring->head, head + followed->unshown, memory_order_release);
	followed->unshown = 0;
}
