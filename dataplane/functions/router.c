/* SPDX-License-Identifier: Apache-2.0
 *
 * An IP router between two ports: RFC 1812 for IPv4, RFC 8200 for IPv6.  Its routes and neighbours are the kernel's, of
 * the network namespace that it runs in, where each port is a TAP interface, port0 and port1.
 *
 * The fast path forwards what needs no thought: a sound header, a route to a neighbour that is known, no options, room
 * for one hop more and for the length.  Everything else goes to the kernel by the TAP of the port where it came in
 * (ARP, neighbour discovery, what is for the router itself, TTL and MTU exceeded, no route), and what the kernel sends
 * by a TAP leaves by that port.  So ICMP errors and their limits (RFC 1812, 4.3.2.8; RFC 4443, 2.4) are Linux's, and so
 * is whatever runs in the namespace, such as a routing daemon.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_prefetch.h>

#include "function.h"
#include "router_table.h"
#include "router_tap.h"

enum {
	BACK = 64, /* frames that leave where they came in, and wait for that port's turn */
	ROUTES = 16384,
	ROUTES_MOST = 4 << 20,
	PLAIN = sizeof(struct rte_ether_hdr), /* bytes before the IP header, without and with a tag */
	TAGGED = PLAIN + sizeof(struct rte_vlan_hdr),
};
_Static_assert(BACK + 2 * ROUTER_BURST <= FUNCTION_ROOM, "what may leave at once has room");

struct back {
	struct rte_mbuf *frames[BACK];
	uint16_t nb_frames;
};

/* What the thread that has a queue of both ports writes. */
struct router_lane {
	struct back backs[ROUTER_PORTS];
	_Atomic uint64_t drops[ROUTER_PORTS][ROUTER_VERDICTS];
	_Atomic uint64_t forwarded[ROUTER_PORTS], to_kernel[ROUTER_PORTS][ROUTER_CLASSES];
} __rte_cache_aligned;

struct egress { /* what leaves by a port */
	struct router_lane *lane;
	struct rte_mbuf **frames;
	uint16_t nb_frames, nb_forwarded;
};

static uint32_t most_routes[ROUTER_FAMILIES] = {ROUTES, ROUTES};
static struct router_tap tap;
static struct router_lane lanes[FUNCTION_QUEUES];

/* ------- the fast path ------- */

static __rte_noinline void drop(struct router_lane *lane, struct rte_mbuf *mbuf, enum router_verdict why)
{
	function_count(&lane->drops[mbuf->port][why], 1);
	rte_pktmbuf_free(mbuf);
}

/* Returns whether the kernel gets the frame; if not it is dropped. */
static __rte_noinline bool give_kernel(struct router_lane *lane, struct rte_mbuf *mbuf, enum router_class class)
{
	uint16_t in = mbuf->port;

	if (!router_tap_give(&tap, mbuf, class)) {
		drop(lane, mbuf, ROUTER_DROP_kernel_neighbours + class);
		return false;
	}
	function_count(&lane->to_kernel[in][class], 1);
	return true;
}

static __rte_noinline void leave_back(struct rte_mbuf *mbuf, uint8_t port, struct egress *out)
{
	struct back *back = &out->lane->backs[port];

	if (back->nb_frames == BACK) {
		drop(out->lane, mbuf, ROUTER_DROP_port_full);
		return;
	}
	out->nb_forwarded++;
	back->frames[back->nb_frames++] = mbuf;
}

static inline void leave(struct rte_mbuf *mbuf, uint8_t port, struct egress *out)
{
	if (unlikely(port == mbuf->port)) {
		leave_back(mbuf, port, out);
		return;
	}
	out->nb_forwarded++;
	out->frames[out->nb_frames++] = mbuf;
}

static const struct router_way *choose(const struct router_ways *ways, uint32_t flow)
{
	const struct router_way *way = ways->ways;

	while (way->bound < flow)
		way++;
	return way;
}

/* The kernel does not see the frame, which would lose its place by going there, but is to ask the neighbour whether it
 * is still there. */
static void show_use(uint32_t neighbour)
{
	_Atomic uint64_t *station = &router_table.stations[neighbour];

	if ((atomic_fetch_and(station, ~ROUTER_STATION_STALE) & ROUTER_STATION_STALE) &&
	    !router_tap_prompt(&tap, neighbour))
		atomic_fetch_or(station, ROUTER_STATION_STALE);
}

