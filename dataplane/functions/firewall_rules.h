/* SPDX-License-Identifier: Apache-2.0
 *
 * A firewall's rules, in the form in which the first frame of a flow is looked up; and what each
 * has decided.  A set never changes but for its counters, which the forwarding thread writes.
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
	_Atomic uint64_t frames, bytes; /* of flows that it began, the first frame; of others, all */
};

/* By tuple space search (steer/classify.h), one set for each port where frames come in. */
struct firewall_rules {
	struct classifier *by_port[2];
	uint32_t nb; /* and behind them one more, the default */
	struct firewall_rule rules[];
};

/*
 * Read a set: {"default": "deny", "rules": [{"name": "web", "action": "allow", "port": 0, "match": [{...}]}]}.  The
 * first rule counts of which one match fits a frame; a match is as a chain's (steer/matches.h), and a rule without any
 * fits all frames.  Returns NULL with the error filled in.
 */
struct firewall_rules *firewall_rules_read(json_t *params, struct control_error *error);

void firewall_rules_free(struct firewall_rules *rules);

/* The rules that the first frames of flows meet. */
void firewall_rules_find(const struct firewall_rules *rules, uint16_t in, const struct headers *headers, unsigned count,
			 uint32_t *found);

/* It has decided about a frame. */
static inline void firewall_rule_count(struct firewall_rule *rule, uint32_t bytes)
{
	function_count(&rule->frames, 1);
	function_count(&rule->bytes, bytes);
}

/* So many rules as rows of a table, with the default before them. */
json_t *firewall_rules_show(const struct firewall_rules *rules, unsigned most);

#endif
