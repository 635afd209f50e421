/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's environment, started the same way by every Tailrace program: private (no file is left behind,
 * no other DPDK process is seen), with one polling core and one core for control.
 */
#ifndef TAILRACE_COMMON_EAL_H
#define TAILRACE_COMMON_EAL_H

#include <stdbool.h>

struct eal_options {
	const char *program;
	int core;	     /* CPU of the polling thread; -1: the last CPU this process may use */
	unsigned memory_mib; /* DPDK's memory: packet buffers and device rings */
	bool huge;	     /* back it with 2 MiB pages (anonymous files) instead of 4 KiB ones */
	bool pci;	     /* look for PCI devices */
};

/*
 * Start the environment.  Afterwards the calling thread is the main lcore, kept off the polling CPU
 * where the process may use another, and eal_worker() names the polling lcore.
 * Returns 0, or -errno after logging what failed and what to do.
 */
int eal_start(const struct eal_options *options);

/* The lcore id of the polling thread, and the CPU it is pinned to. */
unsigned eal_worker(void);
int eal_worker_cpu(void);

#endif
