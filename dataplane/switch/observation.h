/* SPDX-License-Identifier: Apache-2.0
 *
 * Who looks on, beside what the configuration says.  Begun and ended by observe.h; what workers do for it is made with
 * each generation (watches.c).  The control thread's.
 */
#ifndef TAILRACE_SWITCH_OBSERVATION_H
#define TAILRACE_SWITCH_OBSERVATION_H

#include "switch/capture.h"
#include "switch/following.h"
#include "switch/parking.h"

struct observation {
	struct capture_sessions captures;
	unsigned nb_captures, last_capture;
	struct parking *parkings[PARKINGS];
	unsigned last_parking;
	struct follow *follow;
	uint64_t follow_asked_at; /* TSC */
};

#endif