/* Make the room of `layer2` bytes before the IP header what the link needs.  Returns false if there is none. */
static inline bool make_room(struct rte_mbuf *mbuf, uint32_t layer2, uint16_t vlan)
{
	const uint32_t wanted = unlikely(vlan != 0) ? TAGGED : PLAIN;

	if (likely(layer2 == wanted))
		return true;
	if (wanted == PLAIN)
		return rte_pktmbuf_adj(mbuf, TAGGED - PLAIN) != NULL;
	return rte_pktmbuf_prepend(mbuf, TAGGED - PLAIN) != NULL;
}

/* As whole words. */
static inline void write_layer2(struct rte_mbuf *mbuf, const struct router_link *link, uint64_t station, uint8_t family)
{
	const rte_be16_t type = family == ROUTER_4 ? RTE_BE16(RTE_ETHER_TYPE_IPV4) : RTE_BE16(RTE_ETHER_TYPE_IPV6);
	const uint64_t mac = atomic_load_explicit(&link->mac, memory_order_relaxed) & PLAIN_MAC;
	uint8_t *ethernet = rte_pktmbuf_mtod(mbuf, uint8_t *);
	const uint64_t first = (station & PLAIN_MAC) | mac << 48, second = mac | (uint64_t)type << 48;

	memcpy(ethernet, &first, sizeof(first));
	memcpy(ethernet + RTE_ETHER_ADDR_LEN, &second, sizeof(second));
	if (unlikely(link->vlan != 0)) {
		const rte_be16_t tagged = RTE_BE16(RTE_ETHER_TYPE_VLAN);
		const struct rte_vlan_hdr tag = {.vlan_tci = link->vlan, .eth_proto = type};

		memcpy(ethernet + PLAIN - sizeof(tagged), &tagged, sizeof(tagged));
		memcpy(ethernet + PLAIN, &tag, sizeof(tag));
	}
}

/*
 * Send a frame to a neighbour, unless something is in the way that the kernel has to see.  Returns whether its IP
 * header may be changed for one hop more: then it leaves.
 */
static __rte_always_inline bool send_to(struct router_lane *lane, struct rte_mbuf *mbuf, uint32_t layer2,
					const struct router_way *way, uint32_t neighbour, uint32_t length,
					uint8_t family)
{
	const struct router_link *link = &router_table.links[way->link];
	uint64_t station = 0;

	if (likely(neighbour != ROUTER_CONNECTED))
		station = atomic_load_explicit(&router_table.stations[neighbour], memory_order_relaxed);
	if (unlikely(!(station & ROUTER_STATION_USABLE)) ||
	    unlikely(length > atomic_load_explicit(&link->mtu, memory_order_relaxed)) ||
	    unlikely(!make_room(mbuf, layer2, link->vlan))) {
		give_kernel(lane, mbuf, ROUTER_OTHERS);
		return false;
	}
	if (unlikely(station & ROUTER_STATION_STALE))
		show_use(neighbour);
	write_layer2(mbuf, link, station, family);
	return true;
}

/* Deal with what a lookup found that is no next hop. */
static __rte_noinline void no_next_hop(struct router_lane *lane, struct rte_mbuf *mbuf, uint64_t found)
{
	if (found == ROUTE_BLACKHOLE)
		drop(lane, mbuf, ROUTER_DROP_blackhole);
	else
		give_kernel(lane, mbuf, found == ROUTE_ITSELF ? ROUTER_ITSELF : ROUTER_OTHERS);
}

/* The family is a constant of the caller's, so each has code of its own. */
static __rte_always_inline void forward(struct rte_mbuf *mbuf, uint32_t layer2, uint64_t found, uint8_t family,
					struct egress *out)
{
	const uint32_t size = mbuf->data_len - layer2;
	const struct router_ways *ways = &router_table.ways[found];
	struct rte_ipv4_hdr *header4 = rte_pktmbuf_mtod_offset(mbuf, void *, layer2);
	struct rte_ipv6_hdr *header6 = (void *)header4;
	const struct router_way *way = ways->ways;
	uint32_t neighbour;

