/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "steer/pin.h"
#include "steer/rate.h"
#include "switch/fields.h"
#include "switch/model.h"
#include "switch/trace.h"

#include "switch/matches.h"

#define obstack_chunk_alloc malloc
#define obstack_chunk_free  free

struct reader {
	struct fields fields;
	struct model *model;
	unsigned nb_workers;
};

/* Zeroed memory that lives as long as the model; obstack ends the program when there is none. */
static void *take(struct model *model, size_t count, size_t size)
{
	void *memory = obstack_alloc(&model->memory, count * size);

	memset(memory, 0, count * size);
	return memory;
}

static bool good_name(struct reader *reader, const struct place *at, const char *name)
{
	const size_t length = strlen(name);

	for (const char *letter = name; *letter != '\0'; letter++)
		if ((unsigned char)*letter < ' ' || *letter == '/' || *letter == 0x7f)
			return wrong(&reader->fields, at, "a name has no '/' and no control characters");
	if (length == 0 || length >= PORT_NAME)
		return wrong(&reader->fields, at, "a name has 1 to %d characters", PORT_NAME - 1);
	return true;
}

/* How many entries a section has; sets `*section` to it or NULL. */
static bool section_of(struct reader *reader, const char *key, unsigned most, json_t **section, unsigned *count)
{
	if (!field_object(&reader->fields, NULL, reader->model->document, key, section))
		return false;
	*count = json_object_size(*section);
	if (*count > most)
		return wrong(&reader->fields, &(struct place){.key = key}, "%u of them; the most is %u", *count, most);
	return true;
}

/* The port that a text names; NULL after saying what is wrong. */
static struct port_model *port_named(struct reader *reader, const struct place *at, const char *name)
{
	struct port_model *port = name ? names_find(&reader->model->ports_by_name, name) : NULL;

	if (name == NULL)
		wrong(&reader->fields, at, "expected the name of a port");
	else if (port == NULL)
		wrong(&reader->fields, at, "no port '%s'", name);
	return port;
}

/* Like port_named(), by the field of an object. */
static struct port_model *port_field(struct reader *reader, const struct place *up, json_t *object, const char *key)
{
	const struct place at = {.up = up, .key = key};
	json_t *field = json_object_get(object, key);

	if (field == NULL) {
		wrong(&reader->fields, &at, "is missing");
		return NULL;
	}
	return port_named(reader, &at, json_string_value(field));
}

/* Give the port its role, if it has no other. */
static bool employ(struct reader *reader, const struct place *at, struct port_model *port, enum port_role role,
		   const char *owner)
{
	static const char *const words[] = {
		[ROLE_END] = "an end of chain",
		[ROLE_SIDE] = "a side of function",
		[ROLE_BRIDGED] = "in bridge",
		[ROLE_PROBE] = "the probe of mirror",
	};

	if (port->role != ROLE_NONE && (port->role != role || role != ROLE_END))
		return wrong(&reader->fields, at, "port '%s' is %s '%s' already", port->name, words[port->role],
			     port->owner);
	if (port->role == ROLE_NONE)
		port->owner = owner;
	port->role = role;
	return true;
}

/* ------- ports ------- */

static bool read_socket(struct reader *reader, const struct place *up, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"mode", "group", NULL};
	const struct place at = {.up = up, .key = "socket"};
	json_t *socket;
	const char *mode = NULL;
	char *end;

	port->socket_mode = -1;
	if (!field_object(&reader->fields, up, object, "socket", &socket))
		return false;
	if (socket == NULL)
		return true;
	if (!field_keys(&reader->fields, &at, socket, known) ||
	    !field_text(&reader->fields, &at, socket, "mode", false, &mode) ||
	    !field_text(&reader->fields, &at, socket, "group", false, &port->group))
		return false;
	if (mode != NULL) {
		port->socket_mode = strtol(mode, &end, 8);
		if (*mode < '0' || *mode > '7' || *end != '\0' || port->socket_mode > 0777)
			return wrong(&reader->fields, &(struct place){.up = &at, .key = "mode"},
				     "'%s': expected file permissions in octal, such as \"0660\"", mode);
	}
	return true;
}

