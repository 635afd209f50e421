/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/apply.h"
#include "switch/balance.h"
#include "switch/pages.h"
#include "switch/switch.h"
#include "switch/wires.h"

/* One change under way. */
struct change {
	struct switch_state *state;
	struct model *model; /* that shall hold */
	struct control_error *error;
	struct switch_port **opened; /* for it, by their number in the model */
	struct switch_port **leaving;
	const struct port_model **closed; /* before it holds, in the order in which they were */
	unsigned nb_closed;
};

/* ------- ports ------- */

static struct switch_port *open_port(struct switch_state *state, const struct port_model *model, bool awaited,
				     struct control_error *error)
{
	struct switch_port *port = switch_port_open(state->page, model, awaited, error);

	if (port != NULL)
		port->expected = state->resumes && model->kind == PORT_GUEST && model->client;
	return port;
}

static int let_run(struct switch_state *state, struct switch_port *port, struct control_error *error)
{
	if (names_add(&state->running.ports, port->port.name, port) == 0)
		return 0;
	control_fail(error, CONTROL_FAILED, "out of memory");
	return -1;
}

static void close_opened(struct change *change)
{
	struct names *running = &change->state->running.ports;

	for (unsigned i = 0; i < change->model->nb_ports; i++) {
		struct switch_port *port = change->opened[i];

		if (port == NULL)
			continue;
		if (names_find(running, port->port.name) == port)
			names_remove(running, port->port.name);
		switch_port_close(change->state->page, port);
		change->opened[i] = NULL;
	}
}

/*
 * Does the port hold what the other one needs, which only one can have at a time?  A device is known by what stands
 * before its options; and since one has several names (if:, xdp:), a device that is to be another one under the name of
 * its port is taken to be in the way.
 */
static bool holds(const struct port_model *port, const struct port_model *other)
{
	const size_t length = port->kind == PORT_DEVICE ? strcspn(port->device, ",") : 0;

	if (port->kind != other->kind)
		return false;
	if (port->kind == PORT_GUEST)
		return strcmp(port->path, other->path) == 0;
	return strcmp(port->name, other->name) == 0 ||
	       (strcspn(other->device, ",") == length && strncmp(port->device, other->device, length) == 0);
}

/* Will the port be gone, or another kind of thing under the same name? */
static bool leaves(const struct change *change, const struct switch_port *port)
{
	const struct port_model *now = names_find(&change->model->ports_by_name, port->port.name);

	return now == NULL || !port_model_same(port->model, now);
}

/* Is there a running port that leaves, and until then has what this one needs? */
static bool waits(const struct change *change, const struct port_model *model)
{
	const struct names *ports = &change->state->running.ports;

	for (unsigned i = 0; i < ports->size; i++) {
		const struct switch_port *port = ports->entries[i].value;

		if (port != NULL && holds(port->model, model) && leaves(change, port))
			return true;
	}
	return false;
}

/*
 * Open the ports that are new or other, but for those that have to wait until others have gone, and let them run that
 * have their name to themselves.  So most of what cannot be is refused before anybody is disturbed.
 */
