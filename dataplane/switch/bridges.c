/* SPDX-License-Identifier: Apache-2.0 */
#include "switch/bridges.h"
#include "switch/switch.h"

/*
 * Ports that were down before are forgotten as well, which costs nothing once nothing is learned from them: a device
 * without a link may still have had frames.  One that does not run, or whose guest is expected back, has taught
 * nothing.
 */
void bridges_forget(const struct switch_state *state)
{
	for (unsigned i = 0; i < state->model->nb_bridges; i++) {
		const struct bridge_model *model = &state->model->bridges[i];
		const struct running_bridge *bridge = names_find(&state->running.bridges, model->name);
		bool gone[BRIDGE_PORTS] = {false}, any = false;

		for (unsigned j = 0; j < model->nb_ports; j++) {
			const struct switch_port *port = names_find(&state->running.ports, model->ports[j].port->name);

			gone[j] = port != NULL && !port->expected && !switch_port_takes(port);
			any |= gone[j];
		}
		if (any)
			bridge_forget(bridge->bridge, gone);
	}
}
