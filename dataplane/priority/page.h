/* SPDX-License-Identifier: Apache-2.0
 *
 * The page in a machine's memory in which its kernel says what each of its CPUs runs, and which this host reads.
 *
 * Written inside only: by the program on sched_switch (switches.bpf.c) and by the agent.  A machine is not trusted:
 * whatever stands there chooses a priority within the bounds of its spec, and nothing else (follow.h).
 */
#ifndef TAILRACE_PRIORITY_PAGE_H
#define TAILRACE_PRIORITY_PAGE_H

enum {
	PRIORITY_PAGE_BYTES = 4096,
	PRIORITY_PAGE_LINE = 64,
	PRIORITY_PAGE_CPUS = 63,
};

/* What a CPU runs: PRIORITY_OTHER, the real-time priority of a task (1 to PRIORITY_MOST), or nothing. */
enum { PRIORITY_OTHER = 0, PRIORITY_MOST = 99, PRIORITY_IDLE = 100 };

#define PRIORITY_PAGE_MAGIC 0x3159544952495250ull

struct priority_page_cpu {
	unsigned int runs;
	unsigned int reserved[15];
};

struct priority_page {
	unsigned long long magic;
	unsigned long long beat; /* counts on while the agent lives */
	unsigned long long reserved[6];
	struct priority_page_cpu cpus[PRIORITY_PAGE_CPUS];
};

_Static_assert(sizeof(struct priority_page) == PRIORITY_PAGE_BYTES, "one page of memory");
_Static_assert(sizeof(struct priority_page_cpu) == PRIORITY_PAGE_LINE, "no CPU waits for another's line");

#endif
