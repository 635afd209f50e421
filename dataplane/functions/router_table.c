/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_rib.h>
#include <rte_rib6.h>
#include <rte_version.h>

#include "common/grace.h"
#include "common/log.h"
#include "router_hops.h"
#include "router_table.h"

/* From then on DPDK has a type of its own for what was an array of 16 bytes. */
#if RTE_VERSION >= RTE_VERSION_NUM(24, 11, 0, 0)
#define ADDRESS6(address)     ((const struct rte_ipv6_addr *)(address))
#define ADDRESSES6(addresses) ((struct rte_ipv6_addr *)(addresses))
#else
#define ADDRESS6(address)     ((address)->bytes)
#define ADDRESSES6(addresses) ((uint8_t(*)[16])(addresses))
#endif

enum {
	GROUPS = 1024, /* for prefixes of more than 24 bits, and in IPv6 for each further 8 bits; at least */
	DIRECT = 24,   /* bits of a prefix that needs no group */
	/* What DPDK sets aside for each prefix of 48 bits, also where it shares its groups with others. */
	GROUPS6 = (48 - DIRECT) / 8,
	OBJECTS = 1 << 12, /* counts of routes, by the object that they lead by: some share one */
};

struct route {
	TAILQ_ENTRY(route) link;
	struct router_prefix prefix;
	bool beside;   /* there are, or may be, others to the same prefix */
	uint32_t told; /* in which telling of all routes it was seen last */
	uint32_t what;
	uint32_t object; /* 0: none */
	uint64_t rank;
};

static TAILQ_HEAD(routes, route) routes[ROUTER_FAMILIES] = {TAILQ_HEAD_INITIALIZER(routes[ROUTER_4]),
							    TAILQ_HEAD_INITIALIZER(routes[ROUTER_6])};
static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static uint32_t telling;
static bool grouped; /* a group may have been freed since the last grace period, which readers still see */
static bool overfull[ROUTER_FAMILIES]; /* in this telling */
static uint64_t nb_routes[ROUTER_FAMILIES], nb_refused[ROUTER_FAMILIES];
static uint32_t nb_of_object[OBJECTS];

struct router_table router_table = {.lock = PTHREAD_MUTEX_INITIALIZER};

int router_table_open(const uint32_t count[ROUTER_FAMILIES])
{
	struct rte_fib_conf conf4 = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = ROUTE_KERNEL,
		.max_routes = (int)count[ROUTER_4],
		.rib_ext_sz = sizeof(struct route *),
		/* Few prefixes of the Internet are longer than 24 bits. */
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = GROUPS + count[ROUTER_4] / 8},
	};
	struct rte_fib6_conf conf6 = {
		.type = RTE_FIB6_TRIE,
		.default_nh = ROUTE_KERNEL,
		.max_routes = (int)count[ROUTER_6],
		.rib_ext_sz = sizeof(struct route *),
		.trie = {.nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = GROUPS + GROUPS6 * count[ROUTER_6]},
	};

	for (uint8_t port = 0; port < ROUTER_PORTS; port++)
		router_table.links[port].port = port;
	fib4 = rte_fib_create("router4", SOCKET_ID_ANY, &conf4);
	fib6 = rte_fib6_create("router6", SOCKET_ID_ANY, &conf6);
	if (fib4 == NULL || fib6 == NULL || router_hops_open() != 0) {
		log_error("no memory for tables of %u and %u routes; use a larger --memory", count[ROUTER_4],
			  count[ROUTER_6]);
		router_table_close();
		return -ENOMEM;
	}
	return 0;
}

void router_table_close(void)
{
	for (int family = 0; family < ROUTER_FAMILIES; family++) {
		struct route *route;

		while ((route = TAILQ_FIRST(&routes[family])) != NULL) {
			TAILQ_REMOVE(&routes[family], route, link);
			free(route);
		}
	}
	router_hops_close();
	rte_fib_free(fib4);
	rte_fib6_free(fib6);
	fib4 = NULL;
	fib6 = NULL;
	memset(nb_routes, 0, sizeof(nb_routes));
	memset(nb_of_object, 0, sizeof(nb_of_object));
	memset(router_table.links, 0, sizeof(router_table.links));
	memset(router_table.vlans, 0, sizeof(router_table.vlans));
}

/* ------- the forwarding thread ------- */

static void all_to_kernel(uint64_t *found, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		found[i] = ROUTE_KERNEL;
}

