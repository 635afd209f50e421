/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of one frame in a balancer: it is looked at, decided on, and changed in a copy of its first bytes. Owned
 * by the forwarding thread.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_PASS_H
#define TAILRACE_FUNCTIONS_BALANCER_PASS_H

#include "balancer.h"
#include "passing.h"

enum balancer_way {
	BALANCER_UNTOUCHED, /* it leaves as it came */
	BALANCER_CHANGED,   /* the copy takes the place of its first bytes */
	BALANCER_TAKEN,	    /* the health thread gets it */
};

/* A frame on its way. */
struct balancer_passing {
	struct passing base; /* of one that has a flow: as its client has it */
	uint16_t service;
	uint16_t end; /* from the back ends' side: the one that it is from */
	uint8_t way;  /* enum balancer_way */
	bool unkept;
	struct inspected first; /* of a first fragment: as it came */
};

/* What a frame's headers say; of one that has a flow, its key, whose bucket is asked for. */
enum verdict balancer_look(struct balancer_lane *lane, const struct balancer_table *table, const struct rte_mbuf *mbuf,
			   struct balancer_passing *passing, uint16_t in);

/* What becomes of it, in the order in which frames came. */
enum verdict balancer_decide(struct balancer_lane *lane, const struct balancer_table *table,
			     struct balancer_passing *passing, uint16_t in, uint64_t tsc);

/* A back end has one connection more; or one less. */
void balancer_connection_began(struct balancer_lane *lane, struct connection *flow, uint16_t number);
void balancer_connection_ended(struct connections *flows, uint32_t number);

#endif
