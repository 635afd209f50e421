/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/apply.h"
#include "switch/balance.h"
#include "switch/pages.h"
#include "switch/switch.h"

/* One change under way. */
struct change {
	struct switch_state *state;
	struct model *model; /* that shall hold */
	struct control_error *error;
	struct switch_port **opened; /* new ones, by their number in the model */
};

/* ------- ports ------- */

static void close_opened(struct change *change)
{
	for (unsigned i = 0; i < change->model->nb_ports; i++)
		if (change->opened[i] != NULL) {
			names_remove(&change->state->running.ports, change->opened[i]->port.name);
			switch_port_close(change->state->page, change->opened[i]);
			change->opened[i] = NULL;
		}
}

static struct switch_port *open_port(struct switch_state *state, const struct port_model *model, bool awaited,
				     struct control_error *error)
{
	struct switch_port *port = switch_port_open(state->page, model, awaited, error);

	if (port != NULL && names_add(&state->running.ports, port->port.name, port) != 0) {
		switch_port_close(state->page, port);
		control_fail(error, CONTROL_FAILED, "out of memory");
		return NULL;
	}
	if (port != NULL)
		port->expected = state->resumes && model->kind == PORT_GUEST && model->client;
	return port;
}

/* Open the ports whose names are new. */
static int open_new(struct change *change)
{
	for (unsigned i = 0; i < change->model->nb_ports; i++) {
		const struct port_model *model = &change->model->ports[i];

		if (names_find(&change->state->running.ports, model->name) != NULL)
			continue;
		change->opened[i] = open_port(change->state, model, false, change->error);
		if (change->opened[i] == NULL) {
			close_opened(change);
			return -1;
		}
	}
	return 0;
}

/* Let the workers run what the model says of the ports that are there. */
static int rewire(struct switch_state *state, const struct model *model, struct control_error *error)
{
	struct wiring wiring;

	balance_place(state, model);
	if (wiring_make(&wiring, &state->running, model, state->workers.count, error) != 0)
		return -1;
	if (workers_install(&state->workers, wiring.programs) != 0) {
		wiring_drop(&wiring, &state->running);
		control_fail(error, CONTROL_FAILED, "out of memory");
		return -1;
	}
	wiring_keep(&state->running, model);
	return 0;
}

static bool is_changed(const struct switch_port *port, const struct port_model *model)
{
	return port != NULL && !port_model_same(port->model, model);
}

/*
 * A port that is to be another kind of thing under the same name, and may hold what the new one needs: a path, a
 * device.  The old one goes first; if the new one cannot be opened, the old one comes back, and a device that has gone
 * itself as soon as it can.
 */
static int replace_port(struct change *change, struct switch_port *old, const struct port_model *model)
{
	struct switch_state *state = change->state;
	const struct port_model *before = old->model;
	struct control_error ignored;

	names_remove(&state->running.ports, old->port.name);
	if (rewire(state, state->model, change->error) != 0) {
		names_add(&state->running.ports, old->port.name, old);
		return -1;
	}
	port_rules_free(&old->rules);
	switch_port_close(state->page, old);
	if (open_port(state, model, false, change->error) != NULL)
		return 0;
	if (open_port(state, before, true, &ignored) != NULL)
		rewire(state, state->model, &ignored);
	return -1;
}

/* Back to what the ports were that have been replaced so far. */
static void restore_replaced(struct change *change)
{
	struct switch_state *state = change->state;
	struct control_error ignored;

	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		const struct port_model *model = &state->model->ports[i];
		struct switch_port *port = names_find(&state->running.ports, model->name);
		struct change back = {.state = state, .model = state->model, .error = &ignored};

		if (is_changed(port, model))
			replace_port(&back, port, model);
	}
	rewire(state, state->model, &ignored);
}

static int replace_changed(struct change *change)
{
	for (unsigned i = 0; i < change->model->nb_ports; i++) {
		const struct port_model *model = &change->model->ports[i];
		struct switch_port *port = names_find(&change->state->running.ports, model->name);

		if (is_changed(port, model) && replace_port(change, port, model) != 0) {
			restore_replaced(change);
			return -1;
		}
	}
	return 0;
}

/* ------- chains ------- */

static void close_hops(struct page *page, struct running_chain *chain, unsigned from)
{
	for (unsigned hop = from; hop < chain->nb_hops; hop++)
		page_slot_close(page, (uint64_t *)chain->hops[hop]);
	chain->nb_hops = from;
}

static int open_hops(struct page *page, struct running_chain *chain, unsigned count)
{
	while (chain->nb_hops < count) {
		char name[PORT_NAME + 12];

		snprintf(name, sizeof(name), "%s/%u", chain->name, chain->nb_hops);
		chain->hops[chain->nb_hops] = (struct hop *)page_slot_open(page, PAGE_HOP, name);
		if (chain->hops[chain->nb_hops] == NULL)
			return -1;
		chain->nb_hops++;
	}
	return 0;
}

/* Counters for every hop of the model's chains.  Those that are there go on. */
static int open_chains(struct change *change)
{
	struct switch_state *state = change->state;

	for (unsigned i = 0; i < change->model->nb_chains; i++) {
		const struct chain_model *model = &change->model->chains[i];
		struct running_chain *chain = names_find(&state->running.chains, model->name);

		if (chain == NULL) {
			chain = calloc(1, sizeof(*chain));
			if (chain == NULL)
				goto out_of_memory;
			strcpy(chain->name, model->name);
			if (names_add(&state->running.chains, chain->name, chain) != 0) {
				free(chain);
				goto out_of_memory;
			}
		}
		if (open_hops(state->page, chain, model->nb_through + 1) != 0) {
			control_fail(change->error, CONTROL_FAILED, "chains.%s: no slot is left on the counter page",
				     model->name);
			return -1;
		}
	}
	return 0;
out_of_memory:
	control_fail(change->error, CONTROL_FAILED, "out of memory");
	return -1;
}

