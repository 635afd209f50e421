/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens, for those who want to be notified: notifications on the control socket.  `port` has a port's name, its
 * new state and, if it says, why; `config` the version of a configuration that was made, and the process that asked for
 * it.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_EVENTS_H
#define TAILRACE_SWITCH_EVENTS_H

#include "common/control.h"

struct switch_state;

/* `events.subscribe`: how all ports are now; its caller is notified of what is otherwise from then on. */
json_t *events_subscribe(void *context, json_t *params, struct control_error *error);

/* Notify of the configuration, which is new. */
void events_config(struct switch_state *state);

/* Notify of the ports whose state is another than when this was last called. */
void events_look(struct switch_state *state);

/* Notify of the ports that a change which failed has left closed. */
void events_gone(struct switch_state *state);

#endif
