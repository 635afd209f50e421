/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file of the configuration says after each end that a change may have.  A whole configuration is on disk
 * before it takes the other's name; a patch counts from the moment when its line ends.
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "switch/patch.h"
#include "switch/store.h"

static char calls[8][16];
static unsigned nb_calls;
static int fdatasync_fails;
static unsigned pwrite_room = UINT32_MAX; /* on the disk */
static int line_ends_fail;

static void note(const char *call, int fd)
{
	struct stat file = {0};

	if (fd >= 0)
		fstat(fd, &file);
	snprintf(calls[nb_calls++], sizeof(calls[0]), "%s%s", call,
		 fd < 0			 ? ""
		 : S_ISDIR(file.st_mode) ? " folder"
		 : file.st_size > 0	 ? " file"
					 : " empty");
}

/* The linker puts these in the place of the library's (meson.build). */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t at)
{
	struct stat file;

	fstat(fd, &file);
	if (line_ends_fail && size == 1) {
		errno = EIO;
		return -1;
	}
	if ((size_t)at + size <= (size_t)file.st_size || size <= pwrite_room)
		return __real_pwrite64(fd, data, size, at);
	errno = ENOSPC;
	return pwrite_room > 0 ? __real_pwrite64(fd, data, pwrite_room, at) : -1;
}

int __wrap_rename(const char *from, const char *to)
{
	note("rename", -1);
	return __real_rename(from, to);
}

int __wrap_fdatasync(int fd)
{
	note("sync", fd);
	return fdatasync_fails ? -1 : 0;
}

int __wrap_fsync(int fd)
{
	note("sync", fd);
	return 0;
}

struct kept {
	char folder[32], path[64];
	struct config config;
};

static int start(void **state)
{
	struct kept *kept = calloc(1, sizeof(*kept));

	strcpy(kept->folder, "/tmp/tailrace-store-XXXXXX");
	assert_non_null(mkdtemp(kept->folder));
	snprintf(kept->path, sizeof(kept->path), "%s/kept", kept->folder);
	kept->config = (struct config){.version = 7, .path = kept->path, .document = json_pack("{s:{}}", "ports")};
	nb_calls = 0;
	fdatasync_fails = 0;
	pwrite_room = UINT32_MAX;
	line_ends_fail = 0;
	*state = kept;
	return 0;
}

static int end(void **state)
{
	struct kept *kept = *state;

	unlink(kept->path);
	assert_int_equal(rmdir(kept->folder), 0);
	json_decref(kept->config.document);
	json_decref(kept->config.previous);
	free(kept);
	return 0;
}

static void the_new_file_is_on_disk_before_it_takes_the_name(void **state)
{
	struct kept *kept = *state;
	struct config read = {.path = kept->path};
	struct control_error error;

	assert_int_equal(store_prepare(&kept->config, NULL, &error), 0);
	store_commit(&kept->config);
	store_sync(&kept->config);
	store_sync(&kept->config); /* nothing is left to do */
	assert_int_equal(nb_calls, 3);
	assert_string_equal(calls[0], "sync file");
	assert_string_equal(calls[1], "rename");
	assert_string_equal(calls[2], "sync folder");
	assert_int_equal(store_read(&read), 0);
	assert_int_equal(read.version, 7);
	assert_true(json_equal(read.document, kept->config.document));
	json_decref(read.document);
}

static void what_does_not_reach_the_disk_is_refused(void **state)
{
	struct kept *kept = *state;
	struct control_error error;

	fdatasync_fails = 1;
	assert_int_equal(store_prepare(&kept->config, NULL, &error), -1);
	assert_non_null(strstr(error.message, "cannot be kept"));
	for (unsigned i = 0; i < nb_calls; i++)
		assert_string_not_equal(calls[i], "rename");
	assert_int_not_equal(access(kept->path, F_OK), 0);
}

/* ------- patches ------- */

enum outcome { COMMITTED, ABANDONED, CUT_SHORT };

