/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_version.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "switch/switch.h"

enum { PAGE_WORKER, PAGE_PORT };

static const char *const worker_fields[] = {
#define NAME(name, text) #name,
	WORKER_COUNTERS(NAME)};
static const char *const port_fields[] = {QUEUE_COUNTERS(NAME)
#undef NAME
};

static const struct page_kind page_kinds[] = {
	[PAGE_WORKER] = {"worker", worker_fields, RTE_DIM(worker_fields)},
	[PAGE_PORT] = {"port", port_fields, RTE_DIM(port_fields)},
};

static struct switch_port *find_port(struct switch_state *state, const char *name)
{
	struct switch_port *port;

	TAILQ_FOREACH (port, &state->ports, entry)
		if (strcmp(port->port.name, name) == 0)
			return port;
	return NULL;
}

static struct chain *find_chain(struct switch_state *state, const char *name)
{
	struct chain *chain;

	TAILQ_FOREACH (chain, &state->chains, entry)
		if (strcmp(chain->name, name) == 0)
			return chain;
	return NULL;
}

/* Compile ports and chains to a program and give it to the worker.  Returns 0 or -ENOMEM. */
static int compile(struct switch_state *state)
{
	struct program *program = calloc(1, sizeof(*program) + state->nb_ports * sizeof(program->directs[0]));
	struct switch_port *port;

	if (program == NULL)
		return -ENOMEM;
	TAILQ_FOREACH (port, &state->ports, entry)
		program->directs[program->nb_directs++] = (struct direct){.from = &port->port, .to = port->peer};
	free(worker_swap(&state->worker, program));
	return 0;
}

static bool valid_name(const char *name)
{
	return name[0] != '\0' && strlen(name) < PORT_NAME;
}

/* ------- ports ------- */

static int open_port(struct port *port, const char *path, bool client, const char *device, struct control_error *error)
{
	char why[256];
	int rc;

	if (port->kind == PORT_DEVICE) {
		rc = device_queue_open(&port->device, device, why, sizeof(why));
		if (rc != 0)
			control_fail(error, rc == -EBUSY ? CONTROL_IN_USE : CONTROL_FAILED, "device %s: %s", device,
				     why);
		return rc;
	}
	rc = guest_open(&port->guest, path, client, port->counters);
	if (rc == -EADDRINUSE)
		control_fail(error, CONTROL_IN_USE,
			     "socket %s is in use; stop the program that listens there or use another path", path);
	else if (rc == -ENAMETOOLONG)
		control_fail(error, CONTROL_INVALID_PARAMS, "socket %s: the path is longer than %zu bytes", path,
			     sizeof(port->guest.path) - 1);
	else if (rc == -ENOSPC)
		control_fail(error, CONTROL_FAILED, "socket %s: no room for another guest port", path);
	else if (rc != 0)
		control_fail(error, CONTROL_FAILED, "socket %s: %s", path, strerror(-rc));
	return rc;
}

static void close_port(struct port *port)
{
	if (port->kind == PORT_GUEST)
		guest_close(&port->guest);
	else
		device_queue_close(&port->device);
}

static json_t *port_add(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	const char *name, *kind, *path = NULL, *mode = "server", *device = NULL;
	struct switch_port *port, *other;

	if (control_unpack(params, error, "{s:s, s:s, s?s, s?s, s?s}", "name", &name, "kind", &kind, "path", &path,
			   "mode", &mode, "device", &device) != 0)
		return NULL;
	if (!valid_name(name))
		return control_fail(error, CONTROL_INVALID_PARAMS, "name: 1 to %d characters", PORT_NAME - 1);
	if (strcmp(kind, "guest") != 0 && strcmp(kind, "device") != 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "kind '%s': expected 'guest' or 'device'", kind);
	if (strcmp(mode, "server") != 0 && strcmp(mode, "client") != 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "mode '%s': expected 'server' or 'client'", mode);
	if (kind[0] == 'g' ? path == NULL || device != NULL : device == NULL || path != NULL)
		return control_fail(error, CONTROL_INVALID_PARAMS,
				    "a guest port has a 'path', a device port has a 'device'");
	if (find_port(state, name) != NULL)
		return control_fail(error, CONTROL_IN_USE, "port '%s' exists", name);
	TAILQ_FOREACH (other, &state->ports, entry)
		if (path != NULL && other->port.kind == PORT_GUEST && strcmp(other->port.guest.path, path) == 0)
			return control_fail(error, CONTROL_IN_USE, "path %s belongs to port '%s'", path,
					    other->port.name);
	if (state->nb_ports == SWITCH_PORTS)
		return control_fail(error, CONTROL_FAILED, "the switch has %d ports, its limit", SWITCH_PORTS);

	port = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*port)));
	if (port == NULL)
		return control_fail(error, CONTROL_FAILED, "out of memory");
	memset(port, 0, sizeof(*port));
	strcpy(port->port.name, name);
	port->port.kind = kind[0] == 'g' ? PORT_GUEST : PORT_DEVICE;
	port->port.counters = (struct queue_counters *)page_slot_open(state->page, PAGE_PORT, name);
	if (port->port.counters == NULL) {
		control_fail(error, CONTROL_FAILED, "no slot is left on the counter page");
		goto free_port;
	}
	if (open_port(&port->port, path, mode[0] == 'c', device, error) != 0)
		goto close_slot;
	TAILQ_INSERT_TAIL(&state->ports, port, entry);
	state->nb_ports++;
	if (compile(state) != 0) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		goto close_port;
	}
	return json_object();

