/* SPDX-License-Identifier: Apache-2.0
 *
 * Capture files: good ones are read frame by frame, whatever else is in them; others are refused with the reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "tester/capture.h"

static char path[] = "/tmp/tailrace-test-capture-XXXXXX";
static char error[CAPTURE_ERROR];

/* The file that is being written, in one byte order or the other. */
static uint8_t made[1 << 23];
static size_t used;
static bool swapped;

static int make_file(void **state)
{
	int fd = mkstemp(path);

	return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
	return unlink(path);
}

static void add(const void *bytes, size_t length)
{
	memcpy(made + used, bytes, length);
	used += length;
}

static void add32(uint32_t number)
{
	number = swapped ? __builtin_bswap32(number) : number;
	add(&number, 4);
}

static void add16(uint16_t number)
{
	number = swapped ? __builtin_bswap16(number) : number;
	add(&number, 2);
}

static void fill(uint8_t byte, size_t length)
{
	memset(made + used, byte, length);
	used += length;
}

static void begin(bool other_order)
{
	used = 0;
	swapped = other_order;
}

static void write_so_many(size_t length)
{
	FILE *file = fopen(path, "w");

	assert_int_equal(fwrite(made, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

static struct capture *opened(uint16_t longest)
{
	struct capture *capture;

	write_so_many(used);
	capture = capture_open(path, longest, error);
	if (capture == NULL)
		fail_msg("%s", error);
	return capture;
}

static void refuse(const char *reason)
{
	write_so_many(used);
	assert_null(capture_open(path, 1514, error));
	assert_non_null(strstr(error, path));
	if (strstr(error, reason) == NULL)
		fail_msg("'%s' does not say '%s'", error, reason);
}

/* pcap */

static void pcap(uint32_t magic, uint32_t link)
{
	add32(magic);
	add16(2);
	add16(4);
	fill(0, 8);
	add32(65535);
	add32(link);
}

static void record(uint32_t kept, uint32_t length, uint8_t byte)
{
	fill(0, 8);
	add32(kept);
	add32(length);
	fill(byte, kept);
}

/* pcapng */

/* Begin a block; end_block() says how long it has become. */
static size_t block(uint32_t type)
{
	size_t start = used;

	add32(type);
	add32(0);
	return start;
}

static void end_block(size_t start)
{
	uint32_t length;

	fill(0, -used % 4);
	length = (uint32_t)(used + 4 - start);
	add32(length);
	length = swapped ? __builtin_bswap32(length) : length;
	memcpy(made + start + 4, &length, 4);
}

static void option(uint16_t code, const void *value, uint16_t length)
{
	add16(code);
	add16(length);
	add(value, length);
	fill(0, -used % 4);
}

static void option32(uint16_t code, uint32_t value)
{
	value = swapped ? __builtin_bswap32(value) : value;
	option(code, &value, 4);
}

static void section(void)
{
	size_t start = block(0x0a0d0d0a);

	add32(0x1a2b3c4d);
	add16(1);
	add16(0);
	fill(0xff, 8);
	end_block(start);
}

/* `fcs` is the value of if_fcslen; 255: there is no such option. */
static void interface(uint16_t link, uint32_t longest, uint8_t fcs)
{
	size_t start = block(1);

	add16(link);
	add16(0);
	add32(longest);
	option(2, "eth0", 4);
	option(9, "\x09", 1); /* time stamps in ns */
	if (fcs != 255) {
		option(13, &fcs, 1);
		option(0, "", 0);
	}
	end_block(start);
}

/* An enhanced block; `flags` is the value of epb_flags, 0: there are no options. */
static void enhanced(uint32_t interface, uint32_t kept, uint32_t length, uint8_t byte, uint32_t flags)
{
	size_t start = block(6);

	add32(interface);
	fill(0, 8);
	add32(kept);
	add32(length);
	fill(byte, kept);
	fill(0, -used % 4);
	if (flags != 0) {
		option(1, "a comment", 9);
		option32(2, flags);
		option(0, "", 0);
	}
	end_block(start);
}

static void obsolete(uint16_t interface, uint32_t kept, uint8_t byte)
{
	size_t start = block(2);

	add16(interface);
	add16(0xffff);
	fill(0, 8);
	add32(kept);
	add32(kept);
	fill(byte, kept);
	end_block(start);
}

static void simple(uint32_t kept, uint32_t length, uint8_t byte)
{
	size_t start = block(3);

	add32(length);
	fill(byte, kept);
	end_block(start);
}

static void other(uint32_t type, size_t length)
{
	size_t start = block(type);

	fill(7, length);
	end_block(start);
}

/* What was read: frame k is filled with byte k from 1 on and has so many bytes. */
static void check_frames(const uint16_t *lengths, uint32_t count)
{
	struct capture *capture = opened(1514);

	assert_int_equal(capture->nb_frames, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct capture_frame *frame = &capture->frames[i];

		assert_int_equal(frame->length, lengths[i]);
		assert_int_equal(capture->bytes[frame->start], (uint8_t)(i + 1));
		assert_int_equal(capture->bytes[frame->start + frame->length - 1], (uint8_t)(i + 1));
	}
	capture_close(capture);
}

static const uint16_t three[] = {60, 61, 1514};

static void pcap_is_read_in_either_order(void **state)
{
	static const uint32_t magics[] = {0xa1b2c3d4, 0xa1b23c4d};

	for (int order = 0; order < 2; order++)
		for (int i = 0; i < 2; i++) {
			begin(order);
			pcap(magics[i], 1);
			for (int k = 0; k < 3; k++)
				record(three[k], three[k], (uint8_t)(k + 1));
			check_frames(three, 3);
		}
}

static void the_variant_with_more_in_each_record_is_read(void **state)
{
	begin(false);
	pcap(0xa1b2cd34, 1);
	for (int k = 0; k < 3; k++) {
		record(0, 0, 0);
		used -= 8;
		add32(three[k]);
		add32(three[k]);
		fill(9, 8);
		fill((uint8_t)(k + 1), three[k]);
	}
	check_frames(three, 3);
}

static void pcapng_is_read_whatever_else_is_in_it(void **state)
{
	static const uint32_t known[] = {4, 5, 9, 10, 0xbad, 0x40000bad, 0x80000001, 0x7fffffff};

	for (int order = 0; order < 2; order++) {
		begin(order);
		section();
		for (int i = 0; i < 8; i++)
			other(known[i], 20 * i);
		other(4, 3 << 20); /* longer than what is looked at at once */
		interface(1, 0, 255);
		interface(101, 0, 255); /* of which there is no frame */
		enhanced(0, three[0], three[0], 1, 0);
		other(5, 4);
		obsolete(0, three[1], 2);
		other(0xbad, 5000);
		enhanced(0, three[2], three[2], 3, 0x20001);
		other(10, 1 << 20);
		check_frames(three, 3);
	}
}

static void sections_have_interfaces_and_a_byte_order_of_their_own(void **state)
{
	begin(false);
	section();
	interface(101, 0, 255);
	interface(1, 0, 255);
	enhanced(1, three[0], three[0], 1, 0);
	swapped = true;
	section();
	interface(1, 1514, 255);
	simple(three[1], three[1], 2);
	swapped = false;
	section();
	section();
	interface(1, 0, 255);
	obsolete(0, three[2], 3);
	check_frames(three, 3);
}

static void a_long_comment_is_no_obstacle(void **state)
{
	static uint8_t comment[65532];
	size_t start;

	begin(false);
	start = block(0x0a0d0d0a);
	add32(0x1a2b3c4d);
	add16(1);
	add16(2);
	fill(0xff, 8);
	for (int i = 0; i < 20; i++)
		option(1, comment, sizeof(comment));
	end_block(start);
	interface(1, 0, 255);
	enhanced(0, 60, 60, 1, 0);
	check_frames(three, 1);
}

static void a_frame_check_sequence_is_left_out(void **state)
{
	static const uint8_t values[] = {4, 32}; /* bytes, and bits */

	begin(false);
	pcap(0xa1b2c3d4, 0x24000001); /* two words */
	for (int k = 0; k < 3; k++)
		record(three[k] + 4, three[k] + 4, (uint8_t)(k + 1));
	check_frames(three, 3);
	for (int i = 0; i < 2; i++) {
		begin(true);
		section();
		interface(1, 0, values[i]);
		for (int k = 0; k < 3; k++)
			enhanced(0, three[k] + 4, three[k] + 4, (uint8_t)(k + 1), 0);
		check_frames(three, 3);
	}
	begin(false);
	section();
	interface(1, 0, 255);
	interface(1, 0, 0);
	enhanced(0, three[0] + 4, three[0] + 4, 1, 4 << 5 | 1); /* said of the frame alone */
	enhanced(1, three[1], three[1], 2, 1);
	enhanced(0, three[2] + 4, three[2] + 4, 3, 4 << 5);
	check_frames(three, 3);

	begin(false);
	pcap(0xa1b2c3d4, 0x14000001);
	record(60, 60, 1);
	refuse("frames with a frame check sequence of 2 bytes; expected Ethernet's of 4 bytes");
	begin(false);
	pcap(0xa1b2c3d4, 0x24000001);
	record(3, 3, 1);
	refuse("frame 1 has 3 bytes and no room for its frame check sequence");
	begin(false);
	pcap(0xa1b2c3d4, 0x24000001);
	record(64, 68, 1);
	refuse("frame 1 was cut to 64 of 68 bytes");
}

static void short_frames_are_padded(void **state)
{
	struct capture *capture;

	begin(false);
	pcap(0xa1b2c3d4, 1);
	record(14, 14, 1);
	record(60, 60, 1);
	record(59, 59, 1);
	capture = opened(1514);
	assert_int_equal(capture->padded, 2);
	assert_int_equal(capture->grown + capture->cut, 0);
	assert_int_equal(capture->frames[0].length, 60);
	assert_int_equal(capture->bytes[13], 1);
	assert_int_equal(capture->bytes[14], 0);
	assert_int_equal(capture->most_number, 1);
	assert_int_equal(capture->most_payload, 46);
	capture_close(capture);
}

static void what_cannot_be_sent_is_refused(void **state)
{
	begin(false);
	pcap(0xa1b2c3d4, 1);
	refuse("there is no frame in it");
	record(100, 100, 1);
	record(96, 1000, 1);
	refuse("frame 2 was cut to 96 of 1000 bytes");
	begin(false);
	pcap(0xa1b2c3d4, 1);
	record(1515, 1515, 1);
	refuse("frame 1 has 1515 bytes, and the ports take at most 1514");
	begin(false);
	pcap(0xa1b2c3d4, 101);
	record(100, 100, 1);
	refuse("frame 1 is of link type 101 (raw IP); expected Ethernet frames alone");
	begin(false);
	section();
	interface(1, 0, 255);
	interface(276, 0, 255);
	enhanced(0, 60, 60, 1, 0);
	enhanced(1, 60, 60, 1, 0);
	refuse("frame 2 is of link type 276 (Linux cooked");
	begin(false);
	section();
	interface(1, 64, 255);
	simple(64, 1500, 1);
	refuse("frame 1 was cut to 64 of 1500 bytes");
}

static void damage_is_reported(void **state)
{
	const uint32_t wrong = 44;

	begin(false);
	fill('x', 200);
	refuse("this is no capture file");
	begin(false);
	pcap(0xa1b2c3d4, 1);
	used = 20;
	refuse("this is no capture file");
	begin(false);
	pcap(0xa1b2c3d4, 1);
	made[4] = 3;
	refuse("pcap of version 3.4; expected version 2");
	begin(false);
	section();
	made[12] = 2;
	refuse("pcapng of version 2.0; expected version 1");
	begin(false);
	pcap(0xa1b2c3d4, 1);
	record(60, 60, 1);
	record(1 << 20, 1 << 20, 1);
	refuse("a frame that is longer than any at byte 100: the file is damaged");
	begin(false);
	section();
	enhanced(0, 60, 60, 1, 0);
	refuse("a frame of an interface that the file does not have");
	begin(false);
	section();
	interface(1, 0, 255);
	enhanced(0, 60, 60, 1, 0);
	memcpy(made + used - 4, &wrong, 4);
	refuse("a block with two lengths");
	memcpy(made + used - 92 + 4, &wrong, 4);
	refuse("a block with two lengths");
	begin(false);
	section();
	other(4, 2);
	made[28 + 4]++;
	refuse("a block whose length cannot be");
	assert_null(capture_open("/nonexistent.pcap", 1514, error));
	assert_non_null(strstr(error, "/nonexistent.pcap: No such file"));
	assert_null(capture_open("/tmp", 1514, error));
	assert_non_null(strstr(error, "/tmp: this is no file"));
}

/* However much is missing, what is read is whole, and the frame that the file ends within is named. */
static void a_file_that_ends_early_is_refused(void **state)
{
	for (int form = 0; form < 2; form++) {
		size_t ends[5], nb_ends = 0, all;

		begin(false);
		if (form == 0) {
			pcap(0xa1b2c3d4, 1);
		} else {
			section();
			interface(1, 0, 255);
		}
		ends[nb_ends++] = used;
		for (int k = 0; k < 3; k++) {
			if (form == 0)
				record(60, 60, 1);
			else
				enhanced(0, 60, 60, 1, 1);
			ends[nb_ends++] = used;
		}
		all = used;
		for (size_t length = ends[0]; length <= all; length++) {
			struct capture *capture;
			char said[48];
			uint32_t whole = 0;

			while (whole + 1 < nb_ends && ends[whole + 1] <= length)
				whole++;
			write_so_many(length);
			capture = capture_open(path, 1514, error);
			if (capture != NULL) {
				assert_int_equal(length, ends[whole]);
				assert_int_equal(capture->nb_frames, whole);
				capture_close(capture);
				continue;
			}
			assert_true(length != ends[whole] || whole == 0);
			snprintf(said, sizeof(said), "the file ends within frame %u", whole + 1);
			assert_non_null(strstr(error, whole == 0 && length == ends[0] ? "there is no frame" : said));
		}
		for (size_t length = 0; length < ends[0]; length++) {
			write_so_many(length);
			assert_null(capture_open(path, 1514, error));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pcap_is_read_in_either_order),
		cmocka_unit_test(the_variant_with_more_in_each_record_is_read),
		cmocka_unit_test(pcapng_is_read_whatever_else_is_in_it),
		cmocka_unit_test(sections_have_interfaces_and_a_byte_order_of_their_own),
		cmocka_unit_test(a_long_comment_is_no_obstacle),
		cmocka_unit_test(a_frame_check_sequence_is_left_out),
		cmocka_unit_test(short_frames_are_padded),
		cmocka_unit_test(what_cannot_be_sent_is_refused),
		cmocka_unit_test(damage_is_reported),
		cmocka_unit_test(a_file_that_ends_early_is_refused),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
