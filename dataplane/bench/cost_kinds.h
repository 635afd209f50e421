/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions as they are measured: opened, and told what they need for frames of so many connections.  Connection N is
 * of UDP, from CLIENTS + N to SERVER; where a router has many routes, to a network of its own.
 *
 * Who links this has `--wrap` for rte_zmalloc, rte_calloc, rte_free and router_tap_open.  One thread calls it, before
 * others run the functions; what is wrong ends the program.
 */
#ifndef TAILRACE_BENCH_COST_KINDS_H
#define TAILRACE_BENCH_COST_KINDS_H

#include <stdint.h>

#include "functions/firewall_rules.h"
#include "functions/function.h"

enum {
	COST_CONNECTIONS = 1000000 / 256 * 256, /* at most */
	COST_FEW = 1000,			/* that caches hold */
	COST_SERVER = 0x09000001,		/* 9.0.0.1, in the machine's order */
	COST_CLIENTS = 0x0b000000u,		/* 11.0.0.0 and on: inside of the NAT */
	COST_PORT = 9,
	COST_CLIENT_PORT = 1024,
};

/* What they start with, and for how many connections. */
extern struct function_start cost_start;
extern uint32_t cost_connections;

void cost_open_router(void); /* with one route */
void cost_add_routes(void);  /* to the network of each connection */
void cost_open_firewall(void);
void cost_open_nat(void);
void cost_open_balancer(void);

/* The firewall has few; rules of its largest number, for it to be given. */
struct firewall_rules *cost_many_rules(void);

/* The network of 256 addresses that frames of a connection go to: they lie scattered, and no two are the same. */
uint32_t cost_network_of(uint32_t connection);

#endif
