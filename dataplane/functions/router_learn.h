/* SPDX-License-Identifier: Apache-2.0
 *
 * Hears all that the kernel has to tell, before the first frame.  Of a large table, the kernel spends as long on making
 * its messages, which it does in the calls that read them, as the router on taking them.  So a thread of its own reads,
 * which is gone afterwards.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_LEARN_H
#define TAILRACE_FUNCTIONS_ROUTER_LEARN_H

#include "router_kernel.h"

/* Returns 0 when all was told, or -errno after logging. */
int router_learn(struct router_kernel *kernel);

#endif
