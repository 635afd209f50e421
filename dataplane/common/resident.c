/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/resident.h"

void *resident_zeros(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, size, MADV_HUGEPAGE); /* spares a second miss for each lookup */
	/* MAP_POPULATE would leave out silently what there is no memory for. */
	if (madvise(memory, size, MADV_POPULATE_WRITE) == 0)
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
	const int error = errno;

	if (memory != NULL)
		munmap(memory, size);
	errno = error;
}