/* What may pass in a second; a missing one leaves the numbers alone. */
static bool read_most(struct reader *reader, const struct place *at, json_t *rate, uint64_t *bits, uint64_t *packets)
{
	json_int_t max = 0, most = 0;

	if (!field_number(&reader->fields, at, rate, "max", 1000, 1000000000000000, &max) ||
	    !field_number(&reader->fields, at, rate, "packets", 1, 1000000000000, &most))
		return false;
	*bits = max;
	*packets = most;
	return true;
}

static bool read_rate(struct reader *reader, const struct place *up, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"max", "packets", "share", "to", NULL}, *const known_to[] = {
											    "max", "packets", NULL};
	const struct place at = {.up = up, .key = "rate"}, at_to = {.up = &at, .key = "to"};
	json_int_t share = 1;
	json_t *rate, *to = NULL;

	port->share = 1;
	if (!field_object(&reader->fields, up, object, "rate", &rate))
		return false;
	if (rate == NULL)
		return true;
	if (!field_keys(&reader->fields, &at, rate, known) ||
	    !read_most(reader, &at, rate, &port->most_bits, &port->most_packets) ||
	    !field_number(&reader->fields, &at, rate, "share", 1, SHARE_WEIGHT_MOST, &share) ||
	    !field_object(&reader->fields, &at, rate, "to", &to))
		return false;
	port->share = share;
	return to == NULL || (field_keys(&reader->fields, &at_to, to, known_to) &&
			      read_most(reader, &at_to, to, &port->to_bits, &port->to_packets));
}

static bool read_guest(struct reader *reader, const struct place *at, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"kind", "path", "mode", "queues", "socket", "offloads", "rate", NULL};
	static const char *const modes[] = {"server", "client", NULL};
	const size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	unsigned mode = 0;

	port->offloads = true;
	if (!field_keys(&reader->fields, at, object, known) ||
	    !field_text(&reader->fields, at, object, "path", true, &port->path) ||
	    !field_word(&reader->fields, at, object, "mode", false, modes, &mode) ||
	    !field_boolean(&reader->fields, at, object, "offloads", &port->offloads) ||
	    !read_socket(reader, at, object, port))
		return false;
	port->client = mode == 1;
	if (port->path[0] == '\0')
		return wrong(&reader->fields, &(struct place){.up = at, .key = "path"}, "the path is empty");
	if (strlen(port->path) > longest)
		return wrong(&reader->fields, &(struct place){.up = at, .key = "path"},
			     "the path is longer than %zu bytes", longest);
	return true;
}

static bool read_device(struct reader *reader, const struct place *at, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"kind", "device", "queues", "rate", NULL};

	port->socket_mode = -1;
	return field_keys(&reader->fields, at, object, known) &&
	       field_text(&reader->fields, at, object, "device", true, &port->device);
}

static bool read_port(struct reader *reader, const struct place *at, json_t *object, struct port_model *port)
{
	static const char *const kinds[] = {[PORT_GUEST] = "guest", [PORT_DEVICE] = "device", NULL};
	unsigned kind = 0;
	json_int_t queues = 1;

	if (!json_is_object(object))
		return wrong(&reader->fields, at, "expected an object");
	if (!good_name(reader, at, port->name) ||
	    !field_word(&reader->fields, at, object, "kind", true, kinds, &kind) ||
	    !field_number(&reader->fields, at, object, "queues", 1, PORT_QUEUES, &queues))
		return false;
	port->kind = kind;
	port->queues = queues;
	return (kind == PORT_GUEST ? read_guest(reader, at, object, port) : read_device(reader, at, object, port)) &&
	       read_rate(reader, at, object, port);
}

