/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>

#include "common/grace.h"
#include "router_hops.h"

enum {
	BUCKETS = 1 << 12,
	NONE = 0, /* no slot: these numbers say something else */
	GOING = 64,
};

struct slot {
	struct router_hop hop;
	uint32_t references;
	uint32_t next; /* in its bucket, or among those that are free */
};

struct key {
	struct router_address address;
	uint8_t link, family;
	uint8_t zero[6];
} __rte_aligned(8); /* it is hashed by words */

struct neighbour {
	struct key key;
	uint32_t references; /* of next hops */
	uint32_t told;	     /* in which telling of all neighbours it was seen last */
	bool known;	     /* by the kernel */
};

static struct slot *slots;
static uint32_t buckets[BUCKETS];
static uint32_t nb_positions;	 /* of neighbours, some of them free */
static uint32_t unused, retired; /* lists; what is retired a reader may still see */
static uint64_t nb_hops, nb_neighbours, nb_hops_refused, nb_neighbours_refused;
static struct rte_hash *by_address;
static struct neighbour *neighbours;
static int32_t going[GOING]; /* positions that a reader may still have */
static unsigned nb_going;
static uint32_t telling;

/* ------- neighbours ------- */

static struct key key_of(uint8_t link, uint8_t family, const struct router_address *address)
{
	return (struct key){.address = *address, .link = link, .family = family};
}

uint32_t router_find_neighbour(uint8_t link, uint8_t family, const struct router_address *address)
{
	struct key key = key_of(link, family, address);
	int32_t position = rte_hash_lookup(by_address, &key);

	return position < 0 ? ROUTER_CONNECTED : (uint32_t)position;
}

static void free_positions(void)
{
	if (nb_going == 0)
		return;
	grace_wait();
	while (nb_going > 0)
		rte_hash_free_key_with_position(by_address, going[--nb_going]);
}

/* The position of a neighbour, which is made where there is none; negative: there is no room. */
static int32_t position_of(const struct key *key)
{
	int32_t position = rte_hash_lookup(by_address, key);

	if (position >= 0)
		return position;
	if (nb_neighbours == ROUTER_NEIGHBOURS_MOST)
		return -ENOSPC;
	position = rte_hash_add_key(by_address, key);
	if (position < 0) {
		free_positions();
		position = rte_hash_add_key(by_address, key);
	}
	if (position < 0)
		return -ENOSPC;
	nb_neighbours++;
	neighbours[position] = (struct neighbour){.key = *key};
	return position;
}

static void forget_unless_used(int32_t position)
{
	struct neighbour *neighbour = &neighbours[position];

	if (neighbour->references > 0 || neighbour->known)
		return;
	atomic_store(&router_table.stations[position], 0);
	rte_hash_del_key(by_address, &neighbour->key);
	nb_neighbours--;
	going[nb_going++] = position;
	if (nb_going == GOING)
		free_positions();
}

void router_neighbour_set(uint8_t link, uint8_t family, const struct router_address *address, uint64_t station)
{
	struct key key = key_of(link, family, address);
	int32_t position = station == 0 ? rte_hash_lookup(by_address, &key) : position_of(&key);

	if (position < 0) {
		nb_neighbours_refused += station != 0;
		return;
	}
	neighbours[position].known = station != 0;
	neighbours[position].told = telling;
	atomic_store(&router_table.stations[position], station);
	forget_unless_used(position);
}

void router_neighbours_begin(void)
{
	telling++;
}

void router_neighbours_end(void)
{
	for (uint32_t position = 0; position < nb_positions; position++)
		if (neighbours[position].known && neighbours[position].told != telling) {
			neighbours[position].known = false;
			atomic_store(&router_table.stations[position], 0);
			forget_unless_used((int32_t)position);
		}
}

bool router_neighbour_get(uint32_t number, struct router_neighbour *neighbour)
{
	const struct key *key = &neighbours[number].key;

	if (number >= nb_positions || !neighbours[number].known)
		return false;
	*neighbour = (struct router_neighbour){.address = key->address, .link = key->link, .family = key->family};
	return true;
}

