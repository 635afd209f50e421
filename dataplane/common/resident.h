/* SPDX-License-Identifier: Apache-2.0
 *
 * Large tables whose memory is there before the first frame: a page fault later would be a frame's latency, and to zero
 * a large page takes hundreds of microseconds.
 */
#ifndef TAILRACE_COMMON_RESIDENT_H
#define TAILRACE_COMMON_RESIDENT_H

#include <stddef.h>

/* `size` zero bytes, aligned to a page.  Returns NULL with errno where there is not so much. */
void *resident_zeros(size_t size);

/* Give them back; NULL is none. */
void resident_free(void *memory, size_t size);

#endif
