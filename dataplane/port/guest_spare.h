/* SPDX-License-Identifier: Apache-2.0
 *
 * Mappings that are kept for when Linux allows the process no more (vm.max_map_count).  Where a guest has cut its
 * memory zeros need a mapping, and without one the process would end.
 */
#ifndef TAILRACE_PORT_GUEST_SPARE_H
#define TAILRACE_PORT_GUEST_SPARE_H

#include <stdbool.h>

/* Once, before there are guests.  Without memory for it, or mappings, there are none, which is logged. */
void guest_spare_open(void);

/* From a signal handler, of any thread: a mapping in the midst of another can be made now.  False: all are given. */
bool guest_spare_give(void);

/* For the thread that unmaps guests' memory, after that: take back what was given, as far as Linux allows. */
void guest_spare_take_back(void);

#endif
