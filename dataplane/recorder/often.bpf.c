/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Programs in the kernel that note what comes often (often.h).  One may be interrupted by another of its CPU: a slot
 * in the ring is taken by one atomic instruction, and is filled in when its sequence is there.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "recorder/often_event.h"

/* One of the two, which the kernel asks of programs that trace it. */
char LICENSE[] SEC("license") = "GPL";

/* States of a task (linux/sched.h). */
enum { TASK_UNINTERRUPTIBLE = 0x2, TASK_RTLOCK_WAIT = 0x1000 };

/* What we read of the kernel's own; where it is, the loader finds out from the running kernel. */
struct task_struct {
	int pid, prio;
	char comm[OFTEN_COMM];
} __attribute__((preserve_access_index));

struct irqaction {
	const char *name;
} __attribute__((preserve_access_index));

/* Of each CPU of the machine: its ring's number plus one; 0: it is not recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct often_ring);
} rings SEC(".maps");

static struct often_event *take(unsigned long long *sequence)
{
	__u32 cpu = bpf_get_smp_processor_id(), number;
	__u32 *found = bpf_map_lookup_elem(&numbers, &cpu);
	struct often_ring *ring;
	struct often_event *event;
	__u64 time;

	if (found == NULL || *found == 0)
		return NULL;
	number = *found - 1;
	ring = bpf_map_lookup_elem(&rings, &number);
	if (ring == NULL)
		return NULL;
	time = bpf_ktime_get_ns();
	*sequence = __sync_fetch_and_add(&ring->head, 1);
	event = &ring->events[*sequence % OFTEN_LENGTH];
	event->sequence = 0;
	event->time = time;
	return event;
}

static void show(struct often_event *event, unsigned long long sequence)
{
	__asm__ volatile("" ::: "memory");
	*(volatile unsigned long long *)&event->sequence = sequence + 1;
}

static int note(enum often_point point, __u32 id)
{
	unsigned long long sequence;
	struct often_event *event = take(&sequence);

	if (event != NULL) {
		event->point = point;
		event->id = id;
		show(event, sequence);
	}
	return 0;
}

#define NOTE_VECTOR(name)                                 \
	SEC("raw_tp/" #name)                              \
	int name(struct bpf_raw_tracepoint_args *context) \
	{                                                 \
		return note(OFTEN_##name, 0);             \
	}
OFTEN_VECTORS(NOTE_VECTOR)

#define NOTE_SOFTIRQ(name)                                   \
	SEC("raw_tp/" #name)                                 \
	int name(struct bpf_raw_tracepoint_args *context)    \
	{                                                    \
		return note(OFTEN_##name, context->args[0]); \
	}
NOTE_SOFTIRQ(softirq_entry)
NOTE_SOFTIRQ(softirq_exit)

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	unsigned long long sequence;
	struct often_event *event = take(&sequence);

	if (event == NULL)
		return 0;
	event->point = OFTEN_irq_handler_entry;
	event->id = (__u32)irq;
	if (bpf_probe_read_kernel_str(event->line, OFTEN_LINE, action->name) < 0)
		event->line[0] = '\0';
	show(event, sequence);
	return 0;
}

SEC("raw_tp/irq_handler_exit")
int irq_handler_exit(struct bpf_raw_tracepoint_args *context)
{
	return note(OFTEN_irq_handler_exit, (__u32)context->args[0]);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempted, struct task_struct *before, struct task_struct *after, unsigned int state)
{
	unsigned long long sequence;
	struct often_event *event = take(&sequence);

	if (event == NULL)
		return 0;
	event->point = OFTEN_sched_switch;
	event->before = before->pid;
	event->after = after->pid;
	event->priority = before->prio;
	/*
	 * As the tracepoint shows it to perf: one that was preempted while it was about to sleep can still run, and to
	 * wait for a lock of a real-time kernel is to wait in the kernel.
	 */
	event->state = preempted ? 0 : state & TASK_RTLOCK_WAIT ? TASK_UNINTERRUPTIBLE : state;
	__builtin_memcpy(event->name, before->comm, OFTEN_COMM);
	show(event, sequence);
	return 0;
}
