/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "common/shared_file.h"
#include "recorder/record_file.h"

enum { RECORD_BUCKETS = 2 * RECORD_SERIES };

struct ring { /* what is on a line of its own in the file: head, until, lost */
	uint64_t *line;
	struct record *records;
};

struct record_file {
	char path[256];
	uint8_t *file;
	size_t size;
	int cpus[RECORD_CPUS];
	struct ring rings[RECORD_CPUS + 1]; /* the last one is of notes */
	unsigned nb_cpus;
	struct series *series;
	uint64_t *nb_series, *clock_error, *wall;
	const uint64_t *part;
	uint16_t buckets[RECORD_BUCKETS]; /* number of a series plus one; 0: free */
};

const char *const record_kind_names[] = {
#define RECORD_KIND(name, text) text,
	RECORD_KINDS(RECORD_KIND)
#undef RECORD_KIND
};

static json_t *describe_sources(const struct source *sources, unsigned count)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:s?, s:s?}", "what", sources[i].what, "from", sources[i].from,
						"why", sources[i].from == NULL ? sources[i].why : NULL));
	return list;
}

static json_t *describe_ring(const struct record_layout *layout, int cpu, unsigned number)
{
	json_int_t line = (json_int_t)(layout->lines + (size_t)number * RECORD_LINE);
	size_t records = layout->records + (size_t)number * RECORD_LENGTH * sizeof(struct record);

	return json_pack("{s:i, s:I, s:I, s:I, s:I, s:i}", "cpu", cpu, "head", line, "until", line + 8, "lost",
			 line + 16, "records", (json_int_t)records, "length", RECORD_LENGTH);
}

static json_t *describe(const struct record_layout *layout, const int *cpus, unsigned nb_cpus)
{
	json_t *kinds = json_array(), *list = json_array();

	for (size_t i = 0; i < sizeof(record_kind_names) / sizeof(record_kind_names[0]); i++)
		json_array_append_new(kinds, json_string(record_kind_names[i]));
	for (unsigned i = 0; i < nb_cpus; i++)
		json_array_append_new(list, describe_ring(layout, cpus[i], i));
	return json_pack("{s:{s:s, s:[s,s,s,s]}, s:{s:I, s:i, s:I, s:s, s:[s,s,s,s,s,s,s,s]}, s:o, s:I, s:I, "
			 "s:I, s:o, s:o}",
			 "record", "format", "<QQII", "fields", "begin", "end", "series", "extra", "series", "offset",
			 (json_int_t)layout->series, "count", RECORD_SERIES, "used", (json_int_t)layout->common,
			 "format", "<HHI40sQQQQ", "fields", "kind", "cpu", "id", "name", "count", "cycles", "longest",
			 "part", "kinds", kinds, "clock_error", (json_int_t)(layout->common + 8), "wall",
			 (json_int_t)(layout->common + 16), "part", (json_int_t)(layout->common + 48), "cpus", list,
			 "notes", describe_ring(layout, -1, nb_cpus));
}

struct record_file *record_open(const char *path, const int *cpus, unsigned nb_cpus, const struct source *sources,
				unsigned nb_sources)
{
	const struct record_layout layout = record_lay_out(nb_cpus);
	struct record_file *file = calloc(1, sizeof(*file));
	json_t *schema;
	char *text;

	if (file == NULL)
		return NULL;
	snprintf(file->path, sizeof(file->path), "%s", path);
	file->size = layout.size;
	file->file = shared_file_make(path, layout.size, 0600);
	if (file->file == NULL)
		goto fail;
	memcpy(file->cpus, cpus, nb_cpus * sizeof(cpus[0]));
	file->nb_cpus = nb_cpus;
	for (unsigned i = 0; i <= nb_cpus; i++) {
		file->rings[i].line = (uint64_t *)(file->file + layout.lines + (size_t)i * RECORD_LINE);
		file->rings[i].records = (struct record *)(file->file + layout.records) + (size_t)i * RECORD_LENGTH;
	}
	file->series = (struct series *)(file->file + layout.series);
	file->nb_series = (uint64_t *)(file->file + layout.common);
	file->clock_error = file->nb_series + 1;
	file->wall = file->nb_series + 2;
	file->part = file->wall + 4;
	schema = describe(&layout, cpus, nb_cpus);
	json_object_set_new(schema, "sources", describe_sources(sources, nb_sources));
	text = json_dumps(schema, JSON_COMPACT);
	json_decref(schema);
	if (text == NULL || strlen(text) > RECORD_SCHEMA_MOST - RECORD_SCHEMA) {
		free(text);
		errno = ENOMEM;
		goto unmap;
	}
	memcpy(file->file, "TAILNOTE", 8);
	((uint32_t *)file->file)[2] = RECORD_VERSION;
	((uint32_t *)file->file)[3] = (uint32_t)strlen(text);
	memcpy(file->file + RECORD_SCHEMA, text, strlen(text));
	free(text);
	if (shared_file_show(path) == 0)
		return file;
unmap:
	munmap(file->file, file->size);
fail:
	log_error("%s: %s", path, strerror(errno));
	free(file);
	return NULL;
}