close_port:
	TAILQ_REMOVE(&state->ports, port, entry);
	state->nb_ports--;
	close_port(&port->port);
close_slot:
	page_slot_close(state->page, (uint64_t *)port->port.counters);
free_port:
	free(port);
	return NULL;
}

static json_t *port_remove(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct switch_port *port;
	const char *name;

	if (control_unpack(params, error, "{s:s}", "name", &name) != 0)
		return NULL;
	port = find_port(state, name);
	if (port == NULL)
		return control_fail(error, CONTROL_UNKNOWN, "no port '%s'", name);
	if (port->chain != NULL)
		return control_fail(error, CONTROL_FAILED, "port '%s' is in chain '%s'; remove the chain first", name,
				    port->chain->name);
	TAILQ_REMOVE(&state->ports, port, entry);
	state->nb_ports--;
	if (compile(state) != 0) {
		TAILQ_INSERT_TAIL(&state->ports, port, entry);
		state->nb_ports++;
		return control_fail(error, CONTROL_FAILED, "out of memory");
	}
	close_port(&port->port);
	page_slot_close(state->page, (uint64_t *)port->port.counters);
	free(port);
	return json_object();
}

static json_t *describe_port(const struct switch_port *port)
{
	static const char *const states[] = {
		[GUEST_WAITING] = "waiting", [GUEST_UP] = "up", [GUEST_QUARANTINED] = "quarantined"};
	json_t *text = json_pack("{s:s, s:s*}", "name", port->port.name, "chain",
				 port->chain ? port->chain->name : NULL);
	enum vring_fault fault;

	if (port->port.kind == PORT_GUEST) {
		enum guest_state guest = guest_state(&port->port.guest, &fault);

		json_object_set_new(text, "kind", json_string("guest"));
		json_object_set_new(text, "path", json_string(port->port.guest.path));
		json_object_set_new(text, "mode", json_string(port->port.guest.client ? "client" : "server"));
		json_object_set_new(text, "state", json_string(states[guest]));
		json_object_set_new(text, "reason", fault ? json_string(vring_fault_text(fault)) : json_null());
	} else {
		json_object_set_new(text, "kind", json_string("device"));
		json_object_set_new(text, "device", json_string(port->port.device.uri));
		json_object_set_new(text, "state", json_string(device_queue_up(&port->port.device) ? "up" : "down"));
		json_object_set_new(text, "reason", json_null());
	}
	return text;
}

static json_t *port_list(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *list = json_array();
	struct switch_port *port;

	TAILQ_FOREACH (port, &state->ports, entry)
		json_array_append_new(list, describe_port(port));
	return list;
}

/* ------- chains ------- */

static void unwire(struct chain *chain)
{
	for (unsigned i = 0; i < chain->nb_ports; i++) {
		chain->ports[i]->peer = NULL;
		chain->ports[i]->chain = NULL;
	}
}

static void wire(struct chain *chain)
{
	for (unsigned i = 0; i < chain->nb_ports; i++) {
		chain->ports[i]->peer = &chain->ports[i ^ 1]->port;
		chain->ports[i]->chain = chain;
	}
}

/* Check the list of ports of the chain `name` and fill in `chain`.  Returns 0, or -1 after filling in the error. */
static int check_chain(struct switch_state *state, const char *name, json_t *ports, struct chain *chain,
		       struct control_error *error)
{
	const size_t count = json_array_size(ports);

	if (!json_is_array(ports) || count == 0 || count % 2 != 0 || count > CHAIN_PORTS) {
		control_fail(error, CONTROL_INVALID_PARAMS, "ports: expected a list of an even number, up to %d",
			     CHAIN_PORTS);
		return -1;
	}
	for (size_t i = 0; i < count; i++) {
		const char *port_name = json_string_value(json_array_get(ports, i));
		struct switch_port *port = port_name ? find_port(state, port_name) : NULL;

		if (port == NULL) {
			control_fail(error, CONTROL_UNKNOWN, "chain '%s': no port '%s'", name,
				     port_name ? port_name : "?");
			return -1;
		}
		if (port->chain != NULL && strcmp(port->chain->name, name) != 0) {
			control_fail(error, CONTROL_IN_USE, "chain '%s': port '%s' is in chain '%s'", name, port_name,
				     port->chain->name);
			return -1;
		}
		for (size_t j = 0; j < i; j++)
			if (chain->ports[j] == port) {
				control_fail(error, CONTROL_INVALID_PARAMS, "chain '%s': port '%s' stands twice", name,
					     port_name);
				return -1;
			}
		chain->ports[i] = port;
	}
	chain->nb_ports = count;
	snprintf(chain->name, sizeof(chain->name), "%s", name);
	return 0;
}