/* ------- what is no longer named ------- */

/* The values of a table, which may then be removed from it.  The caller frees the list; NULL without memory. */
static void **values_of(const struct names *names)
{
	void **values = calloc(names->count + 1, sizeof(values[0]));
	unsigned count = 0;

	for (unsigned i = 0; values != NULL && i < names->size; i++)
		if (names->entries[i].name != NULL)
			values[count++] = names->entries[i].value;
	return values;
}

static void forget_ports(struct switch_state *state, const struct model *model)
{
	void **ports = values_of(&state->running.ports);

	for (unsigned i = 0; ports != NULL && ports[i] != NULL; i++) {
		struct switch_port *port = ports[i];
		const struct port_model *now = names_find(&model->ports_by_name, port->port.name);

		if (now != NULL) {
			port->model = now;
			continue;
		}
		names_remove(&state->running.ports, port->port.name);
		port_rules_free(&port->rules);
		switch_port_close(state->page, port);
	}
	free(ports);
}

static void forget_chains(struct switch_state *state, const struct model *model)
{
	void **chains = values_of(&state->running.chains);

	for (unsigned i = 0; chains != NULL && chains[i] != NULL; i++) {
		struct running_chain *chain = chains[i];

		chain->model = names_find(&model->chains_by_name, chain->name);
		close_hops(state->page, chain, chain->model != NULL ? chain->model->nb_through + 1 : 0);
		if (chain->model != NULL)
			continue;
		names_remove(&state->running.chains, chain->name);
		free(chain);
	}
	free(chains);
}

static void forget_functions(struct switch_state *state)
{
	void **functions = values_of(&state->running.functions);

	for (unsigned i = 0; functions != NULL && functions[i] != NULL; i++) {
		struct running_function *function = functions[i];

		if (function->group != NULL)
			continue;
		names_remove(&state->running.functions, function->name);
		running_function_free(function);
	}
	free(functions);
}

static void forget_bridges(struct switch_state *state)
{
	void **bridges = values_of(&state->running.bridges);

	for (unsigned i = 0; bridges != NULL && bridges[i] != NULL; i++) {
		struct running_bridge *bridge = bridges[i];

		if (bridge->bridge != NULL)
			continue;
		names_remove(&state->running.bridges, bridge->name);
		running_bridge_free(bridge);
	}
	free(bridges);
}

/* End what runs and the model does not name. */
static void forget(struct switch_state *state, const struct model *model)
{
	forget_ports(state, model);
	forget_chains(state, model);
	forget_functions(state);
	forget_bridges(state);
}

/* ------- the whole ------- */

int apply_try(const struct switch_state *state, const struct model *model, struct control_error *error)
{
	const size_t left = device_memory_left();
	size_t taken = 0;

	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct port_model *port = &model->ports[i];

		if (port->kind != PORT_DEVICE || names_find(&state->running.ports, port->name) != NULL)
			continue;
		taken += device_queue_memory(port->device, port->queues);
		if (taken > left) {
			control_fail(error, CONTROL_FAILED, "ports.%s: " DEVICE_NO_MEMORY, port->name,
				     (taken >> 20) + 1, left >> 20);
			return -1;
		}
	}
	return 0;
}

static int make_it_so(struct change *change)
{
	struct switch_state *state = change->state;

	if (open_new(change) != 0)
		return -1;
	if (open_chains(change) != 0 || replace_changed(change) != 0)
		goto undo;
	if (rewire(state, change->model, change->error) == 0)
		return 0;
	restore_replaced(change);
undo:
	close_opened(change);
	forget(state, state->model);
	return -1;
}

int apply(struct switch_state *state, json_t *document, struct control_error *error)
{
	struct change change = {.state = state, .error = error};
	int rc = -1;

	change.model = model_make(document, state->workers.count, error);
	if (change.model == NULL)
		return -1;
	change.opened = calloc(change.model->nb_ports + 1, sizeof(change.opened[0]));
	if (change.opened == NULL)
		control_fail(error, CONTROL_FAILED, "out of memory");
	else
		rc = make_it_so(&change);
	if (rc == 0) {
		forget(state, change.model);
		model_free(state->model);
		state->model = change.model;
	} else {
		model_free(change.model);
	}
	free(change.opened);
	return rc;
}

int apply_again(struct switch_state *state, struct control_error *error)
{
	return rewire(state, state->model, error);
}

void apply_nothing(struct switch_state *state)
{
	struct control_error ignored;
	json_t *nothing = json_object();
	struct model *model = model_make(nothing, state->workers.count, &ignored);

	if (model != NULL) {
		void **functions = values_of(&state->running.functions), **bridges = values_of(&state->running.bridges);

		for (unsigned i = 0; functions != NULL && functions[i] != NULL; i++)
			running_function_free(functions[i]);
		for (unsigned i = 0; bridges != NULL && bridges[i] != NULL; i++)
			running_bridge_free(bridges[i]);
		free(functions);
		free(bridges);
		forget_ports(state, model);
		forget_chains(state, model);
	}
	names_clear(&state->running.ports);
	names_clear(&state->running.chains);
	names_clear(&state->running.functions);
	names_clear(&state->running.bridges);
	model_free(model);
	model_free(state->model);
	state->model = NULL;
	json_decref(nothing);
}
