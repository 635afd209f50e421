/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "switch/model_read.h"

static bool read_trunk(struct reader *reader, const struct place *up, json_t *list, struct bridge_port_model *port)
{
	const struct place at = {.up = up, .key = "trunk"};
	json_t *entry;
	size_t i;

	if (json_array_size(list) == 0 || json_array_size(list) > MODEL_TRUNK)
		return wrong(&reader->fields, &at, "1 to %d VLANs are needed", MODEL_TRUNK);
	port->trunk = arena_take(&reader->model->memory, json_array_size(list), sizeof(port->trunk[0]));
	json_array_foreach (list, i, entry) {
		const json_int_t vlan = json_is_integer(entry) ? json_integer_value(entry) : 0;

		if (vlan < 1 || vlan > 4094)
			return wrong(&reader->fields, &(struct place){.up = &at, .index = i},
				     "expected a VLAN from 1 to 4094");
		port->trunk[port->nb_trunk++] = vlan;
	}
	return true;
}

static bool read_bridge_port(struct reader *reader, const struct place *at, json_t *object, const char *bridge,
			     struct bridge_port_model *port)
{
	static const char *const known[] = {"access", "trunk", "native", NULL};
	struct port_model *model = model_port_named(reader, at, at->key);
	json_int_t access = 0, native = 0;
	json_t *trunk;

	if (model == NULL || !model_employ(reader, at, model, ROLE_BRIDGED, bridge) ||
	    !field_keys(&reader->fields, at, object, known) ||
	    !field_number(&reader->fields, at, object, "access", 1, 4094, &access) ||
	    !field_number(&reader->fields, at, object, "native", 1, 4094, &native) ||
	    !field_list(&reader->fields, at, object, "trunk", &trunk))
		return false;
	if (access != 0 && (trunk != NULL || native != 0))
		return wrong(&reader->fields, at, "'access' stands alone; 'trunk' and 'native' are of a trunk");
	port->port = model;
	port->access = access;
	port->native = native;
	/* Neither: untagged frames and all tags belong together, as VLAN 1 does on a switch out of its box. */
	return trunk == NULL || read_trunk(reader, at, trunk, port);
}

static bool read_bridge(struct reader *reader, const struct place *at, json_t *object, struct bridge_model *bridge)
{
	static const char *const known[] = {"ports", "ageing", "macs", "flood", NULL};
	const struct place up = {.up = at, .key = "ports"};
	json_int_t ageing = 300, macs = 4096, flood = 10000;
	json_t *ports, *port;
	const char *name;

	if (!model_good_name(reader, at, bridge->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_number(&reader->fields, at, object, "ageing", 1, 1000000, &ageing) ||
	    !field_number(&reader->fields, at, object, "macs", 1, 1 << 20, &macs) ||
	    !field_number(&reader->fields, at, object, "flood", 0, 1000000000, &flood) ||
	    !field_object(&reader->fields, at, object, "ports", &ports))
		return false;
	if (ports == NULL)
		return wrong(&reader->fields, &up, "is missing");
	bridge->ageing = ageing;
	bridge->macs = macs;
	bridge->flood = flood;
	bridge->ports = arena_take(&reader->model->memory, json_object_size(ports), sizeof(bridge->ports[0]));
	json_object_foreach (ports, name, port)
		if (!read_bridge_port(reader, &(struct place){.up = &up, .key = name}, port, bridge->name,
				      &bridge->ports[bridge->nb_ports++]))
			return false;
	return true;
}

bool model_read_bridges(struct reader *reader)
{
	const struct place at = {.key = "bridges"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!model_section(reader, "bridges", MODEL_BRIDGES, &section, &model->nb_bridges))
		return false;
	model->bridges = arena_take(&model->memory, model->nb_bridges, sizeof(model->bridges[0]));
	model->nb_bridges = 0;
	json_object_foreach (section, name, object) {
		struct bridge_model *bridge = &model->bridges[model->nb_bridges];

		bridge->name = name;
		bridge->index = model->nb_bridges++;
		if (!read_bridge(reader, &(struct place){.up = &at, .key = name}, object, bridge))
			return false;
	}
	return true;
}

static bool read_mirror(struct reader *reader, const struct place *at, json_t *object, struct mirror_model *mirror)
{
	static const char *const known[] = {"port", "chain", "direction", "to", NULL};
	static const char *const directions[] = {"in", "out", "both", NULL};
	const char *port = NULL, *chain = NULL;
	struct port_model *to;
	unsigned direction = 2;

	if (!model_good_name(reader, at, mirror->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_text(&reader->fields, at, object, "port", false, &port) ||
	    !field_text(&reader->fields, at, object, "chain", false, &chain) ||
	    !field_word(&reader->fields, at, object, "direction", false, directions, &direction))
		return false;
	if ((port == NULL) == (chain == NULL))
		return wrong(&reader->fields, at, "expected a 'port' or a 'chain' to mirror");
	if (port != NULL) {
		mirror->port = model_port_named(reader, &(struct place){.up = at, .key = "port"}, port);
		if (mirror->port == NULL)
			return false;
	} else {
		mirror->chain = names_find(&reader->model->chains_by_name, chain);
		if (mirror->chain == NULL)
			return wrong(&reader->fields, &(struct place){.up = at, .key = "chain"}, "no chain '%s'",
				     chain);
	}
	mirror->in = direction != 1;
	mirror->out = direction != 0;
	to = model_port_field(reader, at, object, "to");
	if (to == NULL)
		return false;
	mirror->to = to;
	return model_employ(reader, &(struct place){.up = at, .key = "to"}, to, ROLE_PROBE, mirror->name);
}

bool model_read_mirrors(struct reader *reader)
{
	const struct place at = {.key = "mirrors"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!model_section(reader, "mirrors", MODEL_MIRRORS, &section, &model->nb_mirrors))
		return false;
	model->mirrors = arena_take(&model->memory, model->nb_mirrors, sizeof(model->mirrors[0]));
	model->nb_mirrors = 0;
	json_object_foreach (section, name, object) {
		struct mirror_model *mirror = &model->mirrors[model->nb_mirrors++];

		mirror->name = name;
		if (!read_mirror(reader, &(struct place){.up = &at, .key = name}, object, mirror))
			return false;
	}
	return true;
}
