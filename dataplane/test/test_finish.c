/* SPDX-License-Identifier: Apache-2.0
 *
 * What Linux leaves to be done of a frame that it hands over: what goes on to vring/ as it is, and that everything else
 * comes out complete, whatever it is wrapped in.  Checksums are checked by a sum of our own.
 */
#include "test/cmocka_all.h"

#include <netinet/in.h>
#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

#include "port/device_finish.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"
#include "vring/offload.h"
#include "vring/vring.h"

enum {
	POOL = 1023,
	SIZE = 1000, /* payload of a segment, unless a test says otherwise */
	UDP_L4 = 5,  /* VIRTIO_NET_HDR_GSO_UDP_L4 */
	UDP_HEADER = 8,
	TCP_HEADER = 32,
	SEQUENCE = 0xfffff000,
	FLAGS = 0x99, /* CWR, ACK, PSH, FIN */
};

static struct rte_mempool *pool;

static int start_all(void **state)
{
	pool = start_dpdk_with_pool(32, POOL);
	return pool == NULL;
}

static int all_buffers_are_back(void **state)
{
	assert_int_equal(rte_mempool_avail_count(pool), POOL);
	return 0;
}

/* ------- frames ------- */

/* A long segment, and where its headers are. */
struct segment {
	struct frame head; /* all headers */
	uint32_t payload;
	unsigned outer, outer_l4, ip, l4; /* outer: 0: no tunnel */
	uint8_t outer_protocol;		  /* IPPROTO_UDP, IPPROTO_GRE or an IP header at once */
	bool outer_checksum;
	bool tcp;
	struct virtio_net_hdr offload;
};

static uint16_t get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

static void set16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

