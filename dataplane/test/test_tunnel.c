/* SPDX-License-Identifier: Apache-2.0
 *
 * A tunnel's end: outer headers byte by byte, what becomes of each that is wrong, and how it finds its next hop.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "functions/tunnel.h"

enum { FRAMES = 255, VNI = 0x123456, INNER = 60, MTU = 1500, UDP4 = 34, UDP6 = 54, ICMP6 = 54, NEAR = 1, FAR = 2 };

static struct rte_mempool *pool;
static struct tunnel here, there; /* two ends of one tunnel */
static uint64_t now = 1ULL << 40; /* TSC */

static struct ip_address address(bool six, uint8_t last)
{
	struct ip_address address = {.bytes = {192, 0, 2, last}, .family = HEADERS_IPV4};

	if (six)
		address = (struct ip_address){.bytes = {0x20, 1, 0xd, 0xb8, [15] = last}, .family = HEADERS_IPV6};
	return address;
}

static struct tunnel_settings settings(enum tunnel_protocol protocol, bool six)
{
	return (struct tunnel_settings){
		.ends = {.protocol = protocol,
			 .vni = VNI,
			 .local = address(six, NEAR),
			 .remote = address(six, FAR),
			 .mac = {2, 0, 0, 0, 0, NEAR},
			 .port = protocol == TUNNEL_VXLAN ? TUNNEL_VXLAN_PORT : TUNNEL_GENEVE_PORT,
			 .mtu = MTU,
			 .checksum = six,
			 .tagged = true},
		.neighbour = 2, /* 02:00:00:00:00:00 */
	};
}

static void open_ends(struct tunnel_settings near)
{
	struct tunnel_settings far = near;

	far.ends.local = near.ends.remote;
	far.ends.remote = near.ends.local;
	memcpy(&near.neighbour, (uint8_t[]){2, 0, 0, 0, 0, FAR}, 6);
	memcpy(&far.neighbour, near.ends.mac, 6);
	memcpy(far.ends.mac, (uint8_t[]){2, 0, 0, 0, 0, FAR}, 6);
	tunnel_begin(&here, &near, pool);
	tunnel_begin(&there, &far, pool);
}

static struct rte_mbuf *mbuf_of(const void *bytes, unsigned length)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	assert_non_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), bytes, length);
	return mbuf;
}

static struct frame inner_of(uint16_t port, uint8_t tos)
{
	struct frame frame;

	frame_udp4(&frame, 0x0a000001, 0x0a000002, port, 9);
	frame.bytes[15] = tos;
	while (frame.length < INNER)
		frame_add8(&frame, (uint8_t)frame.length);
	return frame;
}

/* With a flow label. */
static struct frame inner6_of(uint8_t class)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, IPPROTO_UDP, 8);
	frame_ports(&frame, 1, 2);
	frame.bytes[14] = 0x60 | class >> 4;
	frame.bytes[15] = (uint8_t)(class << 4) | 7;
	return frame;
}

/* What leaves by the other port, of one frame; NULL: nothing. */
static struct rte_mbuf *pass(struct tunnel *tunnel, struct rte_mbuf *mbuf, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf};
	const uint16_t nb_out = tunnel_pass(tunnel, burst, 1, in, 0, now);

	assert_true(nb_out <= 1);
	return nb_out == 1 ? burst[0] : NULL;
}

static struct rte_mbuf *wrap(const struct frame *inner)
{
	struct rte_mbuf *mbuf = pass(&here, mbuf_of(inner->bytes, inner->length), 0);

	assert_non_null(mbuf);
	return mbuf;
}

static const uint8_t *bytes_of(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, const uint8_t *);
}

static uint64_t dropped(const struct tunnel *tunnel, unsigned port)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < TUNNEL_VERDICTS; i++)
		all += tunnel->queues[0].counters[port].drops[i];
	return all;
}

/* ------- headers ------- */

static void test_vxlan_over_ipv4_byte_by_byte(void **state)
{
	const struct frame inner = inner_of(1000, 0);
	static const uint8_t expected[] = {
		2,    0, 0,    0,    0,	   FAR,	 2,    0, 0,  0,  0, NEAR, 8,	0, /* Ethernet */
		0x45, 0, 0,    96,   0,	   0,	 0x40, 0, 64, 17, 0, 0,	   192, 0,
		2,    1, 192,  0,    2,	   2,		  /* IPv4; the checksum follows */
		0,    0, 0x12, 0xb5, 0,	   76,	 0,    0, /* UDP; the source port follows */
		8,    0, 0,    0,    0x12, 0x34, 0x56, 0, /* VXLAN */
	};
	uint8_t headers[sizeof(expected)];
	struct rte_mbuf *mbuf;

	open_ends(settings(TUNNEL_VXLAN, false));
	mbuf = wrap(&inner);
	assert_int_equal(mbuf->pkt_len, sizeof(expected) + INNER);
	memcpy(headers, bytes_of(mbuf), sizeof(headers));
	assert_int_equal(rte_raw_cksum(headers + 14, 20), 0xffff);
	assert_true(headers[UDP4] >= 0xc0);
	memset(headers + 24, 0, 2);
	memset(headers + UDP4, 0, 2);
	assert_memory_equal(headers, expected, sizeof(expected));
	assert_memory_equal(bytes_of(mbuf) + sizeof(expected), inner.bytes, INNER);
	rte_pktmbuf_free(mbuf);
}

