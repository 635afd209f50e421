/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder/samples.h"

enum {
	SAMPLES_TEXT = 1 << 20, /* /proc/interrupts of a machine with hundreds of CPUs */
	SAMPLES_SMI = 0x34,
	SAMPLES_NOTABLE = 20 /* a change of frequency by a 20th counts */
};

struct cpu_counts {
	uint64_t steal, interrupts, smi, khz; /* 0: not looked at yet */
	int msr, frequency;		      /* descriptors, or -1 */
};

struct samples {
	const int *cpus;
	unsigned nb_cpus;
	struct cpu_counts counts[RECORD_CPUS];
	int stat, interrupts;  /* descriptors, or -1 */
	const char *row, *why; /* of `interrupts`: which is counted, or NULL: all; and the name of that count */
	char text[SAMPLES_TEXT];
};

static int open_of_cpu(const char *pattern, int cpu)
{
	char path[96];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(path, sizeof(path), pattern, cpu);
#pragma GCC diagnostic pop
	return open(path, O_RDONLY | O_CLOEXEC);
}

static struct source *add_source(struct source *sources, unsigned *nb_sources, const char *what, const char *from)
{
	struct source *source = &sources[(*nb_sources)++];

	*source = (struct source){.what = what, .from = from};
	return source;
}

static struct source *find_source(struct source *sources, unsigned nb_sources, const char *what)
{
	for (unsigned i = 0; i < nb_sources; i++)
		if (strcmp(sources[i].what, what) == 0)
			return &sources[i];
	return NULL;
}

static void open_files(struct samples *samples, bool frequency)
{
	for (unsigned i = 0; i < samples->nb_cpus; i++) {
		struct cpu_counts *counts = &samples->counts[i];

		counts->frequency = frequency ? open_of_cpu("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
							    samples->cpus[i])
					      : -1;
		counts->msr = open_of_cpu("/dev/cpu/%d/msr", samples->cpus[i]);
	}
}

/*
 * Where tracepoints tell interrupts one by one, those that ask to reschedule are counted all the same: there may be
 * several for each frame, and what they are for, a context switch, is recorded.
 */
static void open_interrupts(struct samples *samples, struct source *sources, unsigned *nb_sources)
{
	struct source *source = find_source(sources, *nb_sources, "interrupts of the processor");

	samples->row = NULL;
	samples->why = "";
	if (source == NULL || source->from != NULL) {
		source = add_source(sources, nb_sources, "interrupts that ask to reschedule", NULL);
		samples->row = "RES";
		samples->why = "reschedule";
	}
	samples->interrupts = open("/proc/interrupts", O_RDONLY | O_CLOEXEC);
	if (samples->interrupts >= 0)
		source->from = "/proc/interrupts, counted ten times a second";
	else
		snprintf(source->why, sizeof(source->why), "/proc/interrupts: %s", strerror(errno));
}

struct samples *samples_open(const int *cpus, unsigned nb_cpus, struct source *sources, unsigned *nb_sources)
{
	struct samples *samples = calloc(1, sizeof(*samples));
	struct source *source;
	uint64_t count;

	if (samples == NULL)
		return NULL;
	samples->cpus = cpus;
	samples->nb_cpus = nb_cpus;

	/* The tracepoint is there on every machine, and silent on one whose frequency nobody governs. */
	source = find_source(sources, *nb_sources, "frequency changes");
	open_files(samples, source == NULL || source->from == NULL);
	if (source != NULL && samples->counts[0].frequency >= 0)
		source->from = "cpufreq/scaling_cur_freq, ten times a second";

	samples->stat = open("/proc/stat", O_RDONLY | O_CLOEXEC);
	source = add_source(sources, nb_sources, "steal time", "/proc/stat, ten times a second");
	if (samples->stat < 0) {
		source->from = NULL;
		snprintf(source->why, sizeof(source->why), "/proc/stat: %s", strerror(errno));
	}

	source = add_source(sources, nb_sources, "system management interrupts", "MSR 0x34, ten times a second");
	if (samples->counts[0].msr < 0) {
		source->from = NULL;
		snprintf(source->why, sizeof(source->why), "/dev/cpu/%d/msr: %s", cpus[0], strerror(errno));
	} else if (pread(samples->counts[0].msr, &count, sizeof(count), SAMPLES_SMI) != sizeof(count)) {
		source->from = NULL;
		snprintf(source->why, sizeof(source->why), "this processor does not count them (MSR 0x34)");
		for (unsigned i = 0; i < nb_cpus; i++) {
			close(samples->counts[i].msr);
			samples->counts[i].msr = -1;
		}
	}

	open_interrupts(samples, sources, nb_sources);
	return samples;
}

