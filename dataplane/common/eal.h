/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's environment, started the same way by every Tailrace program: private (no file is left behind,
 * no other DPDK process is seen), with polling threads on cores of their own and one core for control.
 */
#ifndef TAILRACE_COMMON_EAL_H
#define TAILRACE_COMMON_EAL_H

#include <stdbool.h>

enum { EAL_WORKERS = 64, EAL_DEVICES = 8 };

struct eal_options {
	const char *program;
	int core;	  /* CPU of the polling thread; -1: the last CPU this process may use */
	const int *cores; /* or, with `nb_cores`, the CPUs of several; one may stand there more than once */
	unsigned nb_cores;
	unsigned memory_mib; /* DPDK's memory: packet buffers and device rings */
	bool huge;	     /* back it with 2 MiB pages (anonymous files) instead of 4 KiB ones */
	bool pci;	     /* look for PCI devices */

	/* Addresses of those that will be opened, as far as they are known; no other device is touched. */
	const char *devices[EAL_DEVICES];
	unsigned nb_devices;
};

/* A PCI device will be opened, one of at most EAL_DEVICES; the address must stay. */
void eal_want_device(struct eal_options *options, const char *address);

/*
 * Start the environment.  Afterwards the calling thread is the main lcore, kept off the polling CPUs
 * where the process may use another, and eal_worker() names the polling lcore.
 * Returns 0, or -errno after logging what failed and what to do.
 */
int eal_start(const struct eal_options *options);

/* The lcore id of the (first) polling thread, of the one with this number, and the CPU that an lcore is pinned to. */
unsigned eal_worker(void);
unsigned eal_worker_lcore(unsigned number);
int eal_lcore_cpu(unsigned lcore);

#endif
