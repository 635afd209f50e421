/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-recorder: notes what can delay a frame on some CPUs, for as long as it runs.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"
#include "recorder/events.h"
#include "recorder/record_show.h"
#include "recorder/samples.h"

enum {
	DRAIN_MS = 10,
	LOOK_EVERY = 10, /* drains between two looks at what is only counted */
};

static const char usage[] =
	"Usage: tailrace-recorder --file PATH --cpu N [--cpu N ...] [--thread ID ...] [option ...]\n"
	"       tailrace-recorder --show PATH [--span BEGIN-END ...]\n"
	"\n"
	"Notes in a file, which readers map, what can delay packets on the CPUs named: interrupts, softirqs, which "
	"task\n"
	"ran when, steal time, frequency changes, system management interrupts; and of the threads named when and why\n"
	"they were off their CPU, page faults and migrations. It runs until SIGTERM, and removes the file.\n"
	"\n"
	"  --file PATH        the file\n"
	"  --cpu N            a CPU to record\n"
	"  --thread ID        a polling thread, by Linux's thread id\n"
	"  --no-bpf           load no programs into the kernel, and use its tracepoints by perf\n"
	"  --show PATH        write what such a file knows of some spans of time, as text, and end\n"
	"  --span BEGIN-END   one of them, by the TSC; at most 128\n"
	"  --exits            of the threads, which are CPUs of machines that KVM runs, also when and why they were "
	"left\n"
	"  --software         leave the kernel's tracepoints alone, and use what else there is\n"
	"  --version, --help\n";

struct options {
	const char *file, *shown;
	int cpus[RECORD_CPUS];
	unsigned nb_cpus, nb_spans;
	struct record_span spans[RECORD_SHOW_SPANS];
	enum events_by best;
	bool exits;
};

static void add_thread(struct timeline *timeline, const char *text)
{
	if (timeline->nb_threads == TIMELINE_THREADS) {
		log_error("--thread %s: more than %d threads", text, TIMELINE_THREADS);
		exit(2);
	}
	timeline->threads[timeline->nb_threads++].thread = (int32_t)option_number("thread", text, 1, 1 << 22);
}

static void add_cpu(struct options *options, const char *text)
{
	if (options->nb_cpus == RECORD_CPUS) {
		log_error("--cpu %s: more than %d CPUs", text, RECORD_CPUS);
		exit(2);
	}
	options->cpus[options->nb_cpus++] = (int)option_number("cpu", text, 0, 65535);
}

static void add_span(struct options *options, const char *text)
{
	struct record_span *span = &options->spans[options->nb_spans];
	int length = 0;

	if (options->nb_spans == RECORD_SHOW_SPANS) {
		log_error("--span %s: more than %d spans", text, RECORD_SHOW_SPANS);
		exit(2);
	}
	if (sscanf(text, "%" SCNu64 "-%" SCNu64 "%n", &span->begin, &span->end, &length) < 2 || text[length] != '\0' ||
	    span->begin > span->end) {
		log_error("--span %s: expected two times of the TSC, such as 100-200", text);
		exit(2);
	}
	options->nb_spans++;
}

static struct options parse(int argc, char **argv, struct timeline *timeline)
{
	static const struct option known[] = {
		{"file", required_argument, NULL, 'f'},
		{"cpu", required_argument, NULL, 'c'},
		{"thread", required_argument, NULL, 't'},
		{"no-bpf", no_argument, NULL, 'b'},
		{"software", no_argument, NULL, 's'},
		{"show", required_argument, NULL, 'o'},
		{"span", required_argument, NULL, 'p'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{"exits", no_argument, NULL, 'x'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.file = NULL};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (option) {
		case 'f':
			options.file = optarg;
			break;
		case 'c':
			add_cpu(&options, optarg);
			break;
		case 't':
			add_thread(timeline, optarg);
			break;
		case 'b':
			options.best = EVENTS_BY_TRACEPOINTS;
			break;
		case 'x':
			options.exits = true;
			break;
		case 's':
			options.best = EVENTS_BY_SOFTWARE;
			break;
		case 'o':
			options.shown = optarg;
			break;
		case 'p':
			add_span(&options, optarg);
			break;
		case 'v':
			puts("tailrace-recorder " TAILRACE_VERSION);
			exit(0);
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc) {
		log_error("'%s' is not an option; see --help", argv[optind]);
		exit(2);
	}
	if (options.shown == NULL && (options.file == NULL || options.nb_cpus == 0)) {
		log_error("--file and at least one --cpu are needed, or --show; see --help");
		exit(2);
	}
	return options;
}

static void run(struct events *events, struct samples *samples, struct timeline *timeline, unsigned nb_cpus, int stop)
{
	struct pollfd end = {.fd = stop, .events = POLLIN};
	struct clock_reading before = clock_read(CLOCK_MONOTONIC), looked = before;

	events_begin(events);
	for (unsigned round = 0; poll(&end, 1, DRAIN_MS) == 0; round++) {
		struct clock_reading now = clock_read(CLOCK_MONOTONIC);

		/* Whatever is read now happened before a reading that is taken after it. */
		for (unsigned i = 0; i < nb_cpus; i++) {
			events_drain(events, i, timeline, &before, &now);
			record_until(timeline->file, i, now.tsc);
		}
		record_clock_error(timeline->file, before.error > now.error ? before.error : now.error);
		if (round % LOOK_EVERY == 0) {
			struct clock_reading wall = clock_read(CLOCK_REALTIME);

			record_wall(timeline->file, wall.tsc, wall.ns);
			samples_look(samples, timeline->file, looked.tsc, now.tsc);
			looked = now;
		}
		before = now;
	}
}

int main(int argc, char **argv)
{
	static struct timeline timeline;
	struct source sources[RECORD_SOURCES];
	struct samples *samples = NULL;
	struct events *events;
	struct options options;
	unsigned nb_sources;
	int stop;

	log_open("tailrace-recorder", LOG_LEVEL_INFO);
	options = parse(argc, argv, &timeline);
	if (options.shown != NULL) {
		int error = record_show(options.shown, options.spans, options.nb_spans, stdout);

		if (error < 0)
			log_error("%s: %s", options.shown,
				  error == -EPROTO ? "is no file of a tailrace-recorder of this version"
						   : strerror(-error));
		return error < 0 ? 1 : 0;
	}
	prctl(PR_SET_TIMERSLACK, 1000000); /* a millisecond sooner or later is all the same */
	stop = stop_open();
	if (stop < 0) {
		log_error("signals: %s", strerror(-stop));
		return 1;
	}
	events = events_open(options.cpus, options.nb_cpus, &timeline, options.best, options.exits, sources,
			     &nb_sources);
	if (events != NULL)
		samples = samples_open(options.cpus, options.nb_cpus, sources, &nb_sources);
	if (samples == NULL) {
		log_error("out of memory");
		return 1;
	}
	timeline.file = record_open(options.file, options.cpus, options.nb_cpus, sources, nb_sources);
	if (timeline.file == NULL)
		return 1;
	run(events, samples, &timeline, options.nb_cpus, stop);
	events_close(events);
	samples_close(samples);
	record_close(timeline.file);
	return 0;
}
