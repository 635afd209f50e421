/* SPDX-License-Identifier: Apache-2.0
 *
 * Unfinished checksums that lie anywhere in a frame, and long segments behind headers of any kind and length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/long_segment.h"
#include "test/ring_pair.h"
#include "vring/hop.h"
#include "vring/packet.h"

/* ------- a checksum anywhere ------- */

/* A frame that is no IP: where its checksum lies is all that its header says. */
static struct segment unfinished(uint32_t length, uint32_t start, uint32_t field)
{
	struct segment frame = {
		.length = length,
		.offload = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = start, .csum_offset = field - start},
	};

	for (uint32_t i = 0; i < length; i++)
		frame.bytes[i] = i * 13 + (i >> 8);
	put_word(frame.bytes + 12, 0x88b5);
	return frame;
}

/* The same, finished: the sum of all words from csum_start on, the field's old value among them (RFC 1071). */
static void finish(struct segment *frame)
{
	const uint32_t start = frame->offload.csum_start;
	uint32_t sum = 0;

	for (uint32_t i = start; i < frame->length; i++)
		sum += (i - start) % 2 == 0 ? frame->bytes[i] << 8 : frame->bytes[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	sum = sum == 0xffff ? 0xffff : ~sum & 0xffff;
	put_word(frame->bytes + start + frame->offload.csum_offset, sum);
}

static const struct {
	uint32_t length, start, field;
} places[] = {
	{60, 14, 58},	    {200, 100, 126},	{200, 100, 127},    {200, 100, 128},	   {200, 110, 129},
	{200, 14, 198},	    {1514, 400, 416},	{1514, 1001, 1007}, {1514, 14, 15},	   {1514, 14, 1512},
	{1514, 1512, 1512}, {9014, 4095, 4096}, {9014, 140, 9012},  {65000, 32000, 40000}, {129, 14, 127},
};

static void carries_a_checksum_wherever_it_lies(void **state)
{
	static const uint32_t parts[] = {100000, 4103, 140 + HEADER, 129 + HEADER, 128 + HEADER, 127 + HEADER, 5};

	for (unsigned i = 0; i < RTE_DIM(places) * RTE_DIM(parts) * 2; i++) {
		const unsigned place = i / 2 % RTE_DIM(places);
		const uint32_t part = parts[i / 2 / RTE_DIM(places)];
		struct segment frame = unfinished(places[place].length, places[place].start, places[place].field);
		struct pair *pair;

		if ((frame.length + HEADER + part - 1) / part > RING)
			continue;
		start((void **)&pair);
		pair->from.ring.offloads = OFFLOAD_CHECKSUM;
		pair->to.ring.offloads = i & 1 ? OFFLOAD_CHECKSUM : 0;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &frame, part);
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		expect_used(&pair->to, 0, 0, HEADER + frame.length);
		if (pair->to.ring.offloads == 0) {
			expect_header(&pair->to, BUFFERS, 1);
			/* What the sender has is its own. */
			assert_memory_equal(guest_at(&pair->from, FRAMES + HEADER), frame.bytes, frame.length);
			finish(&frame);
		} else {
			assert_memory_equal(guest_at(&pair->to, BUFFERS), &frame.offload, sizeof(frame.offload));
		}
		assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), frame.bytes, frame.length);
		end((void **)&pair);
	}
}

