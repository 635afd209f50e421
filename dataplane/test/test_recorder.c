/* SPDX-License-Identifier: Apache-2.0
 *
 * From moments to intervals: what each CPU did, where each watched thread was, and what a series counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "cmocka_all.h"
#include "recorder/clock.h"
#include "recorder/events_state.h"
#include "recorder/record_show.h"
#include "recorder/samples.h"
#include "recorder/timeline.h"

enum { POLLER = 42, MANY = RECORD_LENGTH + 8378 };

static const struct task idle = {0, 120, "swapper/3"}, poller = {POLLER, 120, "poller"}, hog = {7, 49, "hog"};

/* A recorder's file of CPUs 3 and 5, mapped anew as a reader does. */
struct recording {
	char path[64];
	struct timeline timeline;
	uint8_t *memory;
	size_t size;
	json_t *schema;
	char text[4096]; /* that was shown */
	size_t length;
};

static int begin(void **state)
{
	static const int cpus[] = {3, 5};
	static const struct source sources[] = {{"this", "here", ""}, {"that", NULL, "nowhere"}};
	struct recording *recording = calloc(1, sizeof(*recording));
	int fd;

	snprintf(recording->path, sizeof(recording->path), "/tmp/tailrace-test-recorder-%d", getpid());
	recording->timeline.file = record_open(recording->path, cpus, 2, sources, 2);
	recording->timeline.threads[0].thread = POLLER;
	recording->timeline.nb_threads = 1;
	fd = open(recording->path, O_RDWR);
	recording->size = (size_t)lseek(fd, 0, SEEK_END);
	recording->memory = mmap(NULL, recording->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	recording->schema = json_loads((const char *)recording->memory + 64, JSON_DISABLE_EOF_CHECK, NULL);
	*state = recording;
	return recording->timeline.file == NULL || recording->schema == NULL;
}

static int end(void **state)
{
	struct recording *recording = *state;

	record_close(recording->timeline.file);
	munmap(recording->memory, recording->size);
	json_decref(recording->schema);
	free(recording);
	return 0;
}

static uint64_t word(const struct recording *recording, const json_t *of, const char *key)
{
	uint64_t value;

	memcpy(&value, recording->memory + json_integer_value(json_object_get(of, key)), sizeof(value));
	return value;
}

/* Whether record `number` of a ring is this; its series is looked up. */
static void expect(const struct recording *recording, const json_t *ring, unsigned number, const char *kind,
		   const char *name, uint32_t id, uint64_t began, uint64_t ended, uint32_t extra)
{
	const json_t *all = json_object_get(recording->schema, "series");
	uint64_t times[2];
	uint32_t rest[2], thread;
	uint16_t kind_cpu[2];
	const uint8_t *at, *series;

	assert_true(word(recording, ring, "head") > number);
	at = recording->memory + json_integer_value(json_object_get(ring, "records")) + 24 * number;
	memcpy(times, at, sizeof(times));
	memcpy(rest, at + 16, sizeof(rest));
	series = recording->memory + json_integer_value(json_object_get(all, "offset")) + 80 * rest[0];
	memcpy(kind_cpu, series, sizeof(kind_cpu));
	memcpy(&thread, series + 4, sizeof(thread));
	assert_int_equal(times[0], began);
	assert_int_equal(times[1], ended);
	assert_int_equal(rest[1], extra);
	assert_int_equal(thread, id);
	assert_string_equal(json_string_value(json_array_get(json_object_get(recording->schema, "kinds"), kind_cpu[0])),
			    kind);
	assert_string_equal((const char *)series + 8, name);
}

static const json_t *ring_of(const struct recording *recording, size_t index)
{
	return json_array_get(json_object_get(recording->schema, "cpus"), index);
}

static void the_file_describes_itself(void **state)
{
	struct recording *recording = *state;
	const json_t *sources = json_object_get(recording->schema, "sources");

	assert_memory_equal(recording->memory, "TAILNOTE", 8);
	assert_int_equal(json_integer_value(json_object_get(ring_of(recording, 1), "cpu")), 5);
	assert_string_equal(json_string_value(json_object_get(json_array_get(sources, 0), "from")), "here");
	assert_true(json_is_null(json_object_get(json_array_get(sources, 1), "from")));
	assert_string_equal(json_string_value(json_object_get(json_array_get(sources, 1), "why")), "nowhere");
}

static void a_task_that_takes_the_cpu_is_an_interval_and_so_is_the_pollers_wait(void **state)
{
	struct recording *recording = *state;
	const json_t *ring = ring_of(recording, 0);

	timeline_switch(&recording->timeline, 0, 100, &poller, 0, &hog);
	timeline_switch(&recording->timeline, 0, 300, &hog, 1, &poller);
	assert_int_equal(word(recording, ring, "head"), 2);
	expect(recording, ring, 0, "task", "hog", 7, 100, 300, 49);
	expect(recording, ring, 1, "ready", "", POLLER, 100, 300, 0);
}

static void why_a_thread_is_off_its_cpu(void **state)
{
	static const struct {
		uint64_t state;
		const char *kind;
	} whys[] = {{0, "ready"}, {0x100, "ready"}, {1, "asleep"}, {2, "blocked"}, {4, "stopped"}, {8, "stopped"}};
	struct recording *recording = *state;
	unsigned number = 0;

	for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++) {
		uint64_t at = 1000 * (i + 1);

		timeline_switch(&recording->timeline, 0, at, &poller, whys[i].state, &idle);
		timeline_switch(&recording->timeline, 0, at + 10, &idle, 0, &poller);
		number += i > 0; /* the poller's own time on the CPU, from the second one on */
		expect(recording, ring_of(recording, 0), number++, whys[i].kind, "", POLLER, at, at + 10, 0);
	}
}

