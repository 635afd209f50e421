/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a queue whose frames have to be looked at: rules, replica groups, a bridge.
 *
 * A burst is read, decided on as a whole, sorted by the queues that its frames leave by, and written to each with one
 * call and one notification.  A receiver that is full, or gone, costs its own frames alone and at once; nobody waits
 * for it.  The sender gets its frames back when all receivers have what they take.
 *
 * Made by the control side for one source; used by the worker that owns the source.
 */
#ifndef TAILRACE_STEER_STEER_H
#define TAILRACE_STEER_STEER_H

#include "steer/bridge.h"
#include "steer/classify.h"
#include "steer/pin.h"
#include "steer/source.h"

/* An action: to one egress, or to the group's replica's. */
struct step {
	const struct pin_group *group; /* NULL: to egresses[first] */
	unsigned first;	 /* with a group: to egresses[first + the replica's number], PIN_REPLICAS of them */
	unsigned spread; /* each of these stands for so many egresses, one of which a flow has (pin_spread()); 0: one */
};

enum { STEERING_DROP = UINT32_MAX };

struct steering_config {
	/* Every queue and hop that a frame may leave by; a port of NULL is nowhere, and is never used. */
	const struct egress *egresses;
	unsigned nb_egresses;

	/* Chains: rules, whose action is the number of a step, and the step of what they leave; STEERING_DROP: none. */
	const struct classifier *classifier; /* NULL: no rules */
	struct flows *fragments; /* by which rule the first of a datagram went; NULL: rules do not look so far */
	const struct step *steps;
	unsigned nb_steps;
	uint32_t otherwise;
	bool waits; /* frames wait for the only receiver, whose queues the egresses are, while one of these is full */

	/* Or a bridge: egresses[i] is its port number i, in the order of its configuration. */
	const struct bridge *bridge;
	unsigned bridge_port; /* the source's */
};

/*
 * Returns the program of a source, or NULL without memory.  It copies the steps and egresses; classifier,
 * fragments, groups and bridge must outlive it.  A classifier's `otherwise` is the same as the config's.
 */
struct steering *steering_new(const struct steering_config *config);

void steering_free(struct steering *steering);

/*
 * What all queues of a port remember of fragments, whose rules and number of steps are the same: to be freed with
 * flows_free().  Needed if classifier_reads_transport().  Returns NULL without memory.
 */
struct flows *steering_fragments_new(unsigned nb_queues);

/* Of a steered source, what source_poll(), source_begin() and source_owes() are. */
unsigned steer_poll(struct source *source, const struct round *round);
void steer_begin(struct source *source);
bool steer_owes(const struct source *source);

#endif
