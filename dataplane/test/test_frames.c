/* SPDX-License-Identifier: Apache-2.0
 *
 * Made frames: right on the wire, mirrored between the directions, and mixed evenly.
 */
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "cmocka_all.h"
#include "common/signature.h"
#include "tester/frames.h"

struct tuple {
	uint32_t source, destination;
	uint16_t source_port, destination_port;
};

static struct tuple make(uint8_t *frame, uint16_t length, bool reverse, uint32_t flow)
{
	uint32_t base = frame_make(frame, length, reverse);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(frame + FRAME_IP);
	const struct rte_udp_hdr *udp = (const struct rte_udp_hdr *)(frame + FRAME_SOURCE_PORT);

	frame_set_flow(frame, base, reverse ? FRAME_DESTINATION : FRAME_SOURCE,
		       reverse ? FRAME_DESTINATION_PORT : FRAME_SOURCE_PORT, flow);
	return (struct tuple){rte_be_to_cpu_32(ip->src_addr), rte_be_to_cpu_32(ip->dst_addr),
			      rte_be_to_cpu_16(udp->src_port), rte_be_to_cpu_16(udp->dst_port)};
}

static void headers_are_right(void **state)
{
	const uint16_t lengths[] = {60, 61, 124, 252, 566, 1514, 9014};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (int reverse = 0; reverse < 2; reverse++) {
			uint8_t *frame = malloc(lengths[i]);
			const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(frame + FRAME_IP);
			const struct rte_udp_hdr *udp = (const struct rte_udp_hdr *)(frame + FRAME_SOURCE_PORT);

			/* As a stream of one flow sends it: no flow is set. */
			frame_make(frame, lengths[i], reverse);
			assert_int_equal(rte_raw_cksum(ip, sizeof(*ip)), 0xffff);
			assert_int_equal(frame[12] << 8 | frame[13], RTE_ETHER_TYPE_IPV4);
			assert_int_equal(rte_be_to_cpu_16(ip->total_length), lengths[i] - 14);
			assert_int_equal(ip->next_proto_id, 17);
			assert_int_equal(rte_be_to_cpu_16(udp->dgram_len), lengths[i] - 34);
			assert_int_equal(udp->dgram_cksum, 0);
			free(frame);
		}
}

static void the_smallest_frames_payload_is_the_signature(void **state)
{
	assert_int_equal(FRAME_SMALLEST - RTE_ETHER_CRC_LEN - 14 - 20 - 8, SIGNATURE_SIZE);
}

static void the_checksum_of_every_flow_is_right(void **state)
{
	uint8_t frame[60];

	for (uint32_t flow = 0; flow < FRAME_FLOWS; flow += flow < 1000 ? 1 : 997)
		for (int reverse = 0; reverse < 2; reverse++) {
			struct rte_ipv4_hdr ip;

			make(frame, sizeof(frame), reverse, flow);
			memcpy(&ip, frame + FRAME_IP, sizeof(ip));
			assert_int_equal(rte_raw_cksum(&ip, sizeof(ip)), 0xffff);
		}
}

static void a_flow_is_the_same_tuple_both_ways(void **state)
{
	uint8_t frame[60];

	for (uint32_t flow = 0; flow < FRAME_FLOWS; flow += 1 + flow / 7) {
		struct tuple there = make(frame, sizeof(frame), false, flow);
		struct tuple back = make(frame, sizeof(frame), true, flow);

		assert_int_equal(there.source, back.destination);
		assert_int_equal(there.destination, back.source);
		assert_int_equal(there.source_port, back.destination_port);
		assert_int_equal(there.destination_port, back.source_port);
		assert_int_equal(there.source >> 17, RTE_IPV4(198u, 18, 0, 0) >> 17);
		assert_int_equal(there.destination >> 17, RTE_IPV4(198u, 18, 0, 0) >> 17);
	}
}

static void a_million_flows_are_a_million_tuples(void **state)
{
	uint8_t *seen = calloc(1, (256 << 16) / 8);
	uint8_t frame[60];

	for (uint32_t flow = 0; flow < FRAME_FLOWS; flow++) {
		struct tuple tuple = make(frame, sizeof(frame), false, flow);
		uint32_t key = (tuple.source & 0xff) << 16 | tuple.source_port;

		assert_int_equal(tuple.source & ~0xffu, RTE_IPV4(198u, 18, 1, 0));
		assert_false(seen[key / 8] & 1 << key % 8);
		seen[key / 8] |= 1 << key % 8;
	}
	free(seen);
}

static void the_default_mix_is_7_4_1_and_even(void **state)
{
	const uint32_t weights[] = {28, 16, 4};
	const double shares[] = {7 / 12.0, 4 / 12.0, 1 / 12.0};
	uint8_t pattern[FRAME_PATTERN];
	int count[3] = {0};

	assert_int_equal(frames_interleave(weights, 3, pattern, sizeof(pattern)), 12);
	for (int place = 0; place < 12; place++) {
		count[pattern[place]]++;
		for (int kind = 0; kind < 3; kind++) {
			double due = shares[kind] * (place + 1);

			assert_true(count[kind] > due - 1 && count[kind] < due + 1);
		}
	}
	assert_int_equal(count[0], 7);
	assert_int_equal(count[1], 4);
	assert_int_equal(count[2], 1);
}

static void a_mix_too_long_for_the_pattern_is_refused(void **state)
{
	const uint32_t weights[] = {4096, 1}, even[] = {500000, 500000};
	uint8_t pattern[FRAME_PATTERN];

	assert_int_equal(frames_interleave(weights, 2, pattern, sizeof(pattern)), 0);
	assert_int_equal(frames_interleave(even, 2, pattern, sizeof(pattern)), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_are_right),
		cmocka_unit_test(the_smallest_frames_payload_is_the_signature),
		cmocka_unit_test(the_checksum_of_every_flow_is_right),
		cmocka_unit_test(a_flow_is_the_same_tuple_both_ways),
		cmocka_unit_test(a_million_flows_are_a_million_tuples),
		cmocka_unit_test(the_default_mix_is_7_4_1_and_even),
		cmocka_unit_test(a_mix_too_long_for_the_pattern_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
