/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums and long segments left to others: passed through where the receiver takes them, done here where it does
 * not, refused where they contradict the frame.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "test/long_segment.h"
#include "test/ring_pair.h"
#include "vring/hop.h"
#include "vring/packet.h"

static struct virtio_net_hdr *header_at(struct simulated_guest *guest, uint64_t address)
{
	return (void *)guest_at(guest, address);
}

/* ------- passed through ------- */

static void passes_a_long_segment_on_as_it_is(void **state)
{
	struct pair *pair = *state;

	for (unsigned kind = 0; kind < 12; kind++) {
		const bool ipv6 = kind & 1, tagged = kind & 2;
		const uint32_t part = kind < 4 ? 100000 : kind < 8 ? 4096 : 60000;
		struct segment segment = long_segment(ipv6, tagged ? 2 : 0, kind < 8 ? PAYLOAD : 65000);
		struct virtio_net_hdr *header = header_at(&pair->to, BUFFERS);

		pair->from.ring.offloads = pair->to.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segment, part);
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		expect_used(&pair->to, kind, kind, HEADER + segment.length);
		assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), segment.bytes, segment.length);
		assert_int_equal(header->flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
		assert_int_equal(header->gso_type, segment.offload.gso_type);
		assert_int_equal(header->gso_size, SEGMENT);
		assert_int_equal(header->hdr_len, segment.headers); /* corrected */
		assert_int_equal(header->csum_start, segment.tcp);
		assert_int_equal(header->csum_offset, 16);
		guest_taken(&pair->from);
	}
	assert_int_equal(pair->to.counters.sent_packets, 12);
}

static void passes_an_unfinished_checksum_on(void **state)
{
	struct pair *pair = *state;
	struct virtio_net_hdr *header = header_at(&pair->to, BUFFERS);
	struct segment segment = long_segment(false, 0, 100);

	segment.offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
	segment.offload.flags |= VIRTIO_NET_HDR_F_DATA_VALID; /* not a sender's to say */
	pair->from.ring.offloads = pair->to.ring.offloads = OFFLOAD_CHECKSUM;
	vring_start(&pair->from.ring);
	send_segment(&pair->from, &segment, 100000);
	offer_buffer(&pair->to, BUFFERS, 2048);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_int_equal(header->flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	assert_int_equal(header->gso_size, 0);
	assert_int_equal(header->csum_start, segment.tcp);
	assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), segment.bytes, segment.length);
}

static void does_not_read_the_header_of_a_sender_without_offloads(void **state)
{
	struct pair *pair = *state;
	struct segment segment = long_segment(false, 0, 100);

	pair->to.ring.offloads = ALL;
	send_segment(&pair->from, &segment, 100000);
	offer_buffer(&pair->to, BUFFERS, 2048);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_header(&pair->to, BUFFERS, 1);
}

/* ------- done here ------- */

static void completes_a_checksum_for_a_receiver_that_does_not(void **state)
{
	struct pair *pair = *state;

	/* Odd lengths and odd pieces too. */
	for (uint32_t payload = 60; payload < 300; payload += 7) {
		struct segment segment = long_segment(payload & 1, 1, payload);

		segment.offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
		pair->from.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segment, 40 + payload % 64);
		offer_buffer(&pair->to, BUFFERS, 2048);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		expect_header(&pair->to, BUFFERS, 1);
		expect_right_checksums(guest_at(&pair->to, BUFFERS + HEADER), &segment, payload & 1);
		guest_taken(&pair->from);
		guest_taken(&pair->to);
	}
	assert_int_equal(pair->from.counters.drop_offload_malformed, 0);
}