static void interrupts_nest_and_one_without_a_beginning_is_left_out(void **state)
{
	struct recording *recording = *state;
	struct timeline *timeline = &recording->timeline;
	const json_t *ring = ring_of(recording, 1);

	timeline_leave(timeline, 1, NESTING_VECTOR, 50, 0, "local_timer");
	timeline_enter(timeline, 1, NESTING_SOFTIRQ, 100);
	timeline_enter(timeline, 1, NESTING_LINE, 110);
	timeline_leave(timeline, 1, NESTING_LINE, 120, 38, "eth0");
	timeline_leave(timeline, 1, NESTING_SOFTIRQ, 130, 3, "NET_RX");
	assert_int_equal(word(recording, ring, "head"), 2);
	expect(recording, ring, 0, "interrupt", "eth0", 38, 110, 120, 0);
	expect(recording, ring, 1, "softirq", "NET_RX", 3, 100, 130, 0);
}

static void what_was_under_way_when_events_were_lost_is_not_guessed(void **state)
{
	struct recording *recording = *state;
	struct timeline *timeline = &recording->timeline;

	timeline_enter(timeline, 0, NESTING_VECTOR, 100);
	timeline_switch(timeline, 0, 110, &poller, 0, &hog);
	timeline_lost(timeline, 0);
	timeline_leave(timeline, 0, NESTING_VECTOR, 200, 0, "reschedule");
	timeline_switch(timeline, 0, 210, &hog, 1, &poller);
	assert_int_equal(word(recording, ring_of(recording, 0), "head"), 0);
}

static void points_are_of_watched_threads_only_and_rare_ones_are_notes(void **state)
{
	struct recording *recording = *state;
	struct timeline *timeline = &recording->timeline;

	timeline_point(timeline, 0, RECORD_FAULT, 100, 7, 0);
	timeline_point(timeline, 0, RECORD_FAULT, 110, POLLER, 0);
	timeline_point(timeline, 1, RECORD_MIGRATION, 120, POLLER, 5);
	assert_int_equal(word(recording, ring_of(recording, 0), "head"), 1);
	expect(recording, ring_of(recording, 0), 0, "fault", "", POLLER, 110, 110, 0);
	expect(recording, json_object_get(recording->schema, "notes"), 0, "migration", "", POLLER, 120, 120, 5);
}

static void a_series_counts_what_the_ring_forgets(void **state)
{
	struct recording *recording = *state;
	const json_t *all = json_object_get(recording->schema, "series");
	uint64_t totals[3];

	for (uint64_t i = 0; i < RECORD_LENGTH + 10; i++)
		record_add(recording->timeline.file, 0, RECORD_SOFTIRQ, 1, "TIMER", 100 * i, 100 * i + i % 50, 0);
	assert_int_equal(word(recording, all, "used"), 1);
	memcpy(totals, recording->memory + json_integer_value(json_object_get(all, "offset")) + 48, sizeof(totals));
	assert_int_equal(totals[0], RECORD_LENGTH + 10);
	assert_int_equal(totals[2], 49);
}

