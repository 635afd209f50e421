/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "port/guest_listen.h"

/* A socket file that nobody listens on is left over from a crash: remove it.  Anything else is somebody's. */
static int clear_stale(const struct sockaddr_un *address)
{
	struct stat stat;
	int fd, rc;

	if (lstat(address->sun_path, &stat) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(stat.st_mode))
		return -ENOTSOCK;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN ? -EADDRINUSE
												     : -errno;
	close(fd);
	if (rc == -ECONNREFUSED)
		return unlink(address->sun_path) == 0 ? 0 : -errno;
	return rc == -ENOENT ? 0 : rc;
}

static int find_group(const char *name, gid_t *group)
{
	const struct group *entry = getgrnam(name);
	char *end;

	if (entry != NULL) {
		*group = entry->gr_gid;
		return 0;
	}
	*group = strtoul(name, &end, 10);
	return *name >= '0' && *name <= '9' && *end == '\0' ? 0 : -EINVAL;
}

/*
 * Returns a descriptor of the socket's file that is at this path, for its group and mode to be set, or a negative
 * errno: -ENOTSOCK when another was put in its place, or a link.
 */
static int open_file(const char *path)
{
	const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat stat;
	int rc;

	if (fd < 0)
		return -errno;
	rc = fstat(fd, &stat) != 0 ? -errno : !S_ISSOCK(stat.st_mode) || stat.st_uid != geteuid() ? -ENOTSOCK : 0;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int set_group(const char *path, gid_t group)
{
	const int fd = open_file(path);
	int rc;

	if (fd < 0)
		return fd;
	rc = fchownat(fd, "", -1, group, AT_EMPTY_PATH) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

static int set_mode(const char *path, int mode)
{
	const int fd = open_file(path);
	char opened[32];
	int rc;

	if (fd < 0)
		return fd;
	/* No call changes the mode of a file that is open in this way, but by its name. */
	snprintf(opened, sizeof(opened), "/proc/self/fd/%d", fd);
	rc = chmod(opened, mode) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

int guest_listen(const struct guest_options *options, char *why, unsigned why_size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = options->path;
	gid_t group = -1;
	int fd, rc;

	strcpy(address.sun_path, path);
	if (options->group != NULL && find_group(options->group, &group) != 0) {
		snprintf(why, why_size, "socket %s: there is no group '%s'", path, options->group);
		return -EINVAL;
	}
	rc = clear_stale(&address);
	if (rc == -EADDRINUSE)
		snprintf(why, why_size, "socket %s is in use; stop the program that listens there or use another path",
			 path);
	else if (rc == -ENOTSOCK)
		snprintf(why, why_size, "socket %s: a file that is no socket is there", path);
	else if (rc != 0)
		snprintf(why, why_size, "socket %s: %s", path, strerror(-rc));
	if (rc != 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		rc = -errno;
		if (rc == -EACCES)
			snprintf(why, why_size,
				 "socket %s cannot be made: %s; let user %u, as whom the switch runs, write to its "
				 "folder",
				 path, strerror(-rc), geteuid());
		else
			snprintf(why, why_size, "socket %s cannot be made: %s", path, strerror(-rc));
		goto close_fd;
	}
	/* Nobody can connect until it listens, so there is no moment at which the wrong ones may. */
	rc = group != (gid_t)-1 ? set_group(path, group) : 0;
	if (rc != 0) {
		snprintf(why, why_size, "socket %s cannot be given to group '%s': %s%s%s", path, options->group,
			 strerror(-rc), rc == -EPERM ? "; start the switch with --groups " : "",
			 rc == -EPERM ? options->group : "");
		goto remove;
	}
	rc = options->socket_mode >= 0 ? set_mode(path, options->socket_mode) : 0;
	if (rc != 0) {
		snprintf(why, why_size, "socket %s cannot be given mode %04o: %s", path, options->socket_mode,
			 strerror(-rc));
		goto remove;
	}
	if (listen(fd, SOMAXCONN) != 0) {
		rc = -errno;
		snprintf(why, why_size, "socket %s: %s", path, strerror(-rc));
		goto remove;
	}
	return fd;

remove:
	unlink(path);
close_fd:
	if (fd >= 0)
		close(fd);
	return rc;
}
