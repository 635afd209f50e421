/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "port/guest_backend.h"

struct guest_backend *_Atomic guest_backends;
atomic_ulong guest_notifying;

int guest_eventfd(int fd)
{
	static const char expected[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(expected)];
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target)) != (ssize_t)strlen(expected) ||
	    memcmp(target, expected, strlen(expected)) != 0)
		return -1;
	/* The guest can undo it: then a write may block, which guest_watchdog() and its caller end. */
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? fd : -1;
}

uint64_t guest_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}