/* ------- next hops ------- */

static uint32_t *bucket_of(const struct router_hop *hop)
{
	return &buckets[rte_hash_crc(hop, sizeof(*hop), 0) % BUCKETS];
}

static uint32_t take_slot(void)
{
	uint32_t what;

	if (unused == NONE && retired != NONE) {
		grace_wait();
		unused = retired;
		retired = NONE;
	}
	what = unused;
	if (what != NONE)
		unused = slots[what].next;
	return what;
}

static void release_ways(const struct router_ways *ways, uint32_t nb)
{
	for (uint32_t i = 0; i < nb; i++) {
		uint32_t neighbour = ways->ways[i].neighbour;

		if (neighbour == ROUTER_CONNECTED)
			continue;
		neighbours[neighbour].references--;
		forget_unless_used((int32_t)neighbour);
	}
}

/* Returns whether there is room for all gateways. */
static bool make_ways(const struct router_hop *hop, struct router_ways *ways)
{
	for (uint32_t i = 0; i < hop->nb_paths; i++) {
		const struct router_path *path = &hop->paths[i];
		int32_t neighbour = (int32_t)ROUTER_CONNECTED;

		if (!path->connected) {
			struct key key = key_of(path->link, path->family, &path->gateway);

			neighbour = position_of(&key);
			if (neighbour < 0) {
				release_ways(ways, i);
				return false;
			}
			neighbours[neighbour].references++;
		}
		ways->ways[i] = (struct router_way){path->bound, (uint32_t)neighbour, path->link};
	}
	ways->nb = hop->nb_paths;
	return true;
}

uint32_t router_hop_get(const struct router_hop *hop)
{
	uint32_t *bucket = bucket_of(hop), what;

	for (what = *bucket; what != NONE; what = slots[what].next)
		if (memcmp(&slots[what].hop, hop, sizeof(*hop)) == 0) {
			slots[what].references++;
			return what;
		}
	what = take_slot();
	if (what == NONE || !make_ways(hop, &router_table.ways[what])) {
		if (what != NONE) {
			slots[what].next = unused;
			unused = what;
		}
		nb_hops_refused++;
		return ROUTE_KERNEL;
	}
	slots[what] = (struct slot){.hop = *hop, .references = 1, .next = *bucket};
	*bucket = what;
	nb_hops++;
	return what;
}

void router_hop_put(uint32_t what)
{
	uint32_t *place;

	if (what < ROUTE_FIRST_HOP || --slots[what].references > 0)
		return;
	for (place = bucket_of(&slots[what].hop); *place != what; place = &slots[*place].next)
		;
	*place = slots[what].next;
	slots[what].next = retired;
	retired = what;
	nb_hops--;
	release_ways(&router_table.ways[what], router_table.ways[what].nb);
}

int router_hops_open(void)
{
	const struct rte_hash_parameters parameters = {
		.name = "neighbours",
		.entries = 2 * ROUTER_NEIGHBOURS_MOST, /* so that buckets are not full before */
		.key_len = sizeof(struct key),
		.socket_id = (int)rte_socket_id(),
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
	};

	by_address = rte_hash_create(&parameters);
	nb_positions = by_address == NULL ? 0 : (uint32_t)rte_hash_max_key_id(by_address) + 1;
	neighbours = calloc(nb_positions, sizeof(*neighbours));
	slots = calloc(ROUTER_HOPS, sizeof(*slots));
	router_table.stations = calloc(nb_positions, sizeof(*router_table.stations));
	router_table.ways = aligned_alloc(RTE_CACHE_LINE_SIZE, ROUTER_HOPS * sizeof(*router_table.ways));
	if (by_address == NULL || neighbours == NULL || slots == NULL || router_table.stations == NULL ||
	    router_table.ways == NULL)
		return -ENOMEM;
	memset(router_table.ways, 0, ROUTER_HOPS * sizeof(*router_table.ways));
	for (uint32_t what = ROUTER_HOPS - 1; what >= ROUTE_FIRST_HOP; what--) {
		slots[what].next = unused;
		unused = what;
	}
	return 0;
}

