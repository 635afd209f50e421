/* SPDX-License-Identifier: Apache-2.0
 *
 * How the recorder's file is laid out (record.h says what stands in it), for who writes it and who reads it here.
 */
#ifndef TAILRACE_RECORDER_RECORD_FILE_H
#define TAILRACE_RECORDER_RECORD_FILE_H

#include <stddef.h>

#include "recorder/record.h"

enum {
	RECORD_SCHEMA = 64,
	RECORD_SCHEMA_MOST = 64 * 1024,
	RECORD_LINE = 64, /* of a ring: head, until, lost */
};

struct record {
	uint64_t begin, end;
	uint32_t series, extra;
};

struct series {
	uint16_t kind, cpu;
	uint32_t id;
	char name[RECORD_NAME];
	uint64_t count, cycles, longest, part;
};

_Static_assert(sizeof(struct record) == 24 && sizeof(struct series) == 80, "as readers know them");

/* By enum record_kind. */
extern const char *const record_kind_names[];

struct record_layout {
	size_t common, lines, series, records, size;
};

static inline struct record_layout record_lay_out(unsigned nb_cpus)
{
	struct record_layout layout = {.common = RECORD_SCHEMA_MOST};

	layout.lines = layout.common + RECORD_LINE;
	layout.series = layout.lines + ((size_t)nb_cpus + 1) * RECORD_LINE;
	layout.records = layout.series + RECORD_SERIES * sizeof(struct series);
	layout.size = layout.records + ((size_t)nb_cpus + 1) * RECORD_LENGTH * sizeof(struct record);
	return layout;
}

#endif