static uint32_t hash_of(unsigned index, enum record_kind kind, uint32_t id, const char *name)
{
	uint32_t hash = 2166136261u ^ (index << 24) ^ ((uint32_t)kind << 16) ^ id * 2654435761u;

	for (unsigned i = 0; i < RECORD_NAME - 1 && name[i] != '\0'; i++)
		hash = (hash ^ (uint8_t)name[i]) * 16777619u;
	return hash;
}

/* The series, a new one if need be; when there is room for no more, the last one takes what is left. */
static uint32_t series_of(struct record_file *file, unsigned index, enum record_kind kind, uint32_t id,
			  const char *name)
{
	const uint16_t cpu = (uint16_t)file->cpus[index];
	uint32_t slot = hash_of(index, kind, id, name) % RECORD_BUCKETS;
	uint64_t count = *file->nb_series;
	struct series *series;

	for (; file->buckets[slot] != 0; slot = (slot + 1) % RECORD_BUCKETS) {
		series = &file->series[file->buckets[slot] - 1];
		if (series->kind == kind && series->cpu == cpu && series->id == id &&
		    strncmp(series->name, name, RECORD_NAME - 1) == 0)
			return file->buckets[slot] - 1;
	}
	if (count == RECORD_SERIES)
		return RECORD_SERIES - 1;
	if (count == RECORD_SERIES - 1)
		name = "(others)";
	series = &file->series[count];
	series->kind = (uint16_t)kind;
	series->cpu = cpu;
	series->id = id;
	snprintf(series->name, sizeof(series->name), "%s", name);
	file->buckets[slot] = (uint16_t)(count + 1);
	__atomic_store_n(file->nb_series, count + 1, __ATOMIC_RELEASE);
	return (uint32_t)count;
}

void record_add(struct record_file *file, unsigned index, enum record_kind kind, uint32_t id, const char *name,
		uint64_t begin, uint64_t end, uint32_t extra)
{
	uint32_t number = series_of(file, index, kind, id, name);
	struct series *series = &file->series[number];
	struct ring *ring = &file->rings[kind < RECORD_MIGRATION ? index : file->nb_cpus];
	uint64_t head = *ring->line, cycles = end - begin;
	const uint64_t part = __atomic_load_n(file->part, __ATOMIC_RELAXED);

	if (series->part != part) {
		series->longest = 0;
		series->part = part;
	}
	series->count++;
	series->cycles += cycles;
	if (cycles > series->longest)
		series->longest = cycles;
	ring->records[head % RECORD_LENGTH] = (struct record){begin, end, number, extra};
	__atomic_store_n(ring->line, head + 1, __ATOMIC_RELEASE);
}

void record_until(struct record_file *file, unsigned index, uint64_t tsc)
{
	__atomic_store_n(file->rings[index].line + 1, tsc, __ATOMIC_RELEASE);
}

void record_lost(struct record_file *file, unsigned index, uint64_t events)
{
	file->rings[index].line[2] += events;
}

void record_clock_error(struct record_file *file, uint64_t cycles)
{
	if (cycles > *file->clock_error)
		*file->clock_error = cycles;
}

void record_wall(struct record_file *file, uint64_t tsc, uint64_t ns)
{
	if (file->wall[0] == 0) {
		file->wall[0] = tsc;
		file->wall[1] = ns;
	}
	file->wall[2] = tsc;
	file->wall[3] = ns;
}

void record_close(struct record_file *file)
{
	if (file == NULL)
		return;
	munmap(file->file, file->size);
	unlink(file->path);
	free(file);
}