static int open_ports(struct change *change)
{
	struct switch_state *state = change->state;

	for (unsigned i = 0; i < change->model->nb_ports; i++) {
		const struct port_model *model = &change->model->ports[i];
		const struct switch_port *running = names_find(&state->running.ports, model->name);

		if (running != NULL && (running == change->opened[i] || !leaves(change, running)))
			continue;
		if (change->opened[i] == NULL && !waits(change, model)) {
			change->opened[i] = open_port(state, model, false, change->error);
			if (change->opened[i] == NULL)
				return -1;
		}
		if (change->opened[i] != NULL && running == NULL &&
		    let_run(state, change->opened[i], change->error) != 0)
			return -1;
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

/* The running ports that have to go before the new ones can be opened: what is needed under another name or kind. */
static unsigned find_leaving(struct change *change)
{
	const struct model *before = change->state->model, *model = change->model;
	unsigned count = 0;

	for (unsigned i = 0; before != NULL && i < before->nb_ports; i++) {
		struct switch_port *port = names_find(&change->state->running.ports, before->ports[i].name);
		bool needed = port != NULL && names_find(&model->ports_by_name, port->port.name) != NULL;

		if (port == NULL || !leaves(change, port))
			continue;
		for (unsigned j = 0; j < model->nb_ports && !needed; j++)
			needed = holds(port->model, &model->ports[j]);
		if (needed)
			change->leaving[count++] = port;
	}
	return count;
}

/*
 * Close the ports that have to make room.  If not all of the new ones can then be opened they come back (`undo()`), and
 * a device that has gone itself meanwhile as soon as it can.
 */
static int make_room(struct change *change)
{
	struct switch_state *state = change->state;
	const unsigned count = find_leaving(change);

	if (count == 0)
		return 0;
	for (unsigned i = 0; i < count; i++)
		names_remove(&state->running.ports, change->leaving[i]->port.name);
	if (rewire(state, state->model, change->error) != 0) {
		for (unsigned i = 0; i < count; i++)
			names_add(&state->running.ports, change->leaving[i]->port.name, change->leaving[i]);
		return -1;
	}
	for (unsigned i = 0; i < count; i++) {
		change->closed[change->nb_closed++] = change->leaving[i]->model;
		port_rules_free(&change->leaving[i]->rules);
		switch_port_close(state->page, change->leaving[i]);
	}
	return 0;
}

/* Nothing of the change has reached the workers but that ports were closed for it: back to what was. */
static void undo_ports(struct change *change)
{
	struct switch_state *state = change->state;
	struct control_error ignored;

	close_opened(change);
	for (unsigned i = 0; i < change->nb_closed; i++) {
		struct switch_port *port = open_port(state, change->closed[i], true, &ignored);

		if (port != NULL && let_run(state, port, &ignored) != 0)
			switch_port_close(state->page, port);
	}
	if (change->nb_closed > 0)
		rewire(state, state->model, &ignored);
}

/* ------- chains ------- */

/* Is a hop that counts still between the same neighbours?  If not, what it has counted is of others. */
static bool same_hop(const struct running_chain *chain, const struct chain_model *model, unsigned hop)
{
	const struct chain_model *was = chain->model;

	return was != NULL && hop < chain->nb_hops && (hop == was->nb_through) == (hop == model->nb_through) &&
	       strcmp(chain_place(was, hop), chain_place(model, hop)) == 0 &&
	       strcmp(chain_place(was, hop + 1), chain_place(model, hop + 1)) == 0;
}

static struct hop *open_hop(struct page *page, const struct running_chain *chain, unsigned hop)
{
	char name[PORT_NAME + 12];

	snprintf(name, sizeof(name), "%s/%u", chain->name, hop);
	return (struct hop *)page_slot_open(page, PAGE_HOP, name);
}

/* Counters for the hops that the chain will have. */
static int open_hops(struct page *page, struct running_chain *chain, const struct chain_model *model)
{
	for (chain->nb_next = 0; chain->nb_next <= model->nb_through; chain->nb_next++) {
		const unsigned hop = chain->nb_next;

		chain->next[hop] = same_hop(chain, model, hop) ? chain->hops[hop] : open_hop(page, chain, hop);
		if (chain->next[hop] == NULL)
			return -1;
	}
	return 0;
}

/* End those of one of its two sets of counters that are not in the other. */
static void close_hops(struct page *page, struct hop *const *hops, unsigned count, struct hop *const *kept,
		       unsigned nb_kept)
{
	for (unsigned hop = 0; hop < count; hop++)
		if (hop >= nb_kept || hops[hop] != kept[hop])
			page_slot_close(page, (uint64_t *)hops[hop]);
}

/* The change is made: what it opened counts from now on. */
static void keep_hops(struct page *page, struct running_chain *chain)
{
	close_hops(page, chain->hops, chain->nb_hops, chain->next, chain->nb_next);
	memcpy(chain->hops, chain->next, chain->nb_next * sizeof(chain->next[0]));
	chain->nb_hops = chain->nb_next;
}

/* It is not: what it opened ends. */
static void drop_hops(struct page *page, struct running_chain *chain)
{
	close_hops(page, chain->next, chain->nb_next, chain->hops, chain->nb_hops);
	memcpy(chain->next, chain->hops, chain->nb_hops * sizeof(chain->hops[0]));
	chain->nb_next = chain->nb_hops;
}

/* Counters for every hop of the model's chains.  Those of hops that stay go on. */
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
		if (open_hops(state->page, chain, model) != 0) {
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
			switch_port_follow(port, now);
			continue;
		}
		names_remove(&state->running.ports, port->port.name);
		port_rules_free(&port->rules);
		switch_port_close(state->page, port);
	}
	free(ports);
}