/* Steered: to one that takes no offload, to one that does, and to both in this order, with a tag put in front. */
static void serves_several_receivers_of_a_checksum_behind_the_head(void **state)
{
	static const uint8_t first[] = {0};
	static struct burst burst;

	for (unsigned place = 0; place < RTE_DIM(places); place++) {
		struct segment frame = unfinished(places[place].length, places[place].start, places[place].field);
		struct simulated_guest other;
		struct pair *pair;

		start((void **)&pair);
		guest_start(&other, to_packed, true);
		other.ring.offloads = OFFLOAD_CHECKSUM;
		pair->from.ring.offloads = OFFLOAD_CHECKSUM;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &frame, 7000);
		assert_int_equal(vring_read(&pair->from.ring, &burst, 64), 1);
		assert_int_equal(burst.count, 1);
		packet_push(&burst.packets[0], 4);
		memmove(burst.packets[0].head, burst.packets[0].head + 4, 12);
		memcpy(burst.packets[0].head + 12, "\x81\x00\x00\x07", 4);
		memmove(frame.bytes + 16, frame.bytes + 12, frame.length - 12);
		memcpy(frame.bytes + 12, "\x81\x00\x00\x07", 4);
		frame.length += 4;
		frame.offload.csum_start += 4;

		offer_buffer(&other, BUFFERS, 0x11000);
		assert_int_equal(vring_write(&other.ring, &burst, first, 1), 1);
		assert_memory_equal(guest_at(&other, BUFFERS), &frame.offload, sizeof(frame.offload));
		assert_memory_equal(guest_at(&other, BUFFERS + HEADER), frame.bytes, frame.length);
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_write(&pair->to.ring, &burst, first, 1), 1);
		finish(&frame);
		expect_header(&pair->to, BUFFERS, 1);
		assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), frame.bytes, frame.length);
		/* Once it is complete, it is so for all. */
		offer_buffer(&other, BUFFERS, 0x11000);
		assert_int_equal(vring_write(&other.ring, &burst, first, 1), 1);
		expect_header(&other, BUFFERS, 1);
		assert_memory_equal(guest_at(&other, BUFFERS + HEADER), frame.bytes, frame.length);
		vring_read_done(&pair->from.ring, &burst);
		guest_end(&other);
		end((void **)&pair);
	}
}

static void drops_a_checksum_that_is_not_in_the_frame(void **state)
{
	static const uint32_t fields[] = {199, 200, 300, 65535};

	for (unsigned i = 0; i < RTE_DIM(fields); i++) {
		struct segment frame = unfinished(200, 150, fields[i]);
		struct pair *pair;

		start((void **)&pair);
		pair->from.ring.offloads = pair->to.ring.offloads = OFFLOAD_CHECKSUM;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &frame, 100000);
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		assert_int_equal(pair->from.counters.drop_offload_malformed, 1);
		end((void **)&pair);
	}
}

/* ------- long segments ------- */

/* Put bytes into the headers; what lies behind moves. */
static void insert(struct segment *segment, uint32_t at, const uint8_t *bytes, uint32_t count)
{
	memmove(segment->bytes + at + count, segment->bytes + at, segment->length - at);
	memcpy(segment->bytes + at, bytes, count);
	segment->network += at <= segment->network ? count : 0;
	segment->tcp += count;
	segment->headers += count;
	segment->length += count;
	segment->offload.csum_start += count;
}

static struct segment under_labels(bool ipv6, unsigned tags, unsigned labels)
{
	struct segment segment = long_segment(ipv6, tags, PAYLOAD);
	const uint32_t at = segment.network;

	put_word(segment.bytes + at - 2, RTE_ETHER_TYPE_MPLS);
	for (unsigned i = 0; i < labels; i++)
		insert(&segment, at, (const uint8_t[]){0, 1, i == 0, 64}, 4);
	return segment;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Its extension headers in front of TCP, in order: each is of so many bytes. */
static struct segment behind_extensions(const uint8_t *types, const uint32_t *lengths, unsigned count)
{
	static const uint8_t nothing[2048];
	struct segment segment = long_segment(true, 0, PAYLOAD);
	uint8_t *ip = segment.bytes + segment.network;

