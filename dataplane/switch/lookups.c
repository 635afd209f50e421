/* SPDX-License-Identifier: Apache-2.0
 *
 * What frames are looked up in: rules, fragments, groups of replicas, bridges.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "switch/maker.h"

/* ------- groups of replicas ------- */

struct group_key {
	const struct pin_memory *memory;
	uint64_t by_addresses;
	struct replica_key {
		char name[PORT_NAME];
		uint64_t draining;
	} replicas[MODEL_REPLICAS];
};

static bool make_group(struct generation *generation, const struct function_model *model, struct control_error *error)
{
	struct part *memory = holding_take_text(&generation->parts, PART_PIN_MEMORY, "%s", model->name), *group;
	struct pin_replica replicas[MODEL_REPLICAS];
	struct group_key key;

	if (memory != NULL && memory->content == NULL)
		memory->content = pin_memory_new(model->ageing);
	if (memory == NULL || memory->content == NULL)
		return false;
	memset(&key, 0, sizeof(key));
	key.memory = memory->content;
	key.by_addresses = model->by_addresses;
	for (unsigned i = 0; i < model->nb_replicas; i++) {
		replicas[i] = (struct pin_replica){model->replicas[i].name, model->replicas[i].draining};
		strcpy(key.replicas[i].name, replicas[i].name);
		key.replicas[i].draining = replicas[i].draining;
	}
	group = holding_take(&generation->parts, PART_GROUP, &key,
			     offsetof(struct group_key, replicas) + model->nb_replicas * sizeof(key.replicas[0]));
	if (group == NULL)
		return false;
	if (group->content == NULL)
		group->content = pin_group_new(memory->content, model->by_addresses, replicas, model->nb_replicas);
	if (group->content == NULL && errno == ENOSPC)
		control_fail(error, CONTROL_FAILED,
			     "functions.%s.replicas: more than %d before and after this change together", model->name,
			     PIN_REPLICAS);
	generation->groups[model->index] = group->content;
	return group->content != NULL;
}

/* ------- bridges ------- */

/* What was learned stays as long as the room for it does. */
static struct bridge_past *take_past(struct generation *generation, const struct bridge_model *model)
{
	struct part *part = holding_take_text(&generation->parts, PART_PAST, "%s/%u", model->name, model->macs);
	struct bridge_past *past;

	if (part == NULL || part->content != NULL)
		return part != NULL ? part->content : NULL;
	past = calloc(1, sizeof(*past));
	if (past == NULL)
		return NULL;
	past->memory = bridge_memory_new(model->macs);
	if (past->memory == NULL) {
		free(past);
		return NULL;
	}
	part->content = past;
	return past;
}

/* The ports stand in it in their order, by which a bridge knows them. */
struct bridge_key {
	const struct bridge_past *past;
	uint64_t ageing, flood;
	struct bridge_port_key {
		char name[PORT_NAME];
		uint32_t nb_trunk; /* VLANs, which stand in this order behind all ports */
		uint16_t access, native;
	} ports[];
};

static struct part *take_bridge(struct generation *generation, const struct bridge_model *model,
				const struct bridge_past *past, struct arena *memory)
{
	size_t size = offsetof(struct bridge_key, ports) + model->nb_ports * sizeof(struct bridge_port_key);
	struct bridge_key *key;
	uint16_t *trunk;

	for (unsigned i = 0; i < model->nb_ports; i++)
		size += model->ports[i].nb_trunk * sizeof(*trunk);
	key = arena_take(memory, 1, size);
	key->past = past;
	key->ageing = model->ageing;
	key->flood = model->flood;
	trunk = (uint16_t *)&key->ports[model->nb_ports];
	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct bridge_port_model *port = &model->ports[i];

		strcpy(key->ports[i].name, port->port->name);
		key->ports[i].access = port->access;
		key->ports[i].native = port->native;
		key->ports[i].nb_trunk = port->nb_trunk;
		for (unsigned j = 0; j < port->nb_trunk; j++)
			*trunk++ = port->trunk[j];
	}
	return holding_take(&generation->parts, PART_BRIDGE, key, size);
}

static struct bridge *new_bridge(const struct bridge_model *model, struct bridge_memory *room, struct arena *memory)
{
	struct bridge_port_config *ports = arena_take(memory, model->nb_ports, sizeof(ports[0]));

	for (unsigned i = 0; i < model->nb_ports; i++)
		ports[i] = (struct bridge_port_config){
			.name = model->ports[i].port->name,
			.access = model->ports[i].access,
			.native = model->ports[i].native,
			.nb_trunk = model->ports[i].nb_trunk,
			.trunk = model->ports[i].trunk,
		};
	return bridge_new(room, &(struct bridge_config){
					.nb_ports = model->nb_ports,
					.ports = ports,
					.ageing = model->ageing,
					.flood = model->flood,
				});
}