	if (unlikely(found < ROUTE_FIRST_HOP)) {
		no_next_hop(out->lane, mbuf, found);
		return;
	}
	if (unlikely((family == ROUTER_4 ? header4->time_to_live : header6->hop_limits) <= 1)) {
		give_kernel(out->lane, mbuf, ROUTER_OTHERS);
		return;
	}
	if (unlikely(ways->nb > 1))
		way = choose(ways, family == ROUTER_4 ? router_flow4(header4, size) : router_flow6(header6, size));
	neighbour = way->neighbour;
	if (neighbour == ROUTER_CONNECTED) {
		struct router_address address = {0};

		if (family == ROUTER_4)
			memcpy(address.bytes, &header4->dst_addr, sizeof(header4->dst_addr));
		else
			memcpy(address.bytes, &header6->dst_addr, sizeof(header6->dst_addr));
		neighbour = router_find_neighbour(way->link, family, &address);
	}
	if (!send_to(out->lane, mbuf, layer2, way, neighbour,
		     family == ROUTER_4 ? router_length4(header4) : router_length6(header6), family))
		return;
	if (family == ROUTER_4)
		router_decrease_ttl(header4);
	else
		header6->hop_limits--;
	leave(mbuf, router_table.links[way->link].port, out);
}

/* By which link a frame comes in, and its length before the IP header.  Of a VLAN that is no link the kernel gets it,
 * as of any type that is not IP. */
static const struct router_link *link_of(const struct rte_mbuf *mbuf, uint16_t in, uint32_t *layer2)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);
	const struct rte_vlan_hdr *tag = (const struct rte_vlan_hdr *)(ethernet + 1);
	uint8_t number;

	*layer2 = PLAIN;
	if (mbuf->data_len < TAGGED || ethernet->ether_type != RTE_BE16(RTE_ETHER_TYPE_VLAN))
		return &router_table.links[in];
	number = atomic_load_explicit(&router_table.vlans[in][rte_be_to_cpu_16(tag->vlan_tci) % ROUTER_VLANS],
				      memory_order_relaxed);
	if (number == 0)
		return &router_table.links[in];
	*layer2 = TAGGED;
	return &router_table.links[number];
}

/* Frames of a burst that a route is looked for, by IP version. */
struct routed {
	struct rte_mbuf *frames[ROUTER_BURST];
	uint8_t layer2[ROUTER_BURST]; /* bytes before the IP header */
	unsigned nb;
};

struct routed_burst {
	struct routed four, six;
	struct router_address addresses6[ROUTER_BURST];
	uint32_t addresses4[ROUTER_BURST];
};

static inline void add4(struct routed_burst *to, struct rte_mbuf *mbuf, const uint8_t *frame, uint32_t layer2)
{
	rte_be32_t address;

	memcpy(&address, frame + layer2 + offsetof(struct rte_ipv4_hdr, dst_addr), sizeof(address));
	to->addresses4[to->four.nb] = rte_be_to_cpu_32(address);
	to->four.layer2[to->four.nb] = (uint8_t)layer2;
	to->four.frames[to->four.nb++] = mbuf;
}

/* Any other frame than nearly all are. */
static __rte_noinline void sort_out(struct routed_burst *to, struct router_lane *lane, struct rte_mbuf *mbuf,
				    uint16_t in)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint32_t layer2;
	const struct router_link *link = link_of(mbuf, in, &layer2);
	const uint64_t mac = atomic_load_explicit(&link->mac, memory_order_relaxed);
	const enum router_verdict verdict = router_check(frame, mbuf->data_len, mbuf->pkt_len, layer2, mac);

	if (verdict == ROUTER_IPV4) {
		add4(to, mbuf, frame, layer2);
	} else if (verdict == ROUTER_IPV6) {
		memcpy(&to->addresses6[to->six.nb], frame + layer2 + offsetof(struct rte_ipv6_hdr, dst_addr), 16);
		to->six.layer2[to->six.nb] = (uint8_t)layer2;
		to->six.frames[to->six.nb++] = mbuf;
	} else if (verdict < ROUTER_IPV4) {
		give_kernel(lane, mbuf, (enum router_class)verdict);
	} else {
		drop(lane, mbuf, verdict);
	}
}

/* `out` may be the burst's own place, which has been read whole before anything leaves. */
static void route_burst(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, struct egress *out)
{
	const uint64_t mac = atomic_load_explicit(&router_table.links[in].mac, memory_order_relaxed);
	struct routed_burst routed;
	uint64_t found[ROUTER_BURST];

	routed.four.nb = routed.six.nb = 0;
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct rte_mbuf *mbuf = burst[i];
		const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);

		mbuf->port = in;
		if (likely(router_is_plain4(frame, mbuf->data_len, mbuf->pkt_len, mac)))
			add4(&routed, mbuf, frame, PLAIN);
		else
			sort_out(&routed, out->lane, mbuf, in);
	}
	if (routed.four.nb > 0)
		router_lookup4(routed.addresses4, found, routed.four.nb);
	for (unsigned i = 0; i < routed.four.nb; i++)
		forward(routed.four.frames[i], routed.four.layer2[i], found[i], ROUTER_4, out);
	if (routed.six.nb > 0)
		router_lookup6(routed.addresses6, found, routed.six.nb);
	for (unsigned i = 0; i < routed.six.nb; i++)
		forward(routed.six.frames[i], routed.six.layer2[i], found[i], ROUTER_6, out);
	function_count(&out->lane->forwarded[in], out->nb_forwarded);
}

