/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "switch/wiring_maker.h"

static bool same_group(const struct function_model *a, const struct function_model *b)
{
	if (a == NULL || a->nb_replicas != b->nb_replicas || a->by_addresses != b->by_addresses)
		return false;
	for (unsigned i = 0; i < a->nb_replicas; i++)
		if (strcmp(a->replicas[i].name, b->replicas[i].name) != 0 ||
		    a->replicas[i].draining != b->replicas[i].draining)
			return false;
	return true;
}

/* The running thing of this name, made if there is none: all have their name first. */
static void *named(struct names *names, const char *name, size_t size)
{
	char *thing = names_find(names, name);

	if (thing != NULL)
		return thing;
	thing = calloc(1, size);
	if (thing == NULL)
		return NULL;
	strcpy(thing, name);
	if (names_add(names, thing, thing) == 0)
		return thing;
	free(thing);
	return NULL;
}

static bool make_group(struct maker *maker, const struct function_model *model)
{
	struct pin_replica replicas[MODEL_REPLICAS];
	struct running_function *function = named(&maker->running->functions, model->name,
						  sizeof(struct running_function));

	if (function == NULL)
		return false;
	maker->pools[model->index] = function;
	function->next_model = model;
	if (same_group(function->model, model)) {
		function->next = function->group;
		return true;
	}
	if (function->memory == NULL)
		function->memory = pin_memory_new(model->ageing);
	if (function->memory == NULL)
		return false;
	for (unsigned i = 0; i < model->nb_replicas; i++)
		replicas[i] = (struct pin_replica){model->replicas[i].name, model->replicas[i].draining};
	function->next = pin_group_new(function->memory, model->by_addresses, replicas, model->nb_replicas);
	if (function->next == NULL && errno == ENOSPC) {
		control_fail(maker->error, CONTROL_FAILED,
			     "functions.%s.replicas: more than %d before and after this change together", model->name,
			     PIN_REPLICAS);
		return false;
	}
	return function->next != NULL;
}

/* In the same order too: a bridge knows its ports by their place. */
static bool same_bridge(const struct bridge_model *a, const struct bridge_model *b)
{
	if (a == NULL || !json_equal(a->json, b->json))
		return false;
	for (unsigned i = 0; i < a->nb_ports; i++)
		if (strcmp(a->ports[i].port->name, b->ports[i].port->name) != 0)
			return false;
	return true;
}

static bool make_bridge(struct maker *maker, const struct bridge_model *model)
{
	struct running_bridge *bridge = named(&maker->running->bridges, model->name, sizeof(struct running_bridge));
	struct bridge_port_config *ports = arena_take(&maker->memory, model->nb_ports, sizeof(ports[0]));

	if (bridge == NULL)
		return false;
	bridge->next_model = model;
	if (same_bridge(bridge->model, model)) {
		bridge->next = bridge->bridge;
		bridge->next_memory = bridge->memory;
		return true;
	}
	/* What was learned stays as long as the room for it does. */
	if (bridge->model != NULL && bridge->model->macs == model->macs)
		bridge->next_memory = bridge->memory;
	else
		bridge->next_memory = bridge_memory_new(model->macs);
	if (bridge->next_memory == NULL)
		return false;
	for (unsigned i = 0; i < model->nb_ports; i++)
		ports[i] = (struct bridge_port_config){
			.name = model->ports[i].port->name,
			.access = model->ports[i].access,
			.native = model->ports[i].native,
			.nb_trunk = model->ports[i].nb_trunk,
			.trunk = model->ports[i].trunk,
		};
	bridge->next = bridge_new(bridge->next_memory, &(struct bridge_config){
							       .nb_ports = model->nb_ports,
							       .ports = ports,
							       .ageing = model->ageing,
							       .flood = model->flood,
						       });
	if (bridge->next == NULL && errno == ENOSPC)
		control_fail(maker->error, CONTROL_FAILED,
			     "bridges.%s.ports: more than %d before and after this change together", model->name,
			     BRIDGE_PORTS);
	return bridge->next != NULL;
}

