/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports whose guest is moving to another switch, or comes from one: what is put aside for it (steer/park.h), and the
 * methods by which whoever moves it takes that out of one switch and gives it to the other.  A parking belongs to
 * whoever asked for it and lasts as long as that one keeps asking after it.
 * Owned by the control thread; workers see the part in steer/park.h.
 */
#ifndef TAILRACE_SWITCH_PARKING_H
#define TAILRACE_SWITCH_PARKING_H

#include "common/control.h"
#include "steer/park.h"

struct observation;
struct switch_state;

enum {
	PARKINGS = 32,
	PARKING_PORTS = 4,  /* names that a guest may have one after the other */
	PARKING_LEASE = 60, /* seconds without a question after which it ends */
};

struct parking;

/* What is put aside for the port of this name, or NULL: nothing is. */
struct park *parking_of(const struct observation *observation, const char *port);

json_t *parking_start(void *context, json_t *params, struct control_error *error);
json_t *parking_status(void *context, json_t *params, struct control_error *error);
json_t *parking_take(void *context, json_t *params, struct control_error *error);
json_t *parking_give(void *context, json_t *params, struct control_error *error);
json_t *parking_stop(void *context, json_t *params, struct control_error *error);

/* Once a second: end what nobody has asked after for a while. */
void parking_tick(struct switch_state *state);

/* End all; no worker runs any more. */
void parking_close_all(struct observation *observation);

#endif
