/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/record_file.h"
#include "recorder/record_show.h"

enum {
	MARGIN = 4096,	/* records that may be written over while they are read */
	LATE = 1 << 22, /* cycles after a span's end: an event that ends later is not looked for */
};

struct shown {
	const uint8_t *file;
	size_t size;
	struct record_layout layout;
	unsigned nb_cpus, left;	     /* events that still may be shown */
	uint64_t oldest;	     /* as told */
	uint64_t first[RECORD_CPUS]; /* of each ring: the place of which it tells */
	FILE *out;
	struct record taken[RECORD_SHOW_EVENTS]; /* of one span */
	unsigned nb_taken;
};

static uint64_t word_at(const struct shown *shown, size_t at)
{
	return __atomic_load_n((const uint64_t *)(shown->file + at), __ATOMIC_ACQUIRE);
}

static size_t line_of(const struct shown *shown, unsigned ring)
{
	return shown->layout.lines + (size_t)ring * RECORD_LINE;
}

static const struct record *record_at(const struct shown *shown, unsigned ring, uint64_t place)
{
	return (const struct record *)(shown->file + shown->layout.records) + (size_t)ring * RECORD_LENGTH +
	       place % RECORD_LENGTH;
}

static uint64_t first_place(uint64_t head)
{
	return head > RECORD_LENGTH - MARGIN ? head - (RECORD_LENGTH - MARGIN) : 0;
}

/* The first record of a ring that ended at `time` or later: they stand in the order of their ends. */
static uint64_t place_of(const struct shown *shown, unsigned ring, uint64_t low, uint64_t high, uint64_t time)
{
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (record_at(shown, ring, middle)->end < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Names are of tasks, which may have given themselves any: a line stays one line. */
static void show_event(const struct shown *shown, const struct record *record)
{
	const struct series *all = (const struct series *)(shown->file + shown->layout.series), *series;
	char name[RECORD_NAME + 1] = {0};

	if (record->series >= RECORD_SERIES || all[record->series].kind > RECORD_COUNTED)
		return;
	series = &all[record->series];
	memcpy(name, series->name, RECORD_NAME);
	for (char *at = name; *at != '\0'; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	fprintf(shown->out, "event %" PRIu64 " %" PRIu64 " %u %s %u %u %s\n", record->begin, record->end, series->cpu,
		record_kind_names[series->kind], series->id, record->extra, name);
}

static bool is_late(const struct record *record, const struct record_span *span)
{
	return record->end > span->end && record->end - span->end > LATE;
}

/*
 * Takes those of one ring.  Returns false: there are more than may be shown, or some of what `oldest` promises have
 * been written over since.
 */
static bool take_ring(struct shown *shown, unsigned ring, const struct record_span *span)
{
	const uint64_t head = word_at(shown, line_of(shown, ring)), low = first_place(head);
	const uint64_t first = place_of(shown, ring, low, head, span->begin);
	const bool promised = span->begin > shown->oldest;

	if (promised && first == low && low > shown->first[ring])
		return false;
	for (uint64_t at = first; at < head; at++) {
		const struct record record = *record_at(shown, ring, at);

		if (is_late(&record, span))
			break;
		if (record.begin > span->end)
			continue;
		if (shown->nb_taken == shown->left)
			return false;
		shown->taken[shown->nb_taken++] = record;
	}
	/* The recorder may be at the place of the oldest one that is left. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return !promised || word_at(shown, line_of(shown, ring)) < first + RECORD_LENGTH;
}

static void show_span(struct shown *shown, const struct record_span *span)
{
	shown->nb_taken = 0;
	for (unsigned ring = 0; ring < shown->nb_cpus; ring++)
		if (!take_ring(shown, ring, span))
			return;
	for (unsigned i = 0; i < shown->nb_taken; i++)
		show_event(shown, &shown->taken[i]);
	shown->left -= shown->nb_taken;
	fprintf(shown->out, "span %" PRIu64 " %" PRIu64 "\n", span->begin, span->end);
}

static void show_head(struct shown *shown)
{
	uint64_t until = UINT64_MAX, oldest = 0, lost = 0, one;

	for (unsigned ring = 0; ring < shown->nb_cpus; ring++) {
		uint64_t head = word_at(shown, line_of(shown, ring)), first = first_place(head);

		shown->first[ring] = first;
		one = word_at(shown, line_of(shown, ring) + 8);
		until = one < until ? one : until;
		lost += word_at(shown, line_of(shown, ring) + 16);
		one = first > 0 ? record_at(shown, ring, first)->end : 0;
		oldest = one > oldest ? one : oldest;
	}
	shown->oldest = oldest;
	fprintf(shown->out, "until %" PRIu64 " oldest %" PRIu64 " lost %" PRIu64 " clock %" PRIu64 "\n", until, oldest,
		lost, word_at(shown, shown->layout.common + 8));
}

static void show_lacks(const struct shown *shown, const json_t *schema)
{
	const json_t *source;
	size_t i;

	json_array_foreach (json_object_get(schema, "sources"), i, source) {
		const char *what = json_string_value(json_object_get(source, "what"));
		const char *why = json_string_value(json_object_get(source, "why"));

		if (what != NULL && why != NULL)
			fprintf(shown->out, "lacks %s: %s\n", what, why);
	}
}

/* Returns 0 or -errno. */
static int show(struct shown *shown, const struct record_span *spans, unsigned nb_spans)
{
	const uint32_t *head = (const uint32_t *)shown->file;
	json_t *schema;

	if (shown->size < RECORD_SCHEMA_MOST || memcmp(shown->file, "TAILNOTE", 8) != 0 || head[2] != RECORD_VERSION ||
	    head[3] > RECORD_SCHEMA_MOST - RECORD_SCHEMA)
		return -EPROTO;
	schema = json_loadb((const char *)shown->file + RECORD_SCHEMA, head[3], 0, NULL);
	shown->nb_cpus = (unsigned)json_array_size(json_object_get(schema, "cpus"));
	shown->layout = record_lay_out(shown->nb_cpus);
	if (shown->nb_cpus == 0 || shown->nb_cpus > RECORD_CPUS || shown->size < shown->layout.size) {
		json_decref(schema);
		return -EPROTO;
	}
	show_head(shown);
	show_lacks(shown, schema);
	json_decref(schema);
	for (unsigned i = 0; i < nb_spans; i++)
		show_span(shown, &spans[i]);
	return 0;
}

int record_show(const char *path, const struct record_span *spans, unsigned nb_spans, FILE *out)
{
	struct shown shown = {.left = RECORD_SHOW_EVENTS, .out = out};
	int error = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat found;
	void *memory;

	if (fd < 0 || fstat(fd, &found) < 0)
		return -errno;
	shown.size = (size_t)found.st_size;
	memory = mmap(NULL, shown.size, PROT_READ, MAP_SHARED, fd, 0);
	error = memory == MAP_FAILED ? -errno : 0;
	close(fd);
	if (error < 0)
		return error;
	shown.file = memory;
	error = show(&shown, spans, nb_spans);
	munmap(memory, shown.size);
	return error;
}
