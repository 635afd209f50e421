/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/un.h>

#include "port/device.h"
#include "port/device_bond.h"
#include "port/guest_memory.h"
#include "steer/rate.h"
#include "steer/shaper.h"
#include "switch/model_read.h"

enum {
	MEMORY_LEAST = 1 << 20,
	LATENCY_LEAST_US = 100,
	LATENCY_MOST_US = 10 * 1000 * 1000,
};

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
		long bits = strtol(mode, &end, 8);

		port->socket_mode = (int)bits;
		if (*mode < '0' || *mode > '7' || *end != '\0' || bits > 0777)
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

static bool read_to(struct reader *reader, const struct place *up, json_t *rate, struct port_model *port)
{
	static const char *const known[] = {"max", "packets", "latency", NULL};
	const struct place at = {.up = up, .key = "to"};
	json_int_t latency = SHAPER_LATENCY_US;
	json_t *to;

	if (!field_object(&reader->fields, up, rate, "to", &to))
		return false;
	if (to != NULL &&
	    (!field_keys(&reader->fields, &at, to, known) ||
	     !read_most(reader, &at, to, &port->to_bits, &port->to_packets) ||
	     !field_number(&reader->fields, &at, to, "latency", LATENCY_LEAST_US, LATENCY_MOST_US, &latency)))
		return false;
	port->to_latency = latency;
	return true;
}

static bool read_rate(struct reader *reader, const struct place *up, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"max", "packets", "share", "to", NULL};
	const struct place at = {.up = up, .key = "rate"};
	json_int_t share = 1;
	json_t *rate;

	port->share = 1;
	if (!field_object(&reader->fields, up, object, "rate", &rate))
		return false;
	if (rate == NULL)
		return true;
	if (!field_keys(&reader->fields, &at, rate, known) ||
	    !read_most(reader, &at, rate, &port->most_bits, &port->most_packets) ||
	    !field_number(&reader->fields, &at, rate, "share", 1, SHARE_WEIGHT_MOST, &share))
		return false;
	port->share = share;
	return read_to(reader, &at, rate, port);
}

static bool read_guest(struct reader *reader, const struct place *at, json_t *object, struct port_model *port)
{
	static const char *const known[] = {"kind",	"path",	  "mode", "queues", "socket", "memory",
					    "offloads", "absent", "rate", "spread", "unread", NULL};
	static const char *const modes[] = {"server", "client", NULL}, *const absent[] = {"drop", "wait", NULL};
	const size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	json_int_t memory = 0;
	unsigned mode = 0, awaits = 0;

	port->offloads = true;
	if (!field_keys(&reader->fields, at, object, known) ||
	    !field_text(&reader->fields, at, object, "path", true, &port->path) ||
	    !field_word(&reader->fields, at, object, "mode", false, modes, &mode) ||
	    !field_word(&reader->fields, at, object, "absent", false, absent, &awaits) ||
	    !field_boolean(&reader->fields, at, object, "offloads", &port->offloads) ||
	    !field_boolean(&reader->fields, at, object, "spread", &port->spread) ||
	    !field_boolean(&reader->fields, at, object, "unread", &port->unread) ||
	    !field_number(&reader->fields, at, object, "memory", MEMORY_LEAST, GUEST_MEMORY_MOST, &memory) ||
	    !read_socket(reader, at, object, port))
		return false;
	port->client = mode == 1;
	port->awaited = awaits == 1;
	port->memory = memory;
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
	struct device_error why;

	port->socket_mode = -1;
	if (!field_keys(&reader->fields, at, object, known) ||
	    !field_text(&reader->fields, at, object, "device", true, &port->device))
		return false;
	return device_port_check(port->device, &why) == 0 ||
	       wrong(&reader->fields, &(struct place){.up = at, .key = "device"}, "%s", why.text);
}

static bool read_port(struct reader *reader, const struct place *at, json_t *object, struct port_model *port)
{
	static const char *const kinds[] = {[PORT_GUEST] = "guest", [PORT_DEVICE] = "device", NULL};
	unsigned kind = 0;
	json_int_t queues = 1;

	if (!json_is_object(object))
		return wrong(&reader->fields, at, "expected an object");
	if (!model_good_name(reader, at, port->name) ||
	    !field_word(&reader->fields, at, object, "kind", true, kinds, &kind) ||
	    !field_number(&reader->fields, at, object, "queues", 1, PORT_QUEUES, &queues))
		return false;
	port->kind = kind;
	port->queues = queues;
	return (kind == PORT_GUEST ? read_guest(reader, at, object, port) : read_device(reader, at, object, port)) &&
	       read_rate(reader, at, object, port);
}

/* A socket or a device is one port's alone. */
static bool take_thing(struct reader *reader, const struct place *at, struct names *taken, const char *thing,
		       struct port_model *port)
{
	const struct port_model *other = names_find(taken, thing);

	if (other != NULL)
		return wrong(&reader->fields, at, "%s belongs to port '%s'", thing, other->name);
	names_add(taken, thing, port);
	return true;
}

/* Its socket, its device, or the members of its bond. */
static bool take_things(struct reader *reader, const struct place *at, struct names *taken, struct port_model *port)
{
	const char *thing = port->kind == PORT_GUEST ? port->path : port->device;
	struct device_error why;
	struct bond_names *bond;
	bool good = true;

	if (port->kind == PORT_GUEST || !bond_is_named(thing))
		return take_thing(reader, at, taken, thing, port);
	bond = arena_take(&reader->model->memory, 1, sizeof(*bond));
	if (bond_parse(thing, bond, &why) != 0)
		return wrong(&reader->fields, at, "%s", why.text);
	for (unsigned i = 0; i < bond->count && good; i++)
		good = take_thing(reader, at, taken, bond->members[i], port);
	return good;
}

bool model_read_ports(struct reader *reader)
{
	const struct place at = {.key = "ports"};
	struct model *model = reader->model;
	struct names taken = {0};
	json_t *section, *object;
	const char *name;
	bool good = true;

	if (!model_section(reader, "ports", MODEL_PORTS, &section, &model->nb_ports))
		return false;
	model->ports = arena_take(&model->memory, model->nb_ports, sizeof(model->ports[0]));
	model->nb_ports = 0;
	json_object_foreach (section, name, object) {
		struct port_model *port = &model->ports[model->nb_ports];
		const struct place here = {.up = &at, .key = name};
		port->name = name;
		port->index = model->nb_ports++;
		good = read_port(reader, &here, object, port);
		if (!good)
			break;
		good = take_things(reader, &here, &taken, port);
		if (!good)
			break;
		names_add(&model->ports_by_name, name, port);
	}
	names_clear(&taken);
	return good;
}