static bool read_ports(struct reader *reader)
{
	const struct place at = {.key = "ports"};
	struct model *model = reader->model;
	struct names taken = {0};
	json_t *section, *object;
	const char *name;
	bool good = true;

	if (!section_of(reader, "ports", MODEL_PORTS, &section, &model->nb_ports))
		return false;
	model->ports = take(model, model->nb_ports, sizeof(model->ports[0]));
	model->nb_ports = 0;
	json_object_foreach (section, name, object) {
		struct port_model *port = &model->ports[model->nb_ports];
		const struct place here = {.up = &at, .key = name};
		const struct port_model *other;
		const char *thing;

		port->name = name;
		port->index = model->nb_ports++;
		good = read_port(reader, &here, object, port);
		if (!good)
			break;
		thing = port->kind == PORT_GUEST ? port->path : port->device;
		other = names_find(&taken, thing);
		if (other != NULL) {
			good = wrong(&reader->fields, &here, "%s belongs to port '%s'", thing, other->name);
			break;
		}
		names_add(&taken, thing, port);
		names_add(&model->ports_by_name, name, port);
	}
	names_clear(&taken);
	return good;
}

/* ------- functions and chains ------- */

static bool read_replica(struct reader *reader, const struct place *at, json_t *object, const char *function,
			 struct replica_model *replica)
{
	static const char *const known[] = {"left", "right", "state", NULL};
	static const char *const states[] = {"active", "draining", NULL};
	struct port_model *left, *right;
	unsigned state = 0;

	if (!good_name(reader, at, replica->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_word(&reader->fields, at, object, "state", false, states, &state))
		return false;
	left = port_field(reader, at, object, "left");
	right = left ? port_field(reader, at, object, "right") : NULL;
	if (right == NULL || !employ(reader, &(struct place){.up = at, .key = "left"}, left, ROLE_SIDE, function) ||
	    !employ(reader, &(struct place){.up = at, .key = "right"}, right, ROLE_SIDE, function))
		return false;
	replica->left = left;
	replica->right = right;
	replica->draining = state == 1;
	return true;
}

static bool read_function(struct reader *reader, const struct place *at, json_t *object,
			  struct function_model *function)
{
	static const char *const known[] = {"pin", "replicas", "ageing", NULL};
	static const char *const pins[] = {"flow", "addresses", NULL};
	const struct place up = {.up = at, .key = "replicas"};
	json_int_t ageing = PIN_FLOW_SECONDS;
	json_t *replicas, *replica;
	unsigned pin = 0, active = 0;
	const char *name;

	if (!good_name(reader, at, function->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_word(&reader->fields, at, object, "pin", false, pins, &pin) ||
	    !field_number(&reader->fields, at, object, "ageing", 1, PIN_FLOW_SECONDS_MOST, &ageing) ||
	    !field_object(&reader->fields, at, object, "replicas", &replicas))
		return false;
	if (json_object_size(replicas) == 0 || json_object_size(replicas) > MODEL_REPLICAS)
		return wrong(&reader->fields, &up, "1 to %d replicas are needed", MODEL_REPLICAS);
	function->by_addresses = pin == 1;
	function->ageing = ageing;
	function->replicas = take(reader->model, json_object_size(replicas), sizeof(function->replicas[0]));
	json_object_foreach (replicas, name, replica) {
		struct replica_model *model = &function->replicas[function->nb_replicas++];

		model->name = name;
		if (!read_replica(reader, &(struct place){.up = &up, .key = name}, replica, function->name, model))
			return false;
		active += !model->draining;
	}
	return active > 0 || wrong(&reader->fields, &up, "all are draining; one at least must be active");
}

static bool read_functions(struct reader *reader)
{
	const struct place at = {.key = "functions"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!section_of(reader, "functions", MODEL_FUNCTIONS, &section, &model->nb_functions))
		return false;
	model->functions = take(model, model->nb_functions, sizeof(model->functions[0]));
	model->nb_functions = 0;
	json_object_foreach (section, name, object) {
		struct function_model *function = &model->functions[model->nb_functions];

		function->name = name;
		function->index = model->nb_functions++;
		if (!read_function(reader, &(struct place){.up = &at, .key = name}, object, function))
			return false;
		names_add(&model->functions_by_name, name, function);
	}
	return true;
}

/* Where several chains meet, it is their matches that part them. */
static bool parted(struct reader *reader, const struct place *at, const struct chain_model *chain, const char *what,
		   const char *name, const char *other_name)
{
	const struct chain_model *other = names_find(&reader->model->chains_by_name, other_name);

	if (other == NULL || other == chain || (chain->nb_matches > 0 && other->nb_matches > 0))
		return true;
	return wrong(&reader->fields, at, "%s '%s' is in chain '%s' too, so both chains need a match", what, name,
		     other_name);
}

static bool read_end(struct reader *reader, const struct place *up, json_t *object, const char *key,
		     struct chain_model *chain, struct port_model **port)
{
	const struct place at = {.up = up, .key = key};

