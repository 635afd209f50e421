/* SPDX-License-Identifier: Apache-2.0
 *
 * From the kernel's events, which are moments, to intervals: what each CPU did, and where each watched thread was.
 * Logic without I/O: events go in, in the order of each CPU's time (TSC), and records come out (record.h).
 */
#ifndef TAILRACE_RECORDER_TIMELINE_H
#define TAILRACE_RECORDER_TIMELINE_H

#include "recorder/record.h"

enum { TIMELINE_THREADS = 256, TIMELINE_COMM = 16 };

struct task {
	int32_t thread; /* 0: the CPU is idle */
	int32_t priority;
	char name[TIMELINE_COMM];
};

/* Sorts of interrupts, which may nest in each other but not in themselves. */
enum nesting { NESTING_VECTOR, NESTING_LINE, NESTING_SOFTIRQ, NESTINGS };

struct timeline_cpu {
	struct task task;
	uint64_t since; /* the task runs; 0: not known */
	uint64_t entered[NESTINGS];
};

struct timeline_thread {
	int32_t thread;
	bool off;
	enum record_kind why; /* it is off its CPU */
	uint64_t since;
	uint64_t exited; /* when its machine's CPU was left; 0: it is not, or nobody knows */
	uint32_t reason;
	const char *reason_name;
};

struct timeline {
	struct record_file *file;
	struct timeline_cpu cpus[RECORD_CPUS];
	struct timeline_thread threads[TIMELINE_THREADS]; /* those that are watched */
	unsigned nb_threads;
};

/* The watched thread of this id, or NULL. */
struct timeline_thread *timeline_thread(struct timeline *timeline, int32_t thread);

/* `index` is a CPU's place in the recorder's list. */
void timeline_enter(struct timeline *timeline, unsigned index, enum nesting nesting, uint64_t time);
void timeline_leave(struct timeline *timeline, unsigned index, enum nesting nesting, uint64_t time, uint32_t id,
		    const char *name);

/* A CPU goes from one task to another; `state` is prev_state of the kernel's tracepoint sched_switch. */
void timeline_switch(struct timeline *timeline, unsigned index, uint64_t time, const struct task *before,
		     uint64_t state, const struct task *after);

/* The CPU of a machine, which a watched thread is, was left for this host, and is entered again. */
void timeline_exit(struct timeline *timeline, uint64_t time, int32_t thread, uint32_t reason, const char *name);
void timeline_entry(struct timeline *timeline, unsigned index, uint64_t time, int32_t thread);

/* Something that has no length, of a watched thread; other threads' are left out. */
void timeline_point(struct timeline *timeline, unsigned index, enum record_kind kind, uint64_t time, int32_t thread,
		    uint32_t extra);

/* Events were lost on this CPU: what was under way there is not known. */
void timeline_lost(struct timeline *timeline, unsigned index);

#endif