/* Change the configuration as the switch does: patch NULL: whole. */
static void change(struct kept *kept, const char *patch_text, enum outcome outcome)
{
	json_t *patch = patch_text ? json_loads(patch_text, 0, NULL) : NULL;
	struct control_error error;
	struct config next = {.version = kept->config.version + 1,
			      .path = kept->path,
			      .previous = kept->config.document,
			      .document = patch ? patch_merge(kept->config.document, patch)
						: json_incref(kept->config.document),
			      .author = {.pid = 1, .uid = 0xfffffffe, .when = "now"},
			      .store = kept->config.store};

	assert_int_equal(store_prepare(&next, patch, &error), 0);
	json_decref(patch);
	switch (outcome) {
	case COMMITTED:
		store_commit(&next);
		json_decref(kept->config.previous);
		kept->config = next;
		return;
	case ABANDONED:
		store_abandon(&next);
		break;
	case CUT_SHORT: /* the switch ends here */
		if (next.store.line >= 0)
			close(next.store.line);
		break;
	}
	json_decref(next.document);
}

/* What a switch that is started now finds. */
static void assert_found(const struct kept *kept)
{
	struct config read = {.path = kept->path, .document = json_object()};

	assert_int_equal(store_read(&read), 0);
	assert_int_equal(read.version, kept->config.version);
	assert_int_equal(read.author.uid, kept->config.author.uid);
	/* With the order of keys. */
	char *there = json_dumps(read.document, JSON_COMPACT), *here = json_dumps(kept->config.document, JSON_COMPACT);
	assert_string_equal(there, here);
	free(there);
	free(here);
	if (kept->config.previous != NULL)
		assert_true(json_equal(read.previous, kept->config.previous));
	json_decref(read.document);
	json_decref(read.previous);
}

static off_t file_size(const struct kept *kept)
{
	struct stat file;

	assert_int_equal(stat(kept->path, &file), 0);
	return file.st_size;
}

static void a_patch_costs_its_line_and_no_wait(void **state)
{
	struct kept *kept = *state;
	off_t size;

	change(kept, NULL, COMMITTED);
	store_sync(&kept->config);
	size = file_size(kept);
	nb_calls = 0;
	change(kept, "{\"ports\":{\"b\":{},\"a\":{}}}", COMMITTED);
	assert_int_equal(nb_calls, 0);
	assert_true(file_size(kept) > size && file_size(kept) < size + 150);
	assert_found(kept);
	change(kept, "{\"ports\":{\"b\":null},\"chains\":{\"c\":[1,\"a\\nb\"]}}", COMMITTED);
	assert_found(kept);
	store_sync(&kept->config);
	store_sync(&kept->config);
	assert_int_equal(nb_calls, 1);
	assert_string_equal(calls[0], "sync file");
	change(kept, NULL, COMMITTED);
	assert_found(kept);
}

static void a_patch_that_was_not_made_does_not_count(void **state)
{
	struct kept *kept = *state;

	change(kept, NULL, COMMITTED);
	change(kept, "{\"a\":1}", COMMITTED);
	change(kept, "{\"a\":2}", ABANDONED);
	assert_found(kept);
	change(kept, "{\"a\":3}", COMMITTED);
	assert_found(kept);
	change(kept, "{\"a\":4}", CUT_SHORT);
	assert_found(kept);
	/* Who has found this goes on behind what counts. */
	change(kept, "{\"a\":5}", COMMITTED);
	assert_found(kept);
}

static void a_full_disk_refuses_a_patch(void **state)
{
	struct kept *kept = *state;
	struct control_error error;
	json_t *patch = json_pack("{s:i}", "a", 1);
	off_t size;

	change(kept, NULL, COMMITTED);
	size = file_size(kept);
	kept->config.version++;
	for (pwrite_room = 0; pwrite_room < 20; pwrite_room += 19) {
		fdatasync_fails = 1; /* nor has it room for a whole one */
		assert_int_equal(store_prepare(&kept->config, patch, &error), -1);
		assert_int_equal(file_size(kept), size);
	}
	kept->config.version--;
	json_decref(patch);
	assert_found(kept);
}

static void many_patches_are_written_as_one_when_nobody_waits(void **state)
{
	struct kept *kept = *state;
	char patch[32];

	change(kept, NULL, COMMITTED);
	for (int i = 0; i < 64; i++) {
		snprintf(patch, sizeof(patch), "{\"a\":%d}", i);
		change(kept, patch, COMMITTED);
	}
	assert_true(file_size(kept) > 64 * 60);
	store_sync(&kept->config);
	assert_true(file_size(kept) < 200);
	assert_found(kept);
	change(kept, "{\"b\":1}", COMMITTED);
	assert_found(kept);
	/* A disk that has no room for that loses nothing. */
	for (int i = 0; i < 64; i++) {
		snprintf(patch, sizeof(patch), "{\"a\":%d}", i);
		change(kept, patch, COMMITTED);
	}
	fdatasync_fails = 1;
	store_sync(&kept->config);
	assert_found(kept);
	fdatasync_fails = 0;
	change(kept, "{\"b\":2}", COMMITTED);
	assert_found(kept);
}

