/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "ask.h"
#include "common/log.h"

/* Returns a connection, or -errno. */
static int connect_to(const char *path)
{
	const struct timeval patience = {.tv_sec = ASK_SECONDS};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, error;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

/* Returns 0 or -errno. */
static int send_all(int fd, const char *data, size_t length)
{
	while (length > 0) {
		const ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);

		if (sent < 0)
			return -errno;
		data += sent;
		length -= (size_t)sent;
	}
	return 0;
}

/* Up to the end of the line, or of what comes.  Returns 0 or -errno. */
static int send_line(int fd)
{
	char buffer[65536];

	while (fgets(buffer, sizeof(buffer), stdin) != NULL) {
		const size_t length = strlen(buffer);
		const int rc = send_all(fd, buffer, length);

		if (rc != 0 || (length > 0 && buffer[length - 1] == '\n'))
			return rc;
	}
	return send_all(fd, "\n", 1);
}

/* Returns 0 or -errno. */
static int print_line(int fd)
{
	char buffer[65536];
	bool whole = false;

	while (!whole) {
		const ssize_t come = recv(fd, buffer, sizeof(buffer), 0);

		if (come <= 0)
			return come < 0 ? -errno : -ECONNRESET;
		whole = buffer[come - 1] == '\n';
		if (fwrite(buffer, 1, (size_t)come, stdout) != (size_t)come)
			return -EIO;
	}
	return fflush(stdout) == 0 ? 0 : -errno;
}

int ask(const char *path)
{
	int fd = connect_to(path), rc = fd;

	if (fd >= 0) {
		rc = send_line(fd);
		if (rc == 0)
			rc = print_line(fd);
		close(fd);
	}
	if (rc < 0)
		log_error("%s: no answer: %s", path, strerror(-rc));
	return rc < 0 ? 1 : 0;
}
