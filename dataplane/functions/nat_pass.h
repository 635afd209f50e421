/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of one frame in a NAT: it is looked at, decided on, and changed in a copy of its first bytes.  Owned by
 * the forwarding thread.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_PASS_H
#define TAILRACE_FUNCTIONS_NAT_PASS_H

#include "nat.h"
#include "passing.h"

/* A frame on its way. */
struct nat_passing {
	struct passing base;	     /* of one that has a flow: as it is inside */
	struct nat_mapping *mapping; /* from outside: the one that it is for */
	struct nat_end outside;	     /* and the end that this was found by */
	uint32_t chain;		     /* where that is looked for */
	uint64_t changes;	     /* of the table, before */
	bool changed, back;
	uint8_t onward;	 /* 1 and the queue that is to do the rest, of one to inside by the pool; 0: this one did */
	uint32_t turned; /* what its sender has outside: for that queue */
	uint16_t turned_port;
	struct inspected first; /* of a first fragment: as it came */
};

/* What the frames of a burst say, and of those that have a flow its key as it is inside, and a guess which it is. */
void nat_look_from_inside(struct nat *nat, struct rte_mbuf *const *mbufs, struct nat_passing *burst,
			  uint16_t nb_frames);
void nat_look_from_outside(struct nat *nat, struct rte_mbuf *const *mbufs, struct nat_passing *burst,
			   uint16_t nb_frames);

/* Of one from an inside host of another queue, on its way back inside, as it came; the packet buffer says what its
 * sender has outside (hash.usr, vlan_tci). */
void nat_look_back(struct nat *nat, const struct rte_mbuf *mbuf, struct nat_passing *passing);

/* What becomes of it, in the order in which frames came. */
enum verdict nat_decide(struct nat *nat, struct nat_passing *passing, uint16_t in, uint64_t tsc);

/* What a connection's frames from inside leave with is beside its key. */
void nat_connection_began(struct nat *nat, struct connection *flow, struct nat_mapping *mapping);

static inline struct nat_mapping *nat_mapping_of(const struct nat *nat, const struct connection *flow)
{
	return &nat->table.mappings[flow->marks[0]];
}

static inline uint32_t nat_outside_address(const struct connection *flow)
{
	return flow->marks[1];
}

static inline uint16_t nat_outside_port(const struct connection *flow)
{
	return flow->mark;
}

/* A connection's mapping may end with it. */
void nat_connection_ended(struct connections *flows, uint32_t number);

#endif