static void test_geneve_over_ipv6_byte_by_byte(void **state)
{
	const struct frame inner = inner_of(1000, 0);
	static const uint8_t udp[] = {0x17, 0xc1, 0, 76}, geneve[] = {0, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0};
	struct rte_mbuf *mbuf;

	open_ends(settings(TUNNEL_GENEVE, true));
	mbuf = wrap(&inner);
	assert_int_equal(mbuf->pkt_len, TUNNEL_HEADERS6 + INNER);
	assert_memory_equal(bytes_of(mbuf) + 12, "\x86\xdd", 2);
	assert_int_equal(bytes_of(mbuf)[14] >> 4, 6);
	assert_memory_equal(bytes_of(mbuf) + 18, "\0\x4c\x11\x40", 4); /* length, UDP, hop limit */
	assert_memory_equal(bytes_of(mbuf) + UDP6 + 2, udp, sizeof(udp));
	assert_memory_not_equal(bytes_of(mbuf) + UDP6 + 6, "\0\0", 2);
	/* Over one that is right already. */
	assert_int_equal(rte_ipv6_udptcp_cksum((const void *)(bytes_of(mbuf) + 14), bytes_of(mbuf) + UDP6), 0xffff);
	assert_memory_equal(bytes_of(mbuf) + UDP6 + 8, geneve, sizeof(geneve));
	rte_pktmbuf_free(mbuf);
}

/* Whatever is within leaves at the other end as it came. */
static void test_all_kinds_of_frames_come_out_as_they_went_in(void **state)
{
	static const unsigned lengths[] = {14, 15, 60, 1333, 1430};
	uint64_t seed = 1;

	for (unsigned kind = 0; kind < 8; kind++) {
		struct tunnel_settings with = settings(kind & 1 ? TUNNEL_GENEVE : TUNNEL_VXLAN, (kind & 2) != 0);

		with.ends.checksum = (kind & 4) != 0;
		open_ends(with);
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			uint8_t bytes[1500];
			struct rte_mbuf *mbuf;

			for (unsigned j = 0; j < lengths[i]; j++)
				bytes[j] = (uint8_t)random64(&seed);
			mbuf = pass(&here, mbuf_of(bytes, lengths[i]), 0);
			assert_non_null(mbuf);
			mbuf = pass(&there, mbuf, 1);
			assert_non_null(mbuf);
			assert_int_equal(mbuf->pkt_len, lengths[i]);
			assert_memory_equal(bytes_of(mbuf), bytes, lengths[i]);
			rte_pktmbuf_free(mbuf);
		}
		assert_int_equal(dropped(&here, 0) + dropped(&there, 1), 0);
	}
}

/* A flow has one source port; many flows have many. */
static void test_the_source_port_is_the_flows(void **state)
{
	bool seen[1 << 14] = {false};
	unsigned nb_seen = 0;

	open_ends(settings(TUNNEL_VXLAN, false));
	for (uint16_t port = 0; port < 1000; port++) {
		const struct frame inner = inner_of(port, 0);
		unsigned first = 0;

		for (unsigned again = 0; again < 2; again++) {
			struct rte_mbuf *mbuf = wrap(&inner);
			const unsigned found = (unsigned)bytes_of(mbuf)[UDP4] << 8 | bytes_of(mbuf)[UDP4 + 1];

			assert_true(found >= TUNNEL_FIRST_PORT && (again == 0 || found == first));
			first = found;
			rte_pktmbuf_free(mbuf);
		}
		nb_seen += !seen[first - TUNNEL_FIRST_PORT];
		seen[first - TUNNEL_FIRST_PORT] = true;
	}
	assert_true(nb_seen > 900);
}

/* Of what is not IP the addresses say which flow it is: all of both. */
static void test_other_frames_go_by_their_stations(void **state)
{
	open_ends(settings(TUNNEL_VXLAN, false));
	for (unsigned at = 0; at < 12; at++) {
		struct frame one = inner_of(1000, 0), other;
		struct rte_mbuf *mbufs[2];

		memcpy(one.bytes + 12, "\x88\x64", 2); /* PPPoE */
		other = one;
		other.bytes[at] ^= 2;
		mbufs[0] = wrap(&one);
		mbufs[1] = wrap(&other);
		assert_memory_not_equal(bytes_of(mbufs[0]) + UDP4, bytes_of(mbufs[1]) + UDP4, 2);
		rte_pktmbuf_free_bulk(mbufs, 2);
	}
}

static void test_fragments_of_a_datagram_have_one_port(void **state)
{
	struct frame first = inner_of(1000, 0), later = inner_of(2000, 0);
	struct rte_mbuf *one, *other;

	first.bytes[20] = 0x20;
	later.bytes[21] = 100;
	open_ends(settings(TUNNEL_VXLAN, false));
	one = wrap(&first);
	other = wrap(&later);
	assert_memory_equal(bytes_of(one) + UDP4, bytes_of(other) + UDP4, 2);
	rte_pktmbuf_free(one);
	rte_pktmbuf_free(other);
}

static void test_a_frame_that_is_too_long_is_dropped_by_name(void **state)
{
	for (unsigned six = 0; six < 2; six++) {
		const unsigned longest = MTU + 14 - (six ? TUNNEL_HEADERS6 : TUNNEL_HEADERS4);
		uint8_t bytes[MTU] = {0};
		struct rte_mbuf *mbuf;

		open_ends(settings(TUNNEL_VXLAN, six));
		mbuf = pass(&here, mbuf_of(bytes, longest), 0);
		assert_non_null(mbuf);
		assert_int_equal(mbuf->pkt_len, MTU + 14);
		rte_pktmbuf_free(mbuf);
		assert_null(pass(&here, mbuf_of(bytes, longest + 1), 0));
		assert_int_equal(here.queues[0].counters[0].drops[TUNNEL_DROP_too_long], 1);
	}
}

