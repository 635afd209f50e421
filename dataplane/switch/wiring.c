/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "switch/wiring_maker.h"

static uint64_t workers_of(const struct switch_port *port)
{
	uint64_t workers = 0;

	for (unsigned queue = 0; queue < port->port.nb_queues; queue++)
		workers |= UINT64_C(1) << port->placed[queue].next_worker;
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
		const struct switch_port *from = maker->ports[bridge->ports[i].port->index];

		for (unsigned j = 0; from != NULL && j < bridge->nb_ports; j++)
			if (j != i)
				maker->reach[bridge->ports[j].port->index] |= workers_of(from);
	}
}

/* A mirror's copies are made by whoever takes the frames in, or gives them out. */
static void reach_mirror(struct maker *maker, const struct mirror_model *mirror)
{
	const uint64_t all = maker->nb_workers < 64 ? (UINT64_C(1) << maker->nb_workers) - 1 : UINT64_MAX;

	maker->reach[mirror->to->index] |= all;
	maker->given[mirror->to->index] = UINT16_MAX;
}

static void reach(struct maker *maker)
{
	const struct model *model = maker->model;

	maker->reach = arena_take(&maker->memory, model->nb_ports, sizeof(maker->reach[0]));
	maker->given = arena_take(&maker->memory, model->nb_ports, sizeof(maker->given[0]));
	maker->hop_reach = arena_take(&maker->memory, model->nb_chains, sizeof(maker->hop_reach[0]));
	for (unsigned i = 0; i < model->nb_chains; i++)
		maker->hop_reach[i] = arena_take(&maker->memory, 2 * (model->chains[i].nb_through + 1),
						 sizeof(maker->hop_reach[0][0]));
	for (unsigned i = 0; i < model->nb_ports; i++)
		for (unsigned j = maker->wires.first[i]; maker->ports[i] != NULL && j < maker->wires.first[i + 1]; j++)
			reach_wire(maker, &maker->wires.wires[j], workers_of(maker->ports[i]));
	for (unsigned i = 0; i < model->nb_bridges; i++)
		reach_bridge(maker, &model->bridges[i]);
	for (unsigned i = 0; i < model->nb_mirrors; i++)
		reach_mirror(maker, &model->mirrors[i]);
}

/*
 * The egress to a port for frames from one queue on one worker.  If the port has a receive queue for each worker that
 * gives it frames, each has its own, and none needs a lock; a queue's frames always leave by the same one, so they stay
 * in order.
 */
static void fill_egress(struct maker *maker, struct egress *egress, const struct port_model *to,
			const struct source *source, unsigned worker)
{
	struct switch_port *port = maker->ports[to->index];
	const uint64_t workers = maker->reach[to->index];
	const unsigned senders = __builtin_popcountll(workers);
	const unsigned rank = __builtin_popcountll(workers & ((UINT64_C(1) << worker) - 1));

	if (port == NULL)
		return;
	if (port->next_pairs == 0) {
		maker->egress_expected = true;
		return;
	}
	egress->port = &port->port;
	if (senders <= port->next_pairs) {
		const unsigned own = (port->next_pairs - rank + senders - 1) / senders;

		egress->queue = rank + senders * (source->queue % own);
	} else {
		const unsigned queue = rank % port->next_pairs;

		egress->queue = queue;
		egress->locked = (senders - queue + port->next_pairs - 1) / port->next_pairs > 1;
	}
	maker->given[to->index] |= 1u << egress->queue;
}

static void fill_hop(struct maker *maker, struct egress *egress, const struct wire *wire)
{
	const struct running_chain *chain = maker->chains[wire->chain->index];
	struct hop *hop;

	if (chain == NULL || egress->port == NULL)
		return;
	/* A chain that is wired again as it runs, in the middle of a change, counts where it did. */
	hop = wire->chain == chain->model ? chain->hops[wire->hop] : chain->next[wire->hop];
	if (hop == NULL)
		return;
	egress->hop = wire->back ? &hop->back : &hop->forward;
	egress->shared = __builtin_popcountll(maker->hop_reach[wire->chain->index][2 * wire->hop + wire->back]) > 1;
}