/* What leaves by the other port: what came in here, what came in there and goes back, and, by the first queue, what the
 * kernel sends. */
static uint16_t router_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	struct router_lane *lane = &lanes[queue];
	struct egress out = {.lane = lane, .frames = burst};
	struct back *back = &lane->backs[!in];

	if (nb_frames > 0)
		route_burst(burst, nb_frames, in, &out);
	if (unlikely(back->nb_frames > 0)) {
		memcpy(burst + out.nb_frames, back->frames, back->nb_frames * sizeof(back->frames[0]));
		out.nb_frames += back->nb_frames;
		back->nb_frames = 0;
	}
	if (queue > 0)
		return out.nb_frames;
	return out.nb_frames + (uint16_t)router_tap_take(&tap, !in, burst + out.nb_frames, ROUTER_BURST);
}

/* Full queues drop, so that a port that is full does not hold up frames to the other one. */
static bool router_full(uint16_t in)
{
	return false;
}

static bool router_pending(uint16_t queue)
{
	const struct back *backs = lanes[queue].backs;

	return backs[0].nb_frames > 0 || backs[1].nb_frames > 0;
}

/* ------- settings, start and end ------- */

static const char *router_set(const char *name, const char *value)
{
	static const char *const names[ROUTER_FAMILIES] = {"ipv4-routes", "ipv6-routes"};

	for (int family = 0; family < ROUTER_FAMILIES; family++)
		if (strcmp(name, names[family]) == 0) {
			char *end;
			unsigned long number = strtoul(value, &end, 10);

			if (*value < '0' || *value > '9' || *end != '\0' || number == 0 || number > ROUTES_MOST)
				return "routes, from 1 to 4194304";
			most_routes[family] = (uint32_t)number;
			return NULL;
		}
	return "ipv4-routes or ipv6-routes";
}

static int router_open(const struct function_start *start)
{
	int rc = router_table_open(most_routes);

	return rc != 0 ? rc : router_tap_open(&tap, start->pool, start->wake_fd);
}

static json_t *describe_port(unsigned port)
{
	const struct router_lane *of = &lanes[0];
	const struct function_counter counters[] = {{"forwarded", &of->forwarded[port]},
						    {"kernel_neighbours", &of->to_kernel[port][ROUTER_NEIGHBOURS]},
						    {"kernel_itself", &of->to_kernel[port][ROUTER_ITSELF]},
						    {"kernel_others", &of->to_kernel[port][ROUTER_OTHERS]},
#define X(name) {"drop_" #name, &of->drops[port][ROUTER_DROP_##name]},
						    ROUTER_DROPS(X)
#undef X
	};

	return function_counters(counters, RTE_DIM(counters), sizeof(lanes[0]), FUNCTION_QUEUES);
}

static void router_describe(json_t *counters)
{
	json_t *routed = json_array();

	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		json_array_append_new(routed, describe_port(port));
	json_object_set_new(counters, "routed", routed);
	router_tap_describe(&tap, counters);
	router_table_describe(counters);
}

static void router_close(void)
{
	router_tap_close(&tap);
	for (struct router_lane *lane = lanes; lane < lanes + FUNCTION_QUEUES; lane++)
		for (unsigned port = 0; port < ROUTER_PORTS; port++) {
			rte_pktmbuf_free_bulk(lane->backs[port].frames, lane->backs[port].nb_frames);
			lane->backs[port].nb_frames = 0;
		}
	router_table_close();
}

static const struct function_keeping router_keeping = {
	.buffers = (ROUTER_CLASSES + ROUTER_PORTS) * ROUTER_QUEUE + ROUTER_PORTS * (BACK + FUNCTION_ROOM),
	.open = router_open,
	.full = router_full,
	.pending = router_pending,
	.describe = router_describe,
	.tables = router_table_show,
	.close = router_close,
};

const struct function router = {
	.name = "router",
	.help = "forward IPv4 and IPv6 by the kernel's routes: ipv4-routes, ipv6-routes (the most that there may be)",
	.process = router_process,
	.several = true,
	.set = router_set,
	.keeping = &router_keeping,
};
