/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_version.h>

#include "common/log.h"
#include "switch/balance.h"
#include "switch/events.h"
#include "switch/generation.h"
#include "switch/observe.h"
#include "switch/pages.h"
#include "switch/switch.h"

static json_t *port_list(void *context, json_t *params, struct control_error *error)
{
	const struct switch_state *state = context;
	json_t *list = json_array();

	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		const struct port_model *model = &state->model->ports[i];
		const struct switch_port *port = state->generation->ports[i].port;

		json_array_append_new(list,
				      port != NULL ? switch_port_describe(port, model) : switch_port_missing(model));
	}
	return list;
}

/* What has gone along a chain one way: delivered at its last hop, dropped at any. */
static json_t *describe_way(struct hop *const *hops, unsigned count, bool back)
{
	uint64_t packets = 0, bytes = 0, drops = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct hop_counters *hop = back ? &hops[i]->back : &hops[i]->forward;

		if (i == (back ? 0 : count - 1)) {
			packets = hop->packets;
			bytes = hop->bytes;
		}
#define HOP_DROPS(name, text) drops += hop->name;
		HOP_COUNTERS(HOP_DROPS)
#undef HOP_DROPS
		drops -= hop->packets + hop->bytes;
	}
	return json_pack("{s:I, s:I, s:I}", "packets", (json_int_t)packets, "bytes", (json_int_t)bytes, "drops",
			 (json_int_t)drops);
}

static json_t *chain_list(void *context, json_t *params, struct control_error *error)
{
	const struct switch_state *state = context;
	json_t *list = json_array();

	for (unsigned i = 0; i < state->model->nb_chains; i++) {
		const struct chain_model *model = &state->model->chains[i];
		struct hop *const *hops = state->generation->hops[i];
		json_t *through = json_array();

		for (unsigned j = 0; j < model->nb_through; j++)
			json_array_append_new(through, json_string(model->through[j]->name));
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:o, s:s, s:i, s:i, s:o, s:o}", "name", model->name, "from",
						model->from->name, "through", through, "to", model->to->name,
						"priority", model->priority, "hops", model->nb_through + 1, "forward",
						describe_way(hops, model->nb_through + 1, false), "back",
						describe_way(hops, model->nb_through + 1, true)));
	}
	return list;
}

/*
 * Of functions that have replicas to choose from: how many flows each has, so that one sees when it is drained, and how
 * often the table was too small for one.  Who looks at the latter again and again has no flows counted (`flows` false),
 * which reads the table from end to end.
 */
static json_t *function_list(void *context, json_t *params, struct control_error *error)
{
	const struct switch_state *state = context;
	int count_flows = true;
	json_t *list;

	if (control_unpack(params, error, "{s?:b}", "flows", &count_flows) != 0)
		return NULL;
	list = json_array();
	for (unsigned i = 0; i < state->model->nb_functions; i++) {
		const struct function_model *model = &state->model->functions[i];
		const struct pin_group *group = state->generation->groups[i];
		uint64_t counts[PIN_REPLICAS] = {0};
		json_t *replicas = json_object(), *entry;

		if (group != NULL && count_flows)
			pin_count(group, counts);
		for (unsigned j = 0; j < model->nb_replicas; j++) {
			const struct replica_model *replica = &model->replicas[j];
			json_t *text = json_pack("{s:s, s:s, s:s}", "left", replica->left->name, "right",
						 replica->right->name, "state",
						 replica->draining ? "draining" : "active");

			if (group != NULL && count_flows)
				json_object_set_new(
					text, "flows",
					json_integer(counts[pin_memory_number(group->memory, replica->name)]));
			json_object_set_new(replicas, replica->name, text);
		}
		entry = json_pack("{s:s, s:s, s:o}", "name", model->name, "pin",
				  model->by_addresses ? "addresses" : "flow", "replicas", replicas);
		if (group != NULL)
			json_object_set_new(entry, "crowded", json_integer((json_int_t)pin_crowded(group)));
		json_array_append_new(list, entry);
	}
	return list;
}

static json_t *worker_queues(const struct switch_state *state, unsigned worker)
{
	json_t *queues = json_array();

	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		const struct switch_port *port = state->generation->ports[i].port;

		for (unsigned queue = 0; port != NULL && queue < port->port.nb_queues; queue++)
			if (port->placed[queue].worker == worker)
				json_array_append_new(queues, json_sprintf("%s/%u", port->port.name, queue));
	}
	return queues;
}

static json_t *worker_list(void *context, json_t *params, struct control_error *error)
{
	const struct switch_state *state = context;
	json_t *list = json_array();

	for (unsigned i = 0; i < state->workers.count; i++) {
		const struct worker *worker = &state->workers.list[i];

		json_array_append_new(list,
				      json_pack("{s:o, s:i, s:i, s:I, s:s, s:b, s:f, s:I, s:o}", "name",
						json_sprintf("worker-%u", i), "core", worker->cpu, "tid",
						atomic_load(&worker->thread), "tsc_hz", (json_int_t)rte_get_tsc_hz(),
						"idle", worker_idle_name(worker->idle), "asleep",
						(int)atomic_load(&worker->asleep), "busy", state->loads[i].busy,
						"program", (json_int_t)atomic_load(&worker->program)->number, "queues",
						worker_queues(state, i)));
	}
	return list;
}

