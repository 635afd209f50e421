/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of the workers: which egresses each receive queue has, by which rules, with a lock or without.
 */
#include <stdlib.h>
#include <string.h>

#include "switch/maker.h"
#include "switch/switch.h"

static uint64_t workers_of(const struct generation_port *port)
{
	uint64_t workers = 0;

	for (unsigned queue = 0; port->port != NULL && queue < port->port->port.nb_queues; queue++)
		workers |= UINT64_C(1) << port->workers[queue];
	return workers;
}

/* ------- who reaches what ------- */

static void reach_wire(struct maker *maker, const struct wire *wire, uint64_t workers)
{
	const struct port_model *end;
	const struct function_model *function = wire_function(wire, &end);

	maker->hop_reach[wire->chain->index][2 * wire->hop + wire->back] |= workers;
	if (function == NULL) {
		maker->reach[end->index] |= workers;
		return;
	}
	for (unsigned i = 0; i < function->nb_replicas; i++)
		maker->reach[wire_side(wire, &function->replicas[i])->index] |= workers;
}

static void reach_bridge(struct maker *maker, const struct bridge_model *bridge)
{
	for (unsigned i = 0; i < bridge->nb_ports; i++) {
		const uint64_t workers = workers_of(&maker->generation->ports[bridge->ports[i].port->index]);

		for (unsigned j = 0; j < bridge->nb_ports; j++)
			if (j != i)
				maker->reach[bridge->ports[j].port->index] |= workers;
	}
}

/* A mirror's copies are made by whoever takes the frames in, or gives them out. */
static void reach_mirror(struct maker *maker, const struct mirror_model *mirror)
{
	const unsigned nb_workers = maker->generation->state->workers.count;
	const uint64_t all = nb_workers < 64 ? (UINT64_C(1) << nb_workers) - 1 : UINT64_MAX;

	maker->reach[mirror->to->index] |= all;
	maker->given[mirror->to->index] = UINT16_MAX;
}

static void reach(struct maker *maker)
{
	const struct generation *generation = maker->generation;
	const struct wires *wires = &generation->wires;
	const struct model *model = maker->model;

	maker->reach = arena_take(&maker->memory, model->nb_ports, sizeof(maker->reach[0]));
	maker->given = arena_take(&maker->memory, model->nb_ports, sizeof(maker->given[0]));
	maker->hop_reach = arena_take(&maker->memory, model->nb_chains, sizeof(maker->hop_reach[0]));
	for (unsigned i = 0; i < model->nb_chains; i++)
		maker->hop_reach[i] = arena_take(&maker->memory, 2 * (model->chains[i].nb_through + 1),
						 sizeof(maker->hop_reach[0][0]));
	for (unsigned i = 0; i < model->nb_ports; i++)
		for (unsigned j = wires->first[i]; j < wires->first[i + 1]; j++)
			reach_wire(maker, &wires->wires[j], workers_of(&generation->ports[i]));
	for (unsigned i = 0; i < model->nb_bridges; i++)
		reach_bridge(maker, &model->bridges[i]);
	for (unsigned i = 0; i < model->nb_mirrors; i++)
		reach_mirror(maker, &model->mirrors[i]);
}

/* How many queues of a port the frames of one source go to, by their flows. */
static unsigned spread_of(const struct maker *maker, const struct port_model *to)
{
	const struct generation_port *port = &maker->generation->ports[to->index];

	return to->spread && port->port != NULL ? RTE_MAX(port->pairs, 1u) : 1;
}

/*
 * The egress to a port for frames from one queue on one worker.  If the port has a receive queue for each worker that
 * gives it frames, each has its own, and none needs a lock; a queue's frames always leave by the same one, so they stay
 * in order.  To a port whose queues have flows, which all workers give frames to, it is the one of this number.
 */
