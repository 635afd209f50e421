/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a kept configuration reaches the disk.  Whatever moment the power fails at, the file is the old
 * one whole or the new one whole: that is so if the new one is on disk before it takes the other's name.
 */
#include "test/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "switch/store.h"

static char calls[8][16];
static unsigned nb_calls;
static int fdatasync_fails;

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
	*state = kept;
	return 0;
}

static int end(void **state)
{
	struct kept *kept = *state;

	unlink(kept->path);
	assert_int_equal(rmdir(kept->folder), 0);
	json_decref(kept->config.document);
	free(kept->config.text);
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
	store_settle(&kept->config);
	store_settle(&kept->config); /* nothing is left to do */
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
	store_abandon(&kept->config);
	for (unsigned i = 0; i < nb_calls; i++)
		assert_string_not_equal(calls[i], "rename");
	assert_int_not_equal(access(kept->path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_new_file_is_on_disk_before_it_takes_the_name, start, end),
		cmocka_unit_test_setup_teardown(what_does_not_reach_the_disk_is_refused, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
