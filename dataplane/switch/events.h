/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of ports, for those who want to be notified: notifications `port` on the control socket, each with a
 * port's name, its new state and, if it says, why.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_EVENTS_H
#define TAILRACE_SWITCH_EVENTS_H

#include "common/control.h"

struct switch_state;

/* `events.subscribe`: how all ports are now; its caller is notified of what is otherwise from then on. */
json_t *events_subscribe(void *context, json_t *params, struct control_error *error);

/* Notify of the ports whose state is another than when this was last called. */
void events_look(struct switch_state *state);

#endif