/* What is watched of frames from the source that leave by the egress, which is its only one or not. */
static void fill_watch(struct maker *maker, struct egress *egress, const struct port_model *to,
		       const struct source *source, const struct wire *wire, bool only)
{
	struct way way = {
		.from = (struct switch_port *)source->from,
		.queue = source->queue,
		.stays = only && source->from->kind == PORT_GUEST,
		.to = maker->ports[to->index],
		.hop = egress->hop,
	};

	if (wire != NULL) {
		way.chain = wire->chain;
		way.number = wire->hop;
		way.back = wire->back;
		way.first = wire->back ? wire->hop == wire->chain->nb_through : wire->hop == 0;
		way.last = wire->back ? wire->hop == 0 : wire->hop == wire->chain->nb_through;
	}
	egress->watch = observation_egress(maker->running->observation, &way);
	if (egress->watch != NULL)
		maker->egress_watched = true;
}

/* ------- sources ------- */

/*
 * Make what the source has to look with, or take over what it has if that was made from the same.  The key is the
 * configuration and all that it points to, in one piece.
 */
static bool make_steering(struct maker *maker, struct switch_port *port, struct source *source,
			  const struct steering_config *config)
{
	struct port_steering *old = &port->rules.queues[source->queue];
	struct port_steering *new = &port->next_rules.queues[source->queue];
	const size_t egresses = config->nb_egresses * sizeof(config->egresses[0]);
	const size_t steps = config->nb_steps * sizeof(config->steps[0]);
	const size_t size = sizeof(*config) + egresses + steps;
	struct steering_config *key = arena_take(&maker->memory, 1, size);

	*key = *config;
	key->egresses = NULL;
	key->steps = NULL;
	if (egresses > 0)
		memcpy(key + 1, config->egresses, egresses);
	if (steps > 0)
		memcpy((char *)(key + 1) + egresses, config->steps, steps);
	if (old->key_size == size && memcmp(old->key, key, size) == 0) {
		*new = *old;
	} else {
		new->key = malloc(size);
		if (new->key == NULL)
			return false;
		memcpy(new->key, key, size);
		new->key_size = size;
		new->steering = steering_new(config);
	}
	source->kind = SOURCE_STEERED;
	source->steering = new->steering;
	return new->steering != NULL;
}

static bool make_steered(struct maker *maker, struct switch_port *port, struct source *source, unsigned worker,
			 const struct wire *wires, unsigned nb_wires)
{
	struct steering_config config = {.classifier = port->next_rules.classifier,
					 .fragments = port->next_rules.fragments,
					 .otherwise = STEERING_DROP};
	struct step *steps = arena_take(&maker->memory, nb_wires, sizeof(steps[0]));
	struct egress *egresses;

	for (unsigned i = 0; i < nb_wires; i++) {
		const struct port_model *end;
		const struct function_model *function = wire_function(&wires[i], &end);
		const bool pool = function != NULL && function->pinned;

		steps[i].group = pool ? maker->pools[function->index]->next : NULL;
		steps[i].first = config.nb_egresses;
		config.nb_egresses += pool ? PIN_REPLICAS : 1;
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
				egress += pin_memory_number(maker->pools[function->index]->memory, replica->name);
			fill_egress(maker, egress, to, source, worker);
			fill_hop(maker, egress, &wires[i]);
			fill_watch(maker, egress, to, source, &wires[i], false);
		}
	}
	config.egresses = egresses;
	config.steps = steps;
	config.nb_steps = nb_wires;
	return make_steering(maker, port, source, &config);
}

static bool make_bridged(struct maker *maker, struct switch_port *port, struct source *source, unsigned worker,
			 const struct port_model *model)
{
	const struct running_bridge *bridge = names_find(&maker->running->bridges, model->owner);
	const struct bridge_model *config = bridge->next_model;
	struct egress *egresses = arena_take(&maker->memory, config->nb_ports, sizeof(egresses[0]));
	unsigned number = 0;

	for (unsigned i = 0; i < config->nb_ports; i++) {
		if (config->ports[i].port == model) {
			number = i;
			continue;
		}
		fill_egress(maker, &egresses[i], config->ports[i].port, source, worker);
		fill_watch(maker, &egresses[i], config->ports[i].port, source, NULL, false);
	}
	return make_steering(maker, port, source,
			     &(struct steering_config){
				     .egresses = egresses,
				     .nb_egresses = config->nb_ports,
				     .otherwise = STEERING_DROP,
				     .bridge = bridge->next,
				     .bridge_port = number,
			     });
}