void router_hops_close(void)
{
	rte_hash_free(by_address);
	free(neighbours);
	free(slots);
	free(router_table.stations);
	free(router_table.ways);
	by_address = NULL;
	neighbours = NULL;
	slots = NULL;
	router_table.stations = NULL;
	router_table.ways = NULL;
	memset(buckets, 0, sizeof(buckets));
	unused = retired = NONE;
	nb_going = 0;
	nb_hops = nb_neighbours = 0;
}

void router_hops_describe(json_t *into)
{
	json_object_set_new(into, "neighbours",
			    json_pack("{s:I, s:I}", "known", (json_int_t)nb_neighbours, "refused",
				      (json_int_t)nb_neighbours_refused));
	json_object_set_new(
		into, "next_hops",
		json_pack("{s:I, s:I}", "used", (json_int_t)nb_hops, "refused", (json_int_t)nb_hops_refused));
}

void router_address_text(uint8_t family, const struct router_address *address, char *text, size_t size)
{
	inet_ntop(family == ROUTER_4 ? AF_INET : AF_INET6, address->bytes, text, (socklen_t)size);
}

/* As the port is called, and the VLAN after it. */
static void link_name(uint8_t number, char *name, size_t size)
{
	const struct router_link *link = &router_table.links[number];

	if (link->vlan == 0)
		snprintf(name, size, "port%u", link->port);
	else
		snprintf(name, size, "port%u.%u", link->port, ntohs(link->vlan));
}

json_t *router_hop_words(uint32_t what)
{
	static const char *const none[] = {
		[ROUTE_KERNEL] = "kernel", [ROUTE_ITSELF] = "itself", [ROUTE_BLACKHOLE] = "blackhole"};
	json_t *words = json_array();

	if (what < ROUTE_FIRST_HOP) {
		json_array_append_new(words, json_string(none[what]));
		return words;
	}
	for (unsigned i = 0; i < slots[what].hop.nb_paths; i++) {
		const struct router_path *path = &slots[what].hop.paths[i];
		char gateway[INET6_ADDRSTRLEN], link[24];

		router_address_text(path->family, &path->gateway, gateway, sizeof(gateway));
		link_name(path->link, link, sizeof(link));
		json_array_append_new(words,
				      path->connected ? json_string(link) : json_sprintf("%s %s", gateway, link));
	}
	return words;
}

static json_t *neighbour_row(uint32_t position)
{
	const uint64_t station = atomic_load(&router_table.stations[position]);
	const struct neighbour *neighbour = &neighbours[position];
	const struct router_link *link = &router_table.links[neighbour->key.link];
	const uint8_t *bytes = (const uint8_t *)&station;
	char address[INET6_ADDRSTRLEN], mac[RTE_ETHER_ADDR_FMT_SIZE];

	router_address_text(neighbour->key.family, &neighbour->key.address, address, sizeof(address));
	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4],
		 bytes[5]);
	return json_pack("{s:s, s:i, s:i, s:s?, s:s, s:I}", "address", address, "port", link->port, "vlan",
			 ntohs(link->vlan), "mac", station == 0 ? NULL : mac, "state",
			 station == 0				 ? "unknown"
			 : (station & ROUTER_STATION_STALE) != 0 ? "stale"
								 : "usable",
			 "next_hops", (json_int_t)neighbour->references);
}

json_t *router_neighbours_show(unsigned most)
{
	json_t *rows = json_array();

	for (uint32_t i = 0; i < nb_positions && json_array_size(rows) < most; i++)
		if (neighbours[i].known || neighbours[i].references > 0)
			json_array_append_new(rows, neighbour_row(i));
	return json_pack("{s:I, s:o}", "total", (json_int_t)nb_neighbours, "rows", rows);
}
