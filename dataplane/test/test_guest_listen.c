/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket at which a port listens, in a folder that others may write to.
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "port/guest_listen.h"

static const char *instead; /* of a socket, once it is there; NULL: nothing */
static const char *led_to;  /* by the link that is put in a socket's place once it is there; NULL: by none */

int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
	const char *path = ((const struct sockaddr_un *)address)->sun_path;
	const int rc = __real_bind(fd, address, length);

	if (rc == 0 && led_to != NULL)
		assert_true(unlink(path) == 0 && symlink(led_to, path) == 0);
	if (rc == 0 && instead != NULL)
		assert_int_equal(rename(instead, path), 0);
	return rc;
}

static mode_t mode_of(const char *path)
{
	struct stat stat;

	assert_int_equal(lstat(path, &stat), 0);
	return stat.st_mode & 07777;
}

static void gives_its_mode_to_the_socket_and_to_nothing_in_its_place(void **state)
{
	char folder[] = "/tmp/tailrace-test-XXXXXX", socket_path[64], other[64], why[320];
	const struct guest_options options = {.name = "g", .path = socket_path, .socket_mode = 0666};
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	fd = guest_listen(&options, why, sizeof(why));
	assert_true(fd >= 0);
	assert_int_equal(mode_of(socket_path), 0666);
	close(fd);
	led_to = other;
	assert_int_equal(guest_listen(&options, why, sizeof(why)), -ENOTSOCK);
	assert_int_equal(mode_of(other), 0600);
	unlink(other);
	assert_int_equal(rmdir(folder), 0);
}

static void gives_its_group_to_the_socket_and_to_nothing_in_its_place(void **state)
{
	char folder[] = "/tmp/tailrace-test-XXXXXX", socket_path[64], other[64], group[16], why[320];
	const struct guest_options options = {.name = "g", .path = socket_path, .group = group, .socket_mode = -1};
	/* Who is not root may give a file to a group of its own only. */
	const gid_t given = geteuid() == 0 ? 12345 : getegid();
	struct stat stat;
	int fd, file;

	assert_non_null(mkdtemp(folder));
	snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	snprintf(group, sizeof(group), "%u", given);
	led_to = NULL;
	fd = guest_listen(&options, why, sizeof(why));
	assert_true(fd >= 0);
	assert_int_equal(lstat(socket_path, &stat), 0);
	assert_int_equal(stat.st_gid, given);
	close(fd);
	file = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	instead = other;
	assert_int_equal(guest_listen(&options, why, sizeof(why)), -ENOTSOCK);
	instead = NULL;
	assert_int_equal(fstat(file, &stat), 0);
	assert_int_equal(stat.st_gid, getegid());
	close(file);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_its_mode_to_the_socket_and_to_nothing_in_its_place),
		cmocka_unit_test(gives_its_group_to_the_socket_and_to_nothing_in_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
