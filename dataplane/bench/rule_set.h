/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules as a firewall in front of servers has them: a server or a subnet, a protocol and a port or a range of them.
 */
#ifndef TAILRACE_BENCH_RULE_SET_H
#define TAILRACE_BENCH_RULE_SET_H

#include <jansson.h>
#include <stdint.h>

#include "steer/classify.h"

#define RULE_SET_SERVERS 0x0a000000u /* from there on, in the machine's order */

/* One of them by its number. */
void rule_set_one(unsigned number, struct match *match);

/* So many for firewall_rules_read(); the last one allows all UDP. */
json_t *rule_set_make(unsigned rules);

#endif
