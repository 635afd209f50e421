/* SPDX-License-Identifier: Apache-2.0
 *
 * Between rings and packet buffers: what a device left to do, and what is left to a device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "test/long_segment.h"
#include "test/mbuf_bursts.h"
#include "test/start_dpdk.h"
#include "vring/hop.h"
#include "vring/packet.h"

enum {
	ROOM = OFFLOAD_SEGMENTS,
	POOL = 511,
};
#define TSO                                                                                          \
	(RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | \
	 RTE_ETH_TX_OFFLOAD_MULTI_SEGS)

static struct rte_mempool *pool;

static int start_all(void **state)
{
	pool = start_dpdk_with_pool(32, POOL);
	return pool == NULL;
}

static int start_and_allow(void **state)
{
	struct pair *pair;

	start(state);
	pair = *state;
	pair->from.ring.offloads = ALL;
	vring_start(&pair->from.ring);
	return 0;
}

/* All bytes of a packet buffer and those chained to it. */
static const uint8_t *flat(const struct rte_mbuf *mbuf)
{
	static uint8_t bytes[70000];

	assert_true(mbuf->pkt_len <= sizeof(bytes));
	return rte_pktmbuf_read(mbuf, 0, mbuf->pkt_len, bytes);
}

static unsigned to_mbufs(struct pair *pair, uint64_t transmits, struct rte_mbuf **mbufs)
{
	unsigned filled;

	assert_int_equal(vring_to_mbufs(&pair->from.ring, pool, transmits, mbufs, ROOM, &filled), 1);
	assert_int_equal(guest_taken(&pair->from), pair->from.counters.received_packets);
	return filled;
}

static void copies_frames_and_chains_what_is_long(void **state)
{
	static const uint32_t lengths[] = {60, 1514, 2048, 9000, 65535};
	struct pair *pair = *state;

	for (unsigned i = 0; i < RTE_DIM(lengths); i++) {
		struct rte_mbuf *mbufs[ROOM];

		send_plain(&pair->from, FRAMES, lengths[i], i);
		memset(guest_at(&pair->from, FRAMES), 0, HEADER);
		assert_int_equal(to_mbufs(pair, RTE_ETH_TX_OFFLOAD_MULTI_SEGS, mbufs), 1);
		assert_int_equal(mbufs[0]->pkt_len, lengths[i]);
		assert_int_equal(mbufs[0]->ol_flags, 0);
		rte_mbuf_sanity_check(mbufs[0], 1);
		assert_memory_equal(flat(mbufs[0]), guest_at(&pair->from, FRAMES + HEADER), lengths[i]);
		/* And back, to a guest. */
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_from_mbufs(&pair->to.ring, mbufs, 1), 1);
		expect_pattern(&pair->to, BUFFERS + HEADER, 0, lengths[i], i);
		guest_taken(&pair->to);
		rte_pktmbuf_free(mbufs[0]);
	}
	/* A device that takes no chains. */
	send_plain(&pair->from, FRAMES, 9000, 1);
	memset(guest_at(&pair->from, FRAMES), 0, HEADER);
	assert_int_equal(to_mbufs(pair, 0, (struct rte_mbuf *[ROOM]){0}), 0);
	assert_int_equal(pair->from.counters.drop_frame_too_long, 1);
	assert_int_equal(rte_mempool_avail_count(pool), POOL);
}

static void leaves_to_a_device_what_it_does(void **state)
{
	struct pair *pair = *state;

	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		struct segment segment = long_segment(ipv6, 1, PAYLOAD);
		struct rte_mbuf *mbufs[ROOM];

		send_segment(&pair->from, &segment, 4096);
		assert_int_equal(to_mbufs(pair, TSO, mbufs), 1);
		assert_int_equal(mbufs[0]->pkt_len, segment.length);
		assert_int_equal(mbufs[0]->l2_len, segment.network);
		assert_int_equal(mbufs[0]->l3_len, segment.tcp - segment.network);
		assert_int_equal(mbufs[0]->l4_len, segment.headers - segment.tcp);
		assert_int_equal(mbufs[0]->tso_segsz, SEGMENT);
		assert_true(mbufs[0]->ol_flags & RTE_MBUF_F_TX_TCP_SEG);
		assert_true(mbufs[0]->ol_flags & (ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4));
		assert_int_equal(rte_validate_tx_offload(mbufs[0]), 0);
		rte_pktmbuf_free(mbufs[0]);
	}
}

static void cuts_for_a_device_that_does_not(void **state)
{
	struct pair *pair = *state;

	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		struct segment segment = long_segment(ipv6, 0, PAYLOAD);
		struct rte_mbuf *mbufs[ROOM];
		const unsigned count = (PAYLOAD + SEGMENT - 1) / SEGMENT;
		uint32_t done = 0;

		send_segment(&pair->from, &segment, 4096);
		assert_int_equal(to_mbufs(pair, RTE_ETH_TX_OFFLOAD_TCP_CKSUM, mbufs), count);
		for (unsigned i = 0; i < count; i++) {
			const uint8_t *frame = flat(mbufs[i]);
			const uint32_t payload = mbufs[i]->pkt_len - segment.headers;

			assert_int_equal(mbufs[i]->ol_flags, 0);
			expect_right_checksums(frame, &segment, ipv6);
			assert_memory_equal(frame + segment.headers, segment.bytes + segment.headers + done, payload);
			done += payload;
		}
		assert_int_equal(done, PAYLOAD);
		rte_pktmbuf_free_bulk(mbufs, count);
	}
}

