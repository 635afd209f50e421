/* SPDX-License-Identifier: Apache-2.0
 *
 * What a function says of itself: its counters when it has ended, and these and its tables while it runs, to those who
 * ask on a control socket (common/control.h).  Its method `show` takes `most`, the rows of each table that are wanted,
 * and returns `function`, `counters` and `tables`: of each table `total` and `rows`.  `configure` tells a function what
 * it can be told while it runs.  `use_cpus` takes `cpus`, one for each forwarding thread from now on, and `wait_ms`,
 * the time that the first frame is waited for, and returns what forward_use() says.  `give_connections` and
 * `take_connections` hand connections over to the instance that replaces this one (handover.h).
 */
#ifndef TAILRACE_FUNCTIONS_REPORT_H
#define TAILRACE_FUNCTIONS_REPORT_H

#include <pthread.h>
#include <stdbool.h>

#include "common/control.h"
#include "forward.h"

struct report {
	struct forward *forward;
	struct control *control; /* NULL: there is none */
	int stop_fd;
	bool runs;
	pthread_t thread;
};

/* Listen at `path`, unless that is NULL.  Returns 0, or -errno after logging. */
int report_open(struct report *report, const char *path, struct forward *forward);

/* Answer, from now on and in a thread of its own: the function and its ports are open.  Returns as above. */
int report_start(struct report *report);

/* Answer no more.  Harmless if it is not open. */
void report_close(struct report *report);

/* Write the counters to standard output as a line of JSON. */
void report_print(const struct forward *forward);

#endif
