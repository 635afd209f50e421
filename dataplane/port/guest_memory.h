/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest's memory, mapped from the files that its front end sends.  A table of mappings is immutable: a change makes
 * a new one and swaps it in.  For the thread that speaks the protocol, which has taken the guest's rings from the
 * workers before: they point into what may be unmapped.
 */
#ifndef TAILRACE_PORT_GUEST_MEMORY_H
#define TAILRACE_PORT_GUEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "vring/memory.h"
#include "vring/vring.h"

/*
 * Of one guest, so that the address space is enough for all, even where their files are sparse.  A page that a file
 * does not have yet is made when the switch touches it, and is the switch's to pay for: a port's own limit bounds what
 * its guest can have it take, and guest_memory_unless_said() where it has none.
 */
#define GUEST_MEMORY_MOST (1ULL << 41)
/* The log of a migration has a bit for each 4 KiB page of it. */
#define GUEST_LOG_MOST (GUEST_MEMORY_MOST / 4096 / 8)

/* A region as the front end describes it (vhost-user specification, "Memory region description"). */
struct guest_region_message {
	uint64_t guest, size, user, offset;
};

struct guest_map {
	uint64_t guest, user, size; /* guest-physical and front end's address of the first byte */
	uint8_t *host;
	void *base; /* what was mapped: whole pages of the file's kind */
	size_t length;
	/* Which part of which file it is. */
	dev_t device;
	ino_t file;
	uint64_t offset;
	size_t page;
	bool registered; /* pages that are missing are made by us (guest_pages.h) */
	enum vring_fault
		gone; /* zeros lie where it was touched: the file has lost pages, or the guest took too many back */
};

struct guest_table {
	unsigned count;
	struct guest_map maps[GUEST_REGIONS];
	struct guest_map log; /* the dirty log; length 0: none */
	struct guest_memory memory;
};

/* One guest's. */
struct guest_mappings {
	struct guest_table *_Atomic table; /* NULL: no memory.  Also read where a fault is caught */
	uint64_t most;			   /* bytes that it may share */
};

/*
 * Replace the whole table; an empty one is left when a region cannot be mapped.  The files stay the caller's.
 * Returns 0 or a negative errno: -EINVAL for regions that are empty, wrap, overlap or reach past the end of their file,
 * -E2BIG for more in all than the guest may share.
 */
int guest_memory_set(struct guest_mappings *memory, const struct guest_region_message *regions, const int *fds,
		     unsigned count);
int guest_memory_add(struct guest_mappings *memory, const struct guest_region_message *region, int fd);
int guest_memory_remove(struct guest_mappings *memory, const struct guest_region_message *region);

/* What a guest may share whose port does not say: half of the machine's memory. */
uint64_t guest_memory_unless_said(void);

/* Map the dirty log. */
int guest_memory_log(struct guest_mappings *memory, uint64_t size, uint64_t offset, int fd);

/*
 * Returns how large the pages of a file of memory are, 0 if it is none: one on a disk, of a file system of the guest's
 * own, or a device, whose file may lie in a tmpfs too.  These could let a worker wait for a page for ever, and anybody
 * for their end.  Huge pages' file system says in st_blksize how large they are; a tmpfs there says what it would like,
 * and its pages can be small all the same.  `stat` is what fstat() says of the file.
 */
uint64_t guest_memory_page(int fd, struct stat *stat);

/* Unmap everything. */
void guest_memory_drop(struct guest_mappings *memory);

/*
 * Why memory of the table is not the front end's any more, if so: what lies in its place is memory of ours, so no ring
 * is served until the front end sends another table.
 */
enum vring_fault guest_memory_gone(const struct guest_table *table);

/* Where `size` bytes at the front end's address lie here; NULL when they are not within one region. */
void *guest_memory_user(const struct guest_table *table, uint64_t user, size_t size);

/* The guest-physical address of the same; all ones when it is in no region. */
uint64_t guest_memory_physical(const struct guest_table *table, uint64_t user);

#endif
