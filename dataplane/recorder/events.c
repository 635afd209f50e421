/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "recorder/events.h"
#include "recorder/often.h"
#include "recorder/tracepoints.h"

enum {
	EVENTS_BUFFER = 1 << 21, /* bytes for each CPU: some 20,000 events, of which we read 100 times a second */
	EVENTS_LARGEST = 4096,
	EVENTS_FILTER = 8192,
	EVENTS_SAMPLE = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
};

/* ------- what is recorded ------- */

enum event_kind { ENTER, LEAVE, SWITCH, FAULT, NMI, FREQUENCY, MIGRATE };

struct event {
	enum event_kind kind;
	enum nesting nesting;
	const char *name; /* of the tracepoint */
	const char *const *fields;
	unsigned source;    /* its place in the list of sources */
	const char *whose;  /* of an interrupt that names nobody */
	const char *filter; /* the field that must be a watched thread */
};

enum {
	SOURCE_INTERRUPTS,
	SOURCE_LINES,
	SOURCE_SOFTIRQS,
	SOURCE_SWITCHES,
	SOURCE_FAULTS,
	SOURCE_MIGRATIONS,
	SOURCE_NMIS,
	SOURCE_FREQUENCY,
	SOURCES
};

static const char *const source_names[SOURCES] = {
	[SOURCE_INTERRUPTS] = "interrupts of the processor",
	[SOURCE_LINES] = "interrupts of devices",
	[SOURCE_SOFTIRQS] = "softirqs",
	[SOURCE_SWITCHES] = "context switches",
	[SOURCE_FAULTS] = "page faults",
	[SOURCE_MIGRATIONS] = "migrations",
	[SOURCE_NMIS] = "non-maskable interrupts",
	[SOURCE_FREQUENCY] = "frequency changes",
};

static const char *const no_fields[] = {NULL};
static const char *const line_fields[] = {"irq", "name", NULL};
static const char *const line_exit_fields[] = {"irq", NULL};
static const char *const softirq_fields[] = {"vec", NULL};
static const char *const switch_fields[] = {"prev_comm", "prev_pid", "prev_prio", "prev_state",
					    "next_comm", "next_pid", "next_prio"};
static const char *const fault_fields[] = {"common_pid", NULL};
static const char *const migrate_fields[] = {"pid", "dest_cpu", NULL};
static const char *const nmi_fields[] = {"delta_ns", NULL};
static const char *const frequency_fields[] = {"state", NULL};

#define VECTOR(vector)                                                                                           \
	{ENTER, NESTING_VECTOR, "irq_vectors/" vector "_entry", no_fields, SOURCE_INTERRUPTS, NULL, NULL},       \
	{                                                                                                        \
		LEAVE, NESTING_VECTOR, "irq_vectors/" vector "_exit", no_fields, SOURCE_INTERRUPTS, vector, NULL \
	}

static const struct event known[] = {
	{SWITCH, 0, "sched/sched_switch", switch_fields, SOURCE_SWITCHES, NULL, NULL},
	VECTOR("local_timer"),
	VECTOR("reschedule"),
	VECTOR("call_function"),
	VECTOR("call_function_single"),
	VECTOR("irq_work"),
	VECTOR("x86_platform_ipi"),
	VECTOR("thermal_apic"),
	VECTOR("threshold_apic"),
	VECTOR("deferred_error_apic"),
	VECTOR("error_apic"),
	VECTOR("spurious_apic"),
	{ENTER, NESTING_LINE, "irq/irq_handler_entry", line_fields, SOURCE_LINES, NULL, NULL},
	{LEAVE, NESTING_LINE, "irq/irq_handler_exit", line_exit_fields, SOURCE_LINES, NULL, NULL},
	{ENTER, NESTING_SOFTIRQ, "irq/softirq_entry", softirq_fields, SOURCE_SOFTIRQS, NULL, NULL},
	{LEAVE, NESTING_SOFTIRQ, "irq/softirq_exit", softirq_fields, SOURCE_SOFTIRQS, NULL, NULL},
	{FAULT, 0, "exceptions/page_fault_user", fault_fields, SOURCE_FAULTS, NULL, "common_pid"},
	{NMI, 0, "nmi/nmi_handler", nmi_fields, SOURCE_NMIS, NULL, NULL},
	{FREQUENCY, 0, "power/cpu_frequency", frequency_fields, SOURCE_FREQUENCY, NULL, NULL},
	{MIGRATE, 0, "sched/sched_migrate_task", migrate_fields, SOURCE_MIGRATIONS, NULL, "pid"},
};