static json_t *chain_set(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct chain *chain, *old;
	const char *name;
	json_t *ports;

	if (control_unpack(params, error, "{s:s, s:o}", "name", &name, "ports", &ports) != 0)
		return NULL;
	if (!valid_name(name))
		return control_fail(error, CONTROL_INVALID_PARAMS, "name: 1 to %d characters", PORT_NAME - 1);
	chain = calloc(1, sizeof(*chain));
	if (chain == NULL)
		return control_fail(error, CONTROL_FAILED, "out of memory");
	if (check_chain(state, name, ports, chain, error) != 0) {
		free(chain);
		return NULL;
	}
	old = find_chain(state, name);
	if (old != NULL) {
		unwire(old);
		TAILQ_REMOVE(&state->chains, old, entry);
	}
	wire(chain);
	TAILQ_INSERT_TAIL(&state->chains, chain, entry);
	if (compile(state) != 0) {
		unwire(chain);
		TAILQ_REMOVE(&state->chains, chain, entry);
		free(chain);
		if (old != NULL) {
			wire(old);
			TAILQ_INSERT_TAIL(&state->chains, old, entry);
		}
		return control_fail(error, CONTROL_FAILED, "out of memory");
	}
	free(old);
	return json_object();
}

static json_t *chain_remove(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct chain *chain;
	const char *name;

	if (control_unpack(params, error, "{s:s}", "name", &name) != 0)
		return NULL;
	chain = find_chain(state, name);
	if (chain == NULL)
		return control_fail(error, CONTROL_UNKNOWN, "no chain '%s'", name);
	unwire(chain);
	if (compile(state) != 0) {
		wire(chain);
		return control_fail(error, CONTROL_FAILED, "out of memory");
	}
	TAILQ_REMOVE(&state->chains, chain, entry);
	free(chain);
	return json_object();
}

static json_t *chain_list(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *list = json_array();
	struct chain *chain;

	TAILQ_FOREACH (chain, &state->chains, entry) {
		json_t *ports = json_array();

		for (unsigned i = 0; i < chain->nb_ports; i++)
			json_array_append_new(ports, json_string(chain->ports[i]->port.name));
		json_array_append_new(list, json_pack("{s:s, s:o}", "name", chain->name, "ports", ports));
	}
	return list;
}

/* ------- the switch itself ------- */

static json_t *worker_list(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;

	return json_pack("[{s:s, s:i, s:i, s:I, s:s}]", "name", "worker-0", "core", eal_worker_cpu(), "tid",
			 atomic_load(&state->worker.thread), "tsc_hz", (json_int_t)rte_get_tsc_hz(), "idle",
			 state->worker.idle == WORKER_POLL ? "poll" : "pause");
}

static json_t *version(void *context, json_t *params, struct control_error *error)
{
	return json_pack("{s:s, s:s, s:s}", "program", "tailrace-switch", "version", TAILRACE_VERSION, "dpdk",
			 rte_version());
}

const struct control_method switch_methods[] = {
	{"version", version},	    {"port.add", port_add},	  {"port.remove", port_remove},
	{"port.list", port_list},   {"chain.set", chain_set},	  {"chain.remove", chain_remove},
	{"chain.list", chain_list}, {"worker.list", worker_list},
};
const size_t switch_nb_methods = RTE_DIM(switch_methods);

int switch_open(struct switch_state *state, const char *page_path)
{
	struct program *program = calloc(1, sizeof(*program));

	TAILQ_INIT(&state->ports);
	TAILQ_INIT(&state->chains);
	state->page = page_create(page_path, page_kinds, RTE_DIM(page_kinds), SWITCH_PORTS + GRACE_WORKERS);
	if (program == NULL || state->page == NULL)
		return -ENOMEM;
	atomic_store(&state->worker.program, program);
	state->worker.counters = (struct worker_counters *)page_slot_open(state->page, PAGE_WORKER, "worker-0");
	return 0;
}

void switch_close(struct switch_state *state)
{
	struct switch_port *port;
	struct chain *chain;

	while ((chain = TAILQ_FIRST(&state->chains)) != NULL) {
		TAILQ_REMOVE(&state->chains, chain, entry);
		free(chain);
	}
	while ((port = TAILQ_FIRST(&state->ports)) != NULL) {
		TAILQ_REMOVE(&state->ports, port, entry);
		close_port(&port->port);
		free(port);
	}
	free(atomic_load(&state->worker.program));
	page_close(state->page);
}