/* The sum of 16-bit words, folded (RFC 1071). */
static uint16_t sum_of(const uint8_t *at, uint32_t length, uint64_t sum)
{
	for (uint32_t i = 0; i < length; i++)
		sum += (uint64_t)at[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static bool is_ipv6(const uint8_t *ip)
{
	return ip[0] >> 4 == 6;
}

static uint16_t pseudo_sum(const uint8_t *ip, uint8_t protocol, uint32_t length)
{
	return is_ipv6(ip) ? sum_of(ip + 8, 32, (uint64_t)protocol + (length >> 16) + (length & 0xffff))
			   : sum_of(ip + 12, 8, (uint64_t)protocol + (length >> 16) + (length & 0xffff));
}

/* An IP header for `payload` bytes behind it; more than 64 KiB are written as 0, as Linux does.  Returns its place. */
static unsigned add_ip(struct frame *frame, bool ipv6, uint8_t protocol, uint32_t payload)
{
	const unsigned at = frame->length;
	const uint32_t total = payload + (ipv6 ? 0 : 20);

	if (ipv6) {
		frame_add32(frame, 6u << 28);
		frame_add16(frame, total > UINT16_MAX ? 0 : total);
		frame_add8(frame, protocol);
		frame_add8(frame, 64);
		for (unsigned i = 0; i < 32; i++)
			frame_add8(frame, 0x20 + i);
		return at;
	}
	frame_add16(frame, 0x4500);
	frame_add16(frame, total > UINT16_MAX ? 0 : total);
	frame_add16(frame, UINT16_MAX - 1); /* its identification wraps */
	frame_add16(frame, 0);
	frame_add8(frame, 64);
	frame_add8(frame, protocol);
	frame_add16(frame, 0);
	frame_add32(frame, 0x0a000001);
	frame_add32(frame, 0x0a000002);
	set16(frame->bytes + at + 10, ~sum_of(frame->bytes + at, 20, 0));
	return at;
}

static void add_type(struct frame *frame, bool ipv6)
{
	frame_add16(frame, ipv6 ? 0x86dd : 0x0800);
}

/* TCP or UDP, with the sum of the pseudo header for what follows the headers too. */
static void add_transport(struct segment *segment)
{
	struct frame *frame = &segment->head;
	const uint32_t length = segment->payload + (segment->tcp ? TCP_HEADER : UDP_HEADER);
	const uint8_t protocol = segment->tcp ? IPPROTO_TCP : IPPROTO_UDP;
	const uint8_t *ip = frame->bytes + segment->ip;

	segment->l4 = frame->length;
	frame_add16(frame, 1000);
	frame_add16(frame, 2000);
	if (segment->tcp) {
		frame_add32(frame, SEQUENCE);
		frame_add32(frame, 7);
		frame_add16(frame, TCP_HEADER / 4 << 12 | FLAGS);
		frame_add16(frame, 500);
		frame_add16(frame, pseudo_sum(ip, protocol, length));
		for (unsigned i = 18; i < TCP_HEADER; i++)
			frame_add8(frame, i == 18 || i == 19 ? 0 : 1);
	} else {
		frame_add16(frame, length > UINT16_MAX ? 0 : length);
		frame_add16(frame, pseudo_sum(ip, protocol, length));
	}
	segment->offload = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = !segment->tcp ? UDP_L4
			    : is_ipv6(ip) ? VIRTIO_NET_HDR_GSO_TCPV6
					  : VIRTIO_NET_HDR_GSO_TCPV4,
		.gso_size = SIZE,
		.csum_start = segment->l4,
		.csum_offset = segment->tcp ? 16 : 6,
	};
}

static struct segment plain_segment(bool ipv6, bool tcp, unsigned tags, uint32_t payload)
{
	struct segment segment = {.tcp = tcp, .payload = payload};

	frame_macs(&segment.head, 1, 2);
	for (unsigned i = 0; i < tags; i++)
		frame_tag(&segment.head, 0x8100, i + 1);
	add_type(&segment.head, ipv6);
	segment.ip = add_ip(&segment.head, ipv6, tcp ? IPPROTO_TCP : IPPROTO_UDP,
			    payload + (tcp ? TCP_HEADER : UDP_HEADER));
	add_transport(&segment);
	return segment;
}

/* The same in a tunnel: VXLAN, GRE, or nothing between the two IP headers. */
static struct segment tunnelled_segment(bool outer6, uint8_t by, bool checksum, bool ipv6, bool tcp, uint32_t payload)
{
	struct segment segment = {.tcp = tcp, .payload = payload, .outer_protocol = by, .outer_checksum = checksum};
	struct frame *frame = &segment.head;
	const uint32_t inner = (ipv6 ? 40 : 20) + (tcp ? TCP_HEADER : UDP_HEADER) + payload;
	const uint32_t between = by == IPPROTO_UDP ? UDP_HEADER + 8 + 14 : by == IPPROTO_GRE ? (checksum ? 8 : 4) : 0;

	frame_macs(frame, 1, 2);
	add_type(frame, outer6);
	segment.outer = add_ip(frame, outer6, by, between + inner);
	segment.outer_l4 = frame->length;
	if (by == IPPROTO_UDP) {
		frame_add16(frame, 40000);
		frame_add16(frame, 4789);
		frame_add16(frame, between + inner);
		frame_add16(frame, checksum ? pseudo_sum(frame->bytes + segment.outer, by, between + inner) : 0);
		frame_add32(frame, 0x08000000);
		frame_add32(frame, 0x00000500);
		for (unsigned i = 0; i < 12; i++)
			frame_add8(frame, 0x40 + i);
		add_type(frame, ipv6);
	} else if (by == IPPROTO_GRE) {
		frame_add16(frame, checksum ? 0x8000 : 0);
		add_type(frame, ipv6);
		if (checksum)
			frame_add32(frame, 0);
	}
	segment.ip = add_ip(frame, ipv6, tcp ? IPPROTO_TCP : IPPROTO_UDP, payload + (tcp ? TCP_HEADER : UDP_HEADER));
	add_transport(&segment);
	return segment;
}

static uint8_t payload_byte(uint32_t at)
{
	return at * 13 + (at >> 8);
}

static uint32_t length_of(const struct segment *segment)
{
	return segment->head.length + segment->payload;
}

/* The whole frame in buffers, as a socket is read into them; all headers are in the first. */
static struct rte_mbuf *mbuf_of(const struct segment *segment)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool), *last = mbuf;

	assert_non_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, segment->head.length), segment->head.bytes, segment->head.length);
	for (uint32_t at = 0; at < segment->payload; at++) {
		if (rte_pktmbuf_tailroom(last) == 0) {
			last->next = rte_pktmbuf_alloc(pool);
			assert_non_null(last->next);
			last = last->next;
			last->data_off = 0;
			mbuf->nb_segs++;
		}
		*rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len++) = payload_byte(at);
		mbuf->pkt_len++;
	}
	return mbuf;
}

/* ------- what comes out ------- */

