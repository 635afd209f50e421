/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files that make a generation (generation.h).  Control thread.
 */
#ifndef TAILRACE_SWITCH_MAKER_H
#define TAILRACE_SWITCH_MAKER_H

#include "switch/generation.h"

/* What is shared, with what stands in its key. */
enum part_kind {
	PART_HOP,	 /* chain, hop, its neighbours */
	PART_MIRROR,	 /* name */
	PART_TRACE,	 /* options */
	PART_PIN_MEMORY, /* function */
	PART_GROUP,	 /* its memory, replicas */
	PART_PAST,	 /* bridge, room */
	PART_BRIDGE,	 /* its past, ports, limits */
	PART_RULES,	 /* rules */
	PART_PORT,	 /* all that takes another port if it changes */
	PART_FRAGMENTS,	 /* port, rules, number of wires */
	PART_DIVISION,	 /* receiver, its rate, senders' weights */
	PART_SHAPER,	 /* sender's queue, receiver, hop */
	PART_EGRESS,	 /* the watch of an egress itself */
	PART_SOURCE,	 /* the watch of a source itself, its queue */
	PART_STEERING,	 /* its configuration, its queue */
};

/* While programs are made. */
struct maker {
	struct generation *generation;
	const struct model *model;
	uint64_t *reach;      /* by port: the workers that give frames to it */
	uint64_t **hop_reach; /* by chain: for each hop and direction, the workers that count there */
	uint16_t *given;      /* by port: the queues that are given frames */
	uint64_t **senders;   /* by port: who sends to it, a bit for each port */
	bool egress_watched;  /* an egress of the source that is being made */
	bool egress_expected; /* the guest behind an egress of it is expected back */
	struct arena memory;
};

/* Note that there is no memory, which the whole generation fails for, and return NULL. */
static inline void *maker_fail(const struct maker *maker)
{
	maker->generation->parts.failed = true;
	return NULL;
}

/* ------- lookups.c ------- */

/* The rules of all ports, the groups of replicas, the bridges.  Returns false without memory, or with an error. */
bool make_lookups(struct generation *generation, struct control_error *error);

/* What the port of this number remembers of fragments; NULL if nothing, or without memory. */
struct flows *make_fragments(struct maker *maker, unsigned number);

/* ------- programs.c ------- */

/* Of all workers.  Returns false without memory. */
bool make_programs(struct generation *generation);

/* ------- watches.c ------- */

/* Find out who sends to whom, which the others need. */
void make_senders(struct maker *maker);

/* One way that frames may go. */
struct way {
	unsigned from, queue, to;	 /* numbers of ports, which both run, and of a queue of the first */
	bool stays;			 /* frames above the rate of `to` can stay where they are */
	struct hop_counters *hop;	 /* as in the egress */
	const struct chain_model *chain; /* NULL: none */
	unsigned number;		 /* of the hop in its chain */
	bool back;
	bool first, last; /* in this direction */
};

/* The watch of an egress; NULL if it needs none, or without memory. */
struct egress_watch *make_egress_watch(struct maker *maker, const struct way *way);

/* The watch of a source, one of whose egresses is watched or not; NULL if it needs none, or without memory. */
struct watch *make_watch(struct maker *maker, unsigned port, unsigned queue);

/* Must a source with one egress look at its frames for the sake of these?  Each may be NULL. */
bool watches_look(const struct watch *watch, const struct egress_watch *egress);

/* Set what ports may send, and what may wait for them: that lies in what goes on, and changes with the generation. */
void watches_settle(const struct generation *generation);

void division_end(struct division *division);
void shaper_end(struct shaper *shaper);

#endif
