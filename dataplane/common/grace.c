/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_pause.h>
#include <rte_rcu_qsbr.h>

#include "grace.h"

enum {
	GRACE_LOOKS = 1000, /* before the waiting thread sleeps: some tens of microseconds */
	GRACE_SLEEP = 50,   /* microseconds */
};

static struct rte_rcu_qsbr *domain;

int grace_open(void)
{
	size_t size = rte_rcu_qsbr_get_memsize(GRACE_WORKERS);

	domain = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(size));
	if (domain == NULL || rte_rcu_qsbr_init(domain, GRACE_WORKERS) != 0)
		return -ENOMEM;
	return 0;
}

void grace_worker_begin(unsigned worker)
{
	rte_rcu_qsbr_thread_register(domain, worker);
	rte_rcu_qsbr_thread_online(domain, worker);
}

void grace_worker_round(unsigned worker)
{
	rte_rcu_qsbr_quiescent(domain, worker);
}

void grace_worker_end(unsigned worker)
{
	rte_rcu_qsbr_thread_offline(domain, worker);
	rte_rcu_qsbr_thread_unregister(domain, worker);
}

void grace_worker_rest(unsigned worker)
{
	rte_rcu_qsbr_thread_offline(domain, worker);
}

void grace_worker_resume(unsigned worker)
{
	rte_rcu_qsbr_thread_online(domain, worker);
}

void grace_wait(void)
{
	uint64_t token = rte_rcu_qsbr_start(domain);

	/* A round takes microseconds; a worker that somebody keeps off its core takes longer, and may wait for ours. */
	for (unsigned look = 0; !rte_rcu_qsbr_check(domain, token, false); look++) {
		if (look < GRACE_LOOKS)
			rte_pause();
		else
			usleep(GRACE_SLEEP);
	}
}
