/* SPDX-License-Identifier: Apache-2.0
 *
 * What fuzz targets share.
 */
#ifndef TAILRACE_FUZZ_FUZZ_H
#define TAILRACE_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>

/* What does not hold ends the program, and libFuzzer keeps the input.  A text may follow, which says what that means.
 */
#define check(holds, ...) check_holds(holds, #holds " " __VA_ARGS__)

static inline void check_holds(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

/* DPDK, with nothing of this machine but so many MiB of memory. */
static inline void start_dpdk(const char *memory_mib)
{
	char memory[8];
	char *arguments[] = {"fuzz", "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf",
			     "-l",   "0",	  "-m",	      memory,		"--log-level=critical"};

	snprintf(memory, sizeof(memory), "%s", memory_mib);
	check(rte_eal_init(RTE_DIM(arguments), arguments) >= 0, "DPDK does not start");
}

#endif