bool maker_make_kept(struct maker *maker)
{
	const struct model *model = maker->model;

	maker->pools = arena_take(&maker->memory, model->nb_functions, sizeof(maker->pools[0]));
	for (unsigned i = 0; i < model->nb_functions; i++)
		if (model->functions[i].pinned && !make_group(maker, &model->functions[i]))
			return false;
	for (unsigned i = 0; i < model->nb_bridges; i++)
		if (!make_bridge(maker, &model->bridges[i]))
			return false;
	return true;
}

/* ------- rules ------- */

/* The rules of a port; the action is the number of the wire among the port's. */
static struct rule *list_rules(struct maker *maker, unsigned port, unsigned *count)
{
	const unsigned first = maker->wires.first[port], end = maker->wires.first[port + 1];
	struct rule *rules, *rule;

	*count = 0;
	for (unsigned i = first; i < end; i++)
		*count += maker->wires.wires[i].chain->nb_matches;
	rules = rule = arena_take(&maker->memory, *count, sizeof(rules[0]));
	for (unsigned i = first; i < end; i++) {
		const struct wire *wire = &maker->wires.wires[i];

		for (unsigned j = 0; j < wire->chain->nb_matches; j++, rule++) {
			rule->match = wire->chain->matches[j];
			rule->action = i - first;
			if (wire->back)
				match_mirror(&rule->match);
		}
	}
	return rules;
}

static bool classify_failed(struct maker *maker, unsigned port, int rc, unsigned culprit)
{
	const struct wire *wires = &maker->wires.wires[maker->wires.first[port]];

	if (rc == -ENOMEM)
		return false;
	for (; culprit >= wires->chain->nb_matches; wires++)
		culprit -= wires->chain->nb_matches;
	control_fail(maker->error, CONTROL_INVALID_PARAMS, "chains.%s.match[%u]: %s", wires->chain->name, culprit,
		     rc == -E2BIG ? "the ranges of this port's rules are too many to be looked up quickly"
				  : "nothing can match this");
	return false;
}

/* What the port remembers of fragments, by the numbers of rules and wires that are the same as before, or anew. */
static bool make_fragments(struct switch_port *port, unsigned nb_wires)
{
	struct port_rules *rules = &port->next_rules;

	rules->nb_wires = nb_wires;
	if (!classifier_reads_transport(rules->classifier))
		return true;
	if (rules->classifier == port->rules.classifier && nb_wires == port->rules.nb_wires)
		rules->fragments = port->rules.fragments;
	else
		rules->fragments = steering_fragments_new(port->port.nb_queues);
	return rules->fragments != NULL;
}

bool maker_make_rules(struct maker *maker, struct switch_port *port, unsigned number)
{
	struct port_rules *rules = &port->next_rules;
	unsigned count, culprit = 0;
	struct rule *list = list_rules(maker, number, &count);
	const unsigned nb_wires = maker->wires.first[number + 1] - maker->wires.first[number];
	int rc;

	if (count == 0)
		return true;
	rules->nb_rules = count;
	if (port->rules.nb_rules == count && memcmp(port->rules.rules, list, count * sizeof(list[0])) == 0) {
		rules->rules = port->rules.rules;
		rules->classifier = port->rules.classifier;
		return make_fragments(port, nb_wires);
	}
	rules->rules = malloc(count * sizeof(list[0]));
	if (rules->rules == NULL)
		return false;
	memcpy(rules->rules, list, count * sizeof(list[0]));
	rc = classifier_build(&rules->classifier, list, count, STEERING_DROP, &culprit);
	return rc == 0 ? make_fragments(port, nb_wires) : classify_failed(maker, number, rc, culprit);
}

/* ------- keeping one, ending the other ------- */