/* All bytes of a packet buffer and those chained to it. */
static const uint8_t *flat(const struct rte_mbuf *mbuf)
{
	static uint8_t bytes[70000];

	assert_true(mbuf->pkt_len <= sizeof(bytes));
	return rte_pktmbuf_read(mbuf, 0, mbuf->pkt_len, bytes);
}

static void expect_ip(const uint8_t *ip, uint32_t length, unsigned number)
{
	if (is_ipv6(ip)) {
		assert_int_equal(get16(ip + 4), length - 40);
		return;
	}
	assert_int_equal(get16(ip + 2), length);
	assert_int_equal(get16(ip + 4), (uint16_t)(UINT16_MAX - 1 + number));
	assert_int_equal(sum_of(ip, 20, 0), 0xffff);
}

static void expect_sum(const uint8_t *ip, const uint8_t *at, uint8_t protocol, uint32_t length)
{
	assert_int_equal(sum_of(at, length, pseudo_sum(ip, protocol, length)), 0xffff);
}

static void expect_tunnel(const struct segment *segment, const uint8_t *bytes, uint32_t length, unsigned number)
{
	const uint8_t *at = bytes + segment->outer_l4;
	const uint32_t rest = length - segment->outer_l4;

	expect_ip(bytes + segment->outer, length - segment->outer, number);
	if (segment->outer_protocol == IPPROTO_UDP) {
		assert_int_equal(get16(at + 4), rest);
		if (segment->outer_checksum)
			expect_sum(bytes + segment->outer, at, IPPROTO_UDP, rest);
		else
			assert_int_equal(get16(at + 6), 0);
	} else if (segment->outer_protocol == IPPROTO_GRE && segment->outer_checksum) {
		assert_int_equal(sum_of(at, rest, 0), 0xffff);
	}
}

/* One of the segments, which carries `own` bytes from byte `sent` on.  `removed`: bytes in front of TCP. */
static void expect_segment(const struct segment *segment, struct rte_mbuf *mbuf, unsigned number, uint32_t sent,
			   uint32_t own, unsigned removed)
{
	const uint32_t length = segment->head.length - removed + own;
	const uint8_t *bytes = flat(mbuf), *l4 = bytes + segment->l4 - removed;

	rte_mbuf_sanity_check(mbuf, 1);
	assert_int_equal(mbuf->pkt_len, length);
	assert_memory_equal(bytes, segment->head.bytes, 14);
	if (segment->outer != 0)
		expect_tunnel(segment, bytes, length, number);
	expect_ip(bytes + segment->ip, length - segment->ip, number);
	expect_sum(bytes + segment->ip, l4, segment->tcp ? IPPROTO_TCP : IPPROTO_UDP, bytes + length - l4);
	if (segment->tcp) {
		const uint8_t flags = (sent == 0 ? 0x80 : 0) | 0x10 | (sent + own == segment->payload ? 0x09 : 0);

		assert_int_equal((uint32_t)get16(l4 + 4) << 16 | get16(l4 + 6), (uint32_t)(SEQUENCE + sent));
		assert_int_equal(l4[13], flags);
		assert_memory_equal(l4 + 18, segment->head.bytes + segment->l4 + 18, TCP_HEADER - 18);
	} else {
		assert_int_equal(get16(l4 + 4), UDP_HEADER + own);
	}
	for (uint32_t i = 0; i < own; i++)
		assert_int_equal(bytes[length - own + i], payload_byte(sent + i));
}

/* It is cut, and every segment is right. */
static void expect_cut(const struct segment *segment, unsigned removed)
{
	struct virtio_net_hdr offload = segment->offload;
	struct device_cut cut = {0};
	uint32_t sent = 0;
	unsigned number = 0;

	assert_int_equal(device_finish(mbuf_of(segment), &offload, &cut), DEVICE_CUT);
	assert_int_equal(device_cut_left(&cut),
			 (segment->payload + segment->offload.gso_size - 1) / segment->offload.gso_size);
	while (cut.frame != NULL) {
		const uint32_t own = RTE_MIN((uint32_t)segment->offload.gso_size, segment->payload - sent);
		struct rte_mbuf *mbuf = device_cut_next(&cut, pool);

		assert_non_null(mbuf);
		expect_segment(segment, mbuf, number++, sent, own, removed);
		rte_pktmbuf_free(mbuf);
		sent += own;
	}
	assert_int_equal(sent, segment->payload);
}