static void the_longest_is_of_the_part_that_the_reader_has_begun(void **state)
{
	struct recording *recording = *state;
	const json_t *all = json_object_get(recording->schema, "series");
	const json_int_t part = json_integer_value(json_object_get(recording->schema, "part"));
	uint64_t totals[4];

	for (uint64_t longest = 3; longest > 0; longest--) {
		for (uint64_t i = 0; i <= longest; i++)
			record_add(recording->timeline.file, 0, RECORD_SOFTIRQ, 1, "TIMER", 100, 100 + i, 0);
		memcpy(totals, recording->memory + json_integer_value(json_object_get(all, "offset")) + 48,
		       sizeof(totals));
		assert_int_equal(totals[2], longest);
		assert_int_equal(totals[3], word(recording, recording->schema, "part"));
		++*(uint64_t *)(void *)(recording->memory + part);
	}
	assert_int_equal(totals[0], 4 + 3 + 2);
}

static void more_series_than_there_is_room_for_go_into_the_last(void **state)
{
	struct recording *recording = *state;
	const json_t *all = json_object_get(recording->schema, "series");

	for (uint32_t i = 0; i < RECORD_SERIES + 100; i++)
		record_add(recording->timeline.file, 0, RECORD_TASK, i, "task", i, i + 1, 0);
	assert_int_equal(word(recording, all, "used"), RECORD_SERIES);
	expect(recording, ring_of(recording, 0), RECORD_SERIES + 50, "task", "(others)", RECORD_SERIES - 1,
	       RECORD_SERIES + 50, RECORD_SERIES + 51, 0);
}

static void interrupts_are_counted_by_row_and_column(void **state)
{
	static const char text[] = "           CPU0       CPU1\n"
				   "  0:         36          0   IO-APIC    2-edge      timer\n"
				   " 24:          0        500   PCI-MSI 65536-edge      virtio0-RES: x\n"
				   "NMI:          1          2   Non-maskable interrupts\n"
				   "RES:     400000       7000   Rescheduling interrupts\n"
				   "ERR:          3\n";

	(void)state;
	assert_int_equal(samples_sum_column(text, "RES", 0), 400000);
	assert_int_equal(samples_sum_column(text, "RES", 1), 7000);
	assert_int_equal(samples_sum_column(text, "RE", 1), 0);
	assert_int_equal(samples_sum_column(text, NULL, 0), 36 + 1 + 400000 + 3);
}

static void a_time_between_two_readings_lies_on_a_straight_line(void **state)
{
	const struct clock_reading before = {.tsc = 1000000, .ns = 500000}, after = {.tsc = 3500000, .ns = 1500000};

	assert_int_equal(clock_tsc(&before, &after, 500000), 1000000);
	assert_int_equal(clock_tsc(&before, &after, 1000000), 2250000);
	assert_int_equal(clock_tsc(&before, &after, 1500000), 3500000);
	assert_int_equal(clock_tsc(&before, &after, 400000), 750000);
}

/* As Linux 6.18 describes kvm/kvm_exit; the arguments of its text are left out. */
static const char exit_format[] = "name: kvm_exit\nID: 103\nformat:\n"
				  "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
				  "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
				  "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
				  "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
				  "\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;\n"
				  "\tfield:unsigned long guest_rip;\toffset:16;\tsize:8;\tsigned:0;\n"
				  "\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;\n"
				  "\tfield:u64 info1;\toffset:32;\tsize:8;\tsigned:0;\n";

enum { EXIT_POINT = 103, ENTRY_POINT = 115 };

/* What perf gathers of one event, as EVENTS_SAMPLE lays it out. */
struct perf_sample {
	struct perf_event_header header;
	uint64_t id;
	int32_t process, thread;
	uint64_t time;
	uint32_t raw_size;
	uint8_t raw[44];
};

static void gather(const struct buffer *buffer, uint16_t point, int32_t thread, uint64_t ns, uint32_t reason,
		   uint32_t isa)
{
	struct perf_sample sample = {
		.header = {.type = PERF_RECORD_SAMPLE, .size = sizeof(sample)},
		.process = 1,
		.thread = thread,
		.time = ns,
		.raw_size = sizeof(sample.raw),
	};

	memcpy(sample.raw, &point, sizeof(point));
	memcpy(sample.raw + 8, &reason, sizeof(reason));
	memcpy(sample.raw + 24, &isa, sizeof(isa));
	memcpy(buffer->data + buffer->page->data_head, &sample, sizeof(sample));
	buffer->page->data_head += sizeof(sample);
}