static void fill_egress(struct maker *maker, struct egress *egress, const struct port_model *to,
			const struct source *source, unsigned worker, unsigned queue)
{
	const struct generation_port *port = &maker->generation->ports[to->index];
	const uint64_t workers = maker->reach[to->index];
	const unsigned senders = __builtin_popcountll(workers);
	const unsigned rank = __builtin_popcountll(workers & ((UINT64_C(1) << worker) - 1));

	if (port->port == NULL)
		return;
	if (port->pairs == 0) {
		maker->egress_expected = true;
		return;
	}
	egress->port = &port->port->port;
	if (to->spread) {
		egress->queue = queue % port->pairs;
		egress->locked = senders > 1;
	} else if (senders <= port->pairs) {
		const unsigned own = (port->pairs - rank + senders - 1) / senders;

		egress->queue = rank + senders * (source->queue % own);
	} else {
		const unsigned own = rank % port->pairs;

		egress->queue = own;
		egress->locked = (senders - own + port->pairs - 1) / port->pairs > 1;
	}
	maker->given[to->index] |= 1u << egress->queue;
}

static void fill_hop(struct maker *maker, struct egress *egress, const struct wire *wire)
{
	struct hop *hop = maker->generation->hops[wire->chain->index][wire->hop];

	if (egress->port == NULL)
		return;
	egress->hop = wire->back ? &hop->back : &hop->forward;
	egress->shared = __builtin_popcountll(maker->hop_reach[wire->chain->index][2 * wire->hop + wire->back]) > 1;
}

/* What is watched of frames from the source that leave by the egress, which is its only one or not. */
static void fill_watch(struct maker *maker, struct egress *egress, const struct port_model *to,
		       const struct source *source, unsigned from, const struct wire *wire, bool only)
{
	struct way way = {
		.from = from,
		.queue = source->queue,
		.to = to->index,
		.stays = only && source->from->kind == PORT_GUEST,
		.hop = egress->hop,
	};

	if (maker->generation->ports[to->index].port == NULL)
		return;
	if (wire != NULL) {
		way.chain = wire->chain;
		way.number = wire->hop;
		way.back = wire->back;
		way.first = wire->back ? wire->hop == wire->chain->nb_through : wire->hop == 0;
		way.last = wire->back ? wire->hop == 0 : wire->hop == wire->chain->nb_through;
	}
	egress->watch = make_egress_watch(maker, &way);
	if (egress->watch != NULL)
		maker->egress_watched = true;
}

/* ------- sources ------- */

struct steering_key {
	const struct port_queue *queue;
	struct steering_config config;
};

/*
 * Make what the source has to look with.  The key is the configuration and all that it points to, in one piece, and the
 * queue.
 */
static bool make_steering(struct maker *maker, struct source *source, const struct steering_config *config)
{
	const size_t egresses = config->nb_egresses * sizeof(config->egresses[0]);
	const size_t steps = config->nb_steps * sizeof(config->steps[0]);
	const size_t size = sizeof(struct steering_key) + egresses + steps;
	struct steering_key *key = arena_take(&maker->memory, 1, size);
	struct part *part;

	key->queue = source_entry(source);
	key->config = *config;
	key->config.egresses = NULL;
	key->config.steps = NULL;
	if (egresses > 0)
		memcpy(key + 1, config->egresses, egresses);
	if (steps > 0)
		memcpy((char *)(key + 1) + egresses, config->steps, steps);
	part = holding_take(&maker->generation->parts, PART_STEERING, key, size);
	if (part == NULL)
		return false;
	if (part->content == NULL)
		part->content = steering_new(config);
	source->kind = SOURCE_STEERED;
	source->steering = part->content;
	return source->steering != NULL;
}

/* Over how many queues the frames of a wire are spread: of replicas, the most that one of them has. */
static unsigned wire_spread(const struct maker *maker, const struct wire *wire)
{
	const struct port_model *end;
	const struct function_model *function = wire_function(wire, &end);
	unsigned most = 1;

	if (function == NULL)
		return spread_of(maker, end);
	for (unsigned i = 0; i < function->nb_replicas; i++)
		most = RTE_MAX(most, spread_of(maker, wire_side(wire, &function->replicas[i])));
	return most;
}

