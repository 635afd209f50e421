/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's events that come often, noted by programs of ours in the kernel (BPF): context switches, and the
 * processor's interrupts and softirqs.  perf_event_open(2) takes 0.8 µs for each where a program takes 0.1 µs, and a
 * function that shares a core with another is switched to and from for every frame.
 *
 * Each CPU has a ring that only its own programs write.  The programs are often.bpf.c; a build without clang has none.
 */
#ifndef TAILRACE_RECORDER_OFTEN_H
#define TAILRACE_RECORDER_OFTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/often_event.h"

struct often;

/* Load the programs for these CPUs.  Returns NULL with the reason in `why` where they cannot be had. */
struct often *often_open(const int *cpus, unsigned nb_cpus, char *why, size_t size);

/* Begin to note a tracepoint, such as "sched/sched_switch".  Returns its point (enum often_point) or -errno. */
int often_attach(struct often *often, const char *tracepoint);

/* Leave out all that a CPU has noted until now. */
void often_skip(struct often *often, unsigned index);

/* Begin to read what a CPU has noted until now; returns how many were lost since the last time. */
uint64_t often_begin(struct often *often, unsigned index);

/* The next event of that CPU, in the order of their times, or false.  It stays the next one until it is taken. */
bool often_next(struct often *often, unsigned index, struct often_event *event);
void often_take(struct often *often, unsigned index);

void often_close(struct often *often);

#endif