/* It goes on as it is, and no byte of it has changed. */
static void expect_to_go_on(const struct segment *segment)
{
	struct virtio_net_hdr offload = segment->offload;
	struct device_cut cut = {0};
	struct rte_mbuf *mbuf = mbuf_of(segment);

	assert_int_equal(device_finish(mbuf, &offload, &cut), DEVICE_WHOLE);
	assert_int_equal(offload.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	assert_int_equal(offload.gso_type, segment->offload.gso_type);
	assert_int_equal(offload.csum_start, segment->l4);
	assert_int_equal(offload.hdr_len, segment->offload.gso_type != 0 ? segment->head.length : 0);
	assert_memory_equal(flat(mbuf), segment->head.bytes, segment->head.length);
	rte_pktmbuf_free(mbuf);
}

/* ------- tests ------- */

static void what_the_switch_knows_goes_on(void **state)
{
	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		for (unsigned tags = 0; tags < 3; tags++) {
			struct segment segment = plain_segment(ipv6, true, tags, 60000);

			expect_to_go_on(&segment);
			segment = plain_segment(ipv6, tags > 0, tags, 700);
			segment.offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
			segment.offload.gso_size = 0;
			expect_to_go_on(&segment);
		}
	}
}

static void segments_in_tunnels_are_cut(void **state)
{
	static const uint8_t by[] = {IPPROTO_UDP, IPPROTO_GRE};

	for (unsigned i = 0; i < RTE_DIM(by); i++)
		for (unsigned kind = 0; kind < 16; kind++) {
			const struct segment segment = tunnelled_segment(kind & 1, by[i], kind & 2, kind & 4, kind & 8,
									 20500);

			expect_cut(&segment, 0);
		}
	for (unsigned kind = 0; kind < 4; kind++) {
		const struct segment segment = tunnelled_segment(kind & 1, kind & 2 ? IPPROTO_IPV6 : IPPROTO_IPIP,
								 false, kind & 2, true, 20500);

		expect_cut(&segment, 0);
	}
}

static void datagrams_are_cut(void **state)
{
	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		const struct segment segment = plain_segment(ipv6, false, ipv6, 20500);

		expect_cut(&segment, 0);
	}
}

static void a_datagram_without_a_checksum_gets_none(void **state)
{
	struct segment segment = plain_segment(false, false, 0, 2 * SIZE);
	struct device_cut cut = {0};

	set16(segment.head.bytes + segment.l4 + 6, 0);
	segment.offload.flags = 0;
	assert_int_equal(device_finish(mbuf_of(&segment), &segment.offload, &cut), DEVICE_CUT);
	while (cut.frame != NULL) {
		struct rte_mbuf *mbuf = device_cut_next(&cut, pool);

		assert_int_equal(get16(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, segment.l4 + 6)), 0);
		rte_pktmbuf_free(mbuf);
	}
}

static void more_than_64_kib_is_cut(void **state)
{
	struct segment segment = plain_segment(false, true, 0, 180000);
	const uint8_t jumbo[] = {IPPROTO_TCP, 0, 0xc2, 4, 0, 2, 0xbf, 0x48};

	expect_cut(&segment, 0);
	/* Linux has a hop-by-hop header with the length put in. */
	segment = plain_segment(true, true, 0, 180000);
	memmove(segment.head.bytes + segment.l4 + sizeof(jumbo), segment.head.bytes + segment.l4, TCP_HEADER);
	memcpy(segment.head.bytes + segment.l4, jumbo, sizeof(jumbo));
	segment.head.bytes[segment.ip + 6] = IPPROTO_HOPOPTS;
	segment.head.length += sizeof(jumbo);
	segment.l4 += sizeof(jumbo);
	segment.offload.csum_start += sizeof(jumbo);
	expect_cut(&segment, sizeof(jumbo));
}

static void what_the_switch_would_not_cut_is_cut(void **state)
{
	/* Into more frames than it does. */
	struct segment segment = plain_segment(false, true, 0, 60000);

	segment.offload.gso_size = 88;
	expect_cut(&segment, 0);
	/* Segments that are longer than a buffer. */
	segment = tunnelled_segment(true, IPPROTO_UDP, true, false, true, 60000);
	segment.offload.gso_size = 8900;
	expect_cut(&segment, 0);
}

