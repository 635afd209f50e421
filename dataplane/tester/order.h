/* SPDX-License-Identifier: Apache-2.0
 *
 * What trial.start orders: durations, streams and their traffic, each checked before anything is made of it.
 */
#ifndef TAILRACE_TESTER_ORDER_H
#define TAILRACE_TESTER_ORDER_H

#include "methods.h"

/* Make the trial that the parameters describe.  Returns NULL with the error filled in; free it with trial_free(). */
struct trial *order_read(struct tester *tester, json_t *params, struct control_error *error);

#endif
