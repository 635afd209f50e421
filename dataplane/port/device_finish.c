/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_net.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "port/device_finish.h"
#include "vring/offload.h"
#include "vring/vring.h"

enum {
	ALL = OFFLOAD_CHECKSUM | OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_ECN,
	LAYERS = RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK | RTE_PTYPE_TUNNEL_MASK,

	/* Newer than the headers of Debian 12. */
	GSO_UDP_L4 = 5,	   /* VIRTIO_NET_HDR_GSO_UDP_L4: datagrams of one size each */
	GSO_KINDS = 0x1f,  /* bits that say which; the others go with TCP */
	SCTP_CHECKSUM = 8, /* its place in the header (RFC 9260, section 3.1) */
	GRE_CHECKSUM = 4,  /* RFC 2784, section 2 */
	GRE_HAS_CHECKSUM = 0x80,
	IPV4_MOST = 60,	  /* bytes of a header with options */
	JUMBO_LENGTH = 8, /* bytes of a hop-by-hop header with nothing but a jumbo payload (RFC 2675, section 2) */
	OPTION_JUMBO = 0xc2,
};

static uint16_t word_at(const uint8_t *at)
{
	uint16_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static void put_word(uint8_t *at, uint16_t word)
{
	memcpy(at, &word, sizeof(word));
}

static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return sum + (sum >> 16);
}

/* A length as a pseudo header has it, of 16 or 32 bits (RFC 9293, section 3.1; RFC 8200, section 8.1). */
static uint16_t length_sum(uint32_t length)
{
	return fold(rte_cpu_to_be_16(length & 0xffff) + rte_cpu_to_be_16(length >> 16));
}

/* A sum that has a length in it, without that. */
static uint16_t sum_without(uint16_t sum, uint32_t length)
{
	return fold(sum + (uint16_t)~length_sum(length));
}

/* The sum of the bytes from `from` to the end, in network order. */
static uint16_t sum_from(const struct rte_mbuf *mbuf, uint32_t from)
{
	uint16_t sum = 0;

	rte_raw_cksum_mbuf(mbuf, from, mbuf->pkt_len - from, &sum);
	return sum;
}

static void store(uint8_t *field, uint16_t sum)
{
	sum = ~sum;
	/* To UDP 0 means that there is none; to all others both are the same. */
	put_word(field, sum != 0 ? sum : 0xffff);
}

/* ------- checksums ------- */

/* Not rte_hash_crc(), which reads words where they are not aligned. */
static uint32_t crc_with(uint32_t crc, const uint8_t *data, uint32_t length)
{
	uint64_t word;

	for (; length >= sizeof(word); data += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, data, sizeof(word));
		crc = rte_hash_crc_8byte(word, crc);
	}
	for (; length > 0; data++, length--)
		crc = rte_hash_crc_1byte(*data, crc);
	return crc;
}

/* The CRC32c of all from byte `from` on, whose field holds 0 (RFC 9260, appendix A). */
static uint32_t crc_from(const struct rte_mbuf *mbuf, uint32_t from)
{
	uint32_t crc = UINT32_MAX;

	for (; mbuf != NULL; mbuf = mbuf->next) {
		if (from < mbuf->data_len)
			crc = crc_with(crc, rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, from),
				       mbuf->data_len - from);
		from -= RTE_MIN(from, (uint32_t)mbuf->data_len);
	}
	return ~crc;
}

/* Returns whether it is SCTP, and finished. */
static bool finish_sctp(struct rte_mbuf *frame, const struct virtio_net_hdr *offload)
{
	struct rte_net_hdr_lens at = {0};
	uint8_t *field;
	uint32_t crc = 0;

	if (offload->csum_offset != SCTP_CHECKSUM ||
	    (uint32_t)offload->csum_start + SCTP_CHECKSUM + sizeof(crc) > frame->data_len ||
	    (rte_net_get_ptype(frame, &at, LAYERS) & RTE_PTYPE_L4_MASK) != RTE_PTYPE_L4_SCTP ||
	    offload->csum_start != at.l2_len + at.l3_len)
		return false;
	field = rte_pktmbuf_mtod_offset(frame, uint8_t *, offload->csum_start + SCTP_CHECKSUM);
	memcpy(field, &crc, sizeof(crc));
	crc = rte_cpu_to_le_32(crc_from(frame, offload->csum_start));
	memcpy(field, &crc, sizeof(crc));
	return true;
}

/* The field holds the sum of the pseudo header.  Returns false when there is no such field. */
static bool finish_checksum(struct rte_mbuf *frame, const struct virtio_net_hdr *offload)
{
	const uint32_t field = (uint32_t)offload->csum_start + offload->csum_offset;

	if (field + sizeof(uint16_t) > frame->data_len)
		return false;
	store(rte_pktmbuf_mtod_offset(frame, uint8_t *, field), sum_from(frame, offload->csum_start));
	return true;
}