static void test_a_tag_within_is_dropped_unless_it_may_be_there(void **state)
{
	struct tunnel_settings with = settings(TUNNEL_VXLAN, false);
	struct frame frame;
	struct rte_mbuf *mbuf;

	frame_macs(&frame, 1, 2);
	frame_tag(&frame, 0x8100, 7);
	frame_ipv4(&frame, 1, 2, IPPROTO_UDP, 8, 0, 0);
	frame_ports(&frame, 1, 2);
	open_ends(with);
	mbuf = wrap(&frame);
	there.headers.ends.tagged = false;
	assert_null(pass(&there, mbuf, 1));
	assert_int_equal(there.queues[0].counters[1].drops[TUNNEL_DROP_tagged], 1);
	here.headers.ends.tagged = false;
	assert_null(pass(&here, mbuf_of(frame.bytes, frame.length), 0));
	assert_int_equal(here.queues[0].counters[0].drops[TUNNEL_DROP_tagged], 1);
}

/* RFC 6040, figure 4. */
static void test_congestion_is_told_to_who_is_within(void **state)
{
	static const struct {
		uint8_t inner, outer;
		bool passes;
		uint8_t left;
	} cases[] = {
		{0, 0, true, 0}, {0, 1, true, 0}, {0, 2, true, 0}, {0, 3, false, 0}, /* not capable */
		{1, 0, true, 1}, {1, 1, true, 1}, {1, 2, true, 1}, {1, 3, true, 3},  {2, 0, true, 2}, {2, 1, true, 1},
		{2, 2, true, 2}, {2, 3, true, 3}, {3, 0, true, 3}, {3, 1, true, 3},  {3, 2, true, 3}, {3, 3, true, 3},
	};

	for (unsigned i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const unsigned six = i % 2, which = i / 2;
		struct frame inner = six ? inner6_of(0xb8 | cases[which].inner)
					 : inner_of(1000, 0xb8 | cases[which].inner);
		struct rte_mbuf *mbuf;
		uint8_t *ip;

		if (!six)
			((struct rte_ipv4_hdr *)(inner.bytes + 14))->hdr_checksum = rte_ipv4_cksum(
				(struct rte_ipv4_hdr *)(inner.bytes + 14));
		open_ends(settings(TUNNEL_VXLAN, false));
		mbuf = wrap(&inner);
		ip = rte_pktmbuf_mtod_offset(mbuf, uint8_t *, 14);
		assert_int_equal(ip[1], cases[which].inner);
		ip[1] = cases[which].outer;
		memset(ip + 10, 0, 2);
		((struct rte_ipv4_hdr *)ip)->hdr_checksum = rte_ipv4_cksum((struct rte_ipv4_hdr *)ip);
		mbuf = pass(&there, mbuf, 1);
		if (!cases[which].passes) {
			assert_null(mbuf);
			assert_int_equal(there.queues[0].counters[1].drops[TUNNEL_DROP_congested], 1);
			continue;
		}
		assert_non_null(mbuf);
		if (six) {
			assert_int_equal(bytes_of(mbuf)[14], 0x6b);
			assert_int_equal(bytes_of(mbuf)[15], (8 | cases[which].left) << 4 | 7);
		} else {
			assert_int_equal(bytes_of(mbuf)[15], 0xb8 | cases[which].left);
			assert_int_equal(rte_raw_cksum(bytes_of(mbuf) + 14, 20), 0xffff);
		}
		rte_pktmbuf_free(mbuf);
	}
}

/* ------- what is wrong ------- */

/* A byte of a whole outer frame that is another one, and why the frame is dropped then. */
struct fault {
	enum tunnel_protocol protocol;
	bool six;
	unsigned at;
	uint8_t value;
	enum tunnel_verdict verdict;
};

static void test_each_fault_of_outer_headers_has_its_name(void **state)
{
	static const struct fault faults[] = {
		{TUNNEL_VXLAN, false, 5, 9, TUNNEL_DROP_station},
		{TUNNEL_VXLAN, false, 12, 0x81, TUNNEL_DROP_type},
		{TUNNEL_VXLAN, false, 14, 0x55, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, 14, 0x44, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, 14, 0x4f, TUNNEL_DROP_checksum}, /* options that are not there */
		{TUNNEL_VXLAN, false, 16, 1, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, 17, 19, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, 22, 63, TUNNEL_DROP_checksum},
		{TUNNEL_VXLAN, false, UDP4 + 3, 0, TUNNEL_DROP_protocol},
		{TUNNEL_VXLAN, false, UDP4 + 5, 77, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, UDP4 + 5, 15, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, false, UDP4 + 5, 29, TUNNEL_DROP_short}, /* no room for an Ethernet header */
		{TUNNEL_VXLAN, false, UDP4 + 7, 1, TUNNEL_DROP_checksum},
		{TUNNEL_VXLAN, false, UDP4 + 8, 0, TUNNEL_DROP_header},
		{TUNNEL_VXLAN, false, UDP4 + 14, 0, TUNNEL_DROP_vni},
		{TUNNEL_GENEVE, false, UDP4 + 8, 0x40, TUNNEL_DROP_header}, /* another version */
		{TUNNEL_GENEVE, false, UDP4 + 8, 0x3f, TUNNEL_DROP_short},  /* options that are not there */
		{TUNNEL_GENEVE, false, UDP4 + 9, 0x80, TUNNEL_DROP_control},
		{TUNNEL_GENEVE, false, UDP4 + 9, 0x40, TUNNEL_DROP_option},
		{TUNNEL_GENEVE, false, UDP4 + 10, 8, TUNNEL_DROP_header}, /* no Ethernet within */
		{TUNNEL_VXLAN, true, 14, 0x40, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, true, 18, 9, TUNNEL_DROP_length},
		{TUNNEL_VXLAN, true, 20, 44, TUNNEL_DROP_fragment},
		{TUNNEL_VXLAN, true, 20, 60, TUNNEL_DROP_protocol},
		{TUNNEL_VXLAN, true, 37, 9, TUNNEL_DROP_ends},
		{TUNNEL_VXLAN, true, 53, 9, TUNNEL_DROP_ends},
		{TUNNEL_VXLAN, true, UDP6 + 7, 1, TUNNEL_DROP_checksum},
	};

	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct frame inner = inner_of(1000, 0);
		struct rte_mbuf *mbuf;

		open_ends(settings(faults[i].protocol, faults[i].six));
		mbuf = wrap(&inner);
		*rte_pktmbuf_mtod_offset(mbuf, uint8_t *, faults[i].at) = faults[i].value;
		assert_null(pass(&there, mbuf, 1));
		assert_int_equal(there.queues[0].counters[1].drops[faults[i].verdict], 1);
		assert_int_equal(dropped(&there, 1), 1);
	}
}

