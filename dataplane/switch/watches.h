/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the watches that observation.h makes are kept: each is found again by what it is for.
 */
#ifndef TAILRACE_SWITCH_WATCHES_H
#define TAILRACE_SWITCH_WATCHES_H

#include "switch/model.h"

struct watches;

/* Returns NULL without memory. */
struct watches *watches_new(void);
void watches_free(struct watches *watches);

/* Begin with the watches of other programs.  Returns 0, or -1 without memory. */
int watches_begin(struct watches *watches, const struct model *model, const struct names *ports);

/* Workers run the programs: set what the ports may send, and free the watches that only other programs had. */
void watches_keep(struct watches *watches);

/* They never will: free what only these had. */
void watches_drop(struct watches *watches);

#endif
