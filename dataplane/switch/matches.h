/* SPDX-License-Identifier: Apache-2.0
 *
 * What a chain's `match` says, read into what the classifier takes.
 */
#ifndef TAILRACE_SWITCH_MATCHES_H
#define TAILRACE_SWITCH_MATCHES_H

#include "steer/classify.h"
#include "switch/fields.h"

/* Read one alternative.  Returns whether all is well. */
bool match_read(struct fields *fields, const struct place *at, json_t *object, struct match *match);

#endif