/* Of IPv4, with a checksum that holds. */
static void test_fragments_and_other_ends_have_theirs_too(void **state)
{
	static const struct fault faults[] = {
		{TUNNEL_VXLAN, false, 20, 0x20, TUNNEL_DROP_fragment},
		{TUNNEL_VXLAN, false, 21, 1, TUNNEL_DROP_fragment},
		{TUNNEL_VXLAN, false, 23, 6, TUNNEL_DROP_protocol},
		{TUNNEL_VXLAN, false, 29, 9, TUNNEL_DROP_ends},
		{TUNNEL_VXLAN, false, 33, 9, TUNNEL_DROP_ends},
	};

	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct frame inner = inner_of(1000, 0);
		struct rte_mbuf *mbuf;
		uint8_t *bytes;

		open_ends(settings(TUNNEL_VXLAN, false));
		mbuf = wrap(&inner);
		bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
		bytes[faults[i].at] = faults[i].value;
		memset(bytes + 24, 0, 2);
		((struct rte_ipv4_hdr *)(bytes + 14))->hdr_checksum = rte_ipv4_cksum(
			(struct rte_ipv4_hdr *)(bytes + 14));
		assert_null(pass(&there, mbuf, 1));
		assert_int_equal(there.queues[0].counters[1].drops[faults[i].verdict], 1);
	}
}

/* Over IPv6 a checksum is there unless both ends are told otherwise (RFC 8926, 3.3); VXLAN may always do without (RFC
 * 7348, 4.1). */
static void test_geneve_over_ipv6_has_a_checksum_unless_it_is_told_otherwise(void **state)
{
	for (unsigned kind = 0; kind < 8; kind++) {
		const bool geneve = kind & 1, six = kind & 2, told = kind & 4;
		struct tunnel_settings with = settings(geneve ? TUNNEL_GENEVE : TUNNEL_VXLAN, six);
		const struct frame inner = inner_of(1000, 0);
		struct rte_mbuf *mbuf;

		with.ends.checksum = !told;
		open_ends(with);
		mbuf = wrap(&inner);
		memset(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, (six ? UDP6 : UDP4) + 6), 0, 2);
		mbuf = pass(&there, mbuf, 1);
		assert_int_equal(mbuf == NULL, geneve && six && !told);
		assert_int_equal(there.queues[0].counters[1].drops[TUNNEL_DROP_checksum], mbuf == NULL);
		rte_pktmbuf_free(mbuf);
	}
}

/* Options that nobody has to understand are skipped, and so is what follows the datagram. */
static void test_options_and_padding_are_skipped(void **state)
{
	enum { OPTIONS = 8, PADDING = 7 };
	const struct frame inner = inner_of(1000, 0);
	uint8_t bytes[TUNNEL_HEADERS4 + OPTIONS + INNER + PADDING] = {0};
	struct rte_mbuf *mbuf;

	open_ends(settings(TUNNEL_GENEVE, false));
	mbuf = wrap(&inner);
	memcpy(bytes, bytes_of(mbuf), TUNNEL_HEADERS4);
	rte_pktmbuf_free(mbuf);
	memcpy(bytes + TUNNEL_HEADERS4 + OPTIONS, inner.bytes, INNER);
	bytes[UDP4 + 8] = OPTIONS / 4;
	bytes[17] += OPTIONS;
	bytes[UDP4 + 5] += OPTIONS;
	memset(bytes + 24, 0, 2);
	((struct rte_ipv4_hdr *)(bytes + 14))->hdr_checksum = rte_ipv4_cksum((struct rte_ipv4_hdr *)(bytes + 14));
	mbuf = pass(&there, mbuf_of(bytes, sizeof(bytes)), 1);
	assert_non_null(mbuf);
	assert_int_equal(mbuf->pkt_len, INNER);
	assert_memory_equal(bytes_of(mbuf), inner.bytes, INNER);
	rte_pktmbuf_free(mbuf);
}

static void test_a_frame_that_ends_anywhere_is_dropped(void **state)
{
	for (unsigned six = 0; six < 2; six++)
		for (unsigned length = 1; length < (six ? TUNNEL_HEADERS6 : TUNNEL_HEADERS4) + INNER; length++) {
			const struct frame inner = inner_of(1000, 0);
			struct rte_mbuf *mbuf;

			open_ends(settings(TUNNEL_VXLAN, six));
			mbuf = wrap(&inner);
			rte_pktmbuf_trim(mbuf, (uint16_t)(mbuf->pkt_len - length));
			assert_null(pass(&there, mbuf, 1));
			assert_int_equal(dropped(&there, 1), 1);
		}
}

/* ------- the next hop ------- */

