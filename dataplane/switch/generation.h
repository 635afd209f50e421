/* SPDX-License-Identifier: Apache-2.0
 *
 * A generation: all that is compiled of one configuration, for the ports as they are.  It is made beside the one that
 * runs, without touching what workers see; takes its place in one step; and never changes.  Parts that are made from
 * the same are the same in both (parts.h).  The control thread's.
 */
#ifndef TAILRACE_SWITCH_GENERATION_H
#define TAILRACE_SWITCH_GENERATION_H

#include "common/grace.h"
#include "steer/steer.h"
#include "steer/watch.h"
#include "switch/parts.h"
#include "switch/ports.h"
#include "switch/trace.h"
#include "switch/wires.h"

struct switch_state;

struct generation_port {
	struct switch_port *port;      /* NULL: it does not run; what would leave by it is dropped */
	struct classifier *rules;      /* NULL: its frames need not be looked at, or it is bridged */
	unsigned pairs;		       /* queues that frames are given to; 0: its guest is expected back */
	unsigned workers[PORT_QUEUES]; /* who polls each queue */
};

/* What is remembered for a bridge, whatever becomes of its ports. */
struct bridge_past {
	struct bridge_memory *memory;
	uint64_t flapped; /* moves of addresses that flap, as far as the log reports them */
};

struct generation_bridge {
	struct bridge *bridge;
	struct bridge_past *past;
};

/* What the rate of a receiver allows to wait, from when the generation runs. */
struct shaper_setting {
	struct shaper_setting *next;
	struct shaper *shaper;
	struct shaper_limits limits;
};

struct generation {
	struct switch_state *state;
	const struct model *model;
	struct wires wires;
	struct generation_port *ports; /* by the model's number; so below */
	struct hop ***hops;	       /* by chain: its counters, by hop */
	struct hop_counters **mirrors;
	struct pin_group **groups; /* by function; NULL: it has no replicas to choose from */
	struct generation_bridge *bridges;
	struct trace *trace;
	struct program *programs[GRACE_WORKERS];
	struct shaper_setting *shapers;
	struct holding parts;
	struct arena memory;
};

/* The port of this name that runs in it, or NULL. */
static inline struct switch_port *generation_port(const struct generation *generation, const char *name)
{
	const struct port_model *model = names_find(&generation->model->ports_by_name, name);

	return model != NULL ? generation->ports[model->index].port : NULL;
}

/* Is there a port of its model that does not run in it? */
static inline bool generation_lacks_a_port(const struct generation *generation)
{
	for (unsigned i = 0; i < generation->model->nb_ports; i++)
		if (generation->ports[i].port == NULL)
			return true;
	return false;
}

/* What `end` of the switch's parts (parts.h) is; the context is the switch_state. */
void generation_end_part(void *context, unsigned kind, void *content);

/*
 * Begin to make one: all that needs no ports.  The model must outlive it.  Returns NULL after filling in the error.
 */
struct generation *generation_begin(struct switch_state *state, const struct model *model, struct control_error *error);

/* Let the port of this number run in it, if it is open.  Returns whether it is. */
bool generation_find_port(struct generation *generation, unsigned number);

/* The same; it is opened if it is not.  Returns 0, or -1 after filling in the error. */
int generation_open_port(struct generation *generation, unsigned number, bool awaited, struct control_error *error);

/*
 * All ports that shall run in it do: make the programs, let the workers run them, and drop the generation before.
 * Queues with frames for a guest that is expected back are left out: what they have waits.  Returns 0, or -1 after
 * filling in the error, with nothing changed.
 */
int generation_install(struct generation *generation, struct control_error *error);

/* No worker uses it, or ever has: end what it alone is made of.  NULL is none. */
void generation_drop(struct generation *generation);

#endif