static bool make_bridge(struct generation *generation, const struct bridge_model *model, struct arena *memory,
			struct control_error *error)
{
	struct bridge_past *past = take_past(generation, model);
	struct part *bridge = past != NULL ? take_bridge(generation, model, past, memory) : NULL;

	if (bridge == NULL)
		return false;
	if (bridge->content == NULL)
		bridge->content = new_bridge(model, past->memory, memory);
	if (bridge->content == NULL && errno == ENOSPC)
		control_fail(error, CONTROL_FAILED,
			     "bridges.%s.ports: more than %d before and after this change together", model->name,
			     BRIDGE_PORTS);
	generation->bridges[model->index] = (struct generation_bridge){bridge->content, past};
	return bridge->content != NULL;
}

/* ------- rules ------- */

/* The rules of a port; the action is the number of the wire among the port's. */
static struct rule *list_rules(const struct wires *wires, unsigned port, unsigned *count, struct arena *memory)
{
	const unsigned first = wires->first[port], end = wires->first[port + 1];
	struct rule *rules, *rule;

	*count = 0;
	for (unsigned i = first; i < end; i++)
		*count += wires->wires[i].chain->nb_matches;
	rules = rule = arena_take(memory, *count, sizeof(rules[0]));
	for (unsigned i = first; i < end; i++) {
		const struct wire *wire = &wires->wires[i];

		for (unsigned j = 0; j < wire->chain->nb_matches; j++, rule++) {
			rule->match = wire->chain->matches[j];
			rule->action = i - first;
			if (wire->back)
				match_mirror(&rule->match);
		}
	}
	return rules;
}

static void classify_failed(const struct wire *wires, int rc, unsigned culprit, struct control_error *error)
{
	if (rc == -ENOMEM)
		return;
	for (; culprit >= wires->chain->nb_matches; wires++)
		culprit -= wires->chain->nb_matches;
	control_fail(error, CONTROL_INVALID_PARAMS, "chains.%s.match[%u]: %s", wires->chain->name, culprit,
		     rc == -E2BIG ? "the ranges of this port's rules are too many to be looked up quickly"
				  : "nothing can match this");
}

static bool make_rules(struct generation *generation, unsigned port, struct arena *memory, struct control_error *error)
{
	const struct wires *wires = &generation->wires;
	struct classifier *classifier;
	unsigned count, culprit = 0;
	struct rule *rules = list_rules(wires, port, &count, memory);
	struct part *part;
	int rc;

	if (count == 0)
		return true;
	part = holding_take(&generation->parts, PART_RULES, rules, count * sizeof(rules[0]));
	if (part == NULL)
		return false;
	if (part->content == NULL) {
		rc = classifier_build(&classifier, rules, count, STEERING_DROP, &culprit);
		if (rc != 0) {
			classify_failed(&wires->wires[wires->first[port]], rc, culprit, error);
			return false;
		}
		part->content = classifier;
	}
	generation->ports[port].rules = part->content;
	return true;
}

struct flows *make_fragments(struct maker *maker, unsigned number)
{
	const struct wires *wires = &maker->generation->wires;
	const struct generation_port *port = &maker->generation->ports[number];
	/* They are remembered by the numbers of rules and wires. */
	const uint64_t key[] = {(uintptr_t)port->port, (uintptr_t)port->rules,
				wires->first[number + 1] - wires->first[number]};
	struct part *part;

	if (port->rules == NULL || !classifier_reads_transport(port->rules))
		return NULL;
	part = holding_take(&maker->generation->parts, PART_FRAGMENTS, key, sizeof(key));
	if (part != NULL && part->content == NULL)
		part->content = steering_fragments_new(port->port->port.nb_queues);
	return part != NULL && part->content != NULL ? part->content : maker_fail(maker);
}

/* ------- all ------- */

static bool make_all(struct generation *generation, struct arena *memory, struct control_error *error)
{
	const struct model *model = generation->model;

	for (unsigned i = 0; i < model->nb_functions; i++)
		if (model->functions[i].pinned && !make_group(generation, &model->functions[i], error))
			return false;
	for (unsigned i = 0; i < model->nb_bridges; i++)
		if (!make_bridge(generation, &model->bridges[i], memory, error))
			return false;
	for (unsigned i = 0; i < model->nb_ports; i++)
		if (!make_rules(generation, i, memory, error))
			return false;
	return true;
}

bool make_lookups(struct generation *generation, struct control_error *error)
{
	struct arena memory;
	bool made;

	arena_open(&memory);
	made = make_all(generation, &memory, error);
	arena_close(&memory);
	return made;
}