static void exchange(bool six)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, six), far = near;
	const struct frame inner = inner_of(1000, 0);
	struct rte_mbuf *burst[FUNCTION_ROOM], *question, *mbuf;

	near.neighbour = 0;
	far.ends.local = near.ends.remote;
	far.ends.remote = near.ends.local;
	memcpy(far.ends.mac, (uint8_t[]){2, 0, 0, 0, 0, FAR}, 6);
	tunnel_begin(&here, &near, pool);
	tunnel_begin(&there, &far, pool);
	question = pass(&here, mbuf_of(inner.bytes, inner.length), 0);
	assert_non_null(question);
	assert_int_equal(here.queues[0].counters[0].drops[TUNNEL_DROP_no_neighbour], 1);
	assert_null(pass(&here, mbuf_of(inner.bytes, inner.length), 0)); /* asked a moment ago */
	assert_null(pass(&there, question, 1));
	assert_int_equal(tunnel_pass(&there, burst, 0, 0, 0, now), 1);
	now += rte_get_tsc_hz();
	assert_null(pass(&here, burst[0], 1));
	mbuf = pass(&here, mbuf_of(inner.bytes, inner.length), 0);
	assert_non_null(mbuf);
	assert_memory_equal(bytes_of(mbuf), far.ends.mac, 6);
	mbuf = pass(&there, mbuf, 1);
	assert_non_null(mbuf);
	rte_pktmbuf_free(mbuf);
}

static void test_the_other_end_is_asked_for(void **state)
{
	exchange(false);
	exchange(true);
}

/* After a while it is asked for again; one that does not answer any more is not known any more. */
static void test_a_neighbour_that_is_silent_is_forgotten(void **state)
{
	const struct frame inner = inner_of(1000, 0);

	exchange(false);
	for (unsigned questions = 0; questions <= TUNNEL_IGNORED; questions++) {
		struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf_of(inner.bytes, inner.length)};

		now += (TUNNEL_FRESH + 1) * rte_get_tsc_hz();
		assert_int_equal(tunnel_pass(&here, burst, 1, 0, 0, now), 2);
		rte_pktmbuf_free(burst[0]);
		rte_pktmbuf_free(burst[1]);
	}
	assert_null(pass(&here, mbuf_of(inner.bytes, inner.length), 0));
	assert_int_equal(here.queues[0].counters[0].drops[TUNNEL_DROP_no_neighbour], 3);
}

/* ARP's answer from the far end to this one, with this MAC address. */
static struct rte_mbuf *arp(uint8_t last, uint8_t mac)
{
	const uint8_t bytes[60] = {2, 0, 0, 0, 0, NEAR, 2,   0,	  0, 0, 0,    mac, 8, 6, 0, 1, 8,    0,	  6, 4, 0,
				   2, 2, 0, 0, 0, 0,	mac, 192, 0, 2, last, 2,   0, 0, 0, 0, NEAR, 192, 0, 2, NEAR};

	return mbuf_of(bytes, sizeof(bytes));
}

/* What is asked at the start leaves by a port that no chain leads to yet. */
static void test_the_first_frame_asks_at_once(void **state)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, false);
	const struct frame inner = inner_of(1000, 0);
	struct rte_mbuf *burst[FUNCTION_ROOM], *question;

	near.neighbour = 0;
	tunnel_begin(&here, &near, pool);
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 0, now), 1);
	rte_pktmbuf_free(burst[0]);
	now += rte_get_tsc_hz() / 10;
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 0, now), 0);
	question = pass(&here, mbuf_of(inner.bytes, inner.length), 0);
	assert_non_null(question);
	rte_pktmbuf_free(question);
	assert_null(pass(&here, mbuf_of(inner.bytes, inner.length), 0));
	assert_null(pass(&here, arp(FAR, 7), 1));
	question = pass(&here, mbuf_of(inner.bytes, inner.length), 0);
	assert_non_null(question);
	rte_pktmbuf_free(question);
}

static void test_only_answers_to_a_question_count(void **state)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, false);
	const struct frame inner = inner_of(1000, 0);

	near.neighbour = 0;
	tunnel_begin(&here, &near, pool);
	assert_null(pass(&here, arp(FAR, 7), 1)); /* nobody has asked */
	assert_int_equal(here.mac, 0);
	rte_pktmbuf_free(pass(&here, mbuf_of(inner.bytes, inner.length), 0));
	assert_null(pass(&here, arp(9, 7), 1)); /* of somebody else */
	assert_int_equal(here.mac, 0);
	now += (TUNNEL_ANSWER + 1) * rte_get_tsc_hz();
	assert_null(pass(&here, arp(FAR, 7), 1)); /* too late */
	assert_int_equal(here.mac, 0);
	rte_pktmbuf_free(pass(&here, mbuf_of(inner.bytes, inner.length), 0));
	assert_null(pass(&here, arp(FAR, 7), 1));
	assert_memory_equal(&here.mac, "\2\0\0\0\0\7", 6);
	assert_int_equal(here.queues[0].counters[1].neighbours, 4);
}

/* Each thread has read the time by itself: of two that look at once, one may be behind what the other has written. */
static void test_threads_that_look_at_once_ask_once(void **state)
{
	const struct frame inner = inner_of(1000, 0);
	uint64_t questions = 0;

	exchange(false);
	now += (TUNNEL_FRESH + 1) * rte_get_tsc_hz();
	for (uint16_t queue = 0; queue <= TUNNEL_IGNORED + 1; queue++) {
		struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf_of(inner.bytes, inner.length)};
		const uint16_t nb_out = tunnel_pass(&here, burst, 1, 0, queue, now - queue);

		assert_true(nb_out > 0);
		questions += nb_out - 1u;
		rte_pktmbuf_free_bulk(burst, nb_out);
	}
	assert_int_equal(questions, 1);
	assert_true(here.mac != 0);
	here.asked = now + 1;
	here.mac = 0;
	assert_null(pass(&here, arp(FAR, 7), 1));
	assert_memory_equal(&here.mac, "\2\0\0\0\0\7", 6);
}

