/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains taken apart: for each port, in the order in which they count, the rules of the chains that may send frames in
 * by it, and where each leads.  A chain has a hop between each two neighbours of from, functions, to; frames run along
 * them forward or back.
 */
#ifndef TAILRACE_SWITCH_WIRES_H
#define TAILRACE_SWITCH_WIRES_H

#include "switch/arena.h"
#include "switch/model.h"

struct wire {
	const struct chain_model *chain;
	uint16_t hop;
	bool back;
};

struct wires {
	unsigned *first;    /* by port: its first wire; one more stands behind the last */
	struct wire *wires; /* of all ports */
};

/* Make it, in this memory. */
void wires_make(struct wires *wires, const struct model *model, struct arena *memory);

/* The function that the wire leads to; NULL: it leads to the end that is in `*end`. */
static inline const struct function_model *wire_function(const struct wire *wire, const struct port_model **end)
{
	const struct chain_model *chain = wire->chain;

	*end = wire->back ? chain->from : chain->to;
	if (!wire->back && wire->hop < chain->nb_through)
		return chain->through[wire->hop];
	if (wire->back && wire->hop > 0)
		return chain->through[wire->hop - 1];
	return NULL;
}

/* The function or the port at one end of a hop: hop n is between the places n and n + 1. */
static inline const char *chain_place(const struct chain_model *chain, unsigned place)
{
	if (place == 0)
		return chain->from->name;
	return place <= chain->nb_through ? chain->through[place - 1]->name : chain->to->name;
}

/* The side of a replica by which frames of the wire enter it. */
static inline const struct port_model *wire_side(const struct wire *wire, const struct replica_model *replica)
{
	return wire->back ? replica->right : replica->left;
}

#endif
