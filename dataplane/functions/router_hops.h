/* SPDX-License-Identifier: Apache-2.0
 *
 * Next hops, which routes share, and the neighbours that they lead to.  Part of router_table.h, by the same threads.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_HOPS_H
#define TAILRACE_FUNCTIONS_ROUTER_HOPS_H

#include "router_table.h"

/* Returns 0 or -ENOMEM. */
int router_hops_open(void);
void router_hops_close(void);

/* What a lookup is to find of a route that leads there, once more; ROUTE_KERNEL if there is no room for it.  To be put
 * back when the route does so no longer. */
uint32_t router_hop_get(const struct router_hop *hop);
void router_hop_put(uint32_t what);

struct router_neighbour {
	struct router_address address;
	uint8_t link, family;
};

/* Fill in the neighbour of this number.  Returns false if there is none any more. */
bool router_neighbour_get(uint32_t number, struct router_neighbour *neighbour);

/* The caller has the lock of the table. */
void router_hops_describe(json_t *into);

/* Where a route leads, in words: ["198.18.79.2 port1", ...]. */
json_t *router_hop_words(uint32_t what);

json_t *router_neighbours_show(unsigned most);

/* As people write it; `size` is INET6_ADDRSTRLEN at least. */
void router_address_text(uint8_t family, const struct router_address *address, char *text, size_t size);

#endif