static void cuts_a_long_segment_for_a_receiver_that_does_not(void **state)
{
	for (unsigned kind = 0; kind < 12; kind++) {
		const bool ipv6 = kind & 1, pieces = kind & 2;
		struct segment segment = long_segment(ipv6, kind / 4, PAYLOAD);
		const struct rte_tcp_hdr *whole = (void *)(segment.bytes + segment.tcp);
		const unsigned count = (PAYLOAD + SEGMENT - 1) / SEGMENT;
		uint32_t done = 0;
		struct pair *pair;

		start((void **)&pair);
		pair->from.ring.offloads = ALL;
		pair->to.ring.offloads = OFFLOAD_CHECKSUM; /* not enough */
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segment, pieces ? 997 : 100000);
		for (unsigned i = 0; i < count; i++)
			offer_buffer(&pair->to, BUFFERS + i * 2048, 2048);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		assert_int_equal(guest_taken(&pair->to), count);
		assert_int_equal(guest_taken(&pair->from), 1);
		assert_int_equal(pair->to.counters.sent_packets, count);
		assert_int_equal(pair->from.counters.received_bytes, segment.length);
		assert_int_equal(pair->from.ring.dropped, 0);
		for (unsigned i = 0; i < count; i++) {
			const uint8_t *frame = guest_at(&pair->to, BUFFERS + i * 2048 + HEADER);
			const struct rte_tcp_hdr *tcp = (const void *)(frame + segment.tcp);
			const uint32_t payload = RTE_MIN((uint32_t)SEGMENT, (uint32_t)PAYLOAD - done);

			expect_header(&pair->to, BUFFERS + i * 2048, 1);
			expect_used(&pair->to, i, i, HEADER + segment.headers + payload);
			expect_right_checksums(frame, &segment, ipv6);
			assert_memory_equal(frame + segment.headers, segment.bytes + segment.headers + done, payload);
			assert_int_equal(rte_be_to_cpu_32(tcp->sent_seq), UINT32_MAX - 2000 + done);
			assert_int_equal(tcp->tcp_flags & RTE_TCP_CWR_FLAG, i == 0 ? RTE_TCP_CWR_FLAG : 0);
			assert_int_equal(tcp->tcp_flags & (RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG),
					 i == count - 1 ? RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG : 0);
			assert_int_equal(tcp->data_off, whole->data_off);
			if (!ipv6) {
				const struct rte_ipv4_hdr *ip = (const void *)(frame + segment.network);

				assert_int_equal(rte_be_to_cpu_16(ip->packet_id), (uint16_t)(65534 + i));
			}
			done += payload;
		}
		end((void **)&pair);
	}
}

static void cuts_all_of_a_segment_or_nothing(void **state)
{
	struct pair *pair = *state;
	struct segment segment = long_segment(false, 0, PAYLOAD);
	const unsigned count = (PAYLOAD + SEGMENT - 1) / SEGMENT;

	pair->from.ring.offloads = ALL;
	vring_start(&pair->from.ring);
	send_segment(&pair->from, &segment, 100000);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 0);
		assert_int_equal(guest_taken(&pair->to), 0);
		offer_buffer(&pair->to, BUFFERS + i * 2048, 2048);
	}
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_int_equal(guest_taken(&pair->to), count);
}

