/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/mapping.h"
#include "common/resident.h"

enum { LARGE_PAGE = 2 << 20 };

void *resident_zeros(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	/*
	 * Large pages spare a second miss for each lookup.  What is smaller must not become part of one later: the
	 * kernel would take it away from whoever uses it meanwhile.
	 */
	(void)madvise(memory, size, size >= LARGE_PAGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	/* MAP_POPULATE would leave out silently what there is no memory for. */
	if (mapping_populate(memory, size, MAPPING_PAGE) == 0)
		return memory;
	if (errno == EINVAL) { /* a kernel before 5.14 */
		memset(memory, 0, size);
		return memory;
	}
	resident_free(memory, size);
	return NULL;
}

void resident_free(void *memory, size_t size)
{
	if (memory != NULL)
		mapping_end(memory, size, MAPPING_PAGE);
}