static void forget_chains(struct switch_state *state, const struct model *model, bool kept)
{
	void **chains = values_of(&state->running.chains);

	for (unsigned i = 0; chains != NULL && chains[i] != NULL; i++) {
		struct running_chain *chain = chains[i];

		chain->model = names_find(&model->chains_by_name, chain->name);
		if (kept && chain->model == NULL)
			chain->nb_next = 0;
		if (kept)
			keep_hops(state->page, chain);
		else
			drop_hops(state->page, chain);
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

/* End what runs and the model does not name, after a change that is made, or kept from being made. */
static void forget(struct switch_state *state, const struct model *model, bool kept)
{
	forget_ports(state, model);
	forget_chains(state, model, kept);
	forget_functions(state);
	forget_bridges(state);
}

/* ------- the whole ------- */

int apply_fits(const struct model *model, const struct names *there, size_t left, struct control_error *error)
{
	size_t taken = 0;

	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct port_model *port = &model->ports[i];

		if (port->kind != PORT_DEVICE || (there != NULL && names_find(there, port->name) != NULL))
			continue;
		taken += device_port_memory(port->device, port->queues);
		if (taken > left) {
			control_fail(error, CONTROL_FAILED, "ports.%s: " DEVICE_NO_MEMORY, port->name,
				     (taken >> 20) + 1, left >> 20);
			return -1;
		}
	}
	return 0;
}

int apply_try(const struct switch_state *state, const struct model *model, struct control_error *error)
{
	return apply_fits(model, &state->running.ports, device_memory_left(), error);
}

static int make_it_so(struct change *change)
{
	struct switch_state *state = change->state;

	if (open_ports(change) == 0 && open_chains(change) == 0 && make_room(change) == 0 && open_ports(change) == 0 &&
	    rewire(state, change->model, change->error) == 0)
		return 0;
	undo_ports(change);
	forget(state, state->model, false);
	return -1;
}

int apply(struct switch_state *state, json_t *document, struct control_error *error)
{
	const unsigned before = state->model != NULL ? state->model->nb_ports : 0;
	struct change change = {.state = state, .error = error};
	int rc = -1;

	change.model = model_make(document, state->workers.count, error);
	if (change.model == NULL)
		return -1;
	change.opened = calloc(change.model->nb_ports + 1, sizeof(change.opened[0]));
	change.leaving = calloc(before + 1, sizeof(change.leaving[0]));
	change.closed = calloc(before + 1, sizeof(change.closed[0]));
	if (change.opened == NULL || change.leaving == NULL || change.closed == NULL)
		control_fail(error, CONTROL_FAILED, "out of memory");
	else
		rc = make_it_so(&change);
	if (rc == 0) {
		forget(state, change.model, true);
		model_free(state->model);
		state->model = change.model;
	} else {
		model_free(change.model);
	}
	free(change.opened);
	free(change.leaving);
	free(change.closed);
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
		forget_chains(state, model, true);
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
