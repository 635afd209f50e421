/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "switch/events.h"
#include "switch/generation.h"
#include "switch/switch.h"

/* Of what `port.list` says of a port, what is notified. */
static json_t *notification(const json_t *said)
{
	return json_pack("{s:O, s:O, s:O?, s:O*}", "name", json_object_get(said, "name"), "state",
			 json_object_get(said, "state"), "reason", json_object_get(said, "reason"), "bond",
			 json_object_get(said, "bond"));
}

/* What makes a difference: its state, and which members of a bond carry frames. */
static void sum_up(const json_t *said, char *text, size_t size)
{
	const json_t *members = json_object_get(json_object_get(said, "bond"), "members"), *member;
	size_t length = snprintf(text, size, "%s", json_string_value(json_object_get(said, "state"))), index;

	json_array_foreach (members, index, member)
		if (length < size)
			length += snprintf(text + length, size - length, " %s%s",
					   json_string_value(json_object_get(member, "state")),
					   json_is_true(json_object_get(member, "active")) ? "!" : "");
}

/* Note how a port is now.  Returns that if it is otherwise than before, and NULL otherwise. */
static json_t *look_at(struct switch_port *port, const struct port_model *model)
{
	json_t *said = switch_port_describe(port, model), *changed = NULL;
	char now[sizeof(port->told)];

	sum_up(said, now, sizeof(now));
	if (strcmp(port->told, now) != 0) {
		strcpy(port->told, now);
		changed = notification(said);
	}
	json_decref(said);
	return changed;
}

static json_t *look_at_missing(const struct port_model *model)
{
	json_t *said = switch_port_missing(model), *gone = notification(said);

	json_decref(said);
	return gone;
}

json_t *events_subscribe(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *ports = json_array();

	/* Who has subscribed before is not to miss what this would take for known. */
	events_look(state);
	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		struct switch_port *port = state->generation->ports[i].port;

		if (port != NULL)
			port->told[0] = '\0';
		json_array_append_new(ports, port != NULL ? look_at(port, &state->model->ports[i])
							  : look_at_missing(&state->model->ports[i]));
	}
	control_listen(state->control);
	return json_pack("{s:o}", "ports", ports);
}

void events_look(struct switch_state *state)
{
	for (unsigned i = 0; control_is_heard(state->control) && i < state->model->nb_ports; i++) {
		struct switch_port *port = state->generation->ports[i].port;
		json_t *changed = port != NULL ? look_at(port, &state->model->ports[i]) : NULL;

		if (changed != NULL)
			control_notify(state->control, "port", changed);
	}
}

void events_gone(struct switch_state *state)
{
	for (unsigned i = 0; control_is_heard(state->control) && i < state->model->nb_ports; i++)
		if (state->generation->ports[i].port == NULL)
			control_notify(state->control, "port", look_at_missing(&state->model->ports[i]));
}

void events_config(struct switch_state *state)
{
	const struct config *config = &state->config;

	if (control_is_heard(state->control))
		control_notify(state->control, "config",
			       json_pack("{s:I, s:i}", "version", (json_int_t)config->version, "pid",
					 (int)config->author.pid));
}