static void an_exit_lasts_until_the_machines_cpu_is_entered_again(void **state)
{
	static const char *const fields[] = {"exit_reason", "isa", NULL};
	static const struct clock_reading before = {.tsc = 1000, .ns = 1000}, after = {.tsc = 9000, .ns = 9000};
	struct recording *recording = *state;
	const json_t *ring = ring_of(recording, 1);
	struct events *events = calloc(1, sizeof(*events));
	struct buffer *buffer = &events->buffers[1];

	buffer->page = calloc(1, sizeof(*buffer->page));
	buffer->data = calloc(1, EVENTS_BUFFER);
	for (unsigned i = 0; i < KNOWN; i++)
		if (strcmp(known[i].name, "kvm/kvm_exit") == 0) {
			assert_int_equal(tracepoint_parse(exit_format, fields, &events->tracepoints[i]), 0);
			events->tracepoints[i].number = EXIT_POINT;
		} else if (strcmp(known[i].name, "kvm/kvm_entry") == 0) {
			events->tracepoints[i].number = ENTRY_POINT;
		}
	gather(buffer, ENTRY_POINT, POLLER, 1500, 0, 0); /* of an exit before we looked */
	gather(buffer, EXIT_POINT, POLLER, 2000, 0x1e, 1);
	gather(buffer, EXIT_POINT, 7, 2100, 0x1e, 1); /* nobody watches that one */
	gather(buffer, ENTRY_POINT, 7, 2200, 0, 0);
	gather(buffer, ENTRY_POINT, POLLER, 2500, 0, 0);
	gather(buffer, EXIT_POINT, POLLER, 3000, 0x400, 2);
	gather(buffer, ENTRY_POINT, POLLER, 3100, 0, 0);
	gather(buffer, EXIT_POINT, POLLER, 4000, 0xfff, 2); /* newer than the names here */
	gather(buffer, ENTRY_POINT, POLLER, 4100, 0, 0);
	gather(buffer, EXIT_POINT, POLLER, 5000, 0x0c, 1); /* not entered yet */
	events_drain(events, 1, &recording->timeline, &before, &after);
	assert_int_equal(word(recording, ring, "head"), 3);
	expect(recording, ring, 0, "exit", "IO_INSTRUCTION", POLLER, 2000, 2500, 0x1e);
	expect(recording, ring, 1, "exit", "NPF", POLLER, 3000, 3100, 0x400);
	expect(recording, ring, 2, "exit", "?", POLLER, 4000, 4100, 0xfff);
	timeline_lost(&recording->timeline, 1);
	timeline_entry(&recording->timeline, 1, 6000, POLLER);
	assert_int_equal(word(recording, ring, "head"), 3);
	free(buffer->page);
	free(buffer->data);
	free(events);
}

/* What the file's recorder shows of these spans; to be freed. */
static char *shown(const struct recording *recording, const struct record_span *spans, unsigned nb_spans)
{
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(record_show(recording->path, spans, nb_spans, out), 0);
	fclose(out);
	return text;
}

static void spans_are_shown_as_lines(void **state)
{
	static const struct record_span spans[] = {{150, 250}, {900, 950}};
	struct recording *recording = *state;
	struct record_file *file = recording->timeline.file;
	char *text;

	record_add(file, 0, RECORD_TASK, 7, "before", 10, 149, 0);
	record_add(file, 0, RECORD_TASK, 8, "two\nlines", 100, 200, 49);
	record_add(file, 0, RECORD_INTERRUPT, 0, "local_timer", 240, 260, 0);
	record_add(file, 0, RECORD_TASK, 9, "after", 260, 300, 0);
	record_add(file, 1, RECORD_SOFTIRQ, 1, "TIMER", 150, 160, 0);
	record_until(file, 0, 1000);
	record_until(file, 1, 990);
	record_lost(file, 1, 3);
	text = shown(recording, spans, 2);
	assert_string_equal(text, "until 990 oldest 0 lost 3 clock 0\n"
				  "lacks that: nowhere\n"
				  "event 100 200 3 task 8 49 two?lines\n"
				  "event 240 260 3 interrupt 0 0 local_timer\n"
				  "event 150 160 5 softirq 1 0 TIMER\n"
				  "span 150 250\n"
				  "span 900 950\n");
	free(text);
}

static void what_was_overwritten_is_told_and_what_has_no_room_is_not_shown(void **state)
{
	struct recording *recording = *state;
	struct record_span spans[2];
	char *text;

	for (uint64_t i = 0; i < RECORD_LENGTH + 10; i++)
		record_add(recording->timeline.file, 0, RECORD_TASK, 7, "hog", i * 10, i * 10 + 5, 0);
	spans[0] = (struct record_span){0, RECORD_LENGTH * 10};
	spans[1] = (struct record_span){RECORD_LENGTH * 10, RECORD_LENGTH * 10 + 5};
	text = shown(recording, spans, 2);
	assert_null(strstr(text, "span 0 "));
	assert_non_null(strstr(text, "oldest 41065 ")); /* ten, and as many as may be written over meanwhile */
	assert_non_null(strstr(text, "\nspan 1310720 1310725\n"));
	free(text);
}

