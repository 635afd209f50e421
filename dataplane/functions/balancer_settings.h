/* SPDX-License-Identifier: Apache-2.0
 *
 * What a balancer is told, read and checked.  Pure.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_SETTINGS_H
#define TAILRACE_FUNCTIONS_BALANCER_SETTINGS_H

#include "balancer_set.h"

struct balancer_settings_end {
	struct balancer_end end;
	unsigned service; /* its place among these */
	uint16_t number;  /* what it gets */
};

struct balancer_settings {
	struct balancer_own own;
	bool has_secret;
	unsigned nb_services, nb_ends;
	struct balancer_service services[BALANCER_SERVICES];
	uint16_t numbers[BALANCER_SERVICES]; /* what they get */
	struct balancer_settings_end ends[BALANCER_ENDS];
};

/* As balancer_set_take() has it; for the caller to free.  NULL with the error filled in. */
struct balancer_settings *balancer_settings_read(json_t *params, struct control_error *error);

#endif
