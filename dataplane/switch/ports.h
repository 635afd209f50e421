/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports that run: made from a model, with the slots of their counters.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_PORTS_H
#define TAILRACE_SWITCH_PORTS_H

#include "common/page.h"
#include "steer/watch.h"
#include "switch/model.h"

/* Where a receive queue is polled, and what that costs. */
struct placed {
	unsigned worker;
	bool is_placed;
	double load;		 /* of a worker, over the last interval: 0 to 1 */
	double moved_at;	 /* seconds on the monotonic clock; 0: never */
	uint64_t packets, bytes; /* as counted at the last look */
};

struct switch_port {
	struct port port; /* first, aligned: what workers see */
	struct placed placed[PORT_QUEUES];
	char told[256];	       /* how it is, as who listens was last notified of it (events.h) */
	bool expected;	       /* a guest that an earlier switch served, and that may come back at once */
	unsigned seen, stable; /* of that guest: pairs at the last look; the same at the one before, or 0 */
	struct gate gate;      /* what it may send in */
};

/* Open a port.  Returns NULL after filling in the error, with nothing left behind. */
struct switch_port *switch_port_open(struct page *page, const struct port_model *model, bool awaited,
				     struct control_error *error);

/* A port that stays is another model's now: what changes while it is open is set. */
void switch_port_follow(struct switch_port *port, const struct port_model *model);

/* Close it; no program names it any more. */
void switch_port_close(struct page *page, struct switch_port *port);

/*
 * Look how many pairs a guest that is expected back has brought.  Returns whether as many as at the last look: it
 * brings one after the other, and frames that were given to fewer would be overtaken by those given to all.
 */
bool switch_port_stable(struct switch_port *port);

/* The receive queues that frames can be given to now; 1 at least, but 0 while the guest is expected back. */
unsigned switch_port_pairs(const struct switch_port *port);

/* Can it be given frames now: is its guest there, or its link up? */
bool switch_port_takes(const struct switch_port *port);

/* What `port.list` says of it. */
json_t *switch_port_describe(const struct switch_port *port, const struct port_model *model);

/* The same of a port that a failed change has left closed. */
json_t *switch_port_missing(const struct port_model *model);

#endif
