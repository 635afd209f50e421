/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/maker.h"
#include "switch/pages.h"
#include "switch/switch.h"

void generation_end_part(void *context, unsigned kind, void *content)
{
	struct page *page = ((struct switch_state *)context)->page;

	switch ((enum part_kind)kind) {
	case PART_HOP:
	case PART_MIRROR:
		page_slot_close(page, content);
		break;
	case PART_TRACE:
		trace_close(content);
		break;
	case PART_PIN_MEMORY:
		pin_memory_free(content);
		break;
	case PART_GROUP:
		pin_group_free(content);
		break;
	case PART_PAST:
		bridge_memory_free(((struct bridge_past *)content)->memory);
		free(content);
		break;
	case PART_BRIDGE:
		bridge_free(content);
		break;
	case PART_PORT:
		switch_port_close(page, content);
		break;
	case PART_FRAGMENTS:
		flows_free(content);
		break;
	case PART_DIVISION:
		division_end(content);
		break;
	case PART_SHAPER:
		shaper_end(content);
		break;
	case PART_STEERING:
		steering_free(content);
		break;
	case PART_RULES:
	case PART_EGRESS:
	case PART_SOURCE:
		free(content);
		break;
	}
}

/* ------- what needs no ports ------- */

static bool take_hop(struct generation *generation, const struct chain_model *chain, unsigned hop,
		     struct control_error *error)
{
	/* A hop counts on while it is between the same neighbours. */
	struct part *part = holding_take_text(&generation->parts, PART_HOP, "%s/%u/%d/%s/%s", chain->name, hop,
					      hop == chain->nb_through, chain_place(chain, hop),
					      chain_place(chain, hop + 1));
	char name[PORT_NAME + 12];

	if (part == NULL)
		return false;
	snprintf(name, sizeof(name), "%s/%u", chain->name, hop);
	if (part->content == NULL)
		part->content = page_slot_open(generation->state->page, PAGE_HOP, name);
	if (part->content == NULL)
		control_fail(error, CONTROL_FAILED, "chains.%s: no slot is left on the counter page", chain->name);
	generation->hops[chain->index][hop] = part->content;
	return part->content != NULL;
}

static bool take_hops(struct generation *generation, struct control_error *error)
{
	const struct model *model = generation->model;

	for (unsigned i = 0; i < model->nb_chains; i++) {
		const struct chain_model *chain = &model->chains[i];

		generation->hops[i] = arena_take(&generation->memory, chain->nb_through + 1,
						 sizeof(generation->hops[0][0]));
		for (unsigned hop = 0; hop <= chain->nb_through; hop++)
			if (!take_hop(generation, chain, hop, error))
				return false;
	}
	return true;
}

static bool take_mirrors(struct generation *generation, struct control_error *error)
{
	for (unsigned i = 0; i < generation->model->nb_mirrors; i++) {
		const char *name = generation->model->mirrors[i].name;
		struct part *part = holding_take_text(&generation->parts, PART_MIRROR, "%s", name);

		if (part == NULL)
			return false;
		if (part->content == NULL)
			part->content = page_slot_open(generation->state->page, PAGE_MIRROR, name);
		if (part->content == NULL) {
			control_fail(error, CONTROL_FAILED, "mirrors.%s: no slot is left on the counter page", name);
			return false;
		}
		generation->mirrors[i] = part->content;
	}
	return true;
}

static bool take_trace(struct generation *generation, struct control_error *error)
{
	struct switch_state *state = generation->state;
	const struct trace_options options = {.every = generation->model->trace_every,
					      .recent = generation->model->trace_recent,
					      .workers = state->workers.count};
	struct part *part;

	if (options.every == 0)
		return true;
	part = holding_take_text(&generation->parts, PART_TRACE, "%u/%u", options.every, options.recent);
	if (part == NULL)
		return false;
	if (part->content == NULL) {
		char path[256];

		snprintf(path, sizeof(path), "%s.trace-%u", state->page_path, ++state->traces);
		part->content = trace_open(path, &options);
		if (part->content == NULL)
			control_fail(error, CONTROL_FAILED,
				     "trace: %s: no room for its records; ask for fewer by 'recent'", path);
	}
	generation->trace = part->content;
	return generation->trace != NULL;
}

struct generation *generation_begin(struct switch_state *state, const struct model *model, struct control_error *error)
{
	struct generation *generation = calloc(1, sizeof(*generation));
	struct arena *memory;

	if (generation == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return NULL;
	}
	memory = &generation->memory;
	arena_open(memory);
	generation->state = state;
	generation->model = model;
	generation->parts.parts = &state->parts;
	generation->ports = arena_take(memory, model->nb_ports, sizeof(generation->ports[0]));
	generation->hops = arena_take(memory, model->nb_chains, sizeof(generation->hops[0]));
	generation->mirrors = arena_take(memory, model->nb_mirrors, sizeof(generation->mirrors[0]));
	generation->groups = arena_take(memory, model->nb_functions, sizeof(generation->groups[0]));
	generation->bridges = arena_take(memory, model->nb_bridges, sizeof(generation->bridges[0]));
	wires_make(&generation->wires, model, memory);
	error->code = 0;
	if (take_hops(generation, error) && take_mirrors(generation, error) && take_trace(generation, error) &&
	    make_lookups(generation, error))
		return generation;
	if (error->code == 0)
		control_fail(error, CONTROL_FAILED, "out of memory");
	generation_drop(generation);
	return NULL;
}