enum { KNOWN = sizeof(known) / sizeof(known[0]) };

/* Linux's numbers of softirqs (linux/interrupt.h); they have not changed since 2009 but for one that was added. */
static const char *const softirqs[] = {"HI",	   "TIMER",   "NET_TX", "NET_RX",  "BLOCK",
				       "IRQ_POLL", "TASKLET", "SCHED",	"HRTIMER", "RCU"};

struct buffer {
	struct perf_event_mmap_page *page;
	uint8_t *data;
	int leader; /* the event that the buffer belongs to, or -1 */
};

struct events {
	struct tracepoint tracepoints[KNOWN]; /* number 0: not there */
	struct buffer buffers[RECORD_CPUS];
	char line_names[RECORD_CPUS][RECORD_NAME]; /* whose interrupt was entered last */
	struct often *often;			   /* or NULL */
	uint8_t by_point[OFTEN_NB_POINTS];	   /* which of `known` each of its points is */
	const int *cpus;
	unsigned nb_cpus;
	int *files;
	unsigned nb_files;
};

/* ------- opening ------- */

static struct perf_event_attr attributes(uint32_t type, uint64_t config)
{
	return (struct perf_event_attr){
		.type = type,
		.size = sizeof(struct perf_event_attr),
		.config = config,
		.sample_period = 1,
		.sample_type = EVENTS_SAMPLE,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		/* Nobody is woken: we come by ourselves. */
		.watermark = 1,
		.wakeup_watermark = EVENTS_BUFFER,
		.disabled = 1,
	};
}

static int open_one(struct events *events, unsigned index, struct perf_event_attr *attr, const char *filter)
{
	struct buffer *buffer = &events->buffers[index];
	int fd = (int)syscall(SYS_perf_event_open, attr, -1, events->cpus[index], -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (filter != NULL && ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter) != 0)
		goto fail;
	if (buffer->leader < 0) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);
		void *memory = mmap(NULL, page + EVENTS_BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (memory == MAP_FAILED)
			goto fail;
		buffer->page = memory;
		buffer->data = (uint8_t *)memory + page;
		buffer->leader = fd;
	} else if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, buffer->leader) != 0) {
		goto fail;
	}
	if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) != 0)
		goto fail;
	events->files[events->nb_files++] = fd;
	return 0;
fail:;
	int rc = -errno;

	close(fd);
	return rc;
}

