/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel only counts, looked at ten times a second: time stolen by a hypervisor (/proc/stat), system
 * management interrupts (MSR 0x34, MSR_SMI_COUNT, Intel), interrupts that ask to reschedule (/proc/interrupts), and,
 * where they are not recorded one by one, frequency (cpufreq/scaling_cur_freq) and all interrupts.  What has changed is
 * a record of the time between two looks.
 */
#ifndef TAILRACE_RECORDER_SAMPLES_H
#define TAILRACE_RECORDER_SAMPLES_H

#include "recorder/record.h"

struct samples;

/*
 * Find out what can be looked at, and add it to the `*nb_sources` there are; what they record already is left to them.
 * Returns NULL without memory.
 */
struct samples *samples_open(const int *cpus, unsigned nb_cpus, struct source *sources, unsigned *nb_sources);

/* Look; `before` and `now` are the TSC of the last look and of this one. */
void samples_look(struct samples *samples, struct record_file *file, uint64_t before, uint64_t now);

/*
 * All interrupts of a column of /proc/interrupts, `text`, the first CPU's being 0; of one row, such as "RES", unless
 * `row` is NULL.
 */
uint64_t samples_sum_column(const char *text, const char *row, int column);

void samples_close(struct samples *samples);

#endif
