/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mapping.h"
#include "common/shared_file.h"

/* Returns the name, or NULL with errno set. */
static const char *unfinished(const char *path, char *room, size_t size)
{
	if (snprintf(room, size, "%s.new", path) < (int)size)
		return room;
	errno = ENAMETOOLONG;
	return NULL;
}

void *shared_file_map(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return NULL;
	/* MAP_POPULATE would only read, and each page's first write still fault.  That it may do so is no failure. */
	(void)mapping_populate(memory, size, MAPPING_PAGE);
	return memory;
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
	memory = rc == 0 ? shared_file_map(fd, size) : NULL;
	if (memory == NULL) {
		rc = rc != 0 ? rc : errno;
		unlink(name);
	}
	close(fd);
	errno = rc;
	return memory;
}

int shared_file_show(const char *path)
{
	char room[300];
	const char *name = unfinished(path, room, sizeof(room));

	return name != NULL ? rename(name, path) : -1;
}
