/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "random_lines.h"
#include "test/frame_builder.h"

enum { BURST = 32, PASSES = 64, ROUNDS = 400, LINE = 64, LARGE_PAGE = 2 << 20, MEMORY_MIB = 256 };

static volatile uint64_t sink; /* or nothing would be read */

/* Cycles for a line of a table of so many bytes, of which a burst is asked for ahead. */
static double line(uint8_t *table, size_t size)
{
	double best = 0;
	uint64_t seed = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t at[PASSES][BURST];
		uint64_t began;
		double cycles;

		for (unsigned i = 0; i < PASSES * BURST; i++)
			at[i / BURST][i % BURST] = random64(&seed) % (size / LINE);
		began = rte_rdtsc();
		for (unsigned i = 0; i < PASSES; i++) {
			uint64_t all = 0;

			for (unsigned j = 0; j < BURST; j++)
				rte_prefetch0(table + (size_t)at[i][j] * LINE);
			for (unsigned j = 0; j < BURST; j++)
				all += *(const uint64_t *)(table + (size_t)at[i][j] * LINE);
			sink = all;
		}
		cycles = (double)(rte_rdtsc() - began) / PASSES / BURST;
		if (best == 0 || cycles < best)
			best = cycles;
	}
	return best;
}

void random_lines_report(void)
{
	printf("\na cache line at random, of a burst: cycles\n%-24s %9s %9s\n", "of a table of", "2 MiB",
	       "4 KiB pages");
	for (size_t mib = 1; mib <= MEMORY_MIB; mib *= 4) {
		const size_t size = mib << 20;
		uint8_t *table = aligned_alloc(LARGE_PAGE, RTE_MAX(size, (size_t)LARGE_PAGE));
		double large, small;

		if (table == NULL || madvise(table, size, MADV_HUGEPAGE) != 0)
			return;
		large = line(memset(table, 1, size), size);
		if (madvise(table, size, MADV_NOHUGEPAGE) != 0 || madvise(table, size, MADV_DONTNEED) != 0)
			return;
		small = line(memset(table, 1, size), size);
		printf("%-4zu MiB %26.1f %9.1f\n", mib, large, small);
		free(table);
	}
}