/* Its segments are right if it was, and wrong if it was not. */
static void a_segment_with_its_own_checksum_keeps_its_word(void **state)
{
	for (unsigned damaged = 0; damaged < 2; damaged++) {
		struct segment segment = plain_segment(true, true, 0, 20500);
		struct rte_mbuf *whole = mbuf_of(&segment);
		struct device_cut cut = {0};
		uint8_t *field = segment.head.bytes + segment.l4 + 16;

		set16(field, ~sum_of(flat(whole) + segment.l4, whole->pkt_len - segment.l4, 0));
		rte_pktmbuf_free(whole);
		segment.offload.flags = 0;
		if (!damaged) {
			expect_cut(&segment, 0);
			continue;
		}
		field[0] ^= 0x10;
		assert_int_equal(device_finish(mbuf_of(&segment), &segment.offload, &cut), DEVICE_CUT);
		while (cut.frame != NULL) {
			struct rte_mbuf *mbuf = device_cut_next(&cut, pool);
			const uint8_t *bytes = flat(mbuf);
			const uint32_t length = mbuf->pkt_len - segment.l4;

			assert_int_not_equal(
				sum_of(bytes + segment.l4, length, pseudo_sum(bytes + segment.ip, IPPROTO_TCP, length)),
				0xffff);
			rte_pktmbuf_free(mbuf);
		}
	}
}

/* Where it is written is where steering looks: before steering does. */
static void a_checksum_among_what_steering_reads_is_finished_at_once(void **state)
{
	struct segment segment = plain_segment(false, true, 0, 700);
	struct device_cut cut = {0};
	struct rte_mbuf *mbuf = mbuf_of(&segment);
	const uint16_t wanted = ~sum_of(flat(mbuf) + segment.ip, mbuf->pkt_len - segment.ip, 0);

	segment.offload = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = segment.ip, .csum_offset = 12};
	assert_int_equal(device_finish(mbuf, &segment.offload, &cut), DEVICE_WHOLE);
	assert_int_equal(segment.offload.flags, 0);
	assert_int_equal(get16(flat(mbuf) + segment.ip + 12), wanted);
	rte_pktmbuf_free(mbuf);
}