	*port = port_field(reader, up, object, key);
	if (*port == NULL || !employ(reader, &at, *port, ROLE_END, chain->name))
		return false;
	return parted(reader, &at, chain, "port", (*port)->name, (*port)->owner);
}

static bool read_through(struct reader *reader, const struct place *up, json_t *object, struct chain_model *chain)
{
	const struct place list_at = {.up = up, .key = "through"};
	json_t *list, *entry;
	size_t i;

	if (!field_list(&reader->fields, up, object, "through", &list))
		return false;
	if (json_array_size(list) > MODEL_THROUGH)
		return wrong(&reader->fields, &list_at, "more than %d functions", MODEL_THROUGH);
	chain->through = take(reader->model, json_array_size(list), sizeof(chain->through[0]));
	json_array_foreach (list, i, entry) {
		const struct place at = {.up = &list_at, .index = i};
		const char *name = json_string_value(entry);
		struct function_model *function = name ? names_find(&reader->model->functions_by_name, name) : NULL;

		if (function == NULL)
			return wrong(&reader->fields, &at, name ? "no function '%s'" : "expected a function's name",
				     name);
		if (function->user == chain)
			return wrong(&reader->fields, &at, "function '%s' stands twice", name);
		if (function->user != NULL && !parted(reader, &at, chain, "function", name, function->user->name))
			return false;
		function->user = chain;
		chain->through[chain->nb_through++] = function;
	}
	return true;
}

static bool read_matches(struct reader *reader, const struct place *up, json_t *object, struct chain_model *chain)
{
	const struct place list_at = {.up = up, .key = "match"};
	json_t *list, *entry;
	size_t i;

	if (!field_list(&reader->fields, up, object, "match", &list))
		return false;
	if (json_array_size(list) > MODEL_MATCHES)
		return wrong(&reader->fields, &list_at, "more than %d alternatives", MODEL_MATCHES);
	chain->matches = take(reader->model, json_array_size(list), sizeof(chain->matches[0]));
	json_array_foreach (list, i, entry)
		if (!match_read(&reader->fields, &(struct place){.up = &list_at, .index = i}, entry,
				&chain->matches[chain->nb_matches++]))
			return false;
	return true;
}

static bool read_chain(struct reader *reader, const struct place *at, json_t *object, struct chain_model *chain)
{
	static const char *const known[] = {"from", "through", "to", "match", "priority", NULL};
	json_int_t priority = 0;

	if (!good_name(reader, at, chain->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_number(&reader->fields, at, object, "priority", -1000000, 1000000, &priority) ||
	    !read_matches(reader, at, object, chain) || !read_end(reader, at, object, "from", chain, &chain->from) ||
	    !read_end(reader, at, object, "to", chain, &chain->to) || !read_through(reader, at, object, chain))
		return false;
	if (chain->from == chain->to)
		return wrong(&reader->fields, at, "port '%s' stands twice", chain->to->name);
	chain->priority = priority;
	return true;
}

static bool read_chains(struct reader *reader)
{
	const struct place at = {.key = "chains"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!section_of(reader, "chains", MODEL_CHAINS, &section, &model->nb_chains))
		return false;
	model->chains = take(model, model->nb_chains, sizeof(model->chains[0]));
	model->nb_chains = 0;
	json_object_foreach (section, name, object) {
		struct chain_model *chain = &model->chains[model->nb_chains];

		chain->name = name;
		chain->index = model->nb_chains++;
		names_add(&model->chains_by_name, name, chain);
		if (!read_chain(reader, &(struct place){.up = &at, .key = name}, object, chain))
			return false;
	}
	return true;
}

/* ------- bridges and mirrors ------- */

static bool read_trunk(struct reader *reader, const struct place *up, json_t *list, struct bridge_port_model *port)
{
	const struct place at = {.up = up, .key = "trunk"};
	json_t *entry;
	size_t i;

	if (json_array_size(list) == 0 || json_array_size(list) > MODEL_TRUNK)
		return wrong(&reader->fields, &at, "1 to %d VLANs are needed", MODEL_TRUNK);
	port->trunk = take(reader->model, json_array_size(list), sizeof(port->trunk[0]));
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
	struct port_model *model = port_named(reader, at, at->key);
	json_int_t access = 0, native = 0;
	json_t *trunk;

	if (model == NULL || !employ(reader, at, model, ROLE_BRIDGED, bridge) ||
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

	if (!good_name(reader, at, bridge->name) || !field_keys(&reader->fields, at, object, known) ||
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
	bridge->ports = take(reader->model, json_object_size(ports), sizeof(bridge->ports[0]));
	json_object_foreach (ports, name, port)
		if (!read_bridge_port(reader, &(struct place){.up = &up, .key = name}, port, bridge->name,
				      &bridge->ports[bridge->nb_ports++]))
			return false;
	return true;
}

static bool read_bridges(struct reader *reader)
{
	const struct place at = {.key = "bridges"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!section_of(reader, "bridges", MODEL_BRIDGES, &section, &model->nb_bridges))
		return false;
	model->bridges = take(model, model->nb_bridges, sizeof(model->bridges[0]));
	model->nb_bridges = 0;
	json_object_foreach (section, name, object) {
		struct bridge_model *bridge = &model->bridges[model->nb_bridges];

		bridge->name = name;
		bridge->json = object;
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

	if (!good_name(reader, at, mirror->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_text(&reader->fields, at, object, "port", false, &port) ||
	    !field_text(&reader->fields, at, object, "chain", false, &chain) ||
	    !field_word(&reader->fields, at, object, "direction", false, directions, &direction))
		return false;
	if ((port == NULL) == (chain == NULL))
		return wrong(&reader->fields, at, "expected a 'port' or a 'chain' to mirror");
	if (port != NULL) {
		mirror->port = port_named(reader, &(struct place){.up = at, .key = "port"}, port);
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
	to = port_field(reader, at, object, "to");
	if (to == NULL)
		return false;
	mirror->to = to;
	return employ(reader, &(struct place){.up = at, .key = "to"}, to, ROLE_PROBE, mirror->name);
}

static bool read_mirrors(struct reader *reader)
{
	const struct place at = {.key = "mirrors"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!section_of(reader, "mirrors", MODEL_MIRRORS, &section, &model->nb_mirrors))
		return false;
	model->mirrors = take(model, model->nb_mirrors, sizeof(model->mirrors[0]));
	model->nb_mirrors = 0;
	json_object_foreach (section, name, object) {
		struct mirror_model *mirror = &model->mirrors[model->nb_mirrors++];

		mirror->name = name;
		if (!read_mirror(reader, &(struct place){.up = &at, .key = name}, object, mirror))
			return false;
	}
	return true;
}

/* ------- the rest ------- */

static bool read_trace(struct reader *reader)
{
	static const char *const known[] = {"every", "recent", NULL};
	const struct place at = {.key = "trace"};
	json_int_t every = 0, recent = 0;
	json_t *trace;

	if (!field_object(&reader->fields, NULL, reader->model->document, "trace", &trace))
		return false;
	if (trace != NULL && (!field_keys(&reader->fields, &at, trace, known) ||
			      !field_number(&reader->fields, &at, trace, "every", 0, TRACE_EVERY_MOST, &every) ||
			      !field_number(&reader->fields, &at, trace, "recent", 0, TRACE_RECENT_MOST, &recent)))
		return false;
	if ((every & (every - 1)) != 0)
		return wrong(&reader->fields, &(struct place){.up = &at, .key = "every"},
			     "%lld: expected a power of two, or 0 for no trace", (long long)every);
	if ((recent & (recent - 1)) != 0 || (recent != 0 && recent < TRACE_RECENT_LEAST))
		return wrong(&reader->fields, &(struct place){.up = &at, .key = "recent"},
			     "%lld: expected a power of two from %d on, or 0", (long long)recent, TRACE_RECENT_LEAST);
	reader->model->trace_every = every;
	reader->model->trace_recent = recent;
	return true;
}

static bool read_pin(struct reader *reader, const struct place *at, json_t *value, struct pin_model *pin)
{
	const char *slash = strrchr(at->key, '/');
	char name[PORT_NAME];
	char *end;

	if (slash == NULL || slash - at->key >= PORT_NAME || slash[1] < '0' || slash[1] > '9')
		return wrong(&reader->fields, at, "expected PORT/QUEUE, such as \"tester.a/0\"");
	snprintf(name, sizeof(name), "%.*s", (int)(slash - at->key), at->key);
	pin->port = port_named(reader, at, name);
	if (pin->port == NULL)
		return false;
	pin->queue = strtoul(slash + 1, &end, 10);
	if (*end != '\0' || pin->queue >= pin->port->queues)
		return wrong(&reader->fields, at, "port '%s' has %u queues, from 0 on", name, pin->port->queues);
	if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= reader->nb_workers)
		return wrong(&reader->fields, at, "expected the number of a worker; the switch has %u, from 0 on",
			     reader->nb_workers);
	pin->worker = json_integer_value(value);
	return true;
}

static bool read_pins(struct reader *reader)
{
	static const char *const known[] = {"pins", NULL};
	const struct place at = {.key = "workers"}, pins_at = {.up = &at, .key = "pins"};
	struct model *model = reader->model;
	json_t *workers, *pins, *value;
	const char *key;

	if (!field_object(&reader->fields, NULL, model->document, "workers", &workers))
		return false;
	if (workers == NULL)
		return true;
	if (!field_keys(&reader->fields, &at, workers, known) ||
	    !field_object(&reader->fields, &at, workers, "pins", &pins))
		return false;
	model->pins = take(model, json_object_size(pins), sizeof(model->pins[0]));
	json_object_foreach (pins, key, value)
		if (!read_pin(reader, &(struct place){.up = &pins_at, .key = key}, value,
			      &model->pins[model->nb_pins++]))
			return false;
	return true;
}

struct model *model_make(json_t *document, unsigned nb_workers, struct control_error *error)
{
	static const char *const known[] = {"ports",   "functions", "chains",  "bridges",
					    "mirrors", "trace",	    "workers", NULL};
	struct model *model = calloc(1, sizeof(*model));
	struct reader reader = {.fields.error = error, .model = model, .nb_workers = nb_workers};

	if (model == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return NULL;
	}
	obstack_init(&model->memory);
	model->document = json_incref(document);
	if (field_keys(&reader.fields, NULL, document, known) && read_ports(&reader) && read_functions(&reader) &&
	    read_chains(&reader) && read_bridges(&reader) && read_mirrors(&reader) && read_trace(&reader) &&
	    read_pins(&reader))
		return model;
	model_free(model);
	return NULL;
}

void model_free(struct model *model)
{
	if (model == NULL)
		return;
	names_clear(&model->ports_by_name);
	names_clear(&model->functions_by_name);
	names_clear(&model->chains_by_name);
	obstack_free(&model->memory, NULL);
	json_decref(model->document);
	free(model);
}

static bool same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool port_model_same(const struct port_model *a, const struct port_model *b)
{
	return a->kind == b->kind && a->queues == b->queues && a->client == b->client && a->offloads == b->offloads &&
	       a->socket_mode == b->socket_mode && same_text(a->path, b->path) && same_text(a->group, b->group) &&
	       same_text(a->device, b->device);
}
