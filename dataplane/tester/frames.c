/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_udp.h>

#include "common/signature.h"
#include "frames.h"

enum {
	POOL_CACHE = 256,
	CAPTURE_ROOM = 2048, /* the least room in a capture's buffers, so that captures share a pool */
	FAR_PORT = 9,	     /* discard (RFC 863), so that a real host stays silent */
};

static const uint8_t near_mac[6] = {0x02, 0x54, 0x52, 0x00, 0x00, 0x0a}; /* locally administered */
static const uint8_t far_mac[6] = {0x02, 0x54, 0x52, 0x00, 0x00, 0x0b};
static const uint32_t near_address = RTE_IPV4(198u, 18, 1, 0); /* of flow 0 */
static const uint32_t far_address = RTE_IPV4(198u, 19, 1, 1);

uint32_t frame_make(uint8_t *frame, uint16_t length, bool reverse)
{
	struct rte_ether_hdr ethernet = {.ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4)};
	struct rte_ipv4_hdr ip = {
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16(length - FRAME_IP),
		.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG),
		.time_to_live = 64,
		.next_proto_id = IPPROTO_UDP,
		.src_addr = rte_cpu_to_be_32(reverse ? far_address : near_address),
		.dst_addr = rte_cpu_to_be_32(reverse ? near_address : far_address),
	};
	struct rte_udp_hdr udp = {
		.src_port = rte_cpu_to_be_16(reverse ? FAR_PORT : FRAME_FIRST_PORT),
		.dst_port = rte_cpu_to_be_16(reverse ? FRAME_FIRST_PORT : FAR_PORT),
		.dgram_len = rte_cpu_to_be_16(length - FRAME_SOURCE_PORT),
	};
	rte_be16_t checksum;
	uint32_t sum = 0;

	memcpy(&ethernet.dst_addr, reverse ? near_mac : far_mac, sizeof(near_mac));
	memcpy(&ethernet.src_addr, reverse ? far_mac : near_mac, sizeof(near_mac));
	memset(frame, 0, length);
	memcpy(frame, &ethernet, sizeof(ethernet));
	memcpy(frame + FRAME_IP, &ip, sizeof(ip));
	memcpy(frame + FRAME_SOURCE_PORT, &udp, sizeof(udp));

	for (int at = FRAME_IP; at < FRAME_SOURCE_PORT; at += 2)
		sum += (uint32_t)frame[at] << 8 | frame[at + 1];
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	checksum = rte_cpu_to_be_16((uint16_t)~sum);
	memcpy(frame + FRAME_IP_CHECKSUM, &checksum, sizeof(checksum));
	return sum;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b != 0) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

uint32_t frames_interleave(const uint32_t *weights, uint16_t nb_kinds, uint8_t *pattern, uint32_t size)
{
	int64_t credit[FRAME_KINDS] = {0};
	uint32_t divisor = 0;
	uint64_t length = 0;

	for (uint16_t kind = 0; kind < nb_kinds; kind++)
		divisor = common_divisor(weights[kind], divisor);
	for (uint16_t kind = 0; kind < nb_kinds; kind++)
		length += weights[kind] / divisor;
	if (length > size)
		return 0;
	/* At each place every kind earns its weight, and the one that is owed most pays a whole round. */
	for (uint32_t place = 0; place < length; place++) {
		uint16_t chosen = 0;

		for (uint16_t kind = 0; kind < nb_kinds; kind++) {
			credit[kind] += weights[kind] / divisor;
			if (credit[kind] > credit[chosen])
				chosen = kind;
		}
		credit[chosen] -= (int64_t)length;
		pattern[place] = (uint8_t)chosen;
	}
	return (uint32_t)length;
}

static void fill_in(struct rte_mempool *mempool, void *context, void *object, unsigned index)
{
	const struct frame_pool *pool = context;
	struct rte_mbuf *mbuf = object;

	rte_pktmbuf_reset(mbuf);
	if (!pool->capture)
		frame_make(rte_pktmbuf_mtod(mbuf, uint8_t *), pool->length, pool->reverse);
}

/* Free the pools that nobody uses, as far as the drivers have given their buffers back. */
static void release_unused(struct frame_pools *pools)
{
	struct frame_pool **link = &pools->first;

	while (*link != NULL) {
		struct frame_pool *pool = *link;

		if (pool->users == 0 &&
		    rte_mempool_avail_count(pool->mempool) + FRAME_BURST + pool->fresh_left == pool->mempool->size) {
			*link = pool->next;
			rte_mempool_free(pool->mempool);
			free(pool);
		} else {
			link = &pool->next;
		}
	}
}

