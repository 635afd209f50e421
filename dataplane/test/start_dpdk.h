/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK as unit tests, fuzz targets and the benchmarks of single functions have it: with nothing of this machine but a
 * CPU and ordinary memory.
 */
#ifndef TAILRACE_TEST_START_DPDK_H
#define TAILRACE_TEST_START_DPDK_H

#include <sched.h>
#include <stdio.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_mbuf.h>

/* With so many MiB of memory, on the CPU where the caller runs.  Returns 0, or -1: what DPDK says is on stderr. */
static inline int start_dpdk(unsigned memory_mib)
{
	char memory[16], core[16];
	char *arguments[] = {"test", "--no-huge", "--no-pci", "--no-telemetry",	  "--no-shconf",
			     core,   "-m",	  memory,     "--log-level=error"};

	snprintf(memory, sizeof(memory), "%u", memory_mib);
	snprintf(core, sizeof(core), "--lcores=0@%d", sched_getcpu());
	return rte_eal_init(RTE_DIM(arguments), arguments) < 0 ? -1 : 0;
}

/* Likewise, and a pool of so many packet buffers; NULL: there is none. */
static inline struct rte_mempool *start_dpdk_with_pool(unsigned memory_mib, unsigned buffers)
{
	if (start_dpdk(memory_mib) != 0)
		return NULL;
	return rte_pktmbuf_pool_create("frames", buffers, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
}

#endif
