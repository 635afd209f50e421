/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Notes in a page, at each change of task, the priority of what a CPU runs from now on.  It is one store to a line of
 * that CPU's own; nobody is waked.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "priority/page.h"
#include "priority/switches.h"

/* One of the two, which the kernel asks of programs that trace it. */
char LICENSE[] SEC("license") = "GPL";

/* What we read of the kernel's own; where it is, the loader finds out from the running kernel. */
struct task_struct {
	int pid, prio;
	char comm[SWITCHES_COMM];
} __attribute__((preserve_access_index));

/* Of real-time tasks only those of these names count; none: all. */
const volatile unsigned int nb_names = 0;
const volatile char names[SWITCHES_NAMES][SWITCHES_COMM] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct priority_page);
} page SEC(".maps");

static __always_inline bool is_named(const char *comm, unsigned int number)
{
	for (unsigned int i = 0; i < SWITCHES_COMM; i++) {
		if (comm[i] != names[number][i])
			return false;
		if (comm[i] == '\0')
			return true;
	}
	return true;
}

static __always_inline bool counts(struct task_struct *task)
{
	char comm[SWITCHES_COMM];

	if (nb_names == 0)
		return true;
	__builtin_memcpy(comm, task->comm, sizeof(comm));
	for (unsigned int number = 0; number < SWITCHES_NAMES; number++)
		if (number < nb_names && is_named(comm, number))
			return true;
	return false;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempted, struct task_struct *before, struct task_struct *after)
{
	const int prio = after->prio; /* 98 to 0: real-time priorities 1 to 99; below: a deadline */
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0, runs = PRIORITY_OTHER;
	struct priority_page *said = bpf_map_lookup_elem(&page, &zero);

	if (said == NULL || cpu >= PRIORITY_PAGE_CPUS)
		return 0;
	if (after->pid == 0)
		runs = PRIORITY_IDLE;
	else if (prio < PRIORITY_MOST && counts(after))
		runs = prio < 0 ? PRIORITY_MOST : PRIORITY_MOST - prio;
	*(volatile unsigned int *)&said->cpus[cpu].runs = runs;
	return 0;
}