static void loses_frames_by_name_without_buffers(void **state)
{
	struct pair *pair = *state;
	struct rte_mbuf *taken[POOL], *mbufs[ROOM];

	assert_int_equal(rte_pktmbuf_alloc_bulk(pool, taken, POOL), 0);
	send_plain(&pair->from, FRAMES, 60, 0);
	memset(guest_at(&pair->from, FRAMES), 0, HEADER);
	assert_int_equal(to_mbufs(pair, 0, mbufs), 0);
	assert_int_equal(pair->from.counters.drop_no_buffer, 1);
	rte_pktmbuf_free_bulk(taken, POOL);
}

/* A packet buffer with this segment's bytes and what a device says of it, `most` bytes in each but the first. */
static struct rte_mbuf *received_by(const struct segment *segment, uint64_t flags, uint32_t most)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool), *last = mbuf;

	for (uint32_t at = 0; at < segment->length;) {
		const uint32_t room = at == 0 ? rte_pktmbuf_tailroom(last) : most;
		const uint32_t step = RTE_MIN(segment->length - at, room);

		memcpy(rte_pktmbuf_mtod(last, uint8_t *), segment->bytes + at, step);
		last->data_len = step;
		mbuf->pkt_len += step;
		at += step;
		if (at < segment->length) {
			last->next = rte_pktmbuf_alloc(pool);
			last = last->next;
			mbuf->nb_segs++;
		}
	}
	mbuf->ol_flags = flags;
	mbuf->tso_segsz = SEGMENT;
	return mbuf;
}

static struct rte_mbuf *received(const struct segment *segment, uint64_t flags)
{
	return received_by(segment, flags, RTE_MBUF_DEFAULT_DATAROOM);
}

static void passes_to_a_guest_what_a_device_said(void **state)
{
	struct pair *pair = *state;
	const struct virtio_net_hdr *header = (void *)guest_at(&pair->to, BUFFERS);

	for (unsigned kind = 0; kind < 8; kind++) {
		const bool ipv6 = kind & 1, takes = kind & 2, joined = kind & 4;
		struct segment segment = long_segment(ipv6, 0, joined ? PAYLOAD : 1000);
		struct rte_mbuf *mbuf = received(&segment,
						 RTE_MBUF_F_RX_L4_CKSUM_NONE | (joined ? RTE_MBUF_F_RX_LRO : 0));
		const unsigned count = joined && !takes ? (PAYLOAD + SEGMENT - 1) / SEGMENT : 1;
		const unsigned before = guest_taken(&pair->to);

		pair->to.ring.offloads = takes ? ALL : 0;
		for (unsigned i = 0; i < count; i++)
			offer_buffer(&pair->to, BUFFERS + i * 0x3000, 0x3000);
		assert_int_equal(vring_from_mbufs(&pair->to.ring, &mbuf, 1), 1);
		assert_int_equal(guest_taken(&pair->to), before + count);
		assert_int_equal(header->flags, takes ? VIRTIO_NET_HDR_F_NEEDS_CSUM : 0);
		assert_int_equal(header->gso_type, takes ? joined ? segment.offload.gso_type : 0 : 0);
		if (takes) {
			assert_int_equal(header->csum_start, segment.tcp);
			assert_int_equal(header->csum_offset, 16);
		} else if (!ipv6 || joined) {
			expect_right_checksums(guest_at(&pair->to, BUFFERS + HEADER), &segment, ipv6);
		}
		rte_pktmbuf_free(mbuf);
	}
	assert_int_equal(rte_mempool_avail_count(pool), POOL);
}

/* DPDK's driver for TAPs says of it that it is not right, as others do of one that is unfinished. */
static void leaves_udp_alone_that_has_no_checksum(void **state)
{
	enum { LENGTH = 60, IP = 14, UDP = IP + 20, FIELD = UDP + 6 };
	struct pair *pair = *state;
	const struct virtio_net_hdr *header = (void *)guest_at(&pair->to, BUFFERS);

	for (unsigned kind = 0; kind < 4; kind++) {
		const bool takes = kind & 1, unfinished = kind & 2;
		uint8_t bytes[LENGTH] = {[12] = 8, [IP] = 0x45, [IP + 3] = LENGTH - IP, [IP + 8] = 64, [IP + 9] = 17};
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

		bytes[IP + 12] = bytes[IP + 16] = 10;
		bytes[UDP + 5] = LENGTH - UDP;
		if (unfinished)
			bytes[FIELD] = 0x14;
		memcpy(rte_pktmbuf_append(mbuf, LENGTH), bytes, LENGTH);
		mbuf->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_NONE;
		pair->to.ring.offloads = takes ? ALL : 0;
		offer_buffer(&pair->to, BUFFERS, 0x3000);
		assert_int_equal(vring_from_mbufs(&pair->to.ring, &mbuf, 1), 1);
		assert_int_equal(header->flags, takes && unfinished ? VIRTIO_NET_HDR_F_NEEDS_CSUM : 0);
		if (takes || !unfinished)
			assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), bytes, LENGTH);
		else
			assert_memory_not_equal(guest_at(&pair->to, BUFFERS + HEADER), bytes, LENGTH);
		rte_pktmbuf_free(mbuf);
	}
}