/* The egresses to a port, one for each queue that a wire is spread over. */
static void fill_spread(struct maker *maker, struct egress *egresses, unsigned nb, const struct port_model *to,
			const struct source *source, unsigned worker, unsigned number, const struct wire *wire)
{
	for (unsigned queue = 0; queue < nb; queue++) {
		fill_egress(maker, &egresses[queue], to, source, worker, nb > 1 ? queue : source->queue);
		fill_hop(maker, &egresses[queue], wire);
		fill_watch(maker, &egresses[queue], to, source, number, wire, false);
	}
}

static bool make_steered(struct maker *maker, unsigned number, struct source *source, unsigned worker,
			 const struct wire *wires, unsigned nb_wires)
{
	const struct generation *generation = maker->generation;
	struct steering_config config = {.classifier = generation->ports[number].rules,
					 .fragments = make_fragments(maker, number),
					 .otherwise = STEERING_DROP};
	struct step *steps = arena_take(&maker->memory, nb_wires, sizeof(steps[0]));
	struct egress *egresses;

	for (unsigned i = 0; i < nb_wires; i++) {
		const struct port_model *end;
		const struct function_model *function = wire_function(&wires[i], &end);

		steps[i].group = function != NULL ? generation->groups[function->index] : NULL;
		steps[i].first = config.nb_egresses;
		steps[i].spread = wire_spread(maker, &wires[i]);
		config.nb_egresses += (steps[i].group != NULL ? PIN_REPLICAS : 1) * steps[i].spread;
		if (wires[i].chain->nb_matches == 0)
			config.otherwise = i;
	}
	egresses = arena_take(&maker->memory, config.nb_egresses, sizeof(egresses[0]));
	for (unsigned i = 0; i < nb_wires; i++) {
		const struct port_model *end;
		const struct function_model *function = wire_function(&wires[i], &end);

		for (unsigned j = 0; j < (function != NULL ? function->nb_replicas : 1); j++) {
			const struct replica_model *replica = function != NULL ? &function->replicas[j] : NULL;
			const struct port_model *to = replica != NULL ? wire_side(&wires[i], replica) : end;
			struct egress *egress = &egresses[steps[i].first];

			if (steps[i].group != NULL)
				egress += pin_memory_number(steps[i].group->memory, replica->name) * steps[i].spread;
			fill_spread(maker, egress, steps[i].spread, to, source, worker, number, &wires[i]);
		}
	}
	config.egresses = egresses;
	config.steps = steps;
	config.nb_steps = nb_wires;
	/* As with one queue: the only receiver is waited for. */
	config.waits = nb_wires == 1 && wires->chain->nb_matches == 0 && steps[0].group == NULL && steps[0].spread > 1;
	if (config.waits) {
		source->egress = egresses[0];
		source->egress.watch = NULL;
	}
	return make_steering(maker, source, &config);
}

static bool make_bridged(struct maker *maker, unsigned number, struct source *source, unsigned worker)
{
	const struct port_model *model = &maker->model->ports[number];
	const struct bridge_model *bridge = maker->model->bridges;
	struct steering_config config = {.otherwise = STEERING_DROP};
	struct egress *egresses;

	while (strcmp(bridge->name, model->owner) != 0)
		bridge++;
	egresses = arena_take(&maker->memory, bridge->nb_ports, sizeof(egresses[0]));
	for (unsigned i = 0; i < bridge->nb_ports; i++) {
		if (bridge->ports[i].port == model) {
			config.bridge_port = i;
			continue;
		}
		fill_egress(maker, &egresses[i], bridge->ports[i].port, source, worker, source->queue);
		fill_watch(maker, &egresses[i], bridge->ports[i].port, source, number, NULL, false);
	}
	config.egresses = egresses;
	config.nb_egresses = bridge->nb_ports;
	config.bridge = maker->generation->bridges[bridge->index].bridge;
	return make_steering(maker, source, &config);
}

