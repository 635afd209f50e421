/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of the control socket for who looks on: captures, followed frames, the key of the hop trace.
 */
#ifndef TAILRACE_SWITCH_OBSERVE_H
#define TAILRACE_SWITCH_OBSERVE_H

#include "common/control.h"

struct observation;
struct switch_state;

void observe_open(struct observation *observation);

/* End all; no worker runs any more. */
void observe_close(struct observation *observation);

json_t *observe_capture_start(void *context, json_t *params, struct control_error *error);
json_t *observe_capture_status(void *context, json_t *params, struct control_error *error);
json_t *observe_capture_stop(void *context, json_t *params, struct control_error *error);
json_t *observe_trace_start(void *context, json_t *params, struct control_error *error);
json_t *observe_trace_read(void *context, json_t *params, struct control_error *error);
json_t *observe_trace_stop(void *context, json_t *params, struct control_error *error);
json_t *observe_trace_key(void *context, json_t *params, struct control_error *error);

/* Once a second: end captures, and following, that nobody has asked after for a while. */
void observe_tick(struct switch_state *state);

#endif
