/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-tunnel-cost: what it takes to put outer headers before a frame and to take them off, beside the skeleton on
 * the same frames.  Inner frames of 64 bytes, UDP of 1000 flows, a burst at a time: each is copied into a packet
 * buffer, processed, and copied out of it.  Kinds take turns in each round, and each figure is the least of several
 * rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "common/option.h"
#include "functions/tunnel.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum { FRAMES = 1023, BURST = 32, INNER = 60, FLOWS = 1000, PASSES = 64, ROUNDS = 2000, LONGEST = 256 };

static struct rte_mempool *pool;
static struct frame inner[FLOWS], outer[FLOWS];

static struct subject {
	const char *name;
	enum tunnel_protocol protocol;
	bool six, checksum;
	struct tunnel tunnel;
	double in, out; /* cycles a frame */
} subjects[] = {
	{.name = "VXLAN, IPv4", .protocol = TUNNEL_VXLAN},
	{.name = "VXLAN, IPv4, UDP checksum", .protocol = TUNNEL_VXLAN, .checksum = true},
	{.name = "VXLAN, IPv6, UDP checksum", .protocol = TUNNEL_VXLAN, .six = true, .checksum = true},
	{.name = "Geneve, IPv4", .protocol = TUNNEL_GENEVE},
	{.name = "Geneve, IPv6, UDP checksum", .protocol = TUNNEL_GENEVE, .six = true, .checksum = true},
};
static double nothing_in, nothing_out; /* the skeleton's, of frames that are as long as what comes */

static struct ip_address address(bool six, uint8_t last)
{
	struct ip_address address = {.bytes = {192, 0, 2, last}, .family = HEADERS_IPV4};

	if (six)
		address = (struct ip_address){.bytes = {0x20, 1, 0xd, 0xb8, [15] = last}, .family = HEADERS_IPV6};
	return address;
}

/* Both ends have the same addresses, so that what goes in at one port may come back by the other. */
static void begin(struct subject *subject)
{
	const struct tunnel_settings settings = {
		.ends = {.protocol = subject->protocol,
			 .vni = 1,
			 .local = address(subject->six, 1),
			 .remote = address(subject->six, 1),
			 .mac = {2},
			 .port = subject->protocol == TUNNEL_VXLAN ? TUNNEL_VXLAN_PORT : TUNNEL_GENEVE_PORT,
			 .mtu = 1500,
			 .checksum = subject->checksum},
		.neighbour = 2,
	};

	tunnel_begin(&subject->tunnel, &settings, pool);
}

/* A burst of frames, from a place in the list on; returns the cycles.  `left` may get the first that left. */
static uint64_t pass(struct tunnel *tunnel, const struct frame *frames, uint16_t in, struct frame *left)
{
	static uint8_t received[BURST][LONGEST];
	struct rte_mbuf *burst[FUNCTION_ROOM];
	const uint64_t began = rte_rdtsc();
	uint16_t nb = BURST;

	if (rte_pktmbuf_alloc_bulk(pool, burst, BURST) != 0)
		exit(1);
	for (unsigned i = 0; i < BURST; i++)
		memcpy(rte_pktmbuf_append(burst[i], (uint16_t)frames[i].length), frames[i].bytes, frames[i].length);
	if (tunnel != NULL)
		nb = tunnel_pass(tunnel, burst, BURST, in, 0, began);
	if (nb != BURST)
		exit(1);
	for (unsigned i = 0; i < BURST; i++) {
		memcpy(received[i], rte_pktmbuf_mtod(burst[i], void *), burst[i]->data_len);
		if (left != NULL) {
			left[i].length = burst[i]->data_len;
			memcpy(left[i].bytes, received[i], left[i].length);
		}
	}
	rte_pktmbuf_free_bulk(burst, BURST);
	return rte_rdtsc() - began;
}

static void keep_least(double *best, struct tunnel *tunnel, const struct frame *frames, uint16_t in)
{
	uint64_t cycles = 0;
	double each;

	for (unsigned i = 0; i < PASSES; i++)
		cycles += pass(tunnel, frames + i * BURST % (FLOWS - BURST), in, NULL);
	each = (double)cycles / PASSES / BURST;
	if (*best == 0 || each < *best)
		*best = each;
}

static void measure(struct subject *subject)
{
	for (unsigned i = 0; i + BURST <= FLOWS; i += BURST)
		pass(&subject->tunnel, inner + i, 0, outer + i);
	for (unsigned i = FLOWS / BURST * BURST; i < FLOWS; i++)
		outer[i] = outer[i - BURST];
	for (unsigned round = 0; round < ROUNDS; round++) {
		keep_least(&nothing_in, NULL, inner, 0);
		keep_least(&subject->in, &subject->tunnel, inner, 0);
		keep_least(&nothing_out, NULL, outer, 0);
		keep_least(&subject->out, &subject->tunnel, outer, 1);
	}
	printf("%-28s %14.1f %14.1f\n", subject->name, subject->in - nothing_in, subject->out - nothing_out);
	nothing_in = nothing_out = 0;
}

int main(int argc, char **argv)
{
	option_none(argc, argv,
		    "What it takes to put outer headers before a frame and to take them off, beside the skeleton.");
	if (start_dpdk(64) != 0)
		return 1;
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		return 1;
	for (unsigned i = 0; i < FLOWS; i++) {
		frame_udp4(&inner[i], 0x0a000001, 0x0a000002, (uint16_t)(1024 + i), 9);
		while (inner[i].length < INNER)
			frame_add8(&inner[i], 0);
	}
	printf("%28s %14s %14s\n", "cycles a frame, beyond a copy", "encapsulation", "decapsulation");
	for (unsigned i = 0; i < RTE_DIM(subjects); i++) {
		begin(&subjects[i]);
		measure(&subjects[i]);
	}
	printf("TSC: %.3f GHz\n", (double)rte_get_tsc_hz() / 1e9);
	return 0;
}