	for (unsigned i = count; i-- > 0;) {
		uint8_t *at = segment.bytes + segment.network + 40;

		insert(&segment, segment.network + 40, nothing, lengths[i]);
		at[0] = ip[6];
		at[1] = lengths[i] / 8 - 1;
		ip[6] = types[i];
	}
	put_word(ip + 4, segment.length - segment.network - 40);
	return segment;
}

/* A segment routing header (RFC 8754) with so many segments, the first of which has been passed. */
static struct segment routed(unsigned segments)
{
	const uint8_t type = IPPROTO_ROUTING;
	const uint32_t length = 8 + 16 * segments;
	struct segment segment = behind_extensions(&type, &length, 1);
	uint8_t *ip = segment.bytes + segment.network, *routing = ip + 40;
	uint32_t sum;

	routing[2] = 4;
	routing[3] = segments - 1;
	routing[4] = segments - 1;
	memset(routing + 8, 0x33, 16); /* the final destination is the last of the path, and stands first */
	sum = rte_raw_cksum(ip + 8, 16) + rte_raw_cksum(routing + 8, 16) + rte_cpu_to_be_16(IPPROTO_TCP) +
	      rte_cpu_to_be_16(segment.length - segment.tcp);
	sum = folded(sum);
	memcpy(segment.bytes + segment.tcp + offsetof(struct rte_tcp_hdr, cksum), &sum, 2);
	return segment;
}

/* Is TCP's checksum right, with this destination, of a frame of `length` bytes? */
static void expect_right_sum(const uint8_t *frame, const struct segment *segment, uint32_t length,
			     const uint8_t *destination)
{
	const uint32_t own = length - segment->tcp;
	uint32_t sum = rte_raw_cksum(frame + segment->network + 8, 16) + rte_raw_cksum(destination, 16) +
		       rte_cpu_to_be_16(IPPROTO_TCP) + rte_cpu_to_be_16(own) + rte_raw_cksum(frame + segment->tcp, own);

	assert_int_equal(folded(sum), 0xffff);
}

/* Send it in parts to a receiver that takes it, and to one that does not.  `destination` NULL: IPv4's. */
static void expect_carried(const struct segment *segment, uint32_t part, const uint8_t *destination)
{
	const unsigned count = (PAYLOAD + SEGMENT - 1) / SEGMENT;
	struct virtio_net_hdr *header;
	uint32_t done = 0;
	struct pair *pair;

	start((void **)&pair);
	pair->from.ring.offloads = pair->to.ring.offloads = ALL;
	vring_start(&pair->from.ring);
	send_segment(&pair->from, segment, part);
	offer_buffer(&pair->to, BUFFERS, 0x11000);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	expect_used(&pair->to, 0, 0, HEADER + segment->length);
	assert_memory_equal(guest_at(&pair->to, BUFFERS + HEADER), segment->bytes, segment->length);
	header = (void *)guest_at(&pair->to, BUFFERS);
	assert_int_equal(header->gso_type, segment->offload.gso_type);
	assert_int_equal(header->hdr_len, segment->headers);
	assert_int_equal(header->csum_start, segment->tcp);
	end((void **)&pair);

	start((void **)&pair);
	pair->from.ring.offloads = ALL;
	vring_start(&pair->from.ring);
	send_segment(&pair->from, segment, part);
	for (unsigned i = 0; i < count; i++)
		offer_buffer(&pair->to, BUFFERS + i * 2560, 2560);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	assert_int_equal(guest_taken(&pair->to), count);
	for (unsigned i = 0; i < count; i++) {
		const uint8_t *frame = guest_at(&pair->to, BUFFERS + i * 2560 + HEADER);
		const uint32_t payload = RTE_MIN((uint32_t)SEGMENT, (uint32_t)PAYLOAD - done);

		expect_used(&pair->to, i, i, HEADER + segment->headers + payload);
		assert_memory_equal(frame, segment->bytes, segment->network);
		assert_memory_equal(frame + segment->headers, segment->bytes + segment->headers + done, payload);
		if (destination == NULL) {
			expect_right_checksums(frame, segment, false);
		} else {
			assert_int_equal(frame[segment->network + 4] << 8 | frame[segment->network + 5],
					 segment->headers + payload - segment->network - 40);
			expect_right_sum(frame, segment, segment->headers + payload, destination);
		}
		done += payload;
	}
	end((void **)&pair);
}

static void carries_long_segments_under_any_tags_and_labels(void **state)
{
	static const uint32_t parts[] = {100000, 4096, 997};
	uint8_t destination[16];

	memset(destination, 0x22, sizeof(destination));
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned tags = 0; tags <= 18; tags += 3) {
			struct segment segment = long_segment(tags & 1, tags, PAYLOAD);

			expect_carried(&segment, parts[i], tags & 1 ? destination : NULL);
		}
		for (unsigned labels = 1; labels < 6; labels++) {
			struct segment segment = under_labels(labels & 1, labels % 3, labels);

			expect_carried(&segment, parts[i], labels & 1 ? destination : NULL);
		}
	}
}