/* ------- ports ------- */

/* Rates, shares, and whether frames wait for its guest, may change while it is open. */
static struct part *take_port(struct generation *generation, const struct port_model *model)
{
	const char *path = model->path != NULL ? model->path : "";

	return holding_take_text(&generation->parts, PART_PORT, "%s/%d/%u/%d/%d/%" PRIu64 "/%d/%zu/%s%s", model->name,
				 model->kind, model->queues, model->client, model->offloads, model->memory,
				 model->socket_mode, strlen(path), path,
				 model->kind == PORT_DEVICE ? model->device
				 : model->group != NULL	    ? model->group
							    : "");
}

bool generation_find_port(struct generation *generation, unsigned number)
{
	struct part *part = take_port(generation, &generation->model->ports[number]);

	/* A part without content would be found, and filled, by the next generation, and stay with this one. */
	if (part != NULL && part->content == NULL) {
		holding_untake(&generation->parts);
		return false;
	}
	generation->ports[number].port = part != NULL ? part->content : NULL;
	return generation->ports[number].port != NULL;
}

int generation_open_port(struct generation *generation, unsigned number, bool awaited, struct control_error *error)
{
	struct switch_state *state = generation->state;
	const struct port_model *model = &generation->model->ports[number];
	struct part *part = take_port(generation, model);

	if (part == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return -1;
	}
	if (part->content == NULL) {
		struct switch_port *port = switch_port_open(state->page, model, awaited, error);

		if (port == NULL) {
			holding_untake(&generation->parts);
			return -1;
		}
		port->expected = state->resumes && model->kind == PORT_GUEST && model->client;
		part->content = port;
	}
	generation->ports[number].port = part->content;
	return 0;
}

/* ------- the whole ------- */

/* Choose a worker for every queue: the pinned ones theirs, new ones one that has time. */
static void place_queues(struct generation *generation)
{
	const struct switch_state *state = generation->state;
	const struct model *model = generation->model;
	struct placement_queue *queues, *entry;
	unsigned count = 0;

	for (unsigned i = 0; i < model->nb_ports; i++)
		count += model->ports[i].queues;
	queues = entry = arena_take(&generation->memory, count, sizeof(queues[0]));
	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct switch_port *port = generation->ports[i].port;

		for (unsigned queue = 0; port != NULL && queue < port->port.nb_queues; queue++, entry++) {
			const struct pin_model *pin = model_pin(model, i, queue);

			entry->worker = pin != NULL ? pin->worker : port->placed[queue].worker;
			entry->is_placed = pin != NULL || port->placed[queue].is_placed;
		}
	}
	placement_place(queues, (unsigned)(entry - queues), state->loads, state->workers.count);
	entry = queues;
	for (unsigned i = 0; i < model->nb_ports; i++) {
		struct generation_port *port = &generation->ports[i];

		for (unsigned queue = 0; port->port != NULL && queue < port->port->port.nb_queues; queue++)
			port->workers[queue] = entry++->worker;
	}
}

/* Ports as they are now: a guest uses more or fewer queues, or is expected back. */
static void look_at_ports(struct generation *generation)
{
	for (unsigned i = 0; i < generation->model->nb_ports; i++) {
		struct switch_port *port = generation->ports[i].port;

		if (port == NULL)
			continue;
		generation->ports[i].pairs = switch_port_pairs(port);
		if (generation->trace != NULL)
			trace_name_port(generation->trace, port->port.number, port->port.name);
	}
}

/* What lies in things that go on is as the generation has it only now that it runs. */
static void settle(const struct generation *generation)
{
	const struct model *model = generation->model;

	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct generation_port *port = &generation->ports[i];

		if (port->port != NULL)
			switch_port_follow(port->port, &model->ports[i]);
		for (unsigned queue = 0; port->port != NULL && queue < port->port->port.nb_queues; queue++) {
			port->port->placed[queue].worker = port->workers[queue];
			port->port->placed[queue].is_placed = true;
		}
	}
	for (unsigned i = 0; i < model->nb_functions; i++)
		if (generation->groups[i] != NULL)
			pin_memory_set_ageing(generation->groups[i]->memory, model->functions[i].ageing);
	for (unsigned i = 0; i < model->nb_bridges; i++)
		bridge_share(generation->bridges[i].bridge);
	watches_settle(generation);
}

int generation_install(struct generation *generation, struct control_error *error)
{
	struct switch_state *state = generation->state;
	struct generation *before = state->generation;

	place_queues(generation);
	look_at_ports(generation);
	if (!make_programs(generation) || workers_install(&state->workers, generation->programs) != 0) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return -1;
	}
	state->generation = generation;
	settle(generation);
	generation_drop(before);
	return 0;
}

void generation_drop(struct generation *generation)
{
	if (generation == NULL)
		return;
	for (unsigned i = 0; i < GRACE_WORKERS; i++)
		free(generation->programs[i]);
	holding_drop(&generation->parts);
	arena_close(&generation->memory);
	free(generation);
}
