/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "switch/apply.h"
#include "switch/generation.h"
#include "switch/switch.h"

/*
 * Does the port hold what the other one needs, which only one can have at a time?  A device is known by what stands
 * before its options; and since one has several names (if:, xdp:), a device that is to be another one under the name of
 * its port is taken to be in the way.
 */
static bool holds(const struct port_model *port, const struct port_model *other)
{
	const size_t length = port->kind == PORT_DEVICE ? strcspn(port->device, ",") : 0;

	if (port->kind != other->kind)
		return false;
	if (port->kind == PORT_GUEST)
		return strcmp(port->path, other->path) == 0;
	return strcmp(port->name, other->name) == 0 ||
	       (strcspn(other->device, ",") == length && strncmp(port->device, other->device, length) == 0);
}

/* Does the port of this number run, and will it be gone, or another kind of thing under the same name? */
static bool leaves(const struct generation *now, unsigned number, const struct generation *next)
{
	const struct switch_port *port = now->ports[number].port;

	return port != NULL && generation_port(next, port->port.name) != port;
}

/* Is there a running port that leaves, and until then has what this one needs? */
static bool waits(const struct generation *now, const struct generation *next, const struct port_model *model)
{
	for (unsigned i = 0; now != NULL && i < now->model->nb_ports; i++)
		if (holds(&now->model->ports[i], model) && leaves(now, i, next))
			return true;
	return false;
}

/*
 * Open the ports that are not yet, but for those that have to wait until others have gone.  A switch that is to be what
 * it was waits for a device that is missing, or nothing of it would run.
 */
static int open_ports(struct generation *next, struct control_error *error)
{
	for (unsigned i = 0; i < next->model->nb_ports; i++)
		if (next->ports[i].port == NULL && !waits(next->state->generation, next, &next->model->ports[i]) &&
		    generation_open_port(next, i, next->state->resumes, error) != 0)
			return -1;
	return 0;
}

/* Has the running port of this number to go before a new one can be opened? */
static bool in_the_way(const struct generation *now, unsigned number, const struct generation *next)
{
	for (unsigned i = 0; i < next->model->nb_ports; i++)
		if (next->ports[i].port == NULL && holds(&now->model->ports[number], &next->model->ports[i]))
			return leaves(now, number, next);
	return false;
}

/*
 * Close the ports that have to make room.  If not all of the new ones can then be opened they come back, and a device
 * that has gone itself meanwhile as soon as it can.  Returns how many were closed, or -1 after filling in the error.
 */
static int make_room(struct switch_state *state, const struct generation *next, struct control_error *error)
{
	struct generation *less;
	int count = 0;

	for (unsigned i = 0; state->model != NULL && i < state->model->nb_ports; i++)
		count += in_the_way(state->generation, i, next);
	if (count == 0)
		return 0;
	less = generation_begin(state, state->model, error);
	if (less == NULL)
		return -1;
	for (unsigned i = 0; i < state->model->nb_ports; i++)
		if (!in_the_way(state->generation, i, next))
			generation_find_port(less, i);
	if (generation_install(less, error) == 0)
		return count;
	generation_drop(less);
	return -1;
}

/* The running model holds again, with the ports that were closed for another. */
static void come_back(struct switch_state *state)
{
	struct control_error ignored;
	struct generation *before = generation_begin(state, state->model, &ignored);

	if (before == NULL)
		return;
	for (unsigned i = 0; i < state->model->nb_ports; i++)
		generation_open_port(before, i, true, &ignored);
	if (generation_install(before, &ignored) != 0)
		generation_drop(before);
}

int apply_fits(const struct model *model, const struct generation *now, size_t left, struct control_error *error)
{
	size_t taken = 0;

	for (unsigned i = 0; i < model->nb_ports; i++) {
		const struct port_model *port = &model->ports[i];

		if (port->kind != PORT_DEVICE || (now != NULL && generation_port(now, port->name) != NULL))
			continue;
		taken += device_port_memory(port->device, port->queues);
		if (taken > left) {
			control_fail(error, CONTROL_FAILED, "ports.%s: " DEVICE_NO_MEMORY, port->name,
				     (taken >> 20) + 1, left >> 20);
			return -1;
		}
	}
	return 0;
}

int apply_try(const struct switch_state *state, const struct model *model, struct control_error *error)
{
	return apply_fits(model, state->generation, device_memory_left(), error);
}

int apply(struct switch_state *state, struct model *model, struct control_error *error)
{
	struct generation *next = generation_begin(state, model, error);
	int closed = 0;

	if (next == NULL)
		return -1;
	for (unsigned i = 0; i < model->nb_ports; i++)
		generation_find_port(next, i);
	if (open_ports(next, error) == 0 && (closed = make_room(state, next, error)) >= 0 &&
	    open_ports(next, error) == 0 && generation_install(next, error) == 0) {
		model_free(state->model);
		state->model = model;
		return 0;
	}
	generation_drop(next);
	if (closed > 0)
		come_back(state);
	return -1;
}

int reconcile(struct switch_state *state, struct control_error *error)
{
	struct generation *next = generation_begin(state, state->model, error);

	if (next == NULL)
		return -1;
	for (unsigned i = 0; i < state->model->nb_ports; i++)
		generation_find_port(next, i);
	if (generation_install(next, error) == 0)
		return 0;
	generation_drop(next);
	return -1;
}
