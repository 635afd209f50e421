/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's file: what happened on some CPUs, as intervals of the TSC, for readers to map while it grows.
 * It describes itself, as the counter page does:
 *
 *   0   "TAILNOTE"       8 bytes
 *   8   version          u32, RECORD_VERSION
 *   12  schema length    u32, bytes of JSON at offset 64
 *   64  schema           {"record": {"format", "fields"}, "series": {"offset", "count", "used", "format", "fields"},
 *                         "kinds": [name, ...], "clock_error", "part", "wall": offset of four u64,
 *                         "cpus": [{"cpu", "head", "until", "lost", "records", "length"}, ...], "notes": the same,
 *                         "sources": [{"what", "from": how it is recorded, or null, "why": why not, or null}, ...]}
 *
 * `format` is Python's struct module's.  `head`, `until`, `lost`, `used`, `clock_error` and `part` are offsets of u64
 * in the file.  The four of `wall` are two moments, the first and the last that were looked at, each by the TSC and in
 * nanoseconds since 1970.
 *
 * A CPU's records stand in the order of their ends, in a ring that is overwritten from the oldest on; all that ended
 * before `until` (TSC) is there.  `lost` counts what the kernel could not deliver.  What is rare and has no place in a
 * CPU's time (kinds from `migration` on) stands in a ring of its own, `notes`.  A series is one cause on one CPU: its
 * kind, name and thread or line; it counts all its records, also those that the ring has forgotten.  `part`
 * is the reader's: it counts on when a part of the run begins.  A series' `longest` is of its `part` alone.
 *
 * Belongs to one thread.
 */
#ifndef TAILRACE_RECORDER_RECORD_H
#define TAILRACE_RECORDER_RECORD_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RECORD_VERSION = 2,
	RECORD_CPUS = 256,
	RECORD_LENGTH = 1 << 17, /* records for each CPU */
	RECORD_SERIES = 4096,
	RECORD_NAME = 40,
	RECORD_SOURCES = 32,
};

/* What a record is of, as readers know it by name. */
#define RECORD_KINDS(X)                                                                           \
	X(INTERRUPT, "interrupt") /* id: the line or 0; name: whose */                            \
	X(NMI, "nmi")                                                                             \
	X(SOFTIRQ, "softirq")                                                                     \
	X(TASK, "task")		  /* ran; id: thread, extra: the kernel's priority */             \
	X(READY, "ready")	  /* a watched thread, off its CPU though it could run */         \
	X(ASLEEP, "asleep")	  /* ... because it waits for something */                        \
	X(BLOCKED, "blocked")	  /* ... because it waits in the kernel */                        \
	X(STOPPED, "stopped")	  /* ... because a signal or a debugger stopped it */             \
	X(FAULT, "fault")	  /* a page fault of a watched thread: when it began */           \
	X(EXIT, "exit")		  /* of a machine's CPU to this host; id: thread, name: reason */ \
	X(MIGRATION, "migration") /* of a watched thread; extra: to which CPU */                  \
	X(FREQUENCY, "frequency") /* extra: kHz from now on */                                    \
	X(STEAL, "steal")	  /* some time within it; extra: us */                            \
	X(SMI, "smi")		  /* some time within it; extra: how many */                      \
	X(COUNTED, "counted")	  /* interrupts some time within it; extra: how many */

enum record_kind {
#define RECORD_KIND(name, text) RECORD_##name,
	RECORD_KINDS(RECORD_KIND)
#undef RECORD_KIND
};

/* Where one sort of event comes from, or why it cannot be had. */
struct source {
	const char *what, *from;
	char why[96];
};

struct record_file;

/* Make the file at `path`, for these CPUs.  Returns NULL after logging what failed. */
struct record_file *record_open(const char *path, const int *cpus, unsigned nb_cpus, const struct source *sources,
				unsigned nb_sources);

/* Note that this lasted from `begin` to `end` on a CPU; `index` is its place in the list of CPUs. */
void record_add(struct record_file *file, unsigned index, enum record_kind kind, uint32_t id, const char *name,
		uint64_t begin, uint64_t end, uint32_t extra);

/* What ended before `tsc` has been added for this CPU. */
void record_until(struct record_file *file, unsigned index, uint64_t tsc);

void record_lost(struct record_file *file, unsigned index, uint64_t events);

/* Times are known to so many TSC cycles; the greatest that is reported stands. */
void record_clock_error(struct record_file *file, uint64_t cycles);

/* A moment by the TSC and in nanoseconds since 1970. */
void record_wall(struct record_file *file, uint64_t tsc, uint64_t ns);

/* Unmap and remove the file. */
void record_close(struct record_file *file);

#endif
