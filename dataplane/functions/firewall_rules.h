/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall's rules, in the form in which the first frame of a flow is looked up; and what each has decided.  A set
 * never changes but for its counters, of which a forwarding thread writes those of its queues.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_RULES_H
#define TAILRACE_FUNCTIONS_FIREWALL_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/control.h"
#include "function.h"
#include "steer/classify.h"

enum { FIREWALL_RULES_MOST = 10000 };

enum firewall_action { FIREWALL_DENY, FIREWALL_ALLOW, FIREWALL_REJECT };

struct firewall_rule {
	char *name;
	enum firewall_action action;
};

struct firewall_rule_counts {		/* of what came in by a queue */
	_Atomic uint64_t frames, bytes; /* of flows that the rule began, the first frame; of others, all */
};

/* By tuple space search (steer/classify.h), one set for each port where frames come in. */
struct firewall_rules {
	struct classifier *by_port[2];
	uint32_t nb; /* and behind them one more, the default */
	unsigned nb_queues;
	struct firewall_rule_counts *counts; /* of the rules and the default, for one queue after the other */
	struct firewall_rule rules[];
};

/*
 * Read a set: {"default": "deny", "rules": [{"name": "web", "action": "allow", "port": 0, "match": [{...}]}]}.  The
 * first rule counts of which one match fits a frame; a match is as a chain's (steer/matches.h), and a rule without any
 * fits all frames.  Returns NULL with the error filled in.
 */
struct firewall_rules *firewall_rules_read(json_t *params, unsigned nb_queues, struct control_error *error);

void firewall_rules_free(struct firewall_rules *rules);

/* The rules that the first frames of flows meet. */
void firewall_rules_find(const struct firewall_rules *rules, uint16_t in, const struct headers *headers, unsigned count,
			 uint32_t *found);

/* One has decided about a frame of a queue. */
static inline void firewall_rules_count(struct firewall_rules *rules, unsigned queue, uint32_t rule, uint32_t bytes)
{
	struct firewall_rule_counts *counts = &rules->counts[queue * (rules->nb + 1) + rule];

	function_count(&counts->frames, 1);
	function_count(&counts->bytes, bytes);
}

/* So many rules as rows of a table, with the default before them. */
json_t *firewall_rules_show(const struct firewall_rules *rules, unsigned most);

#endif
