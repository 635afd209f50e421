/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores that are not a worker's alone: everybody on them is slow, so they are refused unless sharing is asked for, as
 * tests and small machines do.
 */
#ifndef TAILRACE_SWITCH_CORES_H
#define TAILRACE_SWITCH_CORES_H

#include <stdbool.h>

struct control;

/*
 * Claim these cores until this process ends: other switches of the same network namespace find them taken.  Who asks is
 * answered by the kernel, and let go by the thread that serves `control`; called before that does.  Returns 0; or
 * -EBUSY after logging which one stands in the list more than once, or is another switch's.  With `shared` that is
 * said, and no error.
 */
int cores_claim(struct control *control, const int *cores, unsigned nb_cores, bool shared);

#endif
