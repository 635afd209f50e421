/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cost_kinds.h"
#include "functions/balancer.h"
#include "functions/firewall.h"
#include "functions/router_tap.h"
#include "rule_set.h"

enum {
	BACK_ENDS = 16,
	ROOM = 64, /* connections that are begun a second time */
	LARGE_PAGE = 2 << 20,
	SERVERS = 0x80000000u, /* 128.0.0.0/2: where the router's many routes lead */
};

struct function_start cost_start = {.wake_fd = -1, .nb_queues = 1};
uint32_t cost_connections = COST_CONNECTIONS;

void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align);
void *__wrap_rte_calloc(const char *type, size_t number, size_t size, unsigned align);
void __wrap_rte_free(void *memory);
int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd);

/* As a function's tables lie where there are huge pages; otherwise page walks are most of what they cost. */
void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align)
{
	const size_t whole = RTE_ALIGN_CEIL(size, LARGE_PAGE);
	void *memory = aligned_alloc(LARGE_PAGE, whole);

	if (memory == NULL || madvise(memory, whole, MADV_HUGEPAGE) != 0)
		return NULL;
	return memset(memory, 0, whole);
}

void *__wrap_rte_calloc(const char *type, size_t number, size_t size, unsigned align)
{
	return __wrap_rte_zmalloc(type, number * size, align);
}

void __wrap_rte_free(void *memory)
{
	free(memory);
}

/* No kernel: all routes are known, and lead to neighbours. */
int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd)
{
	*tap = (struct router_tap){0};
	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		tap->from_kernel[port] = rte_ring_create(port == 0 ? "from0" : "from1", 64, SOCKET_ID_ANY, 0);
	return 0;
}

static const struct router_address gateway = {{10, 0, 1, 1}};

static void tell(const struct function *function, json_t *params)
{
	struct control_error error;

	if (params == NULL || function->keeping->configure(params, &error) != 0) {
		fprintf(stderr, "%s: %s\n", function->name, params != NULL ? error.message : "no settings");
		exit(1);
	}
	json_decref(params);
}

static void set(const struct function *function, const char *name, const char *value)
{
	const char *wrong = function->set(name, value);

	if (wrong != NULL) {
		fprintf(stderr, "%s %s=%s: expected %s\n", function->name, name, value, wrong);
		exit(1);
	}
}

/* With room for those that are begun a second time. */
static void open_function(const struct function *function)
{
	char text[16];

	snprintf(text, sizeof(text), "%" PRIu32, 2 * cost_connections + ROOM);
	set(function, function == &router ? "ipv4-routes" : "connections", text);
	if (function->keeping->open(&cost_start) != 0)
		exit(1);
}

/* To the one neighbour. */
static void add_route(uint32_t address, uint8_t length)
{
	struct router_prefix prefix = {.length = length};
	struct router_hop hop = {.nb_paths = 1};

	address = htonl(address);
	memcpy(prefix.address.bytes, &address, sizeof(address));
	hop.paths[0] = (struct router_path){.gateway = gateway, .bound = UINT32_MAX, .link = 1};
	router_route_add(&prefix, 1, ROUTE_FIRST_HOP, &hop, 0, ROUTER_NEW);
}

void cost_open_router(void)
{
	const uint8_t own[6] = {2, 0, 0, 0, 0, 1};

	open_function(&router);
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		atomic_store(&router_table.links[port].mac, router_mac(own));
		atomic_store(&router_table.links[port].mtu, 1500);
	}
	router_neighbour_set(1, ROUTER_4, &gateway, router_mac(own) | ROUTER_STATION_USABLE);
	add_route(COST_SERVER & 0xff000000, 8);
}

uint32_t cost_network_of(uint32_t connection)
{
	return SERVERS | ((connection * 0x9e3779b1u) & 0x3fffff) << 8;
}

void cost_add_routes(void)
{
	for (uint32_t i = 0; i < cost_connections; i++)
		add_route(cost_network_of(i), 24);
}

void cost_open_firewall(void)
{
	open_function(&firewall);
	tell(&firewall, rule_set_make(1));
}

struct firewall_rules *cost_many_rules(void)
{
	struct control_error error;
	struct firewall_rules *rules = firewall_rules_read(rule_set_make(FIREWALL_RULES_MOST), cost_start.nb_queues,
							   &error);

	if (rules == NULL) {
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
	return rules;
}

/* As many hosts as connections, each with a block of its own. */
void cost_open_nat(void)
{
	set(&nat, "pool", "198.51.100.0/22");
	set(&nat, "inside", "11.0.0.0/8");
	set(&nat, "block", "64");
	open_function(&nat);
}

void cost_open_balancer(void)
{
	json_t *ends = json_array();
	struct balancer_set *of = &the_balancer.set;

	open_function(&balancer);
	for (unsigned i = 0; i < BACK_ENDS; i++) {
		char address[16], name[16];

		snprintf(address, sizeof(address), "10.0.1.%u", i + 2);
		snprintf(name, sizeof(name), "%u", i);
		json_array_append_new(ends,
				      json_pack("{s:s, s:s, s:i}", "name", name, "address", address, "port", 8080));
	}
	tell(&balancer,
	     json_pack("{s:[s], s:[{s:s, s:s, s:i, s:s, s:o}]}", "source", "10.0.1.1", "services", "name", "service",
		       "address", "9.0.0.1", "port", COST_PORT, "protocol", "udp", "back_ends", ends));
	for (unsigned i = 0; i < of->nb_used; i++) {
		of->ends[of->used[i]].mac = 2;
		of->ends[of->used[i]].state = BALANCER_UP;
	}
	if (balancer_set_publish(of) != 0)
		exit(1);
}
