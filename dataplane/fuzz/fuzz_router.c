/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a router that has routes and neighbours.  What leaves has a sound header, and
 * one hop less to go.
 */
#include "fuzz/fuzz.h"

#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/function.h"
#include "functions/router_tap.h"

enum { FRAMES = 64, ROOM = 2048, VLAN = 5 };

static const uint8_t own[6] = {2, 0, 0, 0, 0, 1};
static struct rte_mempool *pool;
static uint64_t nb_given;

int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *mempool, int forward_fd);
bool __wrap_router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class);
bool __wrap_router_tap_prompt(struct router_tap *tap, uint32_t neighbour);

int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *mempool, int forward_fd)
{
	*tap = (struct router_tap){0};
	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		tap->from_kernel[port] = rte_ring_create(port == 0 ? "from0" : "from1", 64, SOCKET_ID_ANY, 0);
	return 0;
}

bool __wrap_router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class)
{
	check(class < ROUTER_CLASSES && mbuf->port < ROUTER_PORTS);
	nb_given++;
	rte_pktmbuf_free(mbuf);
	return true;
}

bool __wrap_router_tap_prompt(struct router_tap *tap, uint32_t neighbour)
{
	return true;
}

/* Everything leads to one neighbour of port 1, but for some prefixes that lead to port 0, nowhere and here. */
static void fill_table(void)
{
	for (uint8_t family = 0; family < ROUTER_FAMILIES; family++) {
		struct router_address gateway = {{10, 0, 0, 2}};
		struct router_hop hop = {.nb_paths = 1};
		struct router_prefix prefix = {.family = family};

		for (uint8_t port = 0; port < ROUTER_PORTS; port++) {
			hop.paths[0] = (struct router_path){
				.gateway = gateway, .bound = UINT32_MAX, .link = !port, .family = family};
			router_neighbour_set(!port, family, &gateway, router_mac(own) | ROUTER_STATION_USABLE);
			prefix.length = port == 0 ? 0 : 8;
			prefix.address.bytes[0] = port == 0 ? 0 : 32;
			router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, 0, ROUTER_NEW);
		}
		hop.paths[0].link = ROUTER_PORTS;
		router_neighbour_set(ROUTER_PORTS, family, &gateway, router_mac(own) | ROUTER_STATION_USABLE);
		prefix.address.bytes[0] = 36;
		router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, 0, ROUTER_NEW);
		hop.paths[0].link = 0;
		prefix.address.bytes[0] = 33;
		router_route_add(&prefix, 1, ROUTE_BLACKHOLE, NULL, 0, ROUTER_NEW);
		prefix.address.bytes[0] = 34;
		router_route_add(&prefix, 1, ROUTE_ITSELF, NULL, 0, ROUTER_NEW);
		hop.paths[0].connected = true;
		prefix.address.bytes[0] = 35;
		router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, 0, ROUTER_NEW);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(start_dpdk(256) == 0);
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL && grace_open() == 0);
	check(router.set("ipv4-routes", "100") == NULL && router.set("ipv6-routes", "100") == NULL);
	check(router.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) == 0);
	router_table.links[ROUTER_PORTS].vlan = RTE_BE16(VLAN);
	for (unsigned port = 0; port <= ROUTER_PORTS; port++) { /* the last one is that VLAN of port 0 */
		atomic_store(&router_table.links[port].mac, router_mac(own));
		atomic_store(&router_table.links[port].mtu, 1500);
	}
	atomic_store(&router_table.vlans[0][VLAN], ROUTER_PORTS);
	fill_table();
	return 0;
}

static void check_left(struct rte_mbuf *mbuf)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);

	if (ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_VLAN)) {
		check(((const uint16_t *)(ethernet + 1))[0] == RTE_BE16(VLAN));
		ethernet = (const struct rte_ether_hdr *)rte_pktmbuf_adj(mbuf, 4); /* its end is where it was */
	}
	if (ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) {
		const struct rte_ipv4_hdr *header = (const struct rte_ipv4_hdr *)(ethernet + 1);

		check(mbuf->data_len >= 34 && rte_raw_cksum(header, sizeof(*header)) == 0xffff);
		check(header->version_ihl == 0x45 && header->time_to_live > 0 && router_length4(header) <= 1500);
	} else {
		const struct rte_ipv6_hdr *header = (const struct rte_ipv6_hdr *)(ethernet + 1);

		check(mbuf->data_len >= 54 && ethernet->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV6));
		check(header->hop_limits > 0 && router_length6(header) <= 1500);
	}
	rte_pktmbuf_free(mbuf);
}

/* The sanitizer sees a byte too far.  What is found from a few words is what the whole check finds. */
static void check_exact(const uint8_t *frame, uint32_t size)
{
	uint8_t *bytes = malloc(size);
	enum router_verdict verdict;

	memcpy(bytes, frame, size);
	verdict = router_check(bytes, size, size, 14, router_mac(own));
	check(router_is_plain4(bytes, size, size, router_mac(own)) == (verdict == ROUTER_IPV4));
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)};
	uint16_t in, nb_out;

	check(burst[0] != NULL);
	if (size < 2 || size - 1 > ROOM) {
		rte_pktmbuf_free(burst[0]);
		return 0;
	}
	in = data[0] & 1;
	memcpy(rte_pktmbuf_append(burst[0], (uint16_t)(size - 1)), data + 1, size - 1);
	if (data[0] & 2) /* else only mutation finds the way past the first check */
		memcpy(rte_pktmbuf_mtod(burst[0], void *), own, RTE_MIN(size - 1, sizeof(own)));
	check_exact(data + 1, (uint32_t)size - 1);
	nb_out = router.process(burst, 1, in, 0);
	for (uint16_t i = 0; i < nb_out; i++)
		check_left(burst[i]);
	nb_out = router.process(burst, 0, !in, 0);
	for (uint16_t i = 0; i < nb_out; i++)
		check_left(burst[i]);
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	return 0;
}