/* ------- where the headers of a long segment lie ------- */

/*
 * The IP header that ends where `transport` begins, or 0.  What lies in front of it in a tunnel may be anything; a
 * header with the right protocol, length and, of IPv4, checksum is no coincidence.
 */
static uint32_t ip_before(const struct device_cut *cut, uint32_t transport, uint8_t protocol, uint8_t kind)
{
	const uint32_t length = cut->frame->pkt_len;
	const uint8_t *ip;

	for (uint32_t size = sizeof(struct rte_ipv4_hdr);
	     kind != VIRTIO_NET_HDR_GSO_TCPV6 && size <= IPV4_MOST && size <= transport; size += 4) {
		ip = cut->head + transport - size;

		if (ip[0] == (0x40 | size / 4) && ip[offsetof(struct rte_ipv4_hdr, next_proto_id)] == protocol &&
		    word_at(ip + offsetof(struct rte_ipv4_hdr, total_length)) ==
			    rte_cpu_to_be_16(length - transport + size) &&
		    rte_raw_cksum(ip, size) == 0xffff)
			return transport - size;
	}
	if (kind != VIRTIO_NET_HDR_GSO_TCPV4 && transport >= sizeof(struct rte_ipv6_hdr)) {
		ip = cut->head + transport - sizeof(struct rte_ipv6_hdr);
		if (ip[0] >> 4 == 6 && ip[offsetof(struct rte_ipv6_hdr, proto)] == protocol &&
		    word_at(ip + offsetof(struct rte_ipv6_hdr, payload_len)) == rte_cpu_to_be_16(length - transport))
			return transport - sizeof(struct rte_ipv6_hdr);
	}
	return 0;
}