static bool read_text(struct samples *samples, int fd)
{
	ssize_t length = 0, more;

	while (length < SAMPLES_TEXT - 1 &&
	       (more = pread(fd, samples->text + length, (size_t)(SAMPLES_TEXT - 1 - length), length)) > 0)
		length += more;
	samples->text[length] = '\0';
	return length > 0;
}

/* The CPUs of the text's first line, such as "CPU0 CPU2", by their columns: the column of `cpu`, or -1. */
static int column_of(const char *text, int cpu)
{
	int column = 0, number, length;

	for (; sscanf(text, " CPU%d%n", &number, &length) == 1; text += length, column++)
		if (number == cpu)
			return column;
	return -1;
}

uint64_t samples_sum_column(const char *text, const char *row, int column)
{
	uint64_t sum = 0;

	while ((text = strchr(text, '\n')) != NULL) {
		const char *at = strchr(++text, ':');
		char *end;

		if (at == NULL)
			break;
		if (row != NULL) {
			text += strspn(text, " ");
			if (strncmp(text, row, strlen(row)) != 0 || text[strlen(row)] != ':')
				continue;
		}
		at++;
		for (int i = 0; i < column; i++) {
			strtoull(at, &end, 10);
			at = end;
		}
		sum += strtoull(at, &end, 10);
	}
	return sum;
}

/* In us; 0 if it is not reported.  Fields of proc_stat(5): user nice system idle iowait irq softirq steal, in ticks. */
static uint64_t steal_of(const char *text, int cpu)
{
	unsigned long long steal = 0;
	char name[24];
	const char *line;

	snprintf(name, sizeof(name), "\ncpu%d ", cpu);
	line = strstr(text, name);
	if (line == NULL || sscanf(line + strlen(name), "%*u %*u %*u %*u %*u %*u %*u %llu", &steal) != 1)
		return 0;
	return steal * (uint64_t)(1000000 / sysconf(_SC_CLK_TCK));
}

static void note_growth(struct record_file *file, unsigned index, enum record_kind kind, const char *name,
			uint64_t *last, uint64_t now, uint64_t began, uint64_t ended)
{
	if (now > *last && *last != 0)
		record_add(file, index, kind, 0, name, began, ended, (uint32_t)(now - *last));
	*last = now;
}

static void look_at_frequency(struct cpu_counts *counts, struct record_file *file, unsigned index, uint64_t now)
{
	char text[32] = "";
	uint64_t khz, change;

	if (pread(counts->frequency, text, sizeof(text) - 1, 0) <= 0)
		return;
	khz = strtoull(text, NULL, 10);
	change = khz > counts->khz ? khz - counts->khz : counts->khz - khz;
	if (khz == 0 || change < counts->khz / SAMPLES_NOTABLE)
		return;
	if (counts->khz != 0)
		record_add(file, index, RECORD_FREQUENCY, 0, "", now, now, (uint32_t)khz);
	counts->khz = khz;
}

void samples_look(struct samples *samples, struct record_file *file, uint64_t before, uint64_t now)
{
	if (samples->stat >= 0 && read_text(samples, samples->stat))
		for (unsigned i = 0; i < samples->nb_cpus; i++)
			/* One more than there is, because 0 stands for not looked at. */
			note_growth(file, i, RECORD_STEAL, "", &samples->counts[i].steal,
				    steal_of(samples->text, samples->cpus[i]) + 1, before, now);
	if (samples->interrupts >= 0 && read_text(samples, samples->interrupts))
		for (unsigned i = 0; i < samples->nb_cpus; i++) {
			int column = column_of(samples->text, samples->cpus[i]);

			if (column >= 0)
				note_growth(file, i, RECORD_COUNTED, samples->why, &samples->counts[i].interrupts,
					    samples_sum_column(samples->text, samples->row, column) + 1, before, now);
		}
	for (unsigned i = 0; i < samples->nb_cpus; i++) {
		struct cpu_counts *counts = &samples->counts[i];
		uint64_t smi;

		if (counts->frequency >= 0)
			look_at_frequency(counts, file, i, now);
		if (counts->msr >= 0 && pread(counts->msr, &smi, sizeof(smi), SAMPLES_SMI) == sizeof(smi))
			note_growth(file, i, RECORD_SMI, "", &counts->smi, smi + 1, before, now);
	}
}

void samples_close(struct samples *samples)
{
	if (samples == NULL)
		return;
	for (unsigned i = 0; i < samples->nb_cpus; i++) {
		if (samples->counts[i].frequency >= 0)
			close(samples->counts[i].frequency);
		if (samples->counts[i].msr >= 0)
			close(samples->counts[i].msr);
	}
	if (samples->stat >= 0)
		close(samples->stat);
	if (samples->interrupts >= 0)
		close(samples->interrupts);
	free(samples);
}
