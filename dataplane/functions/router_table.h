/* SPDX-License-Identifier: Apache-2.0
 *
 * A router's routes, next hops and neighbours.  One thread writes; the forwarding thread reads meanwhile, waits for
 * nobody, and is waited for only (common/grace.h) where what it may still see is to be used again.
 *
 * What a table does not hold, or not for sure, the kernel decides: that is what the entry 0 says, which a reader also
 * finds in an entry of DPDK's that is just being freed.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_TABLE_H
#define TAILRACE_FUNCTIONS_ROUTER_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "router_headers.h"

enum {
	ROUTER_PORTS = 2,
	ROUTER_LINKS = 64, /* the ports, and after them their VLANs that the kernel has an interface for */
	ROUTER_VLANS = 1 << 12,
	ROUTER_PATHS = 8,      /* of one route; one with more is the kernel's */
	ROUTER_HOPS = 1 << 14, /* different next hops */
	ROUTER_NEIGHBOURS_MOST = 1 << 13,
	ROUTER_BURST = 32,
};

/* What a lookup finds that is no next hop. */
enum { ROUTE_KERNEL, ROUTE_ITSELF, ROUTE_BLACKHOLE, ROUTE_FIRST_HOP };

enum router_family { ROUTER_4, ROUTER_6, ROUTER_FAMILIES };

struct router_address {
	uint8_t bytes[16]; /* in network order; of IPv4 the first four, and the others are 0 */
};

struct router_prefix {
	struct router_address address;
	uint8_t length;
	uint8_t family; /* enum router_family */
};

/* One way that a route leads. */
struct router_path {
	struct router_address gateway;
	uint32_t bound; /* the highest flow that goes this way; of the last one UINT32_MAX */
	uint8_t link;
	uint8_t family;
	bool connected; /* no gateway: the destination is a neighbour */
};

struct router_hop {
	struct router_path paths[ROUTER_PATHS]; /* unused bytes are 0: hops are compared as memory */
	uint8_t nb_paths;
} __rte_aligned(8); /* it is hashed by words */

/* What the fast path needs of a next hop. */
struct router_way {
	uint32_t bound;
	uint32_t neighbour; /* its number, or ROUTER_CONNECTED */
	uint8_t link;
};

enum { ROUTER_CONNECTED = UINT32_MAX };

struct router_ways {
	uint32_t nb;
	struct router_way ways[ROUTER_PATHS];
} __rte_cache_aligned;

/* A neighbour's MAC address (router_mac()), and: */
#define ROUTER_STATION_USABLE (UINT64_C(1) << 48)
/* The kernel has not heard of it for a while: with the next frame it is told that the neighbour is in use. */
#define ROUTER_STATION_STALE (UINT64_C(1) << 49)

/* An interface of the kernel's.  Once one is there, its port and VLAN stay, as routes may lead to it. */
struct router_link {
	_Atomic uint64_t mac; /* and ROUTER_MAC_DOWN */
	_Atomic uint32_t mtu; /* bytes of an IP packet */
	uint16_t vlan;	      /* in network order; 0: untagged */
	uint8_t port;
};

struct router_table {
	struct router_link links[ROUTER_LINKS];
	_Atomic uint8_t vlans[ROUTER_PORTS][ROUTER_VLANS]; /* the link of tagged frames; 0: the kernel knows */
	_Atomic bool kernel[ROUTER_FAMILIES];		   /* not all routes fit: the kernel forwards all */
	struct router_ways *ways;			   /* by what a lookup finds */
	_Atomic uint64_t *stations;			   /* by a neighbour's number */
	pthread_mutex_t lock; /* held by the thread that writes while it does, and by those who look at it as a whole */
};

extern struct router_table router_table;

/* Room for so many routes of each family, in DPDK's memory.  Returns 0, or -errno after logging. */
int router_table_open(const uint32_t routes[ROUTER_FAMILIES]);

void router_table_close(void);

/* ------- the forwarding thread ------- */

/* Find the routes of a burst.  IPv4 addresses are in host order. */
void router_lookup4(uint32_t *addresses, uint64_t *found, unsigned count);
void router_lookup6(struct router_address *addresses, uint64_t *found, unsigned count);

/* The number of a neighbour at a link, or ROUTER_CONNECTED: none is known. */
uint32_t router_find_neighbour(uint8_t link, uint8_t family, const struct router_address *address);

/* ------- the thread that writes ------- */

/* The route to an address among those that the table holds, also while not all fit.  As a lookup finds it. */
uint64_t router_lookup_held(uint8_t family, const struct router_address *address);

enum router_news {
	ROUTER_NEW,    /* it takes the place of one of the same rank */
	ROUTER_BEHIND, /* it comes behind those of the same rank */
	ROUTER_TOLD,   /* it is told with all others, those of the same rank in their order */
};

/* A route.  Of those to a prefix the first of the lowest rank counts.  `what` is one of the values above, or
 * ROUTE_FIRST_HOP with the hop.  `object` is the kernel's own (`ip nexthop`) that the route leads by; 0: none. */
void router_route_add(const struct router_prefix *prefix, uint64_t rank, unsigned what, const struct router_hop *hop,
		      uint32_t object, enum router_news news);

/* Whether a route may lead by that object; false: none does. */
bool router_routes_lead_by(uint32_t object);

/* So many paths of a route are gone.  Returns false where the kernel has to be asked for all routes again, since
 * another one may have come to light. */
bool router_route_remove(const struct router_prefix *prefix, uint64_t rank, unsigned nb_paths);

/* All routes will be told again; those that are not, until _end(), are gone. */
void router_routes_begin(void);
void router_routes_end(void);

/* The same of neighbours. */
void router_neighbours_begin(void);
void router_neighbours_end(void);

/* What is known of a neighbour: a MAC address and flags, or 0: that it cannot be used. */
void router_neighbour_set(uint8_t link, uint8_t family, const struct router_address *address, uint64_t station);

/* ------- any other thread ------- */

/* How many there are of what, and what did not fit. */
void router_table_describe(json_t *into);

/* The first so many routes of each family, and neighbours (struct function_keeping). */
void router_table_show(json_t *tables, unsigned most);

#endif
