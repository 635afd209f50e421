/*
 * A guest that makes every eventfd block again at the moment after a program has made it non-blocking, for programs
 * that are started with this library before their own (LD_PRELOAD), from when the file that $BLOCKING_EVENTFD names has
 * a byte in it that is not 0.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *on;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("BLOCKING_EVENTFD");
	int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *map = file >= 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;

	if (file >= 0)
		close(file);
	on = map != MAP_FAILED ? map : NULL;
}

static int is_eventfd(int fd)
{
	char path[32], target[32] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, target, sizeof(target) - 1) > 0 && strcmp(target, "anon_inode:[eventfd]") == 0;
}

int fcntl64(int fd, int command, ...)
{
	va_list more;
	long argument;
	int rc;

	va_start(more, command);
	argument = va_arg(more, long);
	va_end(more);
	rc = (int)syscall(SYS_fcntl, fd, command, argument);
	if (rc == 0 && command == F_SETFL && on != NULL && *(const volatile char *)on != 0 && is_eventfd(fd))
		syscall(SYS_fcntl, fd, F_SETFL, argument & ~O_NONBLOCK);
	return rc;
}

int fcntl(int fd, int command, ...) __attribute__((alias("fcntl64")));
