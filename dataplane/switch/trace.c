/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "common/log.h"
#include "common/mapping.h"
#include "common/shared_file.h"
#include "switch/trace.h"

enum { TRACE_SCHEMA = 64, TRACE_SCHEMA_MOST = 64 * 1024, TRACE_LINE = 64 };

struct trace_header {
	char magic[8];
	uint32_t version, schema_length;
};

/* Where things are in the file. */
struct layout {
	size_t names, heads, records, size;
};

static struct layout lay_out(const struct trace_options *options)
{
	struct layout layout = {.names = TRACE_SCHEMA_MOST};

	layout.heads = layout.names + (size_t)TRACE_PORTS * TRACE_NAME;
	layout.records = RTE_ALIGN_CEIL(layout.heads + (size_t)options->workers * 2 * TRACE_LINE, 4096);
	layout.size = layout.records +
		      (size_t)options->workers * (TRACE_SAMPLED + options->recent) * sizeof(struct hop_record);
	return layout;
}

/* Set up one ring and describe it; moves the offsets of the next head and the next records on. */
static json_t *add_ring(struct trace *trace, struct hop_ring *ring, unsigned worker, const char *kind, unsigned length,
			size_t *head, size_t *records)
{
	json_t *text = json_pack("{s:i, s:s, s:I, s:I, s:i}", "worker", worker, "kind", kind, "head", (json_int_t)*head,
				 "records", (json_int_t)*records, "length", length);

	ring->head = (uint64_t *)(trace->file + *head);
	ring->records = (struct hop_record *)(trace->file + *records);
	ring->mask = length - 1;
	*head += TRACE_LINE;
	*records += (size_t)length * sizeof(struct hop_record);
	return text;
}

static json_t *set_up(struct trace *trace, const struct layout *layout)
{
	const struct trace_options *options = &trace->options;
	size_t head = layout->heads, records = layout->records;
	json_t *rings = json_array();

	for (unsigned worker = 0; worker < options->workers; worker++) {
		json_array_append_new(rings, add_ring(trace, &trace->hops.sampled[worker], worker, "sampled",
						      TRACE_SAMPLED, &head, &records));
		if (options->recent > 0)
			json_array_append_new(rings, add_ring(trace, &trace->hops.recent[worker], worker, "recent",
							      options->recent, &head, &records));
	}
	return json_pack("{s:I, s:i, s:i, s:{s:s, s:[s,s,s,s,s]}, s:{s:I, s:i, s:i}, s:o}", "tsc_hz",
			 (json_int_t)rte_get_tsc_hz(), "every", options->every, "margin", HOP_MARGIN, "record",
			 "format", "<QQIHH", "fields", "frame", "arrived", "stay", "from", "to", "ports", "offset",
			 (json_int_t)layout->names, "size", TRACE_NAME, "count", TRACE_PORTS, "rings", rings);
}

struct trace *trace_open(const char *path, const struct trace_options *options)
{
	const struct layout layout = lay_out(options);
	struct trace *trace = calloc(1, sizeof(*trace));
	struct trace_header *header;
	json_t *schema;
	char *text;

	if (trace == NULL)
		return NULL;
	snprintf(trace->path, sizeof(trace->path), "%s", path);
	trace->options = *options;
	trace->size = layout.size;
	trace->file = shared_file_make(path, layout.size, 0644);
	if (trace->file == NULL)
		goto fail;
	trace->names = (char *)trace->file + layout.names;
	trace->hops.every_mask = options->every - 1;
	trace->hops.has_recent = options->recent > 0;
	schema = set_up(trace, &layout);
	text = json_dumps(schema, JSON_COMPACT);
	json_decref(schema);
	if (text == NULL || strlen(text) > TRACE_SCHEMA_MOST - TRACE_SCHEMA) {
		free(text);
		errno = ENOMEM;
		goto unmap;
	}
	header = (struct trace_header *)trace->file;
	*header = (struct trace_header){"TAILHOPS", TRACE_VERSION, (uint32_t)strlen(text)};
	memcpy(trace->file + TRACE_SCHEMA, text, strlen(text));
	free(text);
	if (shared_file_show(path) != 0)
		goto unmap;
	return trace;

unmap:
	mapping_end(trace->file, trace->size, MAPPING_PAGE);
fail:
	log_error("hop trace %s: %s", path, strerror(errno));
	free(trace);
	return NULL;
}

void trace_name_port(struct trace *trace, unsigned number, const char *name)
{
	if (number < TRACE_PORTS)
		snprintf(trace->names + (size_t)number * TRACE_NAME, TRACE_NAME, "%s", name != NULL ? name : "");
}

void trace_set_key(struct trace *trace, uint32_t key)
{
	atomic_store_explicit(&trace->hops.key, HOP_KEYED | key, memory_order_relaxed);
}

void trace_close(struct trace *trace)
{
	if (trace == NULL)
		return;
	mapping_end(trace->file, trace->size, MAPPING_PAGE);
	unlink(trace->path);
	free(trace);
}
