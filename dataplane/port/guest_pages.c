/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/log.h"
#include "port/guest_pages.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum {
	MADE_US = 10, /* what a small page is taken to cost: about twice what it does */
	LARGE_MADE_US = 400,
	SWAPPED_US = 20, /* a page that is there is mapped in less */
	WAITED_MS = 5,	 /* who has come no further for so long is taken to have waited for the page */
	AROUND = 8,	 /* small pages that are mapped at a time: of these most of the cost is the signal */
};

_Thread_local uint64_t guest_worker_since;

static int userfault = -1;
static uint64_t features;
static const void *zeros; /* a large page of them */

/* Of our own accesses alone, which needs no privilege: no system call of ours touches a guest's memory. */
static int open_userfault(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_SIGBUS};

	userfault = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (userfault < 0)
		return -errno;
	if (ioctl(userfault, UFFDIO_API, &api) != 0) {
		const int rc = -errno;

		close(userfault);
		userfault = -1;
		return rc;
	}
	features = api.features;
	return 0;
}

void guest_pages_open(void)
{
	int rc;

	if (userfault >= 0)
		return;
	zeros = mmap(NULL, GUEST_PAGES_LARGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	rc = zeros != MAP_FAILED ? open_userfault() : -errno;
	if (rc != 0)
		log_warning("userfaultfd: %s; how long a worker may wait for memory that a guest gives back is up to "
			    "the kernel",
			    strerror(-rc));
}

bool guest_pages_register(void *base, size_t length, size_t page)
{
	const bool small = page == GUEST_PAGES_SMALL;
	const uint64_t minor = small ? UFFD_FEATURE_MINOR_SHMEM : UFFD_FEATURE_MINOR_HUGETLBFS;
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)base, .len = length},
		.mode = UFFDIO_REGISTER_MODE_MISSING | (features & minor ? UFFDIO_REGISTER_MODE_MINOR : 0),
	};

	return features & (small ? UFFD_FEATURE_MISSING_SHMEM : UFFD_FEATURE_MISSING_HUGETLBFS) &&
	       ioctl(userfault, UFFDIO_REGISTER, &range) == 0;
}

/* Where nothing is to be made or mapped: it is there by now, or the address space is just being changed.  The access
 * finds out. */
static bool finds_out(void)
{
	return errno == EEXIST || errno == EAGAIN;
}

enum guest_page guest_pages_map(uintptr_t address, size_t page, size_t left)
{
	const struct uffdio_range range = {.start = RTE_ALIGN_FLOOR(address, page), .len = page};
	struct uffdio_continue present = {.range = range};
	struct uffdio_zeropage zero = {.range = range};
	struct uffdio_copy copy = {.dst = range.start, .src = (uintptr_t)zeros, .len = page};
	int rc;

	if (page == GUEST_PAGES_SMALL) {
		const size_t around = AROUND * page - (range.start & (AROUND * page - 1));

		present.range.len = RTE_MIN(around, RTE_ALIGN_CEIL(left, page));
	}
	/* A kernel that does not know how, or a mapping that is not registered for it, says the same as of a hole. */
	if (ioctl(userfault, UFFDIO_CONTINUE, &present) == 0 || finds_out())
		return GUEST_PAGE_MAPPED;
	if (page > GUEST_PAGES_LARGE)
		return GUEST_PAGE_GONE;
	rc = page == GUEST_PAGES_SMALL ? ioctl(userfault, UFFDIO_ZEROPAGE, &zero)
				       : ioctl(userfault, UFFDIO_COPY, &copy);
	return rc == 0 || finds_out() ? GUEST_PAGE_MADE : GUEST_PAGE_GONE;
}

void guest_pages_map_present(uintptr_t start, size_t length, size_t page)
{
	unsigned char resident[GUEST_PAGES_STEP];

	/* Of large pages, and of a file that we may not write to by its mode, Linux does not say which are at hand. */
	memset(resident, 1, sizeof(resident));
	if (page == GUEST_PAGES_SMALL && mincore((void *)start, length, resident) != 0)
		return;
	for (size_t i = 0, count; i * page < length; i += RTE_MAX(count, (size_t)1)) {
		struct uffdio_continue present = {.range.start = start + i * page};

		for (count = 0; (i + count) * page < length && resident[i + count] & 1; count++)
			present.range.len += page;
		/* It ends before one that is mapped already, or was no page after all. */
		if (count > 0 && ioctl(userfault, UFFDIO_CONTINUE, &present) != 0)
			count = present.mapped > 0 ? present.mapped / page : 1;
	}
}

bool guest_pages_swapped(uint64_t cycles, uint64_t hz)
{
	return cycles > hz / 1000000 * SWAPPED_US;
}

bool guest_pages_charge(struct account *account, size_t page, uint64_t since, uint64_t now, uint64_t hz)
{
	const uint64_t made = hz / 1000000 * (page > GUEST_PAGES_SMALL ? LARGE_MADE_US : MADE_US);
	const bool waited = since != 0 && now - since > hz / 1000 * WAITED_MS;

	return account_charge(account, waited ? now - since : made, now, hz);
}
