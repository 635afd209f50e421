/* SPDX-License-Identifier: Apache-2.0
 *
 * Large mappings are filled and unmapped in pieces.  Linux locks the address space for each call, and a worker changes
 * it too, where a guest has cut its memory: it waits for one piece, however large the mapping is.  For every thread
 * that runs beside workers.
 */
#ifndef TAILRACE_COMMON_MAPPING_H
#define TAILRACE_COMMON_MAPPING_H

#include <stddef.h>

enum {
	MAPPING_PIECE = 2 << 20, /* bytes at a time, or a page where pages are larger */
	MAPPING_PAGE = 4096,	 /* of ordinary memory and files */
};

/* Unmap what mmap() has mapped, in pages of so many bytes; all of it, whatever has been mapped over it since.  errno
 * stays. */
void mapping_end(void *base, size_t length, size_t page);

/* Have pages that are missing made now.  Returns 0, or -1 with errno as of madvise(MADV_POPULATE_WRITE). */
int mapping_populate(void *base, size_t length, size_t page);

#endif
