/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "recorder/events_state.h"
#include "recorder/exits.h"

enum { EVENTS_LARGEST = 4096 };

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

/* What an event of a CPU is reported with. */
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

/* A text of variable length: its offset is in the lower half of the field, its length in the upper. */
static void text_at(const struct sample *sample, const struct tracepoint *tracepoint, unsigned field, char *text)
{
	uint32_t offset = (uint32_t)int_at(sample, tracepoint, field), at = offset & 0xffff, length = offset >> 16;

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
		name = softirq_name(id);
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
	case EXIT: {
		const uint32_t reason = (uint32_t)int_at(sample, tracepoint, 0);

		timeline_exit(timeline, time, sample->thread, reason,
			      exit_name((uint32_t)int_at(sample, tracepoint, 1), reason));
		break;
	}
	case ENTRY:
		timeline_entry(timeline, reading->index, time, sample->thread);
		break;
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

/* A software event names both tasks when one leaves the CPU, but neither what they are called nor why it left. */
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
		if (event->nesting == NESTING_LINE)
			snprintf(reading->events->line_names[reading->index], RECORD_NAME, "%.*s", OFTEN_LINE - 1,
				 often->line);
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
	size_t offset = at % EVENTS_BUFFER, first = size < EVENTS_BUFFER - offset ? size : EVENTS_BUFFER - offset;

	memcpy(room, buffer->data + offset, first);
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
