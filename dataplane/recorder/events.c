/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "recorder/events_state.h"

enum { EVENTS_FILTER = 8192 };

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
			   bool exits, struct source *sources, unsigned *nb_sources)
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
	*nb_sources = exits ? SOURCES : SOURCE_EXITS;
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
		for (unsigned i = 0; i < KNOWN; i++) {
			if (known[i].source < *nb_sources)
				open_tracepoint(events, i, timeline, sources);
		}
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
