/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that this process writes to by memory and others map.  It gets its name when it is ready, so that a reader
 * opens one that is whole or none.
 */
#ifndef TAILRACE_COMMON_SHARED_FILE_H
#define TAILRACE_COMMON_SHARED_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Map `size` bytes of a file that is in memory, or soon will be, to be written to without a page fault.  Returns NULL
 * with errno set. */
void *shared_file_map(int fd, size_t size);

/*
 * Map `size` zero bytes for a file at `path` that has no name yet, readable as `mode` says.  What it takes of the disk
 * (or of memory, on a tmpfs) is taken at once, so that no worker faults over it later.  Returns NULL with errno set.
 */
void *shared_file_make(const char *path, size_t size, mode_t mode);

/* Give the file its name.  Returns 0 or -1 with errno set. */
int shared_file_show(const char *path);

#endif
