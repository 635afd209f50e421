/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checked configuration to what runs.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_APPLY_H
#define TAILRACE_SWITCH_APPLY_H

#include <stddef.h>

#include "common/control.h"

struct model;
struct names;
struct switch_state;

/*
 * Make the document hold.  New ports are opened first; if any cannot be, those opened are closed again and all stays as
 * it was.  Then the workers get new programs, and what is no longer named is closed.  Ports that did not change keep
 * their guests and lose nothing.  Returns 0, or -1 after filling in the error.
 */
int apply(struct switch_state *state, json_t *document, struct control_error *error);

/*
 * Whether the model could be made to hold as far as can be said with nothing done: there is memory for the packet
 * buffers of its new devices.  Returns 0, or -1 after filling in the error.
 */
int apply_try(const struct switch_state *state, const struct model *model, struct control_error *error);

/* The same of a switch with these ports (NULL: none) and so many bytes left. */
int apply_fits(const struct model *model, const struct names *there, size_t left, struct control_error *error);

/* Compile what holds anew: a guest uses more or fewer queues, or a queue is to be polled by another worker. */
int apply_again(struct switch_state *state, struct control_error *error);

/* End all that runs; the workers have stopped. */
void apply_nothing(struct switch_state *state);

#endif