/* The far end's question for the near one's address, as a host writes it. */
static struct frame solicitation(void)
{
	struct station station = {.addresses = {[1] = address(true, FAR)}, .mac = {2, 0, 0, 0, 0, FAR}};
	const struct ip_address target = address(true, NEAR);
	struct frame frame;

	frame.length = neighbour_write_question(frame.bytes, &station, &target);
	return frame;
}

/* With a checksum that holds. */
static struct rte_mbuf *summed(struct frame *frame)
{
	struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(frame->bytes + 14);
	uint16_t sum;

	memset(frame->bytes + ICMP6 + 2, 0, 2);
	sum = rte_ipv6_udptcp_cksum(ip, ip + 1);
	memcpy(frame->bytes + ICMP6 + 2, &sum, sizeof(sum));
	return mbuf_of(frame->bytes, frame->length);
}

/* What the near end answers; NULL: nothing. */
static struct rte_mbuf *answered(struct rte_mbuf *question)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {question};

	assert_int_equal(tunnel_pass(&here, burst, 1, 1, 0, now), 0);
	return tunnel_pass(&here, burst, 0, 0, 0, now) == 1 ? burst[0] : NULL;
}

/* RFC 4861, 7.2.4, and RFC 4862, 5.4: who has no address yet hears it with all others. */
static void test_who_tries_whether_its_address_is_free_is_told(void **state)
{
	struct frame question = solicitation();
	struct rte_mbuf *mbuf;
	const uint8_t *bytes;

	open_ends(settings(TUNNEL_VXLAN, true));
	memset(question.bytes + 14 + 8, 0, 16);
	question.length -= 8; /* without the option */
	question.bytes[14 + 5] -= 8;
	mbuf = answered(summed(&question));
	assert_non_null(mbuf);
	bytes = bytes_of(mbuf);
	assert_memory_equal(bytes, "\x33\x33\0\0\0\1", 6);
	assert_memory_equal(bytes + 14 + 8, here.headers.ends.local.bytes, 16);
	assert_memory_equal(bytes + 14 + 24, "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	assert_memory_equal(bytes + ICMP6 + 4, "\x20\0\0\0", 4); /* to be taken over what is known, and not asked for */
	assert_int_equal(rte_ipv6_udptcp_cksum((const void *)(bytes + 14), bytes + ICMP6), 0);
	rte_pktmbuf_free(mbuf);
}

/* RFC 4861, 7.1.1. */
static void test_discovery_that_does_not_hold_is_not_answered(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} faults[] = {
		{14 + 5, 23},	   /* an address that is not all there, within the frame as it may be */
		{14 + 5, 33},	   /* more than there is */
		{14 + 5, 28},	   /* an option that is not all there */
		{ICMP6 + 1, 1},	   /* a code */
		{ICMP6 + 25, 0},   /* an option without a length */
		{ICMP6 + 25, 2},   /* and with one that is too long */
		{14 + 7, 64},	   /* it has come over a router */
		{ICMP6 + 23, FAR}, /* somebody else */
	};
	struct frame question = solicitation();
	struct rte_mbuf *mbuf;

	open_ends(settings(TUNNEL_VXLAN, true));
	mbuf = answered(summed(&question));
	assert_non_null(mbuf);
	assert_memory_equal(bytes_of(mbuf) + ICMP6 + 4, "\x60\0\0\0", 4);
	rte_pktmbuf_free(mbuf);
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct frame wrong = question;

		wrong.bytes[faults[i].at] = faults[i].value;
		assert_null(answered(summed(&wrong)));
	}
	question.bytes[ICMP6 + 26] ^= 1; /* the checksum */
	assert_null(answered(mbuf_of(question.bytes, question.length)));
	question.bytes[ICMP6 + 26] ^= 1;
	memset(question.bytes + 14 + 8, 0, 16); /* who has no address tells no MAC address */
	assert_null(answered(summed(&question)));
}

/* The MAC address may be behind other options. */
static void test_options_of_discovery_are_skipped(void **state)
{
	static const uint8_t nonce[8] = {14, 1, 1, 2, 3, 4, 5, 6}; /* RFC 3971, 5.3.2 */
	struct frame question = solicitation();
	struct rte_mbuf *mbuf;

	memcpy(question.bytes + question.length, question.bytes + question.length - 8, 8);
	memcpy(question.bytes + question.length - 8, nonce, 8);
	question.length += 8;
	question.bytes[14 + 5] += 8;
	question.bytes[6 + 5] = 9; /* who has sent it on */
	open_ends(settings(TUNNEL_VXLAN, true));
	mbuf = answered(summed(&question));
	assert_non_null(mbuf);
	assert_int_equal(bytes_of(mbuf)[5], FAR);
	rte_pktmbuf_free(mbuf);
}

static void test_a_question_in_two_pieces_is_answered(void **state)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, false);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {arp(FAR, FAR)}, *rest = rte_pktmbuf_alloc(pool);

	tunnel_begin(&here, &near, pool);
	rte_pktmbuf_mtod(burst[0], uint8_t *)[21] = 1;
	assert_non_null(rte_pktmbuf_append(rest, 20));
	assert_int_equal(rte_pktmbuf_chain(burst[0], rest), 0);
	assert_int_equal(tunnel_pass(&here, burst, 1, 1, 0, now), 0);
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 0, now), 1);
	assert_int_equal(burst[0]->nb_segs, 1);
	rte_pktmbuf_free(burst[0]);
}

