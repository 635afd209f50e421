/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/observation.h"
#include "switch/pages.h"
#include "switch/watches.h"

int observation_open(struct observation *observation, struct page *page, const char *page_path, unsigned nb_workers)
{
	TAILQ_INIT(&observation->captures);
	observation->page = page;
	observation->page_path = page_path;
	observation->nb_workers = nb_workers;
	observation->watches = watches_new();
	return observation->watches != NULL ? 0 : -1;
}

static void close_mirror(struct observation *observation, struct running_mirror *mirror)
{
	names_remove(&observation->mirrors, mirror->name);
	page_slot_close(observation->page, (uint64_t *)mirror->counters);
	free(mirror);
}

/* Close those that the model does not name; NULL names none. */
static void close_mirrors(struct observation *observation, const struct model *model)
{
	for (unsigned i = 0; i < observation->mirrors.size;) {
		struct running_mirror *mirror = observation->mirrors.entries[i].value;
		bool named = observation->mirrors.entries[i].name == NULL;

		for (unsigned j = 0; !named && model != NULL && j < model->nb_mirrors; j++)
			named = strcmp(model->mirrors[j].name, mirror->name) == 0;
		if (named) {
			i++;
			continue;
		}
		/* Others may move to its place. */
		close_mirror(observation, mirror);
		i = 0;
	}
}

void observation_close(struct observation *observation)
{
	struct capture_session *session;

	while ((session = TAILQ_FIRST(&observation->captures)) != NULL) {
		TAILQ_REMOVE(&observation->captures, session, entry);
		capture_close(session);
	}
	follow_close(observation->follow);
	trace_close(observation->trace);
	close_mirrors(observation, NULL);
	names_clear(&observation->mirrors);
	watches_free(observation->watches);
}

static int open_mirror(struct observation *observation, const char *name, struct control_error *error)
{
	struct running_mirror *mirror;

	if (names_find(&observation->mirrors, name) != NULL)
		return 0;
	mirror = calloc(1, sizeof(*mirror));
	if (mirror == NULL)
		goto out_of_memory;
	snprintf(mirror->name, sizeof(mirror->name), "%s", name);
	mirror->counters = (struct hop_counters *)page_slot_open(observation->page, PAGE_MIRROR, name);
	if (mirror->counters == NULL) {
		free(mirror);
		control_fail(error, CONTROL_FAILED, "mirrors.%s: no slot is left on the counter page", name);
		return -1;
	}
	if (names_add(&observation->mirrors, mirror->name, mirror) == 0)
		return 0;
	close_mirror(observation, mirror);
out_of_memory:
	control_fail(error, CONTROL_FAILED, "out of memory");
	return -1;
}

/* The trace that the model asks for: the one there is, a new one beside it, or none. */
static int choose_trace(struct observation *observation, const struct model *model, struct control_error *error)
{
	const struct trace_options options = {
		.every = model->trace_every, .recent = model->trace_recent, .workers = observation->nb_workers};
	struct trace *trace = observation->trace;
	char path[256];

	if (trace != NULL ? trace->options.every == options.every && trace->options.recent == options.recent
			  : options.every == 0)
		return 0;
	observation->other_trace = trace;
	observation->changing_trace = true;
	observation->trace = NULL;
	if (options.every == 0)
		return 0;
	snprintf(path, sizeof(path), "%s.trace-%u", observation->page_path, ++observation->traces);
	observation->trace = trace_open(path, &options);
	if (observation->trace != NULL)
		return 0;
	control_fail(error, CONTROL_FAILED, "trace: %s: no room for its records; ask for fewer by 'recent'", path);
	return -1;
}

static void name_ports(struct observation *observation, const struct model *model, const struct names *ports)
{
	for (unsigned i = 0; observation->trace != NULL && i < model->nb_ports; i++) {
		const struct switch_port *port = names_find(ports, model->ports[i].name);

		if (port != NULL)
			trace_name_port(observation->trace, port->port.number, port->port.name);
	}
}

int observation_begin(struct observation *observation, const struct model *model, const struct names *ports,
		      struct control_error *error)
{
	for (unsigned i = 0; i < model->nb_mirrors; i++)
		if (open_mirror(observation, model->mirrors[i].name, error) != 0)
			return -1;
	if (choose_trace(observation, model, error) != 0)
		return -1;
	name_ports(observation, model, ports);
	if (watches_begin(observation->watches, model, ports) == 0)
		return 0;
	control_fail(error, CONTROL_FAILED, "out of memory");
	return -1;
}

void observation_keep(struct observation *observation, const struct model *model)
{
	watches_keep(observation->watches);
	close_mirrors(observation, model);
	trace_close(observation->other_trace);
	observation->other_trace = NULL;
	observation->changing_trace = false;
}

void observation_drop(struct observation *observation)
{
	watches_drop(observation->watches);
	if (!observation->changing_trace)
		return;
	trace_close(observation->trace);
	observation->trace = observation->other_trace;
	observation->other_trace = NULL;
	observation->changing_trace = false;
}
