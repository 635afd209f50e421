/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "switch/wires.h"

static int by_priority(const void *a, const void *b)
{
	const struct chain_model *left = *(const struct chain_model *const *)a;
	const struct chain_model *right = *(const struct chain_model *const *)b;

	if (left->priority != right->priority)
		return left->priority > right->priority ? -1 : 1;
	return left->index < right->index ? -1 : 1;
}

/* The ports that may send into the wire: an end, or the far sides of a function's replicas. */
static void each_sender(const struct wire *wire, void (*call)(void *context, unsigned port, const struct wire *wire),
			void *context)
{
	const struct chain_model *chain = wire->chain;
	const struct function_model *function = NULL;

	if (!wire->back && wire->hop > 0)
		function = chain->through[wire->hop - 1];
	else if (wire->back && wire->hop < chain->nb_through)
		function = chain->through[wire->hop];
	if (function == NULL) {
		call(context, wire->back ? chain->to->index : chain->from->index, wire);
		return;
	}
	for (unsigned i = 0; i < function->nb_replicas; i++)
		call(context, wire->back ? function->replicas[i].left->index : function->replicas[i].right->index,
		     wire);
}

static void count(void *context, unsigned port, const struct wire *wire)
{
	struct wires *wires = context;

	wires->first[port + 1]++;
}

/* While they are filled in, `first` of the next port is where the next wire of this one goes. */
static void place(void *context, unsigned port, const struct wire *wire)
{
	struct wires *wires = context;

	wires->wires[wires->first[port + 1]++] = *wire;
}

static void each_wire(const struct model *model, const struct chain_model **order,
		      void (*call)(void *context, unsigned port, const struct wire *wire), void *context)
{
	for (unsigned i = 0; i < model->nb_chains; i++)
		for (unsigned hop = 0; hop <= order[i]->nb_through; hop++)
			for (unsigned back = 0; back < 2; back++)
				each_sender(&(struct wire){.chain = order[i], .hop = hop, .back = back}, call, context);
}

void wires_make(struct wires *wires, const struct model *model, struct arena *memory)
{
	const struct chain_model **order = arena_take(memory, model->nb_chains, sizeof(order[0]));
	unsigned total = 0;

	for (unsigned i = 0; i < model->nb_chains; i++)
		order[i] = &model->chains[i];
	qsort(order, model->nb_chains, sizeof(order[0]), by_priority);
	wires->first = arena_take(memory, model->nb_ports + 2, sizeof(wires->first[0]));
	each_wire(model, order, count, wires);
	for (unsigned port = 0; port < model->nb_ports; port++) {
		const unsigned here = wires->first[port + 1];

		wires->first[port + 1] = total;
		total += here;
	}
	wires->wires = arena_take(memory, total, sizeof(wires->wires[0]));
	each_wire(model, order, place, wires);
}