/* The checksum of the tunnel whose header of this type is at byte `at`, if it has one. */
static void find_tunnel(struct device_cut *cut, uint32_t type, uint32_t at)
{
	const uint32_t tunnel = type & RTE_PTYPE_TUNNEL_MASK;

	if ((type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP) {
		const uint16_t field = at + offsetof(struct rte_udp_hdr, dgram_cksum);
		const uint16_t sum = word_at(cut->head + field);

		cut->outer_udp = at;
		if (sum != 0)
			cut->other = (struct device_sum){.from = at,
							 .field = field,
							 .base = sum_without(sum, cut->frame->pkt_len - at),
							 .length = true};
	} else if ((tunnel == RTE_PTYPE_TUNNEL_GRE || tunnel == RTE_PTYPE_TUNNEL_NVGRE) &&
		   (cut->head[at] & GRE_HAS_CHECKSUM)) {
		cut->other = (struct device_sum){.from = at, .field = at + GRE_CHECKSUM};
	}
}

/* Find the headers of the segment, and of the tunnel that it is in.  Returns whether they are what Linux says. */
static bool find_headers(struct device_cut *cut, const struct virtio_net_hdr *offload)
{
	const struct rte_mbuf *frame = cut->frame;
	const uint32_t most = RTE_MIN(frame->data_len, (uint32_t)DEVICE_CUT_HEADERS);
	const uint8_t kind = offload->gso_type & GSO_KINDS;
	const bool tcp = kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6;
	const bool partial = offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
	struct rte_net_hdr_lens at = {0};
	const uint32_t type = rte_net_get_ptype(frame, &at, LAYERS);
	const bool has_ip = RTE_ETH_IS_IPV4_HDR(type) || RTE_ETH_IS_IPV6_HDR(type);
	const uint32_t behind = has_ip ? at.l2_len + at.l3_len : 0;
	const uint32_t transport = partial ? offload->csum_start : behind;
	uint32_t size = tcp ? sizeof(struct rte_tcp_hdr) : sizeof(struct rte_udp_hdr);

	if ((!tcp && kind != GSO_UDP_L4) || transport < RTE_ETHER_HDR_LEN || transport + size > most)
		return false;
	if (behind == transport && (type & RTE_PTYPE_L4_MASK) == (tcp ? RTE_PTYPE_L4_TCP : RTE_PTYPE_L4_UDP)) {
		if (kind == (RTE_ETH_IS_IPV4_HDR(type) ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4))
			return false;
		cut->ip = at.l2_len;
	} else if (partial) {
		cut->ip = ip_before(cut, transport, tcp ? IPPROTO_TCP : IPPROTO_UDP, kind);
		if (has_ip && behind <= cut->ip) {
			cut->outer = at.l2_len;
			find_tunnel(cut, type, behind);
		}
	}
	if (tcp)
		size = RTE_MAX(size, (cut->head[transport + offsetof(struct rte_tcp_hdr, data_off)] >> 4) * 4u);
	cut->tcp = tcp;
	cut->transport = transport;
	cut->headers = transport + size;
	return cut->ip != 0 && cut->headers <= most && cut->headers < frame->pkt_len;
}

/* ------- cutting ------- */

/*
 * An IPv6 packet of more than 64 KiB has its length in a hop-by-hop header, which Linux has put in for us to know, and
 * which its segments do not have.
 */
static void remove_jumbo_length(struct device_cut *cut)
{
	uint8_t *ip = cut->head + cut->ip, *option = ip + sizeof(struct rte_ipv6_hdr);
	const uint8_t jumbo[] = {0, OPTION_JUMBO, sizeof(uint32_t)};

	if (ip[0] >> 4 != 6 || ip[offsetof(struct rte_ipv6_hdr, proto)] != IPPROTO_HOPOPTS ||
	    cut->transport < cut->ip + sizeof(struct rte_ipv6_hdr) + JUMBO_LENGTH ||
	    memcmp(option + 1, jumbo, sizeof(jumbo)) != 0)
		return;
	ip[offsetof(struct rte_ipv6_hdr, proto)] = option[0];
	memmove(option, option + JUMBO_LENGTH, cut->head + cut->headers - (option + JUMBO_LENGTH));
	cut->transport -= JUMBO_LENGTH;
	cut->headers -= JUMBO_LENGTH;
	cut->sum.from -= JUMBO_LENGTH;
	cut->sum.field -= JUMBO_LENGTH;
}

/* The segment's checksum, from what the frame has in its field: a partial sum, or the whole. */
static void find_sum(struct device_cut *cut, const struct virtio_net_hdr *offload)
{
	const uint16_t field = cut->transport + (cut->tcp ? offsetof(struct rte_tcp_hdr, cksum)
							  : offsetof(struct rte_udp_hdr, dgram_cksum));
	uint16_t sum = word_at(cut->head + field);

	if (!(offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)) {
		if (!cut->tcp && sum == 0)
			return;
		/* What makes it right with the rest of the frame: of a frame that is damaged its segments are, too. */
		sum = ~sum_from(cut->frame, cut->transport);
	}
	cut->sum = (struct device_sum){.from = cut->transport,
				       .field = field,
				       .base = sum_without(sum, cut->frame->pkt_len - cut->transport),
				       .length = true};
}

static bool begin(struct device_cut *cut, struct rte_mbuf *frame, const struct virtio_net_hdr *offload)
{
	memset(cut, 0, offsetof(struct device_cut, head));
	cut->frame = frame;
	memcpy(cut->head, rte_pktmbuf_mtod(frame, void *), RTE_MIN(frame->data_len, (uint32_t)sizeof(cut->head)));
	if (!find_headers(cut, offload) || offload->gso_size < OFFLOAD_SEGMENT_MIN ||
	    cut->headers + offload->gso_size - (cut->outer != 0 ? cut->outer : cut->ip) > UINT16_MAX) {
		cut->frame = NULL;
		return false;
	}
	find_sum(cut, offload);
	cut->size = offload->gso_size;
	cut->at = frame;
	cut->offset = cut->headers;
	cut->left = frame->pkt_len - cut->headers;
	remove_jumbo_length(cut);
	return true;
}

/* Append the next `length` bytes of the payload.  Returns false when the pool is empty. */
static bool append(struct device_cut *cut, struct rte_mempool *pool, struct rte_mbuf *to, uint32_t length)
{
	struct rte_mbuf *last = to;

	while (length > 0) {
		const uint32_t room = rte_pktmbuf_tailroom(last), there = cut->at->data_len - cut->offset;
		const uint32_t step = RTE_MIN(length, RTE_MIN(room, there));

		if (there == 0) {
			cut->at = cut->at->next;
			cut->offset = 0;
		} else if (room == 0) {
			last->next = rte_pktmbuf_alloc(pool);
			if (last->next == NULL)
				return false;
			last = last->next;
			last->data_off = 0;
			to->nb_segs++;
		} else {
			rte_memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
				   rte_pktmbuf_mtod_offset(cut->at, uint8_t *, cut->offset), step);
			last->data_len += step;
			to->pkt_len += step;
			cut->offset += step;
			length -= step;
		}
	}
	return true;
}

static void fit_ip(uint8_t *ip, uint32_t length, uint16_t number)
{
	const uint32_t size = (ip[0] & 15) * 4;

	if (ip[0] >> 4 == 6) {
		put_word(ip + offsetof(struct rte_ipv6_hdr, payload_len),
			 rte_cpu_to_be_16(length - sizeof(struct rte_ipv6_hdr)));
		return;
	}
	put_word(ip + offsetof(struct rte_ipv4_hdr, total_length), rte_cpu_to_be_16(length));
	put_word(ip + offsetof(struct rte_ipv4_hdr, packet_id),
		 rte_cpu_to_be_16(rte_be_to_cpu_16(word_at(ip + offsetof(struct rte_ipv4_hdr, packet_id))) + number));
	put_word(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), 0);
	put_word(ip + offsetof(struct rte_ipv4_hdr, hdr_checksum), ~rte_raw_cksum(ip, size));
}

