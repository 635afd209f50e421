/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages that a guest's memory does not have, or not at hand, when the switch touches them.
 *
 * A file of memory has holes: pages that nobody has written yet, or that the guest has given back (a balloon does, and
 * so may a guest that means harm).  Left to the kernel, whoever touches one makes it, and waits for that; if the guest
 * is giving back much at that moment, for all of it.  Other pages are in swap, and whoever touches one waits for the
 * disk.  With userfaultfd(2) the touch is a signal instead: the page is made or mapped by the handler, it is known
 * whose it was, and it counts as work of the visit to the ring, which it ends before long.  What a guest takes of its
 * worker's time so is charged to its account (vring/account.h).
 *
 * Where the kernel does not let us (before Linux 5.14, of pages in swap), it makes pages by itself, and only the kernel
 * bounds what that takes.
 */
#ifndef TAILRACE_PORT_GUEST_PAGES_H
#define TAILRACE_PORT_GUEST_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vring/account.h"

enum {
	GUEST_PAGES_SMALL = 4096,
	GUEST_PAGES_LARGE = 2 << 20, /* those that are larger would take too long to be made by a handler */
	GUEST_PAGES_STEP = 64,	     /* that are mapped in one call, if they are there */
};

/* Once, before the program gives up its privileges.  Without it pages that are missing are not made, which is logged.
 */
void guest_pages_open(void);

/*
 * Whether pages of this mapping, each of so many bytes, are made and mapped by us from now on.  Of those that are
 * larger than GUEST_PAGES_LARGE all must be there: one that is missing later cannot be made.
 */
bool guest_pages_register(void *base, size_t length, size_t page);

enum guest_page {
	GUEST_PAGE_GONE, /* the file has become shorter, the machine has no memory, or the page would take too long */
	GUEST_PAGE_MADE,
	GUEST_PAGE_MAPPED, /* it was there, or in swap */
};

/*
 * From a signal handler: make or map the page at this address, which is in registered memory that goes on for `left`
 * bytes.  Those behind it that are there are mapped as well, a few: who has touched one is likely to go on.
 */
enum guest_page guest_pages_map(uintptr_t address, size_t page, size_t left);

/*
 * Map those of at most GUEST_PAGES_STEP pages of registered memory that are there.  Who changes the address space
 * meanwhile waits for that, and workers that touch missing pages wait for who changes it: so few at a time.
 */
void guest_pages_map_present(uintptr_t start, size_t length, size_t page);

/*
 * A page of so many bytes was made at `now`, by who was last seen at something else at `since` (0: nobody who is waited
 * for).  Returns whether the guest is within its account.
 */
bool guest_pages_charge(struct account *account, size_t page, uint64_t since, uint64_t now, uint64_t hz);

/* Does a page that was mapped in so many cycles come from swap? */
bool guest_pages_swapped(uint64_t cycles, uint64_t hz);

/* When this worker began its round, or has made a page in it: TSC. */
extern _Thread_local uint64_t guest_worker_since;

#endif