static bool make_source(struct maker *maker, struct switch_port *port, unsigned number, struct source *source)
{
	const struct port_model *model = &maker->model->ports[number];
	const struct wire *wires = &maker->wires.wires[maker->wires.first[number]];
	const unsigned nb_wires = maker->wires.first[number + 1] - maker->wires.first[number];
	const unsigned worker = port->placed[source->queue].next_worker;
	const struct port_model *end = NULL;
	const struct function_model *function;

	source->from = &port->port;
	if (model->role == ROLE_BRIDGED)
		return make_bridged(maker, port, source, worker, model);
	if (nb_wires == 0)
		return true;
	function = wire_function(wires, &end);
	if (nb_wires > 1 || wires->chain->nb_matches > 0 || (function != NULL && function->pinned))
		return make_steered(maker, port, source, worker, wires, nb_wires);
	if (function != NULL)
		end = wire_side(wires, &function->replicas[0]);
	fill_egress(maker, &source->egress, end, source, worker);
	fill_hop(maker, &source->egress, wires);
	fill_watch(maker, &source->egress, end, source, wires, true);
	return true;
}

static bool make_programs(struct maker *maker, struct wiring *wiring)
{
	const struct model *model = maker->model;
	unsigned counts[GRACE_WORKERS] = {0};

	for (unsigned i = 0; i < model->nb_ports; i++)
		for (unsigned queue = 0; maker->ports[i] != NULL && queue < model->ports[i].queues; queue++)
			counts[maker->ports[i]->placed[queue].next_worker]++;
	for (unsigned worker = 0; worker < maker->nb_workers; worker++) {
		struct program **program = &wiring->programs[worker];

		*program = calloc(1, sizeof(**program) + counts[worker] * sizeof((*program)->sources[0]));
		if (*program == NULL)
			return false;
	}
	for (unsigned i = 0; i < model->nb_ports; i++) {
		struct switch_port *port = maker->ports[i];

		if (port == NULL)
			continue;
		if (!maker_make_rules(maker, port, i))
			return false;
		for (unsigned queue = 0; queue < port->port.nb_queues; queue++) {
			struct program *program = wiring->programs[port->placed[queue].next_worker];
			struct source *source = &program->sources[program->nb_sources++];

			source->queue = queue;
			maker->egress_watched = maker->egress_expected = false;
			if (!make_source(maker, port, i, source))
				return false;
			/* Nobody polls it yet: its frames wait in their ring for the guest that is expected. */
			if (maker->egress_expected) {
				*source = (struct source){0};
				program->nb_sources--;
				continue;
			}
			source->watch = observation_source(maker->running->observation, port, queue,
							   maker->egress_watched);
			if (source->kind == SOURCE_DIRECT && observation_looks(source->watch, source->egress.watch))
				source->kind = SOURCE_WATCHED;
		}
	}
	return true;
}

static void find_orphans(struct maker *maker, struct wiring *wiring)
{
	for (unsigned i = 0; i < wiring->nb_programs; i++)
		for (unsigned j = 0; j < wiring->programs[i]->nb_sources; j++) {
			struct source *source = &wiring->programs[i]->sources[j];
			const struct port_model *model = names_find(&maker->model->ports_by_name, source->from->name);

			source->orphan = !(maker->given[model->index] >> source->queue & 1);
		}
}

int wiring_make(struct wiring *wiring, struct running *running, const struct model *model, unsigned nb_workers,
		struct control_error *error)
{
	struct maker maker = {.running = running, .model = model, .nb_workers = nb_workers, .error = error};
	bool made;

	*wiring = (struct wiring){.nb_programs = nb_workers};
	error->code = 0;
	arena_open(&maker.memory);
	maker.ports = arena_take(&maker.memory, model->nb_ports, sizeof(maker.ports[0]));
	for (unsigned i = 0; i < model->nb_ports; i++) {
		maker.ports[i] = names_find(&running->ports, model->ports[i].name);
		if (maker.ports[i] != NULL)
			maker.ports[i]->next_pairs = switch_port_pairs(maker.ports[i]);
	}
	maker.chains = arena_take(&maker.memory, model->nb_chains, sizeof(maker.chains[0]));
	for (unsigned i = 0; i < model->nb_chains; i++)
		maker.chains[i] = names_find(&running->chains, model->chains[i].name);
	wires_make(&maker.wires, model, &maker.memory);
	reach(&maker);
	made = observation_begin(running->observation, model, &running->ports, error) == 0 && maker_make_kept(&maker) &&
	       make_programs(&maker, wiring) && !observation_failed(running->observation);
	if (made)
		find_orphans(&maker, wiring);
	arena_close(&maker.memory);
	if (made)
		return 0;
	wiring_drop(wiring, running);
	if (error->code == 0)
		control_fail(error, CONTROL_FAILED, "out of memory");
	return -1;
}