/* Open an event on all CPUs.  Returns 0 or the first -errno. */
static int open_all(struct events *events, struct perf_event_attr *attr, const char *filter)
{
	for (unsigned i = 0; i < events->nb_cpus; i++) {
		int rc = open_one(events, i, attr, filter);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static void write_filter(char *text, const char *field, const struct timeline *timeline)
{
	size_t length = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < timeline->nb_threads && length < EVENTS_FILTER - 64; i++)
		length += (size_t)snprintf(text + length, EVENTS_FILTER - length, "%s%s==%d", i > 0 ? "||" : "", field,
					   timeline->threads[i].thread);
}

static void open_tracepoint(struct events *events, unsigned number, const struct timeline *timeline,
			    struct source *sources)
{
	const struct event *event = &known[number];
	struct source *source = &sources[event->source];
	char filter[EVENTS_FILTER];
	struct perf_event_attr attr;
	int rc = events->often != NULL ? often_attach(events->often, event->name) : -ENOENT;

	if (rc >= 0) {
		events->by_point[rc] = (uint8_t)number;
		source->from = "BPF";
		return;
	}
	rc = tracepoint_read(event->name, event->fields, &events->tracepoints[number]);
	if (rc == 0) {
		attr = attributes(PERF_TYPE_TRACEPOINT, events->tracepoints[number].number);
		if (event->filter != NULL)
			write_filter(filter, event->filter, timeline);
		rc = open_all(events, &attr, event->filter != NULL ? filter : NULL);
	}
	if (rc == 0) {
		source->from = "tracepoints";
		return;
	}
	events->tracepoints[number].number = 0;
	if (rc == -ENOENT)
		snprintf(source->why, sizeof(source->why), "this kernel has no tracepoint %.48s", event->name);
	else
		snprintf(source->why, sizeof(source->why), "%.48s: %s", event->name, strerror(-rc));
}

static void open_software(struct events *events, enum event_kind kind, struct source *source)
{
	struct perf_event_attr attr = attributes(PERF_TYPE_SOFTWARE,
						 kind == FAULT ? PERF_COUNT_SW_PAGE_FAULTS : PERF_COUNT_SW_DUMMY);
	int rc;

	if (source->from != NULL)
		return;
	attr.context_switch = kind == SWITCH;
	rc = open_all(events, &attr, NULL);
	if (rc == 0)
		source->from = "software events";
	else
		snprintf(source->why, sizeof(source->why), "perf_event_open: %s", strerror(-rc));
}

struct events *events_open(const int *cpus, unsigned nb_cpus, const struct timeline *timeline, enum events_by best,
			   struct source *sources, unsigned *nb_sources)
{
	struct events *events = calloc(1, sizeof(*events));
	char why[96] = "tracepoints are not to be used", no_programs[96];

	if (events == NULL)
		return NULL;
	events->files = calloc((size_t)nb_cpus * (KNOWN + 2), sizeof(int));
	events->cpus = cpus;
	events->nb_cpus = nb_cpus;
	for (unsigned i = 0; i < nb_cpus; i++)
		events->buffers[i].leader = -1;
	for (unsigned i = 0; i < SOURCES; i++)
		sources[i] = (struct source){.what = source_names[i]};
	*nb_sources = SOURCES;
	if (events->files == NULL) {
		free(events);
		return NULL;
	}
	if (best == EVENTS_BY_BPF) {
		events->often = often_open(cpus, nb_cpus, no_programs, sizeof(no_programs));
		if (events->often == NULL)
			log_info("%s; perf records in its place, at a greater cost", no_programs);
	}
	if (best != EVENTS_BY_SOFTWARE && tracepoints_open(why, sizeof(why)) == 0)
		for (unsigned i = 0; i < KNOWN; i++)
			open_tracepoint(events, i, timeline, sources);
	else
		for (unsigned i = 0; i < SOURCES; i++)
			memcpy(sources[i].why, why, sizeof(why));
	open_software(events, SWITCH, &sources[SOURCE_SWITCHES]);
	open_software(events, FAULT, &sources[SOURCE_FAULTS]);
	return events;
}

void events_close(struct events *events)
{
	if (events == NULL)
		return;
	for (unsigned i = 0; i < events->nb_files; i++)
		close(events->files[i]);
	for (unsigned i = 0; i < events->nb_cpus; i++)
		if (events->buffers[i].page != NULL)
			munmap(events->buffers[i].page, (size_t)sysconf(_SC_PAGESIZE) + EVENTS_BUFFER);
	often_close(events->often);
	free(events->files);
	free(events);
}

/* ------- reading ------- */

struct sample { /* as EVENTS_SAMPLE lays it out */
	struct perf_event_header header;
	uint64_t id;
	int32_t process, thread;
	uint64_t time;
	uint32_t raw_size;
	uint8_t raw[];
};

struct switched { /* PERF_RECORD_SWITCH_CPU_WIDE */
	struct perf_event_header header;
	int32_t other_process, other_thread;
	int32_t process, thread;
	uint64_t time, id;
};

/* What an event of a CPU is told with. */
struct reading {
	struct events *events;
	struct timeline *timeline;
	const struct clock_reading *before, *after;
	unsigned index;
};

static int32_t int_at(const struct sample *sample, const struct tracepoint *tracepoint, unsigned field)
{
	int32_t value = 0;

	if (tracepoint->at[field] + sizeof(value) <= sample->raw_size)
		memcpy(&value, sample->raw + tracepoint->at[field], sizeof(value));
	return value;
}

static uint64_t long_at(const struct sample *sample, const struct tracepoint *tracepoint, unsigned field)
{
	uint64_t value = 0;

	if (tracepoint->at[field] + sizeof(value) <= sample->raw_size)
		memcpy(&value, sample->raw + tracepoint->at[field], sizeof(value));
	return value;
}

static struct task task_at(const struct sample *sample, const struct tracepoint *tracepoint, unsigned name,
			   unsigned thread, unsigned priority)
{
	struct task task = {int_at(sample, tracepoint, thread), int_at(sample, tracepoint, priority), ""};

	if (tracepoint->at[name] + sizeof(task.name) <= sample->raw_size)
		memcpy(task.name, sample->raw + tracepoint->at[name], sizeof(task.name));
	task.name[sizeof(task.name) - 1] = '\0';
	return task;
}

/* A text of variable length: its place is in the lower half of the field, its length in the upper. */
static void text_at(const struct sample *sample, const struct tracepoint *tracepoint, unsigned field, char *text)
{
	uint32_t place = (uint32_t)int_at(sample, tracepoint, field), at = place & 0xffff, length = place >> 16;

	if (length >= RECORD_NAME)
		length = RECORD_NAME - 1;
	if (at + length > sample->raw_size)
		length = 0;
	memcpy(text, sample->raw + at, length);
	text[length] = '\0';
}

/* An interrupt or softirq has ended; `id` is the softirq's or the line's. */
static void leave(const struct reading *reading, const struct event *event, uint64_t time, uint32_t id)
{
	const char *name = event->whose;

	if (event->nesting == NESTING_LINE)
		name = reading->events->line_names[reading->index];
	else if (event->nesting == NESTING_SOFTIRQ)
		name = id < sizeof(softirqs) / sizeof(softirqs[0]) ? softirqs[id] : "?";
	timeline_leave(reading->timeline, reading->index, event->nesting, time, id, name);
}

static void read_tracepoint(const struct reading *reading, unsigned number, const struct sample *sample, uint64_t time)
{
	const struct tracepoint *tracepoint = &reading->events->tracepoints[number];
	const struct event *event = &known[number];
	struct timeline *timeline = reading->timeline;
	struct task before, after;

	switch (event->kind) {
	case ENTER:
		if (event->nesting == NESTING_LINE)
			text_at(sample, tracepoint, 1, reading->events->line_names[reading->index]);
		timeline_enter(timeline, reading->index, event->nesting, time);
		break;
	case LEAVE:
		leave(reading, event, time,
		      event->nesting == NESTING_VECTOR ? 0 : (uint32_t)int_at(sample, tracepoint, 0));
		break;
	case SWITCH:
		before = task_at(sample, tracepoint, 0, 1, 2);
		after = task_at(sample, tracepoint, 4, 5, 6);
		timeline_switch(timeline, reading->index, time, &before, long_at(sample, tracepoint, 3), &after);
		break;
	case FAULT:
		timeline_point(timeline, reading->index, RECORD_FAULT, time, sample->thread, 0);
		break;
	case MIGRATE:
		timeline_point(timeline, reading->index, RECORD_MIGRATION, time, int_at(sample, tracepoint, 0),
			       (uint32_t)int_at(sample, tracepoint, 1));
		break;
	case NMI: {
		uint64_t began = sample->time - long_at(sample, tracepoint, 0);

		record_add(timeline->file, reading->index, RECORD_NMI, 0, "",
			   clock_tsc(reading->before, reading->after, began), time, 0);
		break;
	}
	case FREQUENCY:
		record_add(timeline->file, reading->index, RECORD_FREQUENCY, 0, "", time, time,
			   (uint32_t)int_at(sample, tracepoint, 0));
		break;
	}
}

static void read_sample(const struct reading *reading, const struct sample *sample)
{
	uint64_t time = clock_tsc(reading->before, reading->after, sample->time);
	uint16_t number = 0;

	if (sample->raw_size >= sizeof(number))
		memcpy(&number, sample->raw, sizeof(number));
	for (unsigned i = 0; i < KNOWN; i++)
		if (number != 0 && reading->events->tracepoints[i].number == number) {
			read_tracepoint(reading, i, sample, time);
			return;
		}
	if (number == 0) /* a software event: only page faults have samples */
		timeline_point(reading->timeline, reading->index, RECORD_FAULT, time, sample->thread, 0);
}

static void name_task(struct task *task)
{
	char path[64];
	FILE *stream;

	snprintf(path, sizeof(path), "/proc/%d/comm", task->thread);
	stream = task->thread != 0 ? fopen(path, "re") : NULL;
	if (stream == NULL)
		return;
	if (fgets(task->name, sizeof(task->name), stream) != NULL)
		task->name[strcspn(task->name, "\n")] = '\0';
	fclose(stream);
}

/* A software event tells of both tasks when one leaves the CPU, but neither what they are called nor why it left. */
static void read_switch(const struct reading *reading, const struct switched *switched)
{
	uint64_t time = clock_tsc(reading->before, reading->after, switched->time);
	struct task before = {.thread = switched->thread}, after = {.thread = switched->other_thread};

	if (!(switched->header.misc & PERF_RECORD_MISC_SWITCH_OUT))
		return;
	name_task(&before);
	timeline_switch(reading->timeline, reading->index, time, &before,
			switched->header.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT ? 0 : 1, &after);
}

static void read_often(const struct reading *reading, const struct often_event *often)
{
	const struct event *event = &known[reading->events->by_point[often->point % OFTEN_NB_POINTS]];
	uint64_t time = clock_tsc(reading->before, reading->after, often->time);
	struct task before = {often->before, often->priority, ""}, after = {.thread = often->after};

	switch (event->kind) {
	case ENTER:
		timeline_enter(reading->timeline, reading->index, event->nesting, time);
		break;
	case LEAVE:
		leave(reading, event, time, often->id);
		break;
	default:
		memcpy(before.name, often->name, sizeof(before.name));
		before.name[sizeof(before.name) - 1] = '\0';
		timeline_switch(reading->timeline, reading->index, time, &before, often->state, &after);
	}
}

static void lose(const struct reading *reading, uint64_t events)
{
	record_lost(reading->timeline->file, reading->index, events);
	timeline_lost(reading->timeline, reading->index);
}

static void read_record(const struct reading *reading, const struct perf_event_header *header)
{
	if (header->type == PERF_RECORD_SAMPLE)
		read_sample(reading, (const struct sample *)header);
	else if (header->type == PERF_RECORD_SWITCH_CPU_WIDE)
		read_switch(reading, (const struct switched *)header);
	else if (header->type == PERF_RECORD_LOST)
		lose(reading, ((const uint64_t *)(header + 1))[1]); /* the event's id, how many */
}

/* When it happened; what has no time, at once. */
static uint64_t time_of(const struct perf_event_header *header)
{
	if (header->type == PERF_RECORD_SAMPLE)
		return ((const struct sample *)header)->time;
	return header->type == PERF_RECORD_SWITCH_CPU_WIDE ? ((const struct switched *)header)->time : 0;
}

/* All that our programs noted before `time`. */
static void read_often_before(const struct reading *reading, uint64_t time)
{
	struct often *often = reading->events->often;
	struct often_event event;

	while (often != NULL && often_next(often, reading->index, &event) && event.time < time) {
		read_often(reading, &event);
		often_take(often, reading->index);
	}
}

/* Copy from a ring. */
static void copy_out(const struct buffer *buffer, uint64_t at, void *room, size_t size)
{
	size_t place = at % EVENTS_BUFFER, first = size < EVENTS_BUFFER - place ? size : EVENTS_BUFFER - place;

	memcpy(room, buffer->data + place, first);
	memcpy((uint8_t *)room + first, buffer->data, size - first);
}

/* What perf has gathered, and between it what our programs have. */
static void read_buffer(const struct reading *reading, struct buffer *buffer)
{
	_Alignas(8) uint8_t room[EVENTS_LARGEST];
	uint64_t head = __atomic_load_n(&buffer->page->data_head, __ATOMIC_ACQUIRE), tail = buffer->page->data_tail;

	while (tail < head) {
		struct perf_event_header *header = (struct perf_event_header *)room;

		copy_out(buffer, tail, header, sizeof(*header));
		if (header->size < sizeof(*header))
			break; /* cannot be */
		tail += header->size;
		if (header->size > sizeof(room))
			continue;
		copy_out(buffer, tail - header->size, room, header->size);
		read_often_before(reading, time_of(header));
		read_record(reading, header);
	}
	__atomic_store_n(&buffer->page->data_tail, head, __ATOMIC_RELEASE);
}

void events_begin(struct events *events)
{
	for (unsigned i = 0; i < events->nb_cpus; i++) {
		struct perf_event_mmap_page *page = events->buffers[i].page;

		if (events->often != NULL)
			often_skip(events->often, i);
		if (page != NULL)
			__atomic_store_n(&page->data_tail, __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE),
					 __ATOMIC_RELEASE);
	}
}

void events_drain(struct events *events, unsigned index, struct timeline *timeline, const struct clock_reading *before,
		  const struct clock_reading *after)
{
	const struct reading reading = {events, timeline, before, after, index};
	uint64_t lost = events->often != NULL ? often_begin(events->often, index) : 0;

	if (lost > 0)
		lose(&reading, lost);
	if (events->buffers[index].page != NULL)
		read_buffer(&reading, &events->buffers[index]);
	read_often_before(&reading, UINT64_MAX);
}
