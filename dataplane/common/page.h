/* SPDX-License-Identifier: Apache-2.0
 *
 * The counter page: a file that readers map read-only, so that watching costs the fast path nothing.
 * It describes itself: a JSON schema at its start names the fields of each kind of slot, from the same
 * lists that the code counts with.
 *
 *   0   "TAILRACE"         8 bytes
 *   8   version            u32, PAGE_VERSION
 *   12  schema length      u32, bytes of JSON at offset 64
 *   16  slots offset       u32
 *   20  slot size          u32, bytes
 *   24  slots              u32
 *   28  used               u32, slots from this one on have never been used
 *   64  schema             {"kinds": {"worker": 1, ...}, "worker": [field, ...], ...};
 *                          null stands for a field that is not used, and is there for alignment
 *
 * A slot is: kind u32 (0: free), generation u32 (counts uses of the slot), name 56 bytes, then u64 fields.
 * A field has one writer, which stores it whole; readers may see fields of one slot a few polls apart.
 * The thread that opens and closes slots is the control thread.
 */
#ifndef TAILRACE_COMMON_PAGE_H
#define TAILRACE_COMMON_PAGE_H

#include <stdint.h>

enum { PAGE_VERSION = 2, PAGE_NAME = 56 };

struct page_kind {
	const char *name;
	const char *const *fields; /* by index; NULL: not used */
	unsigned nb_fields;
};

struct page;

/*
 * Create the file at `path` (replacing an older one) with room for `slots` slots; kind i of the list gets
 * the number i + 1.  Returns NULL after logging what failed.
 */
struct page *page_create(const char *path, const struct page_kind *kinds, unsigned nb_kinds, unsigned slots);

/* Take a free slot.  Returns its zeroed fields, on a cache line of their own, or NULL when all are taken. */
uint64_t *page_slot_open(struct page *page, unsigned kind, const char *name);

/* Give a slot back; its fields must not be written any more. */
void page_slot_close(struct page *page, uint64_t *fields);

/* Unmap the page and remove its file. */
void page_close(struct page *page);

#endif
