/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall's decisions by a clock that is given: for its tests, and for who measures it.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_H
#define TAILRACE_FUNCTIONS_FIREWALL_H

#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "connections.h"
#include "firewall_reject.h"
#include "firewall_rules.h"
#include "fragments.h"
#include "homes.h"

enum { FIREWALL_BURST = 32 };

struct firewall_counters { /* of the frames that came in at a port */
	_Atomic uint64_t passed;
	_Atomic uint64_t drops[VERDICTS];
};

struct firewall { /* of a queue: it shares nothing with others but the rules */
	struct firewall_rules *_Atomic rules;
	unsigned queue;
	struct connections flows;
	struct fragments fragments;
	struct firewall_counters counters[2];
	struct firewall_rejects rejects[2];
	struct homes homes;
} __rte_cache_aligned;

extern struct firewall firewalls[FUNCTION_QUEUES];

/* Like process() of a function, at `tsc`.  Answers to frames that came in at the other port leave too. */
uint16_t firewall_filter(struct firewall *firewall, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in,
			 uint64_t tsc);

#endif
