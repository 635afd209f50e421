/* SPDX-License-Identifier: Apache-2.0
 *
 * How the control side takes something away from the workers: unpublish the pointer, wait for a grace period,
 * free.  Workers pay one store for each round of their loop.  On DPDK's rte_rcu_qsbr; one domain a process.
 */
#ifndef TAILRACE_COMMON_GRACE_H
#define TAILRACE_COMMON_GRACE_H

enum { GRACE_WORKERS = 64 };

/* Once, before any worker.  Returns 0 or -ENOMEM. */
int grace_open(void);

/* A worker calls these from its own thread: before its first round, after every round, after its last. */
void grace_worker_begin(unsigned worker);
void grace_worker_round(unsigned worker);
void grace_worker_end(unsigned worker);

/* Around a sleep, in which nobody waits for the worker: what it knew before may be gone when it goes on. */
void grace_worker_rest(unsigned worker);
void grace_worker_resume(unsigned worker);

/* Any other thread: return when every worker has finished the round it was in. */
void grace_wait(void);

#endif