/* What is of a queue stays with it: each may have another thread. */
static void test_an_answer_leaves_by_the_queue_of_its_question(void **state)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, false);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {arp(FAR, FAR)};

	tunnel_begin(&here, &near, pool);
	rte_pktmbuf_mtod(burst[0], uint8_t *)[21] = 1;
	assert_int_equal(tunnel_pass(&here, burst, 1, 1, 5, now), 0);
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 0, now), 0);
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 5, now), 1);
	assert_int_equal(here.queues[0].counters[1].neighbours, 0);
	assert_int_equal(here.queues[5].counters[1].neighbours, 1);
	rte_pktmbuf_free(burst[0]);
}

static void test_a_flood_of_questions_is_bounded(void **state)
{
	struct tunnel_settings near = settings(TUNNEL_VXLAN, false);
	struct rte_mbuf *burst[FUNCTION_ROOM];

	tunnel_begin(&here, &near, pool);
	for (unsigned i = 0; i < 20; i++) {
		burst[i] = arp(FAR, FAR);
		rte_pktmbuf_mtod(burst[i], uint8_t *)[21] = 1;
	}
	assert_int_equal(tunnel_pass(&here, burst, 20, 1, 0, now), 0);
	assert_int_equal(tunnel_pass(&here, burst, 0, 0, 0, now), TUNNEL_OWN);
	assert_memory_equal(bytes_of(burst[0]), "\2\0\0\0\0\2\2\0\0\0\0\1\x08\x06\0\1\x08\0\6\4\0\2", 22);
	assert_int_equal(here.queues[0].counters[1].drop_questions, 20 - TUNNEL_OWN);
	rte_pktmbuf_free_bulk(burst, TUNNEL_OWN);
}

/* ------- liveness ------- */

static struct tunnel_settings with_liveness(bool six)
{
	struct tunnel_settings with = settings(TUNNEL_VXLAN, six);

	with.liveness = (struct bfd_settings){.interval = 100 * 1000, .multiplier = 3};
	return with;
}

/* A packet of the far end's, and how it reads at the near one. */
static enum tunnel_verdict liveness_read(unsigned at, uint8_t byte, struct tunnel_read *read, uint8_t *frame)
{
	const uint8_t packet[BFD_PACKET] = {0x20, 0xc0, 3, BFD_PACKET};
	uint64_t mac = 0;
	uint32_t length;

	memcpy(&mac, here.own.mac, 6);
	there.liveness.source = BFD_FIRST_PORT;
	length = tunnel_liveness_write(&there, frame, packet, mac);
	if (at != 0)
		frame[at] = byte;
	return tunnel_read(&here.headers, frame, length, length, read);
}

static void test_the_other_end_s_liveness_is_known(void **state)
{
	for (unsigned six = 0; six < 2; six++) {
		const unsigned ttl = six ? 21 : 22, udp = six ? UDP6 : UDP4;
		uint8_t frame[NEIGHBOUR_FRAME];
		struct tunnel_read read;
		struct rte_mbuf *mbuf;

		open_ends(with_liveness(six));
		assert_int_equal(liveness_read(0, 0, &read, frame), TUNNEL_LIVENESS);
		assert_int_equal(read.inner, udp + 8);
		assert_int_equal(read.end, read.inner + BFD_PACKET);
		assert_int_equal(frame[ttl], BFD_TTL);
		assert_int_equal(frame[udp + 2] << 8 | frame[udp + 3], BFD_PORT);
		mbuf = mbuf_of(frame, read.end);
		assert_true(read.checksum != 0 && tunnel_checksum_holds(&here.headers, mbuf, &read));
		rte_pktmbuf_mtod(mbuf, uint8_t *)[read.inner]++;
		assert_false(tunnel_checksum_holds(&here.headers, mbuf, &read));
		rte_pktmbuf_free(mbuf);
		assert_int_equal(liveness_read(udp + 4, 1, &read, frame), TUNNEL_DROP_length);
		if (six)
			assert_int_equal(liveness_read(ttl, BFD_TTL - 1, &read, frame), TUNNEL_DROP_hops);
		/* Without a checksum it may come over IPv4 alone. */
		assert_int_equal(liveness_read(0, 0, &read, frame), TUNNEL_LIVENESS);
		memset(frame + udp + 6, 0, 2);
		assert_int_equal(tunnel_read(&here.headers, frame, read.end, read.end, &read),
				 six ? TUNNEL_DROP_checksum : TUNNEL_LIVENESS);
		/* Without a session it is any other datagram. */
		open_ends(settings(TUNNEL_VXLAN, six));
		there.headers.ends.liveness = BFD_PORT;
		assert_int_equal(liveness_read(0, 0, &read, frame), TUNNEL_DROP_protocol);
	}
}

static void test_over_routers_it_has_another_port_and_any_hops(void **state)
{
	struct tunnel_settings with = with_liveness(true);
	uint8_t frame[NEIGHBOUR_FRAME];
	struct tunnel_read read;

	with.gateway = address(true, 9);
	open_ends(with);
	assert_int_equal(liveness_read(21, 64, &read, frame), TUNNEL_LIVENESS);
	assert_int_equal(frame[UDP6 + 2] << 8 | frame[UDP6 + 3], BFD_PORT_FAR);
}

static void test_frames_to_an_end_that_is_lost_are_dropped_by_name(void **state)
{
	const struct frame inner = inner_of(1000, 0);

	open_ends(with_liveness(false));
	rte_pktmbuf_free(wrap(&inner));
	here.liveness.lost = true;
	assert_null(pass(&here, mbuf_of(inner.bytes, inner.length), 0));
	assert_int_equal(here.queues[0].counters[0].drops[TUNNEL_DROP_lost], 1);
}

