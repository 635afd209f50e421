/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/model_read.h"
#include "switch/trace.h"

bool model_good_name(struct reader *reader, const struct place *at, const char *name)
{
	const size_t length = strlen(name);

	for (const char *letter = name; *letter != '\0'; letter++)
		if ((unsigned char)*letter < ' ' || *letter == '/' || *letter == 0x7f)
			return wrong(&reader->fields, at, "a name has no '/' and no control characters");
	if (length == 0 || length >= PORT_NAME)
		return wrong(&reader->fields, at, "a name has 1 to %d characters", PORT_NAME - 1);
	return true;
}

bool model_section(struct reader *reader, const char *key, unsigned most, json_t **section, unsigned *count)
{
	if (!field_object(&reader->fields, NULL, reader->model->document, key, section))
		return false;
	*count = json_object_size(*section);
	if (*count > most)
		return wrong(&reader->fields, &(struct place){.key = key}, "%u of them; the most is %u", *count, most);
	return true;
}

struct port_model *model_port_named(struct reader *reader, const struct place *at, const char *name)
{
	struct port_model *port = name ? names_find(&reader->model->ports_by_name, name) : NULL;

	if (name == NULL)
		wrong(&reader->fields, at, "expected the name of a port");
	else if (port == NULL)
		wrong(&reader->fields, at, "no port '%s'", name);
	return port;
}

struct port_model *model_port_field(struct reader *reader, const struct place *up, json_t *object, const char *key)
{
	const struct place at = {.up = up, .key = key};
	json_t *field = json_object_get(object, key);

	if (field == NULL) {
		wrong(&reader->fields, &at, "is missing");
		return NULL;
	}
	return model_port_named(reader, &at, json_string_value(field));
}

bool model_employ(struct reader *reader, const struct place *at, struct port_model *port, enum port_role role,
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
	pin->port = model_port_named(reader, at, name);
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
	model->pins = arena_take(&model->memory, json_object_size(pins), sizeof(model->pins[0]));
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
	arena_open(&model->memory);
	model->document = json_incref(document);
	if (field_keys(&reader.fields, NULL, document, known) && model_read_ports(&reader) &&
	    model_read_functions(&reader) && model_read_chains(&reader) && model_read_bridges(&reader) &&
	    model_read_mirrors(&reader) && read_trace(&reader) && read_pins(&reader))
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
	arena_close(&model->memory);
	json_decref(model->document);
	free(model);
}

const struct pin_model *model_pin(const struct model *model, unsigned port, unsigned queue)
{
	for (unsigned i = 0; i < model->nb_pins; i++)
		if (model->pins[i].queue == queue && model->pins[i].port->index == port)
			return &model->pins[i];
	return NULL;
}
