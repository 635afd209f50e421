/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-router-cost [ROUTES]: how long the router takes to load its routes and to change each, and TSC cycles for
 * each frame to random destinations among them, without the moving of frames.  The tables are larger than any cache;
 * the frames are not.  The last figure is the least of several rounds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/function.h"
#include "functions/router_tap.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum { DEFAULT_ROUTES = 1000000, FRAMES = 1024, PASSES = 200, ROUNDS = 5, HOPS = 16 };

static const uint8_t own[6] = {2, 0, 0, 0, 0, 1};
static struct rte_mbuf *frames[FRAMES];
static struct prefix {
	uint32_t address;
	uint8_t length;
} * prefixes;

int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd);

/* No kernel: all routes are known, and lead to neighbours. */
int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd)
{
	*tap = (struct router_tap){0};
	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		tap->from_kernel[port] = rte_ring_create(port == 0 ? "from0" : "from1", 64, SOCKET_ID_ANY, 0);
	return 0;
}

/* Lengths roughly as in the Internet's table: most have 24 bits, none has more. */
static uint8_t random_length(uint64_t *seed)
{
	uint64_t dice = random64(seed) % 10;

	return dice < 6 ? 24 : dice < 9 ? 22 : 16 + random64(seed) % 6;
}

static void make_prefixes(uint32_t routes)
{
	uint64_t seed = 1;

	for (struct prefix *prefix = prefixes; prefix < prefixes + routes; prefix++) {
		prefix->length = random_length(&seed);
		do { /* no martian */
			prefix->address = (uint32_t)(0x10000000 + random64(&seed) % 0xc0000000);
			prefix->address &= UINT32_MAX << (32 - prefix->length);
		} while (prefix->address >> 24 == 127);
	}
}

static int in_order(const void *one, const void *other)
{
	const struct prefix *first = one, *second = other;

	return first->address != second->address ? first->address < second->address ? -1 : 1
						 : first->length - second->length;
}

/* All routes, each to the next hop that `shift` makes of its number. */
static void tell(const char *how, uint32_t routes, unsigned shift)
{
	uint64_t began = rte_rdtsc();

	for (uint32_t i = 0; i < routes; i++) {
		struct router_prefix prefix = {.length = prefixes[i].length};
		struct router_hop hop = {.nb_paths = 1};
		uint32_t address = htonl(prefixes[i].address);

		memcpy(prefix.address.bytes, &address, sizeof(address));
		hop.paths[0] = (struct router_path){
			.gateway = {{10, 0, 1, (uint8_t)((i + shift) % HOPS)}}, .bound = UINT32_MAX, .link = 1};
		router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, 0, ROUTER_NEW);
	}
	printf("%-44s %6.2f s for %" PRIu32 "\n", how, (double)(rte_rdtsc() - began) / rte_get_tsc_hz(), routes);
}

/* As the kernel tells them at the start, in order; then as a routing daemon changes them. */
static void load(uint32_t routes)
{
	struct prefix *shuffled = prefixes;

	for (unsigned i = 0; i < HOPS; i++) {
		const struct router_address gateway = {{10, 0, 1, (uint8_t)i}};

		router_neighbour_set(1, ROUTER_4, &gateway, router_mac(own) | ROUTER_STATION_USABLE);
	}
	make_prefixes(routes);
	prefixes = calloc(routes, sizeof(*prefixes));
	memcpy(prefixes, shuffled, routes * sizeof(*prefixes));
	qsort(prefixes, routes, sizeof(*prefixes), in_order);
	tell("load routes, in order", routes, 0);
	free(prefixes);
	prefixes = shuffled;
	tell("change routes, at random", routes, 1);
}

/* Frames as they come from a sender that has not been here. */
static void address_frames(uint32_t routes, uint64_t *seed)
{
	for (unsigned i = 0; i < FRAMES; i++) {
		struct rte_ipv4_hdr *header = rte_pktmbuf_mtod_offset(frames[i], struct rte_ipv4_hdr *, 14);

		memcpy(rte_pktmbuf_mtod(frames[i], void *), own, sizeof(own));
		header->dst_addr = htonl(prefixes[random64(seed) % routes].address | 1);
		header->time_to_live = 64;
		header->hdr_checksum = 0;
		header->hdr_checksum = rte_ipv4_cksum(header);
	}
}

/* Cycles for each frame; ends the program if one does not leave. */
static double forward(uint32_t routes, uint64_t *seed)
{
	uint64_t cycles = 0;

	for (unsigned pass = 0; pass < PASSES; pass++) {
		address_frames(routes, seed);
		for (unsigned first = 0; first < FRAMES; first += ROUTER_BURST) {
			struct rte_mbuf *burst[FUNCTION_ROOM];
			uint64_t began;
			uint16_t nb_out;

			memcpy(burst, frames + first, ROUTER_BURST * sizeof(burst[0]));
			began = rte_rdtsc();
			nb_out = router.process(burst, ROUTER_BURST, 0, 0);
			cycles += rte_rdtsc() - began;
			if (nb_out != ROUTER_BURST) {
				fprintf(stderr, "only %u of %u frames left\n", nb_out, ROUTER_BURST);
				exit(1);
			}
		}
	}
	return (double)cycles / PASSES / FRAMES;
}

int main(int argc, char **argv)
{
	const uint32_t routes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : DEFAULT_ROUTES;
	struct rte_mempool *pool;
	double best = 0;
	char text[16];
	uint64_t seed = 2;

	snprintf(text, sizeof(text), "%" PRIu32, routes);
	pool = start_dpdk_with_pool(1024, FRAMES);
	prefixes = calloc(routes, sizeof(*prefixes));
	if (pool == NULL || prefixes == NULL || grace_open() != 0 || router.set("ipv4-routes", text) != NULL ||
	    router.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) != 0)
		return 1;
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		atomic_store(&router_table.links[port].mac, router_mac(own));
		atomic_store(&router_table.links[port].mtu, 1500);
	}
	load(routes);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct frame frame;

		frame_udp4(&frame, 0x0a000002, 0, 1, 2);
		frames[i] = rte_pktmbuf_alloc(pool);
		memcpy(rte_pktmbuf_append(frames[i], 60), frame.bytes, frame.length);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		double cycles = forward(routes, &seed);

		best = best == 0 || cycles < best ? cycles : best;
	}
	printf("%-44s %6.1f cycles a frame\n", "forward to random destinations", best);
	return 0;
}