void router_lookup4(uint32_t *addresses, uint64_t *found, unsigned count)
{
	if (unlikely(atomic_load_explicit(&router_table.kernel[ROUTER_4], memory_order_relaxed)))
		all_to_kernel(found, count);
	else
		rte_fib_lookup_bulk(fib4, addresses, found, (int)count);
}

void router_lookup6(struct router_address *addresses, uint64_t *found, unsigned count)
{
	if (unlikely(atomic_load_explicit(&router_table.kernel[ROUTER_6], memory_order_relaxed)))
		all_to_kernel(found, count);
	else
		rte_fib6_lookup_bulk(fib6, ADDRESSES6(addresses), found, (int)count);
}

/* ------- the thread that writes ------- */

static uint32_t host_order(const struct router_address *address)
{
	uint32_t word;

	memcpy(&word, address->bytes, sizeof(word));
	return ntohl(word);
}

uint64_t router_lookup_held(uint8_t family, const struct router_address *address)
{
	struct router_address wanted = *address;
	uint32_t word = host_order(address);
	uint64_t found;

	if (family == ROUTER_4)
		rte_fib_lookup_bulk(fib4, &word, &found, 1);
	else
		rte_fib6_lookup_bulk(fib6, ADDRESSES6(&wanted), &found, 1);
	return found;
}

/* Where DPDK's tree keeps our pointer to the route of a prefix; NULL: it has none. */
static struct route **place_of(const struct router_prefix *prefix)
{
	if (prefix->family == ROUTER_4) {
		struct rte_rib_node *node = rte_rib_lookup_exact(rte_fib_get_rib(fib4), host_order(&prefix->address),
								 prefix->length);

		return node == NULL ? NULL : rte_rib_get_ext(node);
	}
	struct rte_rib6_node *node = rte_rib6_lookup_exact(rte_fib6_get_rib(fib6), ADDRESS6(&prefix->address),
							   prefix->length);

	return node == NULL ? NULL : rte_rib6_get_ext(node);
}

/* A group that was just freed must not become another prefix's while a reader may be about to look into it. */
static void before_change(const struct router_prefix *prefix)
{
	if (prefix->length <= DIRECT)
		return;
	if (grouped)
		grace_wait();
	grouped = true;
}

static int fib_add(const struct router_prefix *prefix, uint32_t what)
{
	before_change(prefix);
	if (prefix->family == ROUTER_4)
		return rte_fib_add(fib4, host_order(&prefix->address), prefix->length, what);
	return rte_fib6_add(fib6, ADDRESS6(&prefix->address), prefix->length, what);
}

static void fib_remove(const struct router_prefix *prefix)
{
	before_change(prefix);
	if (prefix->family == ROUTER_4)
		rte_fib_delete(fib4, host_order(&prefix->address), prefix->length);
	else
		rte_fib6_delete(fib6, ADDRESS6(&prefix->address), prefix->length);
}

static void set_object(struct route *route, uint32_t object)
{
	nb_of_object[route->object % OBJECTS] -= route->object != 0;
	nb_of_object[object % OBJECTS] += object != 0;
	route->object = object;
}

bool router_routes_lead_by(uint32_t object)
{
	return nb_of_object[object % OBJECTS] > 0;
}

static void drop_route(struct route *route)
{
	set_object(route, 0);
	fib_remove(&route->prefix);
	router_hop_put(route->what);
	nb_routes[route->prefix.family]--;
	TAILQ_REMOVE(&routes[route->prefix.family], route, link);
	free(route);
}

/* Without this route frames would take a less specific one, which is wrong: so the kernel forwards all. */
static void give_up(uint8_t family)
{
	nb_refused[family]++;
	overfull[family] = true;
	if (atomic_exchange(&router_table.kernel[family], true))
		return;
	log_error("more IPv%d routes than there is room for: the kernel forwards all of IPv%d; raise ipv%d-routes",
		  family == ROUTER_4 ? 4 : 6, family == ROUTER_4 ? 4 : 6, family == ROUTER_4 ? 4 : 6);
}

/* Make a route lead elsewhere; `what` has been taken for it. */
static void lead(struct route *route, uint32_t what)
{
	uint32_t before = route->what;

	route->what = what;
	/* Of the same prefix, so nothing has to be made for it. */
	if (what != before && fib_add(&route->prefix, what) != 0)
		give_up(route->prefix.family);
	router_hop_put(before);
}

