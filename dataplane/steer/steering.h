/* SPDX-License-Identifier: Apache-2.0
 *
 * What a steered source's frames are decided by: made by steering.c, used by steer.c.
 *
 * Egresses that lead to the same queue are one outlet, however many chains' hops they count at, so that a receiver gets
 * one write and one notification a burst.  Outlets stand in the order of their queues' addresses, and are taken in it.
 */
#ifndef TAILRACE_STEER_STEERING_H
#define TAILRACE_STEER_STEERING_H

#include "steer/bridge.h"
#include "steer/flows.h"
#include "steer/pin.h"
#include "steer/steer.h"
#include "steer/watch.h"

enum { STEERING_NOWHERE = UINT32_MAX };

/* A queue that frames leave by, and the worker's list for one burst. */
struct outlet {
	struct egress egress; /* its hop is NULL: hops are counted by frame */
	uint64_t packets;     /* a set of the burst's packets */
	unsigned bridge_port;
	bool same_queue; /* as the outlet before it; watched differently */
};

/* An egress as it was asked for. */
struct target {
	uint32_t outlet; /* STEERING_NOWHERE: none */
	bool shared;	 /* another worker counts at the hop too */
	struct hop_counters *hop;
};

struct steering {
	const struct classifier *classifier; /* NULL: every frame is `otherwise` */
	uint32_t otherwise;
	struct flows *fragments; /* steering_config's */
	bool looks;		 /* at headers */
	bool waits;		 /* steering_config's */

	const struct bridge *bridge;
	unsigned bridge_port;

	unsigned nb_outlets, nb_targets;
	struct outlet *outlets;
	struct step *steps;
	struct target *targets;
	uint64_t *touched; /* a set of outlets; empty between bursts */
	uint64_t *owed;	   /* a set of those that have been given frames, and may have to be flushed (egress_flush()) */
	bool owes;	   /* the set is not empty */
};

#endif
