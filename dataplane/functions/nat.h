/* SPDX-License-Identifier: Apache-2.0
 *
 * A NAT's decisions by a clock that is given: for its tests, and for who measures it.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_H
#define TAILRACE_FUNCTIONS_NAT_H

#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "connections.h"
#include "fragments.h"
#include "homes.h"
#include "nat_table.h"

enum {
	NAT_BURST = 32,
	NAT_BACK = 64,	   /* frames from inside to inside that may wait to leave */
	NAT_TURNING = 256, /* and those on their way to the queue of who gets them */
};

struct nat_counters {		     /* of the frames that came in at a port */
	_Atomic uint64_t passed;     /* left by the other port */
	_Atomic uint64_t untouched;  /* of these: as they came */
	_Atomic uint64_t hairpinned; /* left by the port where they came in */
	_Atomic uint64_t drops[VERDICTS];
};

struct nat {			  /* of a queue: the inside hosts that belong there */
	struct connections flows; /* as they are inside: port 0 */
	struct nat_table table;
	const struct nat_settings *settings;
	struct fragments fragments;
	uint32_t tick;
	struct rte_mbuf *back[NAT_BACK];
	uint16_t nb_back;
	struct nat_counters counters[2];

	/* Where there are several. */
	unsigned number, nb;
	uint32_t to_wake;	  /* a bit for each queue that frames of this burst are turned to */
	struct rte_ring *turning; /* from inside hosts of other queues to one of this; as if from outside */
	struct homes homes;
} __rte_cache_aligned;

extern struct nat nats[FUNCTION_QUEUES];

/* Frames that other queues have turned back to inside hosts of this one, as many as may wait to leave. */
void nat_turn_back(struct nat *nat, uint64_t tsc);

/* Like process() of a function, at `tsc`. */
uint16_t nat_translate(struct nat *nat, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint64_t tsc);

#endif