/* Bit by bit (RFC 9260, appendix A). */
static uint32_t crc32c(const uint8_t *at, uint32_t length)
{
	uint32_t crc = UINT32_MAX;

	for (uint32_t i = 0; i < length; i++) {
		crc ^= at[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void sctp_gets_a_checksum_of_its_own_kind(void **state)
{
	assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283);
	for (uint32_t payload = 700; payload < 4000; payload += 3001) {
		struct segment segment = {.payload = payload};
		struct device_cut cut = {0};
		struct rte_mbuf *mbuf;
		uint8_t bytes[5000];
		uint32_t crc;

		frame_macs(&segment.head, 1, 2);
		add_type(&segment.head, false);
		segment.ip = add_ip(&segment.head, false, IPPROTO_SCTP, 12 + payload);
		segment.l4 = segment.head.length;
		for (unsigned i = 0; i < 12; i++)
			frame_add8(&segment.head, i);
		segment.offload = (struct virtio_net_hdr){
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = segment.l4, .csum_offset = 8};
		mbuf = mbuf_of(&segment);
		memcpy(bytes, flat(mbuf), mbuf->pkt_len);
		memset(bytes + segment.l4 + 8, 0, 4);
		assert_int_equal(device_finish(mbuf, &segment.offload, &cut), DEVICE_WHOLE);
		assert_int_equal(segment.offload.flags, 0);
		crc = rte_cpu_to_le_32(crc32c(bytes + segment.l4, mbuf->pkt_len - segment.l4));
		memcpy(bytes + segment.l4 + 8, &crc, sizeof(crc));
		assert_memory_equal(flat(mbuf), bytes, mbuf->pkt_len);
		rte_pktmbuf_free(mbuf);
	}
}

static void what_contradicts_the_frame_is_refused(void **state)
{
	struct virtio_net_hdr wrong[12];

	for (unsigned tunnelled = 0; tunnelled < 2; tunnelled++) {
		const struct segment segment = tunnelled
						       ? tunnelled_segment(false, IPPROTO_UDP, true, false, true, 3000)
						       : plain_segment(false, true, 1, 3000);
		unsigned count = 0;

		for (unsigned i = 0; i < RTE_DIM(wrong); i++)
			wrong[i] = segment.offload;
		wrong[count++].gso_size = 0;
		wrong[count++].gso_size = 7;
		if (tunnelled) /* else it is one segment */
			wrong[count++].gso_size = UINT16_MAX;
		wrong[count++].csum_start = 0;
		wrong[count++].csum_start += 4;
		wrong[count++].csum_start = length_of(&segment) - 10;
		wrong[count++].csum_start = UINT16_MAX;
		wrong[count++].gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
		wrong[count++].gso_type = UDP_L4;
		wrong[count++].gso_type = VIRTIO_NET_HDR_GSO_UDP;
		wrong[count++].gso_type = 0x1f;
		wrong[count].gso_type = VIRTIO_NET_HDR_GSO_NONE;
		wrong[count++].csum_start = UINT16_MAX;
		for (unsigned i = 0; i < count; i++) {
			struct device_cut cut = {0};
			struct rte_mbuf *mbuf = mbuf_of(&segment);

			assert_int_equal(device_finish(mbuf, &wrong[i], &cut), DEVICE_MALFORMED);
			assert_null(cut.frame);
			rte_pktmbuf_free(mbuf);
		}
	}
}

/* Whatever a guest has made Linux say: each frame that comes out is a frame, and as many bytes as went in. */
static void nothing_that_is_said_does_harm(void **state)
{
	srand(1);
	for (unsigned i = 0; i < 20000; i++) {
		struct segment segment = i % 2 ? plain_segment(i & 2, i & 4, i % 4, 3000)
					       : tunnelled_segment(i & 2, i & 4 ? IPPROTO_UDP : IPPROTO_GRE, i & 8,
								   i & 16, i & 32, 3000);
		struct device_cut cut = {0};
		struct rte_mbuf *mbuf;
		enum device_finish finish;

		for (unsigned changes = rand() % 4; changes > 0; changes--)
			segment.head.bytes[12 + rand() % (segment.head.length - 12)] = rand();
		if (rand() % 2)
			((uint8_t *)&segment.offload)[rand() % sizeof(segment.offload)] = rand();
		mbuf = mbuf_of(&segment);
		finish = device_finish(mbuf, &segment.offload, &cut);
		if (finish != DEVICE_CUT)
			rte_pktmbuf_free(mbuf);
		while (cut.frame != NULL) {
			mbuf = device_cut_next(&cut, pool);
			rte_mbuf_sanity_check(mbuf, 1);
			assert_true(mbuf->pkt_len <= UINT16_MAX + 22u && mbuf->pkt_len > 34);
			rte_pktmbuf_free(mbuf);
		}
	}
}

static void a_pool_that_is_empty_stops_it(void **state)
{
	static struct rte_mbuf *all[POOL];
	const struct segment segment = plain_segment(false, false, 0, 4 * SIZE);
	struct virtio_net_hdr offload = segment.offload;
	struct device_cut cut = {0};
	struct rte_mbuf *mbuf;
	unsigned rest;

	assert_int_equal(device_finish(mbuf_of(&segment), &offload, &cut), DEVICE_CUT);
	mbuf = device_cut_next(&cut, pool);
	rest = rte_mempool_avail_count(pool);
	assert_int_equal(rte_pktmbuf_alloc_bulk(pool, all, rest), 0);
	assert_null(device_cut_next(&cut, pool));
	assert_int_equal(device_cut_left(&cut), 3);
	device_cut_end(&cut);
	assert_int_equal(device_cut_left(&cut), 0);
	rte_pktmbuf_free_bulk(all, rest);
	rte_pktmbuf_free(mbuf);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, NULL, all_buffers_are_back)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_the_switch_knows_goes_on),
		TEST(segments_in_tunnels_are_cut),
		TEST(datagrams_are_cut),
		TEST(a_datagram_without_a_checksum_gets_none),
		TEST(more_than_64_kib_is_cut),
		TEST(what_the_switch_would_not_cut_is_cut),
		TEST(a_segment_with_its_own_checksum_keeps_its_word),
		TEST(a_checksum_among_what_steering_reads_is_finished_at_once),
		TEST(sctp_gets_a_checksum_of_its_own_kind),
		TEST(what_contradicts_the_frame_is_refused),
		TEST(nothing_that_is_said_does_harm),
		TEST(a_pool_that_is_empty_stops_it),
	};

	return cmocka_run_group_tests(tests, start_all, NULL);
}
