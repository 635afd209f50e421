/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound on the neighbours that the kernel looks for at a time.  For a frame to a neighbour that it does not know it
 * makes an entry and asks for 3 s, and likewise for its answer to one.  Linux counts these in one table for all network
 * namespaces (`gc_thresh3` of neigh_alloc() in net/core/neighbour.c), so whoever scans a large network through a router
 * would fill the host's own.
 *
 * Each port has half of the places, and of these each network that senders are in a part, which a secret chooses: one
 * sender fills no more than that.
 *
 * The router's slow thread calls all of this.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_ASKED_H
#define TAILRACE_FUNCTIONS_ROUTER_ASKED_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "router_table.h"

enum {
	ROUTER_ASKED = 256,	 /* neighbours */
	ROUTER_ASKED_PARTS = 16, /* of a port */
	ROUTER_ASKED_PART = ROUTER_ASKED / ROUTER_PORTS / ROUTER_ASKED_PARTS,
	ROUTER_ASKED_MS = 4000 /* from when one is asked for until its place is another's; sooner if it is found */
};

struct router_asked {
	struct router_asked_for {
		struct router_address address;
		uint8_t family, link;
		uint64_t until; /* ms; passed: the place is free */
	} places[ROUTER_ASKED]; /* by port, and part of it */
	uint64_t swept;		/* ms, when places of those that were found were freed last */
	uint64_t secret[2];
};

void router_asked_open(struct router_asked *asked);

/*
 * Whether the kernel may have a frame that came in at a port (mbuf->port), at a time in ms: false if it would look for
 * one more.  Of one to the router itself that is who gets the answer, of others who gets the frame.
 */
bool router_asked_may(struct router_asked *asked, const struct rte_mbuf *mbuf, uint64_t now);

#endif