static void fit_tcp(uint8_t *tcp, uint32_t sent, bool last)
{
	uint32_t sequence;

	memcpy(&sequence, tcp + offsetof(struct rte_tcp_hdr, sent_seq), sizeof(sequence));
	sequence = rte_cpu_to_be_32(rte_be_to_cpu_32(sequence) + sent);
	memcpy(tcp + offsetof(struct rte_tcp_hdr, sent_seq), &sequence, sizeof(sequence));
	if (sent > 0)
		tcp[offsetof(struct rte_tcp_hdr, tcp_flags)] &= ~RTE_TCP_CWR_FLAG;
	if (!last)
		tcp[offsetof(struct rte_tcp_hdr, tcp_flags)] &= ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
}

static void fit_udp(uint8_t *udp, uint32_t length)
{
	put_word(udp + offsetof(struct rte_udp_hdr, dgram_len), rte_cpu_to_be_16(length));
}

static void fit_sum(struct rte_mbuf *segment, const struct device_sum *sum)
{
	uint8_t *field = rte_pktmbuf_mtod_offset(segment, uint8_t *, sum->field);

	if (sum->from == 0)
		return;
	put_word(field, 0);
	store(field, fold(sum_from(segment, sum->from) + sum->base +
			  (sum->length ? length_sum(segment->pkt_len - sum->from) : 0)));
}

struct rte_mbuf *device_cut_next(struct device_cut *cut, struct rte_mempool *pool)
{
	struct rte_mbuf *segment = rte_pktmbuf_alloc(pool);
	const uint32_t own = RTE_MIN(cut->left, (uint32_t)cut->size);
	uint8_t *head;

	if (segment == NULL)
		return NULL;
	head = (uint8_t *)rte_pktmbuf_append(segment, cut->headers);
	memcpy(head, cut->head, cut->headers);
	if (!append(cut, pool, segment, own)) {
		rte_pktmbuf_free(segment);
		return NULL;
	}
	if (cut->outer != 0)
		fit_ip(head + cut->outer, segment->pkt_len - cut->outer, cut->number);
	if (cut->outer_udp != 0)
		fit_udp(head + cut->outer_udp, segment->pkt_len - cut->outer_udp);
	fit_ip(head + cut->ip, segment->pkt_len - cut->ip, cut->number);
	if (cut->tcp)
		fit_tcp(head + cut->transport, cut->sent, own == cut->left);
	else
		fit_udp(head + cut->transport, segment->pkt_len - cut->transport);
	fit_sum(segment, &cut->sum);
	/* It covers the one before. */
	fit_sum(segment, &cut->other);
	cut->number++;
	cut->sent += own;
	cut->left -= own;
	if (cut->left == 0)
		device_cut_end(cut);
	return segment;
}

unsigned device_cut_left(const struct device_cut *cut)
{
	return cut->frame != NULL ? (cut->left + cut->size - 1) / cut->size : 0;
}

void device_cut_end(struct device_cut *cut)
{
	rte_pktmbuf_free(cut->frame);
	cut->frame = NULL;
}

/* ------- frames ------- */

/* Is it one of those that vring/ passes on, or finishes on the way? */
static bool goes_on(const struct rte_mbuf *frame, struct virtio_net_hdr *offload)
{
	return frame->pkt_len <= VRING_FRAME_MAX &&
	       offload_check(offload, ALL, rte_pktmbuf_mtod(frame, uint8_t *), frame->data_len, frame->pkt_len) &&
	       (offload->gso_type == VIRTIO_NET_HDR_GSO_NONE ||
		offload_segments(offload, frame->pkt_len) <= OFFLOAD_SEGMENTS);
}

enum device_finish device_finish(struct rte_mbuf *frame, struct virtio_net_hdr *offload, struct device_cut *cut)
{
	const struct virtio_net_hdr original = *offload;

	if (original.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return goes_on(frame, offload)	      ? DEVICE_WHOLE
		       : begin(cut, frame, &original) ? DEVICE_CUT
						      : DEVICE_MALFORMED;
	if (!finish_sctp(frame, &original)) {
		if (goes_on(frame, offload))
			return DEVICE_WHOLE;
		if (!finish_checksum(frame, &original))
			return DEVICE_MALFORMED;
	}
	*offload = (struct virtio_net_hdr){0};
	return DEVICE_WHOLE;
}