static bool make_source(struct maker *maker, unsigned number, struct source *source, unsigned worker)
{
	const struct wires *all = &maker->generation->wires;
	const struct wire *wires = &all->wires[all->first[number]];
	const unsigned nb_wires = all->first[number + 1] - all->first[number];
	const struct port_model *end = NULL;
	const struct function_model *function;

	if (maker->model->ports[number].role == ROLE_BRIDGED)
		return make_bridged(maker, number, source, worker);
	if (nb_wires == 0)
		return true;
	function = wire_function(wires, &end);
	if (nb_wires > 1 || wires->chain->nb_matches > 0 || (function != NULL && function->pinned) ||
	    wire_spread(maker, wires) > 1)
		return make_steered(maker, number, source, worker, wires, nb_wires);
	if (function != NULL)
		end = wire_side(wires, &function->replicas[0]);
	fill_egress(maker, &source->egress, end, source, worker, source->queue);
	fill_hop(maker, &source->egress, wires);
	fill_watch(maker, &source->egress, end, source, number, wires, true);
	return true;
}

static bool open_programs(struct generation *generation)
{
	const struct workers *workers = &generation->state->workers;
	unsigned counts[GRACE_WORKERS] = {0};

	for (unsigned i = 0; i < generation->model->nb_ports; i++) {
		const struct generation_port *port = &generation->ports[i];

		for (unsigned queue = 0; port->port != NULL && queue < port->port->port.nb_queues; queue++)
			counts[port->workers[queue]]++;
	}
	for (unsigned worker = 0; worker < workers->count; worker++) {
		struct program **program = &generation->programs[worker];

		*program = calloc(1, sizeof(**program) + counts[worker] * sizeof((*program)->sources[0]));
		if (*program == NULL)
			return false;
	}
	return true;
}

static bool make_sources(struct maker *maker, unsigned number)
{
	const struct generation_port *port = &maker->generation->ports[number];

	for (unsigned queue = 0; port->port != NULL && queue < port->port->port.nb_queues; queue++) {
		struct program *program = maker->generation->programs[port->workers[queue]];
		struct source *source = &program->sources[program->nb_sources++];

		source->from = &port->port->port;
		source->queue = queue;
		maker->egress_watched = maker->egress_expected = false;
		if (!make_source(maker, number, source, port->workers[queue]))
			return false;
		/* Nobody polls it yet: its frames wait in their ring for the guest that is expected. */
		if (maker->egress_expected) {
			*source = (struct source){0};
			program->nb_sources--;
			continue;
		}
		source->watch = make_watch(maker, number, queue);
		if (source->kind == SOURCE_DIRECT && watches_look(source->watch, source->egress.watch))
			source->kind = SOURCE_WATCHED;
	}
	return true;
}

static void find_orphans(struct maker *maker)
{
	const struct generation *generation = maker->generation;

	for (unsigned i = 0; i < generation->state->workers.count; i++)
		for (unsigned j = 0; j < generation->programs[i]->nb_sources; j++) {
			struct source *source = &generation->programs[i]->sources[j];
			const struct port_model *model = names_find(&maker->model->ports_by_name, source->from->name);

			source->orphan = !(maker->given[model->index] >> source->queue & 1);
		}
}

bool make_programs(struct generation *generation)
{
	struct maker maker = {.generation = generation, .model = generation->model};
	bool made = open_programs(generation);

	arena_open(&maker.memory);
	reach(&maker);
	make_senders(&maker);
	for (unsigned i = 0; made && i < maker.model->nb_ports; i++)
		made = make_sources(&maker, i);
	made = made && !generation->parts.failed;
	if (made)
		find_orphans(&maker);
	arena_close(&maker.memory);
	return made;
}
