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

/* The number of 2 MiB pages on the node of DPDK's CPUs. */
#define POOL "/sys/devices/system/node/nodeN/hugepages/hugepages-2048kB/nr_hugepages"

enum { EAL_MAIN = 0, EAL_WORKER = 1 };

static int worker_cpus[EAL_WORKERS];

/* The last CPU in the set, or -1. */
static int last_cpu(const cpu_set_t *set)
{
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, set))
			return cpu;
	return -1;
}

/* Write the lcores as DPDK wants them written.  Returns 0 or -EINVAL after logging. */
static int place_lcores(const struct eal_options *options, const cpu_set_t *allowed, char *lcores, size_t size)
{
	const unsigned count = options->nb_cores > 0 ? options->nb_cores : 1;
	cpu_set_t left = *allowed;
	size_t used;

	for (unsigned i = 0; i < count; i++) {
		int cpu = options->nb_cores > 0 ? options->cores[i] : options->core;

		if (cpu < 0)
			cpu = last_cpu(allowed);
		if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, allowed)) {
			log_error("core %d is offline or not allowed to this process; see the list in "
				  "/proc/self/status, Cpus_allowed_list",
				  cpu);
			return -EINVAL;
		}
		worker_cpus[i] = cpu;
		CPU_CLR(cpu, &left);
	}
	used = snprintf(lcores, size, "%d@%d", EAL_MAIN, CPU_COUNT(&left) > 0 ? last_cpu(&left) : worker_cpus[0]);
	for (unsigned i = 0; i < count; i++)
		used += snprintf(lcores + used, size - used, ",%u@%d", EAL_WORKER + i, worker_cpus[i]);
	return 0;
}

void eal_want_device(struct eal_options *options, const char *address)
{
	options->pci = true;
	options->devices[options->nb_devices++] = address;
}

int eal_start(const struct eal_options *options)
{
	char program[32], lcores[EAL_WORKERS * 12 + 16], memory[16], prefix[64], devices[EAL_DEVICES][32];
	cpu_set_t allowed;
	int count = 0;
	char *arguments[20 + 2 * EAL_DEVICES];

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return -errno;
	if (place_lcores(options, &allowed, lcores, sizeof(lcores)) != 0)
		return -EINVAL;
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
	/*
	 * A PCI device without an IOMMU reaches memory by physical addresses, which only huge pages keep: then DPDK
	 * finds out.
	 */
	if (!options->pci || !options->huge)
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
	if (!options->pci) {
		arguments[count++] = "--no-pci";
	} else if (options->huge && options->nb_devices > 0) {
		/* Only with these can DPDK find out by which addresses they reach memory. */
		for (unsigned i = 0; i < options->nb_devices; i++) {
			snprintf(devices[i], sizeof(devices[i]), "%s", options->devices[i]);
			arguments[count++] = "-a";
			arguments[count++] = devices[i];
		}
	} else {
		/*
		 * By itself DPDK opens every device that it can, be it meant for another program.  Allowed one that is
		 * not there, it opens none before device_open() names it.
		 */
		arguments[count++] = "-a";
		arguments[count++] = "ffff:ff:1f.7";
	}

	if (rte_eal_init(count, arguments) < 0) {
		if (options->huge)
			log_error("DPDK did not start with %u MiB of huge pages: %s; add %u to the number in " POOL
				  ", or leave out --huge",
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

unsigned eal_worker_lcore(unsigned number)
{
	return EAL_WORKER + number;
}

int eal_lcore_cpu(unsigned lcore)
{
	return worker_cpus[lcore - EAL_WORKER];
}