static void serves_each_receiver_of_one_packet_as_it_asked(void **state)
{
	static const uint8_t first[] = {0};
	struct pair *pair = *state;
	struct simulated_guest other;
	struct segment segment = long_segment(false, 0, 100);
	static struct burst burst;

	guest_start(&other, to_packed, true);
	other.ring.offloads = ALL;
	segment.offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
	pair->from.ring.offloads = ALL;
	vring_start(&pair->from.ring);
	for (unsigned round = 0; round < 2; round++) {
		struct simulated_guest *order[] = {round ? &other : &pair->to, round ? &pair->to : &other};

		send_segment(&pair->from, &segment, 100000);
		assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
		/* A tag in front moves what the header points at. */
		packet_push(&burst.packets[0], 4);
		memmove(burst.packets[0].head, burst.packets[0].head + 4, 12);
		memcpy(burst.packets[0].head + 12, "\x81\x00\x00\x07", 4);
		for (unsigned i = 0; i < 2; i++) {
			offer_buffer(order[i], BUFFERS, 2048);
			assert_int_equal(vring_write(&order[i]->ring, &burst, first, 1), 1);
		}
		vring_read_done(&pair->from.ring, &burst);
		assert_int_equal(
			rte_ipv4_udptcp_cksum((void *)guest_at(&pair->to, BUFFERS + HEADER + segment.network + 4),
					      guest_at(&pair->to, BUFFERS + HEADER + segment.tcp + 4)),
			0);
		/* It gets the work if it is still to be done. */
		if (round == 1) {
			assert_int_equal(header_at(&other, BUFFERS)->flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
			assert_int_equal(header_at(&other, BUFFERS)->csum_start, segment.tcp + 4);
		} else {
			expect_header(&other, BUFFERS, 1);
		}
		guest_taken(&pair->from);
		guest_taken(&pair->to);
		guest_taken(&other);
	}
	guest_end(&other);
}

/* ------- refused ------- */

static void drops_headers_that_contradict_the_frame(void **state)
{
	enum {
		START_OUTSIDE,
		START_BEFORE,
		OFFSET_OUTSIDE,
		WRAPS,
		NO_SIZE,
		TINY,
		NO_FLAG,
		UDP,
		UNKNOWN,
		OTHER_IP,
		NOT_TCP,
		OTHER_OFFSET,
		START_NOT_TCP,
		LONG_TCP,
		SHORT_TCP,
		NO_PAYLOAD,
		KINDS
	};

	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct segment segment = long_segment(false, 0, kind == NO_PAYLOAD ? 0 : PAYLOAD);
		struct virtio_net_hdr *offload = &segment.offload;
		struct pair *pair;

		if (kind <= WRAPS)
			offload->gso_type = VIRTIO_NET_HDR_GSO_NONE;
		if (kind == START_OUTSIDE)
			offload->csum_start = segment.length - 1;
		if (kind == START_BEFORE)
			offload->csum_start = 13;
		if (kind == OFFSET_OUTSIDE)
			offload->csum_offset = segment.length - segment.tcp - 1;
		if (kind == WRAPS)
			offload->csum_offset = 65535;
		if (kind == NO_SIZE)
			offload->gso_size = 0;
		if (kind == TINY)
			offload->gso_size = OFFLOAD_SEGMENT_MIN - 1;
		if (kind == NO_FLAG)
			offload->flags = 0;
		if (kind == UDP)
			offload->gso_type = VIRTIO_NET_HDR_GSO_UDP;
		if (kind == UNKNOWN)
			offload->gso_type = 0x7f;
		if (kind == OTHER_IP)
			offload->gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
		if (kind == NOT_TCP)
			segment.bytes[segment.network + offsetof(struct rte_ipv4_hdr, next_proto_id)] = IPPROTO_UDP;
		if (kind == OTHER_OFFSET)
			offload->csum_offset = 6;
		if (kind == START_NOT_TCP)
			offload->csum_start -= 2;
		if (kind == LONG_TCP) /* longer than all of the frame */
			segment.length = segment.tcp + 40, segment.bytes[segment.tcp + 12] = 15 << 4;
		if (kind == SHORT_TCP)
			segment.bytes[segment.tcp + 12] = 4 << 4;
		start((void **)&pair);
		pair->from.ring.offloads = pair->to.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segment, 100000);
		offer_buffer(&pair->to, BUFFERS, 0x10000);
		if (pair->from.counters.drop_offload_malformed != 0 ||
		    vring_hop(&pair->from.ring, &pair->to.ring) != 1 || pair->from.counters.drop_offload_malformed != 1)
			fail_msg("kind %u", kind);
		assert_int_equal(guest_taken(&pair->from), 1);
		assert_int_equal(guest_taken(&pair->to), 0);
		/* Neither is stopped, and the next frame passes. */
		assert_int_equal(pair->from.report, VRING_FAULT_NONE);
		memset(guest_at(&pair->from, FRAMES), 0, HEADER);
		guest_offer(&pair->from, guest_desc(&pair->from, FRAMES, HEADER + 60, 0));
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		assert_int_equal(guest_taken(&pair->to), 1);
		end((void **)&pair);
	}
}

/*
 * Steering decides by tags, addresses, protocol and ports.  A sum is the sender's to choose: written there by us, it
 * would make another frame of the one that was decided on.
 */