static void add_mac(void *context, const struct bridge_mac *mac)
{
	json_array_append_new(context, json_pack("{s:o, s:i, s:s, s:f}", "mac",
						 json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac->mac[0], mac->mac[1],
							      mac->mac[2], mac->mac[3], mac->mac[4], mac->mac[5]),
						 "vlan", mac->vlan, "port", mac->port, "age", mac->age));
}

static double seconds_since(uint64_t tsc)
{
	return (double)(rte_rdtsc() - tsc) / rte_get_tsc_hz();
}

static json_t *describe_flaps(const struct bridge *bridge)
{
	struct bridge_flap *flaps = calloc(BRIDGE_FLAPS, sizeof(flaps[0]));
	const unsigned count = flaps != NULL ? bridge_flaps(bridge, flaps) : 0;
	json_t *list = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(
			list,
			json_pack("{s:o, s:i, s:s, s:s, s:f, s:f, s:I}", "mac",
				  json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", flaps[i].mac[0], flaps[i].mac[1],
					       flaps[i].mac[2], flaps[i].mac[3], flaps[i].mac[4], flaps[i].mac[5]),
				  "vlan", flaps[i].vlan, "from", flaps[i].from, "to", flaps[i].to, "first",
				  seconds_since(flaps[i].first), "last", seconds_since(flaps[i].last), "moves",
				  (json_int_t)flaps[i].moves));
	free(flaps);
	return list;
}

static json_t *bridge_list_method(void *context, json_t *params, struct control_error *error)
{
	const struct switch_state *state = context;
	json_t *list = json_array();

	for (unsigned i = 0; i < state->model->nb_bridges; i++) {
		const struct bridge_model *model = &state->model->bridges[i];
		const struct bridge *bridge = state->generation->bridges[i].bridge;
		const struct bridge_figures figures = bridge_figures(bridge);
		json_t *macs = json_array(), *ports = json_array();

		for (unsigned j = 0; j < model->nb_ports; j++)
			json_array_append_new(ports, json_string(model->ports[j].port->name));
		bridge_list(bridge, add_mac, macs);
		json_array_append_new(list,
				      json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I}", "name", model->name, "ports",
						ports, "macs", macs, "flaps", describe_flaps(bridge), "room",
						(json_int_t)figures.room, "unlearned", (json_int_t)figures.unlearned,
						"moves", (json_int_t)figures.moves));
	}
	return list;
}

static json_t *version(void *context, json_t *params, struct control_error *error)
{
	return json_pack("{s:s, s:s, s:s}", "program", "tailrace-switch", "version", TAILRACE_VERSION, "dpdk",
			 rte_version());
}

#define NONE CONTROL_NO_PARAMS
const struct control_method switch_methods[] = {
	{"version", version, NONE},
	{"config.get", config_get, NONE},
	{"config.plan", config_plan, CONTROL_PARAMS("config", "patch", "base")},
	{"config.apply", config_apply, CONTROL_PARAMS("config", "patch", "base")},
	{"config.rollback", config_rollback, CONTROL_PARAMS("base")},
	{"port.list", port_list, NONE},
	{"chain.list", chain_list, NONE},
	{"worker.list", worker_list, NONE},
	{"bridge.list", bridge_list_method, NONE},
	{"capture.start", observe_capture_start,
	 CONTROL_PARAMS("port", "chain", "direction", "match", "snaplen", "buffer")},
	{"capture.status", observe_capture_status, CONTROL_PARAMS("capture")},
	{"capture.stop", observe_capture_stop, CONTROL_PARAMS("capture")},
	{"trace.start", observe_trace_start, CONTROL_PARAMS("match", "count")},
	{"trace.read", observe_trace_read, CONTROL_PARAMS("most")},
	{"trace.stop", observe_trace_stop, NONE},
	{"trace.key", observe_trace_key, CONTROL_PARAMS("key")},
	{"function.list", function_list, CONTROL_PARAMS("flows")},
	{"park.start", parking_start, CONTROL_PARAMS("ports", "slides")},
	{"park.status", parking_status, CONTROL_PARAMS("park")},
	{"park.take", parking_take, CONTROL_PARAMS("park")},
	{"park.give", parking_give, CONTROL_PARAMS("park", "frames")},
	{"park.stop", parking_stop, CONTROL_PARAMS("park")},
	{"events.subscribe", events_subscribe, NONE},
};
const size_t switch_nb_methods = RTE_DIM(switch_methods);

int switch_open(struct switch_state *state, const struct switch_options *options)
{
	int rc;

	state->page = page_create(options->page, page_kinds, PAGE_KINDS, PAGE_SLOTS);
	state->page_path = options->page;
	state->parts.end = generation_end_part;
	state->parts.context = state;
	observe_open(&state->observation);
	if (state->page == NULL)
		return -1;
	rc = workers_open(&state->workers, &options->workers, state->page);
	if (rc == 0)
		rc = balance_open(state);
	if (rc == 0)
		rc = workers_start(&state->workers);
	if (rc != 0) {
		log_error("workers: %s", strerror(-rc));
		return -1;
	}
	return config_open(state);
}

void switch_close(struct switch_state *state)
{
	workers_stop(&state->workers);
	generation_drop(state->generation);
	model_free(state->model);
	observe_close(&state->observation);
	balance_close(state);
	workers_close(&state->workers);
	config_close(state);
	page_close(state->page);
}
