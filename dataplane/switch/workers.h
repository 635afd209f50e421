/* SPDX-License-Identifier: Apache-2.0
 *
 * All workers of the switch: started and ended together, given their programs together, with one watchdog.
 * The control thread's.
 */
#ifndef TAILRACE_SWITCH_WORKERS_H
#define TAILRACE_SWITCH_WORKERS_H

#include "common/grace.h"
#include "common/page.h"
#include "switch/worker.h"

struct workers {
	unsigned count;
	struct worker list[GRACE_WORKERS];
	uint64_t programs; /* that have been given to them */
	pthread_t watchdog;
	bool has_watchdog;
	atomic_bool stop;
};

struct workers_options {
	unsigned count;
	enum worker_idle idle[GRACE_WORKERS]; /* of each */
	unsigned backpressure_us;
	unsigned idle_us; /* without frames, before a worker pauses or sleeps */
};

/* Make them, with empty programs and their slots on the page.  Returns 0 or a negative errno. */
int workers_open(struct workers *workers, const struct workers_options *options, struct page *page);

/*
 * Start them, and a watchdog in a thread of its own.  The one system call that a busy worker makes is to wake a
 * guest, by a descriptor that the guest can make blocking and fill; a worker that has finished no round for a while is
 * interrupted, and stops that guest's ring.  Before any port is opened.  Returns 0 or a negative errno.
 */
int workers_start(struct workers *workers);

/* End them.  The watchdog goes on: who closes ports may hang in a guest's descriptor as a worker may. */
void workers_stop(struct workers *workers);

/* End the watchdog, and free what workers had, but not their programs; they have been stopped. */
void workers_close(struct workers *workers);

/*
 * Give each worker its program of `programs`; when this returns no worker uses those before.  What goes on as it was is
 * not interrupted.  Returns 0, or -ENOMEM with nothing changed.
 */
int workers_install(struct workers *workers, struct program *const *programs);

/* Something that a sleeping worker has to know has changed.  Any thread. */
void workers_wake(struct workers *workers);

const char *worker_idle_name(enum worker_idle idle);

#endif
