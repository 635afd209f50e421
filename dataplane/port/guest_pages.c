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
	WAITED_MS = 5, /* who has come no further for so long is taken to have waited for the page */
};

_Thread_local uint64_t guest_worker_since;

static int userfault = -1;
static bool takes_large;
static const void *zeros; /* a large page of them */

static int ask(uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	/* Of our own accesses alone, which needs no privilege: no system call of ours touches a guest's memory. */
	userfault = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (userfault < 0)
		return -errno;
	if (ioctl(userfault, UFFDIO_API, &api) == 0)
		return 0;
	close(userfault);
	userfault = -1;
	return -errno;
}

void guest_pages_open(void)
{
	const uint64_t needed = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM;
	int rc;

	if (userfault >= 0)
		return;
	zeros = mmap(NULL, GUEST_PAGES_LARGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	takes_large = zeros != MAP_FAILED && ask(needed | UFFD_FEATURE_MISSING_HUGETLBFS) == 0;
	rc = takes_large ? 0 : ask(needed);
	if (rc != 0)
		log_warning("userfaultfd: %s; how long a worker may wait for memory that a guest gives back is up to "
			    "the kernel",
			    strerror(-rc));
}

bool guest_pages_register(void *base, size_t length, size_t page)
{
	struct uffdio_register range = {.range = {.start = (uintptr_t)base, .len = length},
					.mode = UFFDIO_REGISTER_MODE_MISSING};

	return userfault >= 0 && (page == GUEST_PAGES_SMALL || takes_large) &&
	       ioctl(userfault, UFFDIO_REGISTER, &range) == 0;
}

bool guest_pages_make(uintptr_t address, size_t page)
{
	const struct uffdio_range range = {.start = RTE_ALIGN_FLOOR(address, page), .len = page};
	struct uffdio_zeropage zero = {.range = range};
	struct uffdio_copy copy = {.dst = range.start, .src = (uintptr_t)zeros, .len = page};
	int rc;

	if (page > GUEST_PAGES_LARGE)
		return false;
	rc = page == GUEST_PAGES_SMALL ? ioctl(userfault, UFFDIO_ZEROPAGE, &zero)
				       : ioctl(userfault, UFFDIO_COPY, &copy);
	/* There by now; or the address space is just being changed.  The access finds out. */
	return rc == 0 || errno == EEXIST || errno == EAGAIN;
}

bool guest_pages_charge(struct account *account, size_t page, uint64_t since, uint64_t now, uint64_t hz)
{
	const uint64_t made = hz / 1000000 * (page > GUEST_PAGES_SMALL ? LARGE_MADE_US : MADE_US);
	const bool waited = since != 0 && now - since > hz / 1000 * WAITED_MS;

	return account_charge(account, waited ? now - since : made, now, hz);
}
