/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <rte_rcu_qsbr.h>

#include "grace.h"

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

void grace_wait(void)
{
	rte_rcu_qsbr_synchronize(domain, RTE_QSBR_THRID_INVALID);
}
