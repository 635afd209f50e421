/* SPDX-License-Identifier: Apache-2.0
 *
 * A balancer's decisions by a clock that is given: for its tests, and for who measures it.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_H
#define TAILRACE_FUNCTIONS_BALANCER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "balancer_health.h"
#include "balancer_set.h"
#include "connections.h"
#include "fragments.h"
#include "homes.h"

enum {
	BALANCER_BURST = 32,
	BALANCER_QUEUE = 256, /* frames on their way to or from the health thread, each way */
};

struct balancer_counters {	    /* of the frames that came in at a port */
	_Atomic uint64_t passed;    /* left by the other port */
	_Atomic uint64_t untouched; /* of these: as they came */
	_Atomic uint64_t unkept;    /* of these: to where the hash leads, with no entry for their connection */
	_Atomic uint64_t taken;	    /* answers to probes, and questions for its addresses */
	_Atomic uint64_t drops[VERDICTS];
};

struct balancer;

struct balancer_lane {		  /* of a queue */
	struct connections flows; /* as clients have them: from port 0 */
	struct balancer *balancer;
	struct balancer_set *set;
	struct balancer_end_counts *ends; /* by number */
	struct fragments fragments;
	unsigned number;
	uint32_t tick;
	struct balancer_counters counters[2];
	struct homes homes;
} __rte_cache_aligned;

struct balancer {
	struct balancer_set set;
	struct balancer_health health;
	struct rte_ring *to_port[2]; /* frames of its own that are to leave there, by queue 0 */
	struct rte_ring *to_health;  /* frames for it; mbuf->port is where they came in */
	unsigned nb_lanes;
	struct balancer_lane lanes[FUNCTION_QUEUES];
};

extern struct balancer the_balancer;

/* Like process() of a function, at `tsc`. */
uint16_t balancer_balance(struct balancer_lane *lane, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in,
			  uint64_t tsc);

/* Services, back ends and what became of them, from any thread but the forwarding one. */
void balancer_show_counters(struct balancer *balancer, json_t *counters);
void balancer_show_tables(struct balancer *balancer, json_t *tables, unsigned most);

#endif