static void test_liveness_that_is_too_much_is_dropped_by_name(void **state)
{
	uint8_t frame[NEIGHBOUR_FRAME];
	struct tunnel_read read;

	open_ends(with_liveness(false)); /* there is no thread to take it */
	assert_int_equal(liveness_read(0, 0, &read, frame), TUNNEL_LIVENESS);
	assert_null(pass(&here, mbuf_of(frame, read.end), 1));
	assert_int_equal(here.queues[0].counters[1].drops[TUNNEL_DROP_crowded], 1);
}

/* ------- settings ------- */

static void test_settings_that_are_wrong_are_refused(void **state)
{
	static const char *const wrong[][2] = {
		{"protocol", "gre"},
		{"vni", "16777216"},
		{"vni", "x"},
		{"local", "here"},
		{"remote", "1.2.3"},
		{"mac", "0"},
		{"neighbour", "ff:ff:ff:ff:ff:ff"},
		{"mac", "00:00:00:00:00:00"},
		{"port", "0"},
		{"port", "65536"},
		{"mtu", "9217"},
		{"checksum", "maybe"},
		{"tagged", ""},
		{"liveness", "0"},
		{"liveness", "9999"},
		{"liveness", "60000001"},
		{"nothing", "1"},
	};
	struct tunnel_settings settings = TUNNEL_SETTINGS_DEFAULT;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_non_null(tunnel_settings_take(&settings, wrong[i][0], wrong[i][1]));
	settings = (struct tunnel_settings)TUNNEL_SETTINGS_DEFAULT;
	assert_non_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "vni", "0"));
	assert_null(tunnel_settings_take(&settings, "port", "4789"));
	assert_null(tunnel_settings_take(&settings, "local", "192.0.2.1"));
	assert_null(tunnel_settings_take(&settings, "remote", "2001:db8::1"));
	assert_non_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "remote", "192.0.2.1"));
	assert_non_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "remote", "192.0.2.2"));
	assert_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "gateway", "2001:db8::1"));
	assert_non_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "gateway", "192.0.2.9"));
	assert_null(tunnel_settings_take(&settings, "liveness", "10000"));
	assert_null(tunnel_settings_take(&settings, "liveness", "300000"));
	assert_null(tunnel_settings_take(&settings, "multiplier", "255"));
	assert_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "port", "4784"));
	assert_non_null(tunnel_settings_wrong(&settings));
	assert_null(tunnel_settings_take(&settings, "port", "4789"));
	assert_null(tunnel_settings_take(&settings, "mtu", "575"));
	assert_non_null(tunnel_settings_wrong(&settings));
}

/* Each frame is given back: what leaves, and what does not. */
static int end(void **state)
{
	return rte_mempool_in_use_count(pool) != 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_vxlan_over_ipv4_byte_by_byte, end),
		cmocka_unit_test_teardown(test_geneve_over_ipv6_byte_by_byte, end),
		cmocka_unit_test_teardown(test_all_kinds_of_frames_come_out_as_they_went_in, end),
		cmocka_unit_test_teardown(test_the_source_port_is_the_flows, end),
		cmocka_unit_test_teardown(test_other_frames_go_by_their_stations, end),
		cmocka_unit_test_teardown(test_fragments_of_a_datagram_have_one_port, end),
		cmocka_unit_test_teardown(test_a_frame_that_is_too_long_is_dropped_by_name, end),
		cmocka_unit_test_teardown(test_a_tag_within_is_dropped_unless_it_may_be_there, end),
		cmocka_unit_test_teardown(test_congestion_is_told_to_who_is_within, end),
		cmocka_unit_test_teardown(test_each_fault_of_outer_headers_has_its_name, end),
		cmocka_unit_test_teardown(test_fragments_and_other_ends_have_theirs_too, end),
		cmocka_unit_test_teardown(test_geneve_over_ipv6_has_a_checksum_unless_it_is_told_otherwise, end),
		cmocka_unit_test_teardown(test_options_and_padding_are_skipped, end),
		cmocka_unit_test_teardown(test_a_frame_that_ends_anywhere_is_dropped, end),
		cmocka_unit_test_teardown(test_the_other_end_is_asked_for, end),
		cmocka_unit_test_teardown(test_a_neighbour_that_is_silent_is_forgotten, end),
		cmocka_unit_test_teardown(test_the_first_frame_asks_at_once, end),
		cmocka_unit_test_teardown(test_only_answers_to_a_question_count, end),
		cmocka_unit_test_teardown(test_threads_that_look_at_once_ask_once, end),
		cmocka_unit_test_teardown(test_who_tries_whether_its_address_is_free_is_told, end),
		cmocka_unit_test_teardown(test_discovery_that_does_not_hold_is_not_answered, end),
		cmocka_unit_test_teardown(test_options_of_discovery_are_skipped, end),
		cmocka_unit_test_teardown(test_a_question_in_two_pieces_is_answered, end),
		cmocka_unit_test_teardown(test_an_answer_leaves_by_the_queue_of_its_question, end),
		cmocka_unit_test_teardown(test_a_flood_of_questions_is_bounded, end),
		cmocka_unit_test_teardown(test_the_other_end_s_liveness_is_known, end),
		cmocka_unit_test_teardown(test_over_routers_it_has_another_port_and_any_hops, end),
		cmocka_unit_test_teardown(test_frames_to_an_end_that_is_lost_are_dropped_by_name, end),
		cmocka_unit_test_teardown(test_liveness_that_is_too_much_is_dropped_by_name, end),
		cmocka_unit_test(test_settings_that_are_wrong_are_refused),
	};

	if (start_dpdk(64) != 0)
		return 1;
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
