/* SPDX-License-Identifier: Apache-2.0
 *
 * What the `match` of a chain, a capture or a firewall's rule says, read into what the classifier takes.
 */
#ifndef TAILRACE_STEER_MATCHES_H
#define TAILRACE_STEER_MATCHES_H

#include "common/fields.h"
#include "steer/classify.h"

/* Read one alternative.  Returns whether all is well. */
bool match_read(struct fields *fields, const struct place *at, json_t *object, struct match *match);

#endif