static struct rte_mempool *make_mempool(struct frame_pools *pools, uint16_t length)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "frames%u", pools->made++);
	/* One thread takes and gives back: no atomic operation is needed. */
	return rte_pktmbuf_pool_create_by_ops(name, pools->buffers, POOL_CACHE, 0, RTE_PKTMBUF_HEADROOM + length,
					      SOCKET_ID_ANY, "ring_sp_sc");
}

static struct frame_pool *open_pool(struct frame_pools *pools, uint16_t port, uint16_t length, bool reverse,
				    bool capture)
{
	struct frame_pool *pool;

	for (pool = pools->first; pool != NULL; pool = pool->next)
		if (pool->port == port && pool->length == length && pool->reverse == reverse &&
		    pool->capture == capture) {
			pool->users++;
			return pool;
		}
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return NULL;
	pool->port = port;
	pool->length = length;
	pool->reverse = reverse;
	pool->capture = capture;
	pool->mempool = make_mempool(pools, length);
	if (pool->mempool == NULL) {
		release_unused(pools);
		pool->mempool = make_mempool(pools, length);
	}
	if (pool->mempool == NULL) {
		free(pool);
		return NULL;
	}
	rte_mempool_obj_iter(pool->mempool, fill_in, pool);
	rte_mempool_get_bulk(pool->mempool, (void **)pool->stash, FRAME_BURST);
	pool->users = 1;
	pool->next = pools->first;
	pools->first = pool;
	return pool;
}

static int open_capture(struct frames *frames, const struct frames_plan *plan, struct frame_pools *pools, char *error,
			size_t size)
{
	struct frame_kind *kind = &frames->kinds[0];
	uint16_t room;

	char why[CAPTURE_ERROR];

	frames->capture = capture_open(plan->capture, plan->longest, why);
	if (frames->capture == NULL) {
		snprintf(error, size, "%s", why);
		return -EINVAL;
	}
	room = frames->capture->longest > CAPTURE_ROOM ? FRAME_LARGEST : CAPTURE_ROOM;
	frames->nb_kinds = 1;
	frames->pattern_length = 1;
	kind->pool = open_pool(pools, plan->port, room, false, true);
	return kind->pool != NULL ? 0 : -ENOMEM;
}

static int open_made(struct frames *frames, const struct frames_plan *plan, struct frame_pools *pools, char *error,
		     size_t size)
{
	frames->pattern_length = frames_interleave(plan->weights, plan->nb_sizes, frames->pattern, FRAME_PATTERN);
	if (frames->pattern_length == 0) {
		snprintf(error, size, "weights: one round of the mix is longer than %d frames; use smaller weights",
			 FRAME_PATTERN);
		return -EINVAL;
	}
	frames->flow_address = plan->reverse ? FRAME_DESTINATION : FRAME_SOURCE;
	frames->flow_port = plan->reverse ? FRAME_DESTINATION_PORT : FRAME_SOURCE_PORT;
	for (uint16_t i = 0; i < plan->nb_sizes; i++) {
		struct frame_kind *kind = &frames->kinds[frames->nb_kinds++];
		uint8_t sample[FRAME_LARGEST];

		kind->length = plan->sizes[i] - RTE_ETHER_CRC_LEN;
		kind->checksum_base = frame_make(sample, kind->length, plan->reverse);
		kind->pool = open_pool(pools, plan->port, kind->length, plan->reverse, false);
		if (kind->pool == NULL)
			return -ENOMEM;
		kind->pool->flows = RTE_MAX(kind->pool->flows, plan->first_flow + plan->flows);
	}
	return 0;
}

int frames_open(struct frames *frames, const struct frames_plan *plan, struct frame_pools *pools, char *error,
		size_t size)
{
	int rc;

	*frames = (struct frames){.flows = plan->flows,
				  .flow = (uint32_t)(plan->first_sequence % plan->flows),
				  .first_flow = plan->first_flow};
	if (plan->capture != NULL)
		rc = open_capture(frames, plan, pools, error, size);
	else
		rc = open_made(frames, plan, pools, error, size);
	if (rc == -ENOMEM)
		snprintf(error, size, "no memory for another %u buffers; start the tester with a larger --memory",
			 pools->buffers);
	if (rc != 0)
		frames_close(frames);
	return rc;
}

void frames_close(struct frames *frames)
{
	for (uint16_t i = 0; i < frames->nb_kinds; i++)
		if (frames->kinds[i].pool != NULL)
			frames->kinds[i].pool->users--;
	capture_close(frames->capture);
	*frames = (struct frames){0};
}
