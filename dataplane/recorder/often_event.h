/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs in the kernel and their reader share.
 */
#ifndef TAILRACE_RECORDER_OFTEN_EVENT_H
#define TAILRACE_RECORDER_OFTEN_EVENT_H

enum {
	OFTEN_LENGTH = 1 << 15, /* events of a CPU, which are read 100 times a second */
	OFTEN_COMM = 16,
	OFTEN_LINE = 40,
};

/* Tracepoints of the processor's interrupts, by their names there. */
#define OFTEN_VECTOR(POINT, vector) POINT(vector##_entry) POINT(vector##_exit)
#define OFTEN_VECTORS(POINT)                      \
	OFTEN_VECTOR(POINT, local_timer)          \
	OFTEN_VECTOR(POINT, call_function)        \
	OFTEN_VECTOR(POINT, call_function_single) \
	OFTEN_VECTOR(POINT, irq_work)             \
	OFTEN_VECTOR(POINT, x86_platform_ipi)     \
	OFTEN_VECTOR(POINT, thermal_apic)         \
	OFTEN_VECTOR(POINT, threshold_apic)       \
	OFTEN_VECTOR(POINT, deferred_error_apic)  \
	OFTEN_VECTOR(POINT, error_apic)           \
	OFTEN_VECTOR(POINT, spurious_apic)

/* All tracepoints that have a program; each program has its tracepoint's name. */
#define OFTEN_POINTS(POINT) \
	POINT(sched_switch) \
	POINT(softirq_entry) POINT(softirq_exit) POINT(irq_handler_entry) POINT(irq_handler_exit) OFTEN_VECTORS(POINT)

#define OFTEN_NUMBER(point) OFTEN_##point,
enum often_point { OFTEN_POINTS(OFTEN_NUMBER) OFTEN_NB_POINTS };
#undef OFTEN_NUMBER

struct often_event {		     /* a cache line */
	unsigned long long sequence; /* its number in the ring plus one; written last */
	unsigned long long time;     /* CLOCK_MONOTONIC */
	unsigned int point;
	unsigned int id; /* of a softirq, or the line of a device's interrupt */
	union {
		struct {			     /* a switch */
			int before, after, priority; /* threads, and the priority of the one before */
			unsigned int state;	     /* of the one before, as the tracepoint is given it */
			char name[OFTEN_COMM];	     /* of the one before */
		};
		char line[OFTEN_LINE]; /* whose interrupt is entered */
	};
};

struct often_ring {
	unsigned long long head; /* events ever begun */
	unsigned long long reserved[7];
	struct often_event events[OFTEN_LENGTH];
};

_Static_assert(sizeof(struct often_event) == 64, "a cache line");

#endif