static void add_text(const struct kept *kept, const char *text)
{
	FILE *file = fopen(kept->path, "ae");

	fputs(text, file);
	fclose(file);
}

static void what_follows_nothing_is_left_out(void **state)
{
	struct kept *kept = *state;

	change(kept, NULL, COMMITTED);
	change(kept, "{\"a\":1}", COMMITTED);
	add_text(kept, "{\"version\":99,\"author\":{\"pid\":1,\"uid\":1,\"when\":\"\"},\"patch\":{\"a\":2}}\n");
	assert_found(kept);
	add_text(kept, "\n{\n");
	assert_found(kept);
	/* Nor does this switch write behind what it has not left. */
	change(kept, "{\"a\":3}", COMMITTED);
	assert_found(kept);
	unlink(kept->path);
	change(kept, "{\"a\":4}", COMMITTED);
	assert_found(kept);
}

static void a_patch_whose_line_does_not_end_spoils_no_other(void **state)
{
	struct kept *kept = *state;

	change(kept, NULL, COMMITTED);
	line_ends_fail = 1;
	change(kept, "{\"a\":1}", COMMITTED);
	line_ends_fail = 0;
	change(kept, "{\"a\":2}", COMMITTED);
	assert_found(kept);
	change(kept, "{\"b\":3}", COMMITTED);
	assert_found(kept);
}

static void what_another_has_edited_is_not_taken_for_what_was_left(void **state)
{
	struct kept *kept = *state;
	const struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
	int fd;

	change(kept, "{\"rate\":100}", COMMITTED);
	fd = open(kept->path, O_WRONLY);
	assert_int_equal(__real_pwrite64(fd, "{\"version\":1", 12, 0), 12); /* as many bytes as before */
	assert_int_equal(futimens(fd, later), 0);
	close(fd);
	change(kept, "{\"a\":1}", COMMITTED);
	assert_found(kept);
}

static void what_cannot_be_read_is_not_taken_for_nothing(void **state)
{
	struct kept *kept = *state;
	struct config read = {.path = kept->path};

	assert_int_equal(mkdir(kept->path, 0700), 0);
	assert_int_equal(store_read(&read), -EINVAL);
	assert_int_equal(rmdir(kept->path), 0);
}

static void a_file_of_several_lines_is_read(void **state)
{
	struct kept *kept = *state;

	kept->config.author.uid = 3;
	kept->config.previous = json_object();
	add_text(kept,
		 "{\"version\":7,\"author\":{\"pid\":2,\"uid\":3,\"when\":\"then\"},\n\"config\":{\"ports\":{}},\n"
		 "\"previous\":{}}\n");
	assert_found(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_new_file_is_on_disk_before_it_takes_the_name, start, end),
		cmocka_unit_test_setup_teardown(what_does_not_reach_the_disk_is_refused, start, end),
		cmocka_unit_test_setup_teardown(a_patch_costs_its_line_and_no_wait, start, end),
		cmocka_unit_test_setup_teardown(a_patch_that_was_not_made_does_not_count, start, end),
		cmocka_unit_test_setup_teardown(a_full_disk_refuses_a_patch, start, end),
		cmocka_unit_test_setup_teardown(many_patches_are_written_as_one_when_nobody_waits, start, end),
		cmocka_unit_test_setup_teardown(what_follows_nothing_is_left_out, start, end),
		cmocka_unit_test_setup_teardown(a_patch_whose_line_does_not_end_spoils_no_other, start, end),
		cmocka_unit_test_setup_teardown(what_another_has_edited_is_not_taken_for_what_was_left, start, end),
		cmocka_unit_test_setup_teardown(what_cannot_be_read_is_not_taken_for_nothing, start, end),
		cmocka_unit_test_setup_teardown(a_file_of_several_lines_is_read, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