/* End what `rules` has and `other` has not taken over. */
static void end_rules(struct port_rules *rules, const struct port_rules *other)
{
	for (unsigned queue = 0; queue < PORT_QUEUES; queue++) {
		if (rules->queues[queue].key == other->queues[queue].key)
			continue;
		if (rules->queues[queue].steering != NULL)
			steering_free(rules->queues[queue].steering);
		free(rules->queues[queue].key);
	}
	if (rules->fragments != other->fragments)
		flows_free(rules->fragments);
	if (rules->rules != other->rules) {
		free(rules->classifier);
		free(rules->rules);
	}
	*rules = (struct port_rules){0};
}

void port_rules_free(struct port_rules *rules)
{
	end_rules(rules, &(struct port_rules){0});
}

#define EACH_NAMED(names, type, thing)                           \
	for (unsigned slot_ = 0; slot_ < (names)->size; slot_++) \
		for (type *thing = (names)->entries[slot_].value; thing != NULL; thing = NULL)

static void keep_placing(struct switch_port *port)
{
	port->pairs = port->next_pairs;
	for (unsigned queue = 0; queue < port->port.nb_queues; queue++) {
		port->placed[queue].worker = port->placed[queue].next_worker;
		port->placed[queue].is_placed = true;
	}
}

void wiring_keep(struct running *running, const struct model *model)
{
	observation_keep(running->observation, model);
	EACH_NAMED(&running->ports, struct switch_port, port)
	{
		struct port_rules next = port->next_rules;

		end_rules(&port->rules, &next);
		port->rules = next;
		port->next_rules = (struct port_rules){0};
		if (names_find(&model->ports_by_name, port->port.name) != NULL)
			keep_placing(port);
	}
	EACH_NAMED(&running->functions, struct running_function, function)
	{
		if (function->group != function->next)
			free(function->group);
		function->group = function->next;
		function->model = function->next_model;
		function->next = NULL;
		function->next_model = NULL;
		if (function->group != NULL) {
			pin_memory_set_ageing(function->memory, function->model->ageing);
			pin_memory_forget_others(function->memory, function->group);
		}
	}
	EACH_NAMED(&running->bridges, struct running_bridge, bridge)
	{
		if (bridge->bridge != bridge->next)
			free(bridge->bridge);
		if (bridge->memory != bridge->next_memory) {
			bridge_memory_free(bridge->memory);
			bridge->flapped = 0;
		}
		bridge->bridge = bridge->next;
		bridge->memory = bridge->next_memory;
		bridge->model = bridge->next_model;
		bridge->next = NULL;
		bridge->next_memory = NULL;
		bridge->next_model = NULL;
		if (bridge->bridge != NULL)
			bridge_memory_keep(bridge->memory, bridge->bridge);
	}
}

void wiring_drop(struct wiring *wiring, struct running *running)
{
	for (unsigned worker = 0; worker < wiring->nb_programs; worker++)
		free(wiring->programs[worker]);
	observation_drop(running->observation);
	EACH_NAMED(&running->ports, struct switch_port, port)
	end_rules(&port->next_rules, &port->rules);
	EACH_NAMED(&running->functions, struct running_function, function)
	{
		if (function->group != function->next)
			free(function->next);
		if (function->group != NULL)
			pin_memory_take_back(function->memory, function->group);
		function->next = NULL;
		function->next_model = NULL;
	}
	EACH_NAMED(&running->bridges, struct running_bridge, bridge)
	{
		if (bridge->bridge != bridge->next)
			free(bridge->next);
		if (bridge->memory != bridge->next_memory)
			bridge_memory_free(bridge->next_memory);
		else if (bridge->bridge != NULL)
			bridge_memory_keep(bridge->memory, bridge->bridge);
		bridge->next = NULL;
		bridge->next_memory = NULL;
		bridge->next_model = NULL;
	}
}

void running_function_free(struct running_function *function)
{
	free(function->group);
	pin_memory_free(function->memory);
	free(function);
}

void running_bridge_free(struct running_bridge *bridge)
{
	free(bridge->bridge);
	bridge_memory_free(bridge->memory);
	free(bridge);
}