static void writes_no_checksum_where_steering_looks(void **state)
{
	static const struct {
		const char *what;
		bool ipv6;
		unsigned tags;
		int at;		  /* where the sum would be, from where TCP begins */
		uint8_t protocol; /* instead of TCP */
		uint16_t type;	  /* instead of the innermost one */
		bool taken;
	} cases[] = {
		{"TCP's own", false, 0, 16, 0, 0, true},
		{"behind the ports", false, 1, 4, 0, 0, true},
		{"the destination port", false, 0, 3, 0, 0, false},
		{"the source port", true, 0, 0, 0, 0, false},
		{"the last of the addresses", false, 0, -1, 0, 0, false},
		{"the protocol", false, 0, -11, 0, 0, false},
		{"an IPv6 address", true, 0, -10, 0, 0, false},
		{"the next header of IPv6", true, 1, -34, 0, 0, false},
		{"UDP's own", false, 0, 6, IPPROTO_UDP, 0, true},
		{"UDP's ports", false, 0, 2, IPPROTO_UDP, 0, false},
		{"GRE has no ports", false, 0, 2, IPPROTO_GRE, 0, true},
		{"what an ICMP error quotes", false, 0, 10, IPPROTO_ICMP, 0, false},
		{"the same in IPv6", true, 0, 10, IPPROTO_ICMPV6, 0, false},
		{"an IPv6 fragment", true, 0, 10, IPPROTO_FRAGMENT, 0, false},
		{"SCTP's ports", false, 0, 2, IPPROTO_SCTP, 0, false},
		{"UDP-Lite's ports", true, 0, 2, IPPROTO_UDPLITE, 0, false},
		{"UDP-Lite's own", false, 0, 6, IPPROTO_UDPLITE, 0, true},
		{"DCCP's ports", false, 0, 0, IPPROTO_DCCP, 0, false},
		{"an authentication header, and what lies behind", true, 0, 10, IPPROTO_AH, 0, false},
		{"the same in IPv4, which steering does not look behind", false, 0, 2, IPPROTO_AH, 0, true},
		{"a mobility header", true, 0, 10, IPPROTO_MH, 0, false},
		{"a host identity header", true, 0, 10, 139, 0, false},
		{"a Shim6 header", true, 0, 10, 140, 0, false},
		{"behind four tags", false, 4, 16, 0, 0, true},
		{"the ports behind four tags", false, 4, 2, 0, 0, false},
		{"behind more tags than are read", false, 5, 2, 0, 0, true},
		{"a fourth tag", false, 4, -22, 0, 0, false},
		{"no IP header where one is said to be", false, 0, 16, 0, RTE_ETHER_TYPE_IPV6, false},
		{"no IP at all", false, 0, 16, 0, RTE_ETHER_TYPE_ARP, true},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct segment segment = long_segment(cases[i].ipv6, cases[i].tags, 100);
		struct virtio_net_hdr offload = {
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
			.csum_start = RTE_ETHER_HDR_LEN,
			.csum_offset = segment.tcp + cases[i].at - RTE_ETHER_HDR_LEN,
		};

		if (cases[i].protocol != 0)
			segment.bytes[segment.network + (cases[i].ipv6 ? 6 : 9)] = cases[i].protocol;
		if (cases[i].type != 0)
			put_word(segment.bytes + segment.network - 2, cases[i].type);
		if (offload_check(&offload, ALL, segment.bytes, 128, segment.length) != cases[i].taken)
			fail_msg("%s", cases[i].what);
	}
}

static void drops_what_was_not_negotiated(void **state)
{
	static const uint8_t lacking[] = {OFFLOAD_CHECKSUM, OFFLOAD_CHECKSUM | OFFLOAD_TCP6,
					  OFFLOAD_CHECKSUM | OFFLOAD_TCP4, OFFLOAD_TCP4};

	for (unsigned i = 0; i < RTE_DIM(lacking); i++) {
		struct segment segment = long_segment(false, 0, PAYLOAD);
		struct pair *pair;

		start((void **)&pair);
		if (i == 2)
			segment.offload.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
		pair->from.ring.offloads = lacking[i];
		pair->to.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segment, 100000);
		offer_buffer(&pair->to, BUFFERS, 0x10000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		assert_int_equal(pair->from.counters.drop_offload_malformed, 1);
		end((void **)&pair);
	}
}

static void knows_what_features_allow(void **state)
{
	const uint64_t sends = 1ULL << VIRTIO_NET_F_CSUM | 1ULL << VIRTIO_NET_F_HOST_TSO4,
		       takes = 1ULL << VIRTIO_NET_F_GUEST_CSUM | 1ULL << VIRTIO_NET_F_GUEST_TSO6 |
			       1ULL << VIRTIO_NET_F_GUEST_ECN;

	assert_int_equal(offload_of_features(sends | takes, true), OFFLOAD_CHECKSUM | OFFLOAD_TCP4);
	assert_int_equal(offload_of_features(sends | takes, false), OFFLOAD_CHECKSUM | OFFLOAD_TCP6 | OFFLOAD_ECN);
	/* Nothing without the checksum. */
	assert_int_equal(offload_of_features(1ULL << VIRTIO_NET_F_HOST_TSO4, true), 0);
}

/* ------- many at a time ------- */

