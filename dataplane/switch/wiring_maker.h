/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts that make a wiring (wiring.h): what each port's sources do, and what outlives one wiring by its
 * name.  Control thread.
 */
#ifndef TAILRACE_SWITCH_WIRING_MAKER_H
#define TAILRACE_SWITCH_WIRING_MAKER_H

#include "switch/arena.h"
#include "switch/wires.h"
#include "switch/wiring.h"

struct maker {
	struct running *running;
	const struct model *model;
	unsigned nb_workers;
	struct switch_port **ports;	 /* by the model's number; NULL: it does not run */
	struct running_chain **chains;	 /* the same */
	struct running_function **pools; /* of functions that choose among replicas; else NULL */
	struct wires wires;
	uint64_t *reach;      /* by port: the workers that give frames to it */
	uint64_t **hop_reach; /* by chain: for each hop and direction, the workers that count there */
	uint16_t *given;      /* by port: the queues that are given frames */
	bool egress_watched;  /* an egress of the source that is being made */
	bool egress_expected; /* the guest behind an egress of it is expected back */
	struct control_error *error;
	struct arena memory;
};

/* The groups of replicas and the bridges, taken over or made anew.  Returns false without memory, or with an error. */
bool maker_make_kept(struct maker *maker);

/* The rules of the port of this number, taken over or compiled.  Returns false without memory, or with an error. */
bool maker_make_rules(struct maker *maker, struct switch_port *port, unsigned number);

#endif
