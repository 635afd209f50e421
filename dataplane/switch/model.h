/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration, checked: the JSON document in types, its names resolved.  A model never changes; what runs is
 * made from it (generation.h).  Docs/architecture.md describes the document.
 */
#ifndef TAILRACE_SWITCH_MODEL_H
#define TAILRACE_SWITCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/control.h"
#include "common/names.h"
#include "port/port.h"
#include "steer/classify.h"
#include "switch/arena.h"

enum {
	MODEL_PORTS = 1024, /* a guest takes seven descriptors; a system may allow a process no more than 20000 */
	MODEL_CHAINS = 4096,
	MODEL_FUNCTIONS = 1024,
	MODEL_THROUGH = 64, /* functions in a chain */
	MODEL_REPLICAS = 64,
	MODEL_MATCHES = 64, /* alternatives of a chain */
	MODEL_BRIDGES = 64,
	MODEL_MIRRORS = 64,
	MODEL_TRUNK = 4094,
};

/* What a port is there for. */
enum port_role {
	ROLE_NONE,
	ROLE_END,  /* of chains */
	ROLE_SIDE, /* of a function */
	ROLE_BRIDGED,
	ROLE_PROBE, /* it gets a mirror's copies */
};

struct port_model {
	const char *name;
	unsigned index;
	enum port_kind kind;
	unsigned queues;

	/* A guest's. */
	const char *path;
	bool client;
	bool offloads;
	bool awaited;	 /* frames wait for its guest while that is not there */
	bool spread;	 /* frames go to its queues by their flows, and not by whose they come from */
	bool unread;	 /* it is counted how often frames wait in its guest's rings */
	uint64_t memory; /* bytes that it may share; 0: no limit of its own */
	int socket_mode; /* -1: as the umask says */
	const char *group;

	/* A device's. */
	const char *device;

	uint64_t most_bits, most_packets; /* that it may send in a second, 0: no limit */
	uint64_t to_bits, to_packets;	  /* that it may be sent */
	uint64_t to_latency;		  /* microseconds that a frame may wait for that */
	unsigned share;

	enum port_role role;
	const char *owner; /* the (first) chain, function, bridge or mirror */
};

struct replica_model {
	const char *name;
	const struct port_model *left, *right;
	bool draining; /* keeps the flows it has and gets no new ones */
};

struct function_model {
	const char *name;
	unsigned index;
	bool pinned;	   /* its flows are known: it has several replicas, or says how they are pinned */
	bool by_addresses; /* flows are known by their addresses alone */
	unsigned ageing;   /* seconds that a flow which is not seen is known */
	unsigned nb_replicas;
	struct replica_model *replicas;
	const struct chain_model *user; /* the last chain that goes through it */
};

struct chain_model {
	const char *name;
	unsigned index; /* the order in the document */
	struct port_model *from, *to;
	unsigned nb_through;
	struct function_model **through;
	unsigned nb_matches; /* 0: every frame */
	struct match *matches;
	int priority;
};

struct bridge_port_model {
	const struct port_model *port;
	uint16_t access; /* its VLAN; 0: a trunk */
	uint16_t native; /* of a trunk: the VLAN of untagged frames, 0: none */
	unsigned nb_trunk;
	uint16_t *trunk;
};

struct bridge_model {
	const char *name;
	unsigned index;
	unsigned nb_ports;
	struct bridge_port_model *ports;
	unsigned ageing; /* seconds */
	unsigned macs;
	unsigned flood; /* frames a second for each port */
};

struct mirror_model {
	const char *name;
	const struct port_model *port; /* or ... */
	const struct chain_model *chain;
	bool in, out;
	const struct port_model *to;
};

struct pin_model {
	const struct port_model *port;
	unsigned queue, worker;
};

struct model {
	json_t *document;
	unsigned nb_ports, nb_functions, nb_chains, nb_bridges, nb_mirrors, nb_pins;
	struct port_model *ports;
	struct function_model *functions;
	struct chain_model *chains;
	struct bridge_model *bridges;
	struct mirror_model *mirrors;
	struct pin_model *pins;
	unsigned trace_every;  /* 0: no trace */
	unsigned trace_recent; /* records of all frames that each worker keeps */
	struct names ports_by_name, functions_by_name, chains_by_name;
	struct arena memory;
};

/*
 * Check the document, for a switch with so many workers.  Returns NULL after filling in the error, which names the
 * key: "chains.voice.through[1]: no function 'fw'".  Keeps a reference to the document, which must not change.
 */
struct model *model_make(json_t *document, unsigned nb_workers, struct control_error *error);

void model_free(struct model *model);

/* What the queue of the port of this number is pinned by, or NULL. */
const struct pin_model *model_pin(const struct model *model, unsigned port, unsigned queue);

#endif
