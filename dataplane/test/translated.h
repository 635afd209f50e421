/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame goes through a NAT, and as what it leaves.
 */
#ifndef TAILRACE_TEST_TRANSLATED_H
#define TAILRACE_TEST_TRANSLATED_H

#include "test/segments.h"

#include <rte_mbuf.h>

struct seen {
	uint32_t source, destination;
	uint16_t from, to; /* of ICMP: its identifier, twice */
};

static inline struct rte_mbuf *mbuf_of(const struct frame *frame, struct rte_mempool *pool)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	memcpy(rte_pktmbuf_append(mbuf, frame->length), frame->bytes, frame->length);
	return mbuf;
}

/* What came of it takes its place; the buffer is free again. */
static inline void take_back(struct frame *frame, struct rte_mbuf *mbuf)
{
	assert_int_equal(rte_pktmbuf_pkt_len(mbuf), frame->length);
	memcpy(frame->bytes, rte_pktmbuf_mtod(mbuf, void *), frame->length);
	rte_pktmbuf_free(mbuf);
}

/* The test's own: let a frame in at a port; what leaves takes its place.  Returns whether it does. */
static bool passes(struct frame *frame, uint16_t in);

/* Let it in, and say what it left as. */
static inline struct seen through(struct frame *frame, uint16_t in)
{
	const struct rte_ipv4_hdr *ip = ip_of(frame);
	uint16_t ports[4];

	assert_true(passes(frame, in));
	check_sums(frame);
	memcpy(ports, ip + 1, sizeof(ports));
	if (ip->next_proto_id == IPPROTO_ICMP)
		ports[0] = ports[1] = ports[2];
	return (struct seen){ntohl(ip->src_addr), ntohl(ip->dst_addr), ntohs(ports[0]), ntohs(ports[1])};
}

static inline struct seen sent(struct frame frame, uint16_t in)
{
	return through(&frame, in);
}

#endif
