/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/shared_file.h"

/* Returns the name, or NULL with errno set. */
static const char *unfinished(const char *path, char *room, size_t size)
{
	if (snprintf(room, size, "%s.new", path) < (int)size)
		return room;
	errno = ENAMETOOLONG;
	return NULL;
}

void *shared_file_make(const char *path, size_t size, mode_t mode)
{
	char room[300];
	const char *name = unfinished(path, room, sizeof(room));
	void *memory;
	int fd, rc;

	if (name == NULL)
		return NULL;
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return NULL;
	rc = posix_fallocate(fd, 0, (off_t)size);
	memory = rc == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0) : MAP_FAILED;
	if (memory == MAP_FAILED) {
		rc = rc != 0 ? rc : errno;
		unlink(name);
	}
	close(fd);
	errno = rc;
	return memory != MAP_FAILED ? memory : NULL;
}

int shared_file_show(const char *path)
{
	char room[300];
	const char *name = unfinished(path, room, sizeof(room));

	return name != NULL ? rename(name, path) : -1;
}
