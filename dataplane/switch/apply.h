/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checked configuration to what runs: apply() for another configuration, reconcile() for all else that has
 * changed.  Nothing else changes what workers do.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_APPLY_H
#define TAILRACE_SWITCH_APPLY_H

#include <stddef.h>

#include "common/control.h"

struct generation;
struct model;
struct switch_state;

/*
 * Make the model hold, and take it over.  New ports are opened first; if any cannot be, those opened are closed again
 * and all stays as it was.  Then the workers get new programs, and what is no longer named is closed.  Ports that did
 * not change keep their guests and lose nothing.  Returns 0, or -1 after filling in the error; the model is the
 * caller's then.
 */
int apply(struct switch_state *state, struct model *model, struct control_error *error);

/*
 * Whether the model could be made to hold as far as can be said with nothing done: there is memory for the packet
 * buffers of its new devices.  Returns 0, or -1 after filling in the error.
 */
int apply_try(const struct switch_state *state, const struct model *model, struct control_error *error);

/* The same of a switch that runs `now` (NULL: nothing) and has so many bytes left. */
int apply_fits(const struct model *model, const struct generation *now, size_t left, struct control_error *error);

/*
 * The same model holds, but other things are as they were: what guests and devices do, where a queue is to be polled,
 * who looks on.  Make the workers do what follows from that.  Returns 0, or -1 after filling in the error, with nothing
 * changed.
 */
int reconcile(struct switch_state *state, struct control_error *error);

#endif
