/* SPDX-License-Identifier: Apache-2.0
 *
 * What the switch is asked to be: its ports and chains.  Owned by the control thread.  A change is checked
 * whole, prepared off the fast path, and takes effect when the worker's program is swapped.
 */
#ifndef TAILRACE_SWITCH_SWITCH_H
#define TAILRACE_SWITCH_SWITCH_H

#include <sys/queue.h>

#include "common/control.h"
#include "common/page.h"
#include "switch/worker.h"

enum {
	SWITCH_PORTS = 500, /* DPDK's vhost library polls 1024 descriptors: a listener and a connection for each */
	CHAIN_PORTS = 256,
};

struct switch_port {
	struct port port;  /* first, aligned: what workers see */
	struct port *peer; /* where its frames go, NULL while it is in no chain */
	struct chain *chain;
	TAILQ_ENTRY(switch_port) entry;
};

struct chain {
	char name[PORT_NAME];
	unsigned nb_ports;
	struct switch_port *ports[CHAIN_PORTS];
	TAILQ_ENTRY(chain) entry;
};

struct switch_state {
	TAILQ_HEAD(, switch_port) ports;
	TAILQ_HEAD(, chain) chains;
	unsigned nb_ports;
	struct page *page;
	struct worker worker;
};

/* The methods of the control socket; docs/architecture.md lists them with their parameters. */
extern const struct control_method switch_methods[];
extern const size_t switch_nb_methods;

/* Make the page and the first, empty program.  Returns 0, or -errno after logging. */
int switch_open(struct switch_state *state, const char *page_path);

/* End all ports and chains; the worker has stopped. */
void switch_close(struct switch_state *state);

#endif
