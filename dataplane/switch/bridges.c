/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "switch/bridges.h"
#include "switch/generation.h"
#include "switch/switch.h"

/*
 * Ports that were down before are forgotten as well, which costs nothing once nothing is learned from them: a device
 * without a link may still have had frames.  One whose guest is expected back has taught nothing.
 */
void bridges_forget(const struct switch_state *state)
{
	for (unsigned i = 0; i < state->model->nb_bridges; i++) {
		const struct bridge_model *model = &state->model->bridges[i];
		bool gone[BRIDGE_PORTS] = {false}, any = false;

		for (unsigned j = 0; j < model->nb_ports; j++) {
			const struct switch_port *port = state->generation->ports[model->ports[j].port->index].port;

			gone[j] = port == NULL || (!port->expected && !switch_port_takes(port));
			any |= gone[j];
		}
		if (any)
			bridge_forget(state->generation->bridges[i].bridge, gone);
	}
}

/* The one that moved last stands for all: there may be any number. */
static void report(const struct bridge *bridge, const char *name, uint64_t moves)
{
	struct bridge_flap *flaps = calloc(BRIDGE_FLAPS, sizeof(flaps[0])), *last = flaps;
	const unsigned count = flaps != NULL ? bridge_flaps(bridge, flaps) : 0;
	char vlan[16] = "";

	for (unsigned i = 1; i < count; i++)
		if (flaps[i].last > last->last)
			last = &flaps[i];
	if (count > 0 && last->vlan != 0)
		snprintf(vlan, sizeof(vlan), " of VLAN %u", last->vlan);
	if (count > 0)
		log_warning("bridge %s: station %02x:%02x:%02x:%02x:%02x:%02x%s flaps: it moved from port %s to port "
			    "%s; %" PRIu64 " more moves of it and others are left out",
			    name, last->mac[0], last->mac[1], last->mac[2], last->mac[3], last->mac[4], last->mac[5],
			    vlan, last->from, last->to, moves - 1);
	free(flaps);
}

void bridges_report(const struct switch_state *state)
{
	for (unsigned i = 0; i < state->model->nb_bridges; i++) {
		const struct generation_bridge *bridge = &state->generation->bridges[i];
		const uint64_t flapped = bridge_flapped(bridge->bridge);

		if (flapped != bridge->past->flapped)
			report(bridge->bridge, state->model->bridges[i].name, flapped - bridge->past->flapped);
		bridge->past->flapped = flapped;
	}
}
