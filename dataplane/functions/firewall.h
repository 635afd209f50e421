/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall's decisions by a clock that is given: for its tests, and for who measures it.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_H
#define TAILRACE_FUNCTIONS_FIREWALL_H

#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "firewall_flows.h"
#include "firewall_rules.h"

enum { FIREWALL_BURST = 32 };

struct firewall_counters { /* of the frames that came in at a port */
	_Atomic uint64_t passed;
	_Atomic uint64_t drops[FIREWALL_VERDICTS];
};

struct firewall {
	struct firewall_rules *_Atomic rules;
	struct firewall_flows flows;
	struct flows *fragments; /* of datagrams whose first fragment has passed: the place behind that one */
	uint64_t fragment_secret[2];
	uint16_t fragment_tick;
	struct firewall_counters counters[2];
};

extern struct firewall the_firewall;

/* Like process() of a function, at `tsc`. */
uint16_t firewall_filter(struct firewall *firewall, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in,
			 uint64_t tsc);

#endif
