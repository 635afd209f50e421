/* SPDX-License-Identifier: Apache-2.0
 *
 * From a model to the programs of the workers: which egresses each receive queue has, by which rules, with a lock or
 * without.  Made off the fast path beside what runs; what does not change is taken over as it is.  The control
 * thread's.
 */
#ifndef TAILRACE_SWITCH_WIRING_H
#define TAILRACE_SWITCH_WIRING_H

#include "common/grace.h"
#include "steer/steer.h"
#include "switch/observation.h"
#include "switch/ports.h"

/* A chain that runs: its counters.  Those `next` take their place with the programs that are being made. */
struct running_chain {
	char name[PORT_NAME];
	unsigned nb_hops, nb_next;
	const struct chain_model *model; /* of the running configuration */
	struct hop *hops[MODEL_THROUGH + 1], *next[MODEL_THROUGH + 1];
};

/* A function that runs and has replicas to choose from: what is remembered of flows. */
struct running_function {
	char name[PORT_NAME];
	struct pin_memory *memory;
	struct pin_group *group, *next; /* `next` takes its place with the programs that are being made */
	const struct function_model *model, *next_model;
};

struct running_bridge {
	char name[PORT_NAME];
	struct bridge_memory *memory, *next_memory; /* the same, unless there is to be more or less room */
	struct bridge *bridge, *next;
	const struct bridge_model *model, *next_model;
	uint64_t flapped; /* moves of addresses that flap, as far as the log reports them */
};

/* All that runs, by name.  Models change with each configuration; these stay as long as their name does. */
struct running {
	struct names ports, chains, functions, bridges;
	struct observation *observation; /* what is watched of it */
};

struct wiring {
	unsigned nb_programs;
	struct program *programs[GRACE_WORKERS];
};

/*
 * Make the programs of so many workers for the model.  Ports of the model that do not run are left out: what would
 * leave by them is dropped.  So are queues with frames for a guest that is expected back: what they have waits.  Every
 * receive queue has been placed.  Returns 0, or -1 after filling in the error, with nothing changed.
 */
int wiring_make(struct wiring *wiring, struct running *running, const struct model *model, unsigned nb_workers,
		struct control_error *error);

/* Workers run the programs, and have let go of those before: end what was only theirs. */
void wiring_keep(struct running *running, const struct model *model);

/* They never will: end what was made for them. */
void wiring_drop(struct wiring *wiring, struct running *running);

void running_function_free(struct running_function *function);
void running_bridge_free(struct running_bridge *bridge);

/* What a port has for its rules, of its own. */
void port_rules_free(struct port_rules *rules);

#endif