/* What a device has joined and verified is left to a guest as the sender of a long segment would have left it. */
static void leaves_what_a_device_has_joined_as_its_sender_would(void **state)
{
	struct pair *pair = *state;
	const struct virtio_net_hdr *header = (void *)guest_at(&pair->to, BUFFERS);

	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		const struct segment sent = long_segment(ipv6, 0, PAYLOAD);
		struct segment joined = sent;
		struct rte_mbuf *mbuf;

		memset(joined.bytes + joined.tcp + offsetof(struct rte_tcp_hdr, cksum), 0x55, 2);
		mbuf = received(&joined, RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_LRO);
		pair->to.ring.offloads = ALL;
		offer_buffer(&pair->to, BUFFERS, 0x3000);
		assert_int_equal(vring_from_mbufs(&pair->to.ring, &mbuf, 1), 1);
		assert_int_equal(header->gso_type, sent.offload.gso_type);
		assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), sent.bytes, sent.length);
		rte_pktmbuf_free(mbuf);
	}
}

static void reports_to_a_guest_that_a_checksum_is_right_if_it_asked(void **state)
{
	struct pair *pair = *state;
	const struct virtio_net_hdr *header = (void *)guest_at(&pair->to, BUFFERS);

	for (unsigned takes = 0; takes < 2; takes++) {
		struct segment segment = long_segment(false, 0, 1000);
		struct rte_mbuf *mbuf = received(&segment, RTE_MBUF_F_RX_L4_CKSUM_GOOD);

		pair->to.ring.offloads = takes ? ALL : 0;
		offer_buffer(&pair->to, BUFFERS, 0x3000);
		assert_int_equal(vring_from_mbufs(&pair->to.ring, &mbuf, 1), 1);
		assert_int_equal(header->flags, takes ? VIRTIO_NET_HDR_F_DATA_VALID : 0);
		assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), segment.bytes, segment.length);
		rte_pktmbuf_free(mbuf);
	}
}

/* As many packet buffers as a burst has room for, and every one of them has something of the frame that is cut out. */
static void cuts_what_came_in_as_many_pieces_as_there_may_be(void **state)
{
	struct pair *pair = *state;
	const uint32_t first = RTE_MBUF_DEFAULT_DATAROOM, few = 16;
	struct segment segment = long_segment(false, 0, 0);
	struct rte_mbuf *mbuf, *mbufs[ROOM];
	struct burst burst;

	segment = long_segment(false, 0, first - segment.headers + (BURST_PIECES - 1) * few);
	mbuf = received_by(&segment, RTE_MBUF_F_RX_L4_CKSUM_NONE | RTE_MBUF_F_RX_LRO, few);
	mbuf->tso_segsz = segment.length;
	assert_int_equal(mbuf->nb_segs, BURST_PIECES);
	offer_buffer(&pair->to, BUFFERS, 0x3000);
	assert_int_equal(vring_from_mbufs(&pair->to.ring, &mbuf, 1), 1);
	expect_right_checksums(guest_at(&pair->to, BUFFERS + HEADER), &segment, false);
	burst_start(&burst);
	assert_non_null(burst_add_mbuf(&burst, mbuf));
	assert_int_equal(packet_to_mbufs(&burst.packets[0], pool, RTE_ETH_TX_OFFLOAD_MULTI_SEGS, mbufs, ROOM), 1);
	expect_right_checksums(flat(mbufs[0]), &segment, false);
	rte_pktmbuf_free(mbufs[0]);
	rte_pktmbuf_free(mbuf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_and_allow, end)
		TEST(copies_frames_and_chains_what_is_long),
		TEST(leaves_to_a_device_what_it_does),
		TEST(leaves_udp_alone_that_has_no_checksum),
		TEST(cuts_for_a_device_that_does_not),
		TEST(loses_frames_by_name_without_buffers),
		TEST(passes_to_a_guest_what_a_device_said),
		TEST(reports_to_a_guest_that_a_checksum_is_right_if_it_asked),
		TEST(leaves_what_a_device_has_joined_as_its_sender_would),
		TEST(cuts_what_came_in_as_many_pieces_as_there_may_be),
#undef TEST
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, start_all, NULL);
}