static void carries_long_segments_behind_extension_headers(void **state)
{
	static const uint8_t types[] = {IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_ROUTING, IPPROTO_DSTOPTS,
					IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS};
	static const uint32_t short_ones[] = {8, 8, 8, 8, 8, 8, 8, 8}, long_ones[] = {64, 128, 40, 96};
	struct segment segment;
	uint8_t destination[16];

	for (unsigned segments = 1; segments < 27; segments += 3) {
		segment = routed(segments);
		memset(destination, 0x33, sizeof(destination));
		expect_carried(&segment, 100000, destination);
		expect_carried(&segment, 1000, destination);
	}
	memset(destination, 0x22, sizeof(destination));
	for (unsigned count = 1; count <= 8; count++) {
		segment = behind_extensions(types, short_ones, count);
		expect_carried(&segment, 997, destination);
	}
	segment = behind_extensions(types, long_ones, 4);
	expect_carried(&segment, 997, destination);
}

static void drops_long_segments_that_nobody_could_cut(void **state)
{
	static const uint8_t types[] = {IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS,
					IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS,
					IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS};
	static const uint32_t nine[] = {8, 8, 8, 8, 8, 8, 8, 8, 8}, too_long[] = {440};
	struct segment segments[] = {
		long_segment(false, 19, PAYLOAD),      /* IP that does not lie in the head */
		behind_extensions(types, nine, 9),     /* too many headers */
		behind_extensions(types, too_long, 1), /* too long ones */
		under_labels(false, 0, 30),
		under_labels(false, 0, 2),	 /* without a bottom of the stack, see below */
		long_segment(false, 0, PAYLOAD), /* in a tunnel: GRE */
	};

	segments[4].bytes[segments[4].network - 2] = 0;
	insert(&segments[5], 34, (const uint8_t[24]){0, 0, 8, 0, 0x45, [13] = IPPROTO_TCP}, 24);
	segments[5].bytes[14 + 9] = IPPROTO_GRE;
	for (unsigned i = 0; i < RTE_DIM(segments); i++) {
		struct pair *pair;

		start((void **)&pair);
		pair->from.ring.offloads = pair->to.ring.offloads = ALL;
		vring_start(&pair->from.ring);
		send_segment(&pair->from, &segments[i], 100000);
		offer_buffer(&pair->to, BUFFERS, 0x11000);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
		if (pair->from.counters.drop_offload_malformed != 1)
			fail_msg("segment %u", i);
		end((void **)&pair);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(carries_a_checksum_wherever_it_lies),
		cmocka_unit_test(serves_several_receivers_of_a_checksum_behind_the_head),
		cmocka_unit_test(drops_a_checksum_that_is_not_in_the_frame),
		cmocka_unit_test(carries_long_segments_under_any_tags_and_labels),
		cmocka_unit_test(carries_long_segments_behind_extension_headers),
		cmocka_unit_test(drops_long_segments_that_nobody_could_cut),
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