static unsigned move_directly(struct pair *pair)
{
	return vring_hop(&pair->from.ring, &pair->to.ring);
}

static unsigned move_steered(struct pair *pair)
{
	static struct burst burst;
	uint8_t all[VRING_BURST];
	unsigned taken = vring_read(&pair->from.ring, &burst, VRING_BURST);

	for (unsigned i = 0; i < burst.count; i++)
		all[i] = i;
	assert_int_equal(vring_write(&pair->to.ring, &burst, all, burst.count), burst.count);
	vring_read_done(&pair->from.ring, &burst);
	return taken;
}

/* What is not plain takes its own way, and what is behind it goes on as if nothing had been. */
static void a_burst_of_every_kind_arrives_in_order(unsigned (*move)(struct pair *pair))
{
	enum { PLAIN, UNFINISHED, MALFORMED, IN_PIECES, TO_BE_CUT, KINDS, COUNT = 6 * KINDS, PLACE = 1024 };
	static struct pair pair;
	static struct segment sent[COUNT];
	unsigned arrived = 0, malformed = 0;

	guest_prepare(&pair.from, from_packed, 256);
	guest_prepare(&pair.to, to_packed, 256);
	pair.from.ring.offloads = ALL;
	pair.to.ring.mergeable = true;
	vring_start(&pair.from.ring);
	vring_start(&pair.to.ring);
	for (unsigned i = 0; i < COUNT; i++) {
		const unsigned kind = i * 7 % KINDS;

		sent[i] = long_segment(i & 1, 0, 100 + i);
		if (kind != TO_BE_CUT)
			sent[i].offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
		if (kind == PLAIN)
			sent[i].offload.flags = 0;
		if (kind == MALFORMED)
			sent[i].offload.csum_start = RTE_ETHER_HDR_LEN;
		if (kind == TO_BE_CUT)
			sent[i].offload.gso_size = 100;
		malformed += kind == MALFORMED;
		send_segment_at(&pair.from, &sent[i], FRAMES + i * PLACE, kind == IN_PIECES ? 50 : PLACE);
	}
	for (unsigned i = 0; i < 2 * COUNT; i++)
		offer_buffer(&pair.to, BUFFERS + i * PLACE, PLACE);
	for (unsigned moved = 0, more; moved < COUNT; moved += more) {
		more = move(&pair);
		assert_true(more > 1);
	}
	assert_int_equal(guest_taken(&pair.from), COUNT);
	assert_int_equal(pair.from.counters.drop_offload_malformed, malformed);
	for (unsigned i = 0; i < COUNT; i++) {
		const unsigned kind = i * 7 % KINDS;
		const uint8_t *frame = guest_at(&pair.to, BUFFERS + arrived * PLACE + HEADER);

		if (kind == MALFORMED)
			continue;
		expect_header(&pair.to, BUFFERS + arrived * PLACE, 1);
		if (kind == PLAIN)
			assert_memory_equal(frame, sent[i].bytes, sent[i].length);
		else
			expect_right_checksums(frame, &sent[i], i & 1);
		arrived += kind == TO_BE_CUT ? 2 : 1;
	}
	assert_int_equal(guest_taken(&pair.to), arrived);
	guest_end(&pair.from);
	guest_end(&pair.to);
}

static void a_burst_of_every_kind_arrives_in_order_directly(void **state)
{
	a_burst_of_every_kind_arrives_in_order(move_directly);
}

static void a_burst_of_every_kind_arrives_in_order_steered(void **state)
{
	a_burst_of_every_kind_arrives_in_order(move_steered);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
		TEST(passes_a_long_segment_on_as_it_is),
		TEST(passes_an_unfinished_checksum_on),
		TEST(does_not_read_the_header_of_a_sender_without_offloads),
		TEST(completes_a_checksum_for_a_receiver_that_does_not),
		TEST(cuts_a_long_segment_for_a_receiver_that_does_not),
		TEST(cuts_all_of_a_segment_or_nothing),
		TEST(serves_each_receiver_of_one_packet_as_it_asked),
		TEST(drops_headers_that_contradict_the_frame),
		TEST(writes_no_checksum_where_steering_looks),
		TEST(drops_what_was_not_negotiated),
		TEST(knows_what_features_allow),
		cmocka_unit_test(a_burst_of_every_kind_arrives_in_order_directly),
		cmocka_unit_test(a_burst_of_every_kind_arrives_in_order_steered),
#undef TEST
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
