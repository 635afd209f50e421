/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/accept.h"

int accept_spare(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd >= 0 ? fd : -errno;
}

static void turn_away(int listener, int *spare)
{
	int fd;

	close(*spare);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		close(fd);
	*spare = accept_spare();
}

int accept_next(int listener, int *spare)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), error = errno;

	if (fd >= 0)
		return fd;
	if (error == EMFILE || error == ENFILE)
		turn_away(listener, spare);
	return -error;
}