static void add_new(const struct router_prefix *prefix, uint64_t rank, uint32_t what, uint32_t object)
{
	struct route *route = malloc(sizeof(*route)), **place;

	if (route == NULL || fib_add(prefix, what) != 0) {
		router_hop_put(what);
		free(route);
		give_up(prefix->family);
		return;
	}
	*route = (struct route){.prefix = *prefix, .rank = rank, .what = what, .told = telling};
	set_object(route, object);
	place = place_of(prefix);
	*place = route;
	TAILQ_INSERT_TAIL(&routes[prefix->family], route, link);
	nb_routes[prefix->family]++;
}

void router_route_add(const struct router_prefix *prefix, uint64_t rank, unsigned what, const struct router_hop *hop,
		      uint32_t object, enum router_news news)
{
	struct route **place = place_of(prefix), *route = place == NULL ? NULL : *place;
	bool told = route != NULL && route->told == telling;

	if (told && (rank > route->rank || (rank == route->rank && news != ROUTER_NEW))) {
		route->beside = true;
		return;
	}
	if (what == ROUTE_FIRST_HOP)
		what = router_hop_get(hop);
	if (route == NULL) {
		add_new(prefix, rank, what, object);
		return;
	}
	route->beside = news == ROUTER_BEHIND || (told && (route->beside || rank < route->rank));
	route->rank = rank;
	route->told = telling;
	set_object(route, object);
	lead(route, what);
}

bool router_route_remove(const struct router_prefix *prefix, uint64_t rank, unsigned nb_paths)
{
	struct route **place = place_of(prefix), *route = place == NULL ? NULL : *place;
	bool whole;

	if (route == NULL || route->rank != rank)
		return !router_table.kernel[prefix->family];
	whole = route->what < ROUTE_FIRST_HOP || router_table.ways[route->what].nb <= nb_paths;
	if (whole && !route->beside) {
		drop_route(route);
		return !router_table.kernel[prefix->family];
	}
	set_object(route, 0);
	lead(route, ROUTE_KERNEL);
	route->rank = UINT64_MAX; /* whatever is told of the prefix next is better */
	return false;
}

void router_routes_begin(void)
{
	telling++;
	memset(overfull, 0, sizeof(overfull));
}

void router_routes_end(void)
{
	for (int family = 0; family < ROUTER_FAMILIES; family++) {
		struct route *route = TAILQ_FIRST(&routes[family]), *next;

		for (; route != NULL; route = next) {
			next = TAILQ_NEXT(route, link);
			if (route->told != telling)
				drop_route(route);
		}
		if (!overfull[family])
			atomic_store(&router_table.kernel[family], false);
	}
}

/* ------- any other thread ------- */

void router_table_describe(json_t *into)
{
	pthread_mutex_lock(&router_table.lock);
	json_object_set_new(into, "routes",
			    json_pack("{s:I, s:I, s:I, s:I}", "ipv4", (json_int_t)nb_routes[ROUTER_4], "ipv6",
				      (json_int_t)nb_routes[ROUTER_6], "ipv4_refused", (json_int_t)nb_refused[ROUTER_4],
				      "ipv6_refused", (json_int_t)nb_refused[ROUTER_6]));
	router_hops_describe(into);
	pthread_mutex_unlock(&router_table.lock);
}

static json_t *route_row(const struct route *route)
{
	char text[INET6_ADDRSTRLEN + 4];

	router_address_text(route->prefix.family, &route->prefix.address, text, sizeof(text));
	sprintf(text + strlen(text), "/%u", route->prefix.length);
	return json_pack("{s:s, s:o}", "prefix", text, "to", router_hop_words(route->what));
}

void router_table_show(json_t *tables, unsigned most)
{
	static const char *const names[ROUTER_FAMILIES] = {"ipv4_routes", "ipv6_routes"};

	pthread_mutex_lock(&router_table.lock);
	for (int family = 0; family < ROUTER_FAMILIES; family++) {
		const struct route *route = TAILQ_FIRST(&routes[family]);
		json_t *rows = json_array();

		for (unsigned i = 0; i < most && route != NULL; i++, route = TAILQ_NEXT(route, link))
			json_array_append_new(rows, route_row(route));
		json_object_set_new(tables, names[family],
				    json_pack("{s:I, s:o}", "total", (json_int_t)nb_routes[family], "rows", rows));
	}
	json_object_set_new(tables, "neighbours", router_neighbours_show(most));
	pthread_mutex_unlock(&router_table.lock);
}
