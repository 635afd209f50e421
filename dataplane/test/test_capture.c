/* SPDX-License-Identifier: Apache-2.0
 *
 * Capture files: good ones are read frame by frame, others refused with the reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "cmocka_all.h"
#include "tester/capture.h"

static char path[] = "/tmp/tailrace-test-capture-XXXXXX";
static char error[256];

static int make_file(void **state)
{
	int fd = mkstemp(path);

	return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
	return unlink(path);
}

/* Write frames of these lengths, frame k filled with byte k; `cut` bytes are missing from the last one. */
static void write_file(int link_type, const uint32_t *lengths, size_t count, uint32_t cut)
{
	pcap_t *pcap = pcap_open_dead(link_type, 65535);
	pcap_dumper_t *dumper = pcap_dump_open(pcap, path);

	for (size_t i = 0; i < count; i++) {
		struct pcap_pkthdr header = {.len = lengths[i], .caplen = lengths[i] - (i + 1 == count ? cut : 0)};
		uint8_t *bytes = malloc(lengths[i]);

		memset(bytes, (int)i, lengths[i]);
		pcap_dump((u_char *)dumper, &header, bytes);
		free(bytes);
	}
	pcap_dump_close(dumper);
	pcap_close(pcap);
}

static void frames_are_read_in_order_and_padded(void **state)
{
	enum { COUNT = 5000 };
	uint32_t lengths[COUNT];
	struct capture *capture;

	for (uint32_t i = 0; i < COUNT; i++)
		lengths[i] = 14 + i * 7 % 1500;
	write_file(DLT_EN10MB, lengths, COUNT, 0);
	capture = capture_open(path, 1514, error, sizeof(error));
	assert_non_null(capture);
	assert_int_equal(capture->nb_frames, COUNT);
	assert_int_equal(capture->longest, 1513);
	for (uint32_t i = 0; i < COUNT; i++) {
		const uint8_t *frame = capture->bytes + capture->starts[i];
		size_t length = capture->starts[i + 1] - capture->starts[i];

		assert_int_equal(length, lengths[i] < 60 ? 60 : lengths[i]);
		assert_int_equal(frame[0], (uint8_t)i);
		assert_int_equal(frame[length - 1], lengths[i] < 60 ? 0 : (uint8_t)i);
	}
	capture_close(capture);
}

static void refuse(const char *reason)
{
	assert_null(capture_open(path, 1514, error, sizeof(error)));
	assert_non_null(strstr(error, path));
	if (strstr(error, reason) == NULL)
		fail_msg("'%s' does not say '%s'", error, reason);
}

static void a_cut_frame_is_refused(void **state)
{
	write_file(DLT_EN10MB, (const uint32_t[]){100, 1000}, 2, 904);
	refuse("frame 2 was cut to 96 of 1000 bytes");
}

static void a_file_that_ends_early_is_refused(void **state)
{
	write_file(DLT_EN10MB, (const uint32_t[]){100, 1000}, 2, 0);
	assert_int_equal(truncate(path, 24 + 16 + 100 + 16 + 500), 0);
	refuse("after frame 1");
}

static void another_link_type_is_refused(void **state)
{
	write_file(DLT_RAW, (const uint32_t[]){100}, 1, 0);
	refuse("RAW");
}

static void a_frame_too_long_for_the_ports_is_refused(void **state)
{
	write_file(DLT_EN10MB, (const uint32_t[]){1514, 1515}, 2, 0);
	refuse("frame 2 has 1515 bytes");
}

static void an_empty_capture_is_refused(void **state)
{
	write_file(DLT_EN10MB, NULL, 0, 0);
	refuse("no frame");
}

static void what_is_no_capture_is_refused(void **state)
{
	FILE *file = fopen(path, "w");

	fputs("not a capture at all, but long enough to look at", file);
	fclose(file);
	refuse("unknown file format");
}

static void a_missing_file_is_refused(void **state)
{
	assert_null(capture_open("/nonexistent.pcap", 1514, error, sizeof(error)));
	assert_non_null(strstr(error, "/nonexistent.pcap"));
	assert_non_null(strstr(error, "No such file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_are_read_in_order_and_padded),
		cmocka_unit_test(a_cut_frame_is_refused),
		cmocka_unit_test(a_file_that_ends_early_is_refused),
		cmocka_unit_test(another_link_type_is_refused),
		cmocka_unit_test(a_frame_too_long_for_the_ports_is_refused),
		cmocka_unit_test(an_empty_capture_is_refused),
		cmocka_unit_test(what_is_no_capture_is_refused),
		cmocka_unit_test(a_missing_file_is_refused),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