/* What is recorded as soon as the first line is written: so much that the oldest that it tells of is lost. */
static ssize_t record_more(void *cookie, const char *text, size_t size)
{
	struct recording *recording = cookie;
	const json_t *ring = ring_of(recording, 0);

	for (uint64_t i = word(recording, ring, "head"); i < MANY; i++)
		record_add(recording->timeline.file, 0, RECORD_TASK, 7, "hog", i * 10, i * 10 + 5, 0);
	if (recording->length + size < sizeof(recording->text))
		memcpy(recording->text + recording->length, text, size);
	recording->length += size;
	return (ssize_t)size;
}

static void a_span_that_was_overwritten_meanwhile_is_not_shown(void **state)
{
	struct recording *recording = *state;
	const uint64_t oldest = 4107; /* of which the first line tells */
	const struct record_span spans[] = {
		{oldest * 10, oldest * 10 + 5},
		{(MANY - 10) * 10, (MANY - 10) * 10 + 5},
		{(MANY - 1) * 10, UINT64_MAX}, /* and a time that is the last one */
		{41000, 41005},		       /* of which it promises nothing */
	};
	FILE *out = fopencookie(recording, "w", (cookie_io_functions_t){.write = record_more});

	for (uint64_t i = 0; i < RECORD_LENGTH + 10; i++)
		record_add(recording->timeline.file, 0, RECORD_TASK, 7, "hog", i * 10, i * 10 + 5, 0);
	setvbuf(out, NULL, _IONBF, 0);
	assert_int_equal(record_show(recording->path, spans, 4, out), 0);
	fclose(out);
	assert_non_null(strstr(recording->text, "oldest 41065 "));
	assert_null(strstr(recording->text, "span 41070 "));
	assert_non_null(strstr(recording->text, "event 1394400 1394405 3 task 7 0 hog\nspan 1394400 1394405\n"));
	assert_non_null(strstr(recording->text, "event 1394490 1394495 3 task 7 0 hog\nspan 1394490 "));
	assert_non_null(strstr(recording->text, "\nspan 41000 41005\n"));
}

static void another_file_is_not_shown(void **state)
{
	char path[] = "/tmp/tailrace-test-show-XXXXXX";
	int fd = mkstemp(path);

	assert_int_equal(record_show("/tmp/there/is/none", NULL, 0, stdout), -ENOENT);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(record_show(path, NULL, 0, stdout), -EPROTO);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_file_describes_itself, begin, end),
		cmocka_unit_test_setup_teardown(a_task_that_takes_the_cpu_is_an_interval_and_so_is_the_pollers_wait,
						begin, end),
		cmocka_unit_test_setup_teardown(why_a_thread_is_off_its_cpu, begin, end),
		cmocka_unit_test_setup_teardown(interrupts_nest_and_one_without_a_beginning_is_left_out, begin, end),
		cmocka_unit_test_setup_teardown(what_was_under_way_when_events_were_lost_is_not_guessed, begin, end),
		cmocka_unit_test_setup_teardown(points_are_of_watched_threads_only_and_rare_ones_are_notes, begin, end),
		cmocka_unit_test_setup_teardown(an_exit_lasts_until_the_machines_cpu_is_entered_again, begin, end),
		cmocka_unit_test_setup_teardown(a_series_counts_what_the_ring_forgets, begin, end),
		cmocka_unit_test_setup_teardown(the_longest_is_of_the_part_that_the_reader_has_begun, begin, end),
		cmocka_unit_test_setup_teardown(more_series_than_there_is_room_for_go_into_the_last, begin, end),
		cmocka_unit_test_setup_teardown(spans_are_shown_as_lines, begin, end),
		cmocka_unit_test_setup_teardown(what_was_overwritten_is_told_and_what_has_no_room_is_not_shown, begin,
						end),
		cmocka_unit_test_setup_teardown(a_span_that_was_overwritten_meanwhile_is_not_shown, begin, end),
		cmocka_unit_test(another_file_is_not_shown),
		cmocka_unit_test(interrupts_are_counted_by_row_and_column),
		cmocka_unit_test(a_time_between_two_readings_lies_on_a_straight_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
