/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_common.h>

#include "common/mapping.h"

enum {
	HELD_NS = 100000, /* the address space, before others have their turn: about what a full piece takes */
	PAUSE_NS = 10000,
};

/* How much lies before the next piece's address: large pages and page tables end there, and stay whole. */
static size_t next_piece(uintptr_t at, uintptr_t end, size_t page)
{
	const size_t piece = RTE_MAX(page, (size_t)MAPPING_PIECE);

	return RTE_MIN(RTE_ALIGN_FLOOR(at, piece) + piece, end) - at;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void mapping_end(void *base, size_t length, size_t page)
{
	const uintptr_t end = (uintptr_t)base + length;
	const int error = errno;
	int64_t since = now_ns();
	size_t piece;

	for (uintptr_t at = (uintptr_t)base; at < end; at += piece) {
		piece = next_piece(at, end, page);
		munmap((void *)at, piece);
		/* Who waits for the lock wakes up to find it taken again, were it not left free for a moment. */
		if (at + piece < end && now_ns() - since > HELD_NS) {
			nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
			since = now_ns();
		}
	}
	errno = error;
}

int mapping_populate(void *base, size_t length, size_t page)
{
	const uintptr_t end = (uintptr_t)base + length;
	size_t piece;

	for (uintptr_t at = (uintptr_t)base; at < end; at += piece) {
		piece = next_piece(at, end, page);
		while (madvise((void *)at, piece, MADV_POPULATE_WRITE) != 0)
			if (errno != EINTR)
				return -1;
	}
	return 0;
}
