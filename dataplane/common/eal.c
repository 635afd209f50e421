/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "eal.h"
#include "log.h"

enum { EAL_MAIN = 0, EAL_WORKER = 1 };

static int worker_cpu;

/* The last CPU in the set other than `except`, or -1. */
static int last_cpu(const cpu_set_t *set, int except)
{
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, set) && cpu != except)
			return cpu;
	return -1;
}

int eal_start(const struct eal_options *options)
{
	char program[32], lcores[64], memory[16], prefix[64];
	cpu_set_t allowed;
	int control_cpu, count = 0;
	char *arguments[20];

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return -errno;
	worker_cpu = options->core >= 0 ? options->core : last_cpu(&allowed, -1);
	if (worker_cpu >= CPU_SETSIZE || !CPU_ISSET(worker_cpu, &allowed)) {
		log_error("core %d is offline or not allowed to this process; see the list in "
			  "/proc/self/status, Cpus_allowed_list",
			  worker_cpu);
		return -EINVAL;
	}
	control_cpu = last_cpu(&allowed, worker_cpu);
	if (control_cpu < 0)
		control_cpu = worker_cpu;

	snprintf(lcores, sizeof(lcores), "%d@%d,%d@%d", EAL_MAIN, control_cpu, EAL_WORKER, worker_cpu);
	snprintf(memory, sizeof(memory), "%u", options->memory_mib);
	snprintf(prefix, sizeof(prefix), "%s-%d", options->program, getpid());
	snprintf(program, sizeof(program), "%s", options->program);
	arguments[count++] = program;
	arguments[count++] = "--lcores";
	arguments[count++] = lcores;
	arguments[count++] = "-m";
	arguments[count++] = memory;
	arguments[count++] = "--file-prefix";
	arguments[count++] = prefix;
	arguments[count++] = "--no-telemetry";
	arguments[count++] = "--iova-mode=va";
	/* Warnings of probing and of rings are ours to word: the caller reports what failed. */
	arguments[count++] = "--log-level=lib.*:error";
	arguments[count++] = "--log-level=pmd.*:error";
	if (options->huge) {
		arguments[count++] = "--in-memory";
		arguments[count++] = "--single-file-segments";
	} else {
		arguments[count++] = "--no-huge";
		arguments[count++] = "--no-shconf";
	}
	if (!options->pci)
		arguments[count++] = "--no-pci";

	if (rte_eal_init(count, arguments) < 0) {
		if (options->huge)
			log_error("DPDK did not start with %u MiB of huge pages: %s; reserve them with "
				  "'echo %u > /proc/sys/vm/nr_hugepages' or leave out --huge",
				  options->memory_mib, rte_strerror(rte_errno), options->memory_mib / 2 + 1);
		else
			log_error("DPDK did not start with %u MiB of memory: %s", options->memory_mib,
				  rte_strerror(rte_errno));
		return rte_errno ? -rte_errno : -EIO;
	}
	/* DPDK makes a folder for files that it shares with others; there are none, so the folder goes at once. */
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

unsigned eal_worker(void)
{
	return EAL_WORKER;
}

int eal_worker_cpu(void)
{
	return worker_cpu;
}
