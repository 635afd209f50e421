/* SPDX-License-Identifier: Apache-2.0
 *
 * Large mappings change in pieces, and whole.
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "common/mapping.h"

enum { PAGE = 4096, LARGE = 8 << 20 };

static size_t longest; /* call that changes the address space */

int __real_munmap(void *address, size_t length);
int __wrap_munmap(void *address, size_t length);
int __real_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice);

int __wrap_munmap(void *address, size_t length)
{
	longest = length > longest ? length : longest;
	return __real_munmap(address, length);
}

int __wrap_madvise(void *address, size_t length, int advice)
{
	static unsigned calls;

	longest = length > longest ? length : longest;
	if (calls++ % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return __real_madvise(address, length, advice);
}

static uint8_t *map(size_t length)
{
	uint8_t *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	longest = 0;
	return base;
}

static bool is_mapped(const uint8_t *page)
{
	unsigned char there;

	return mincore((void *)page, PAGE, &there) == 0;
}

static void what_lies_beside_stays(void **state)
{
	static const size_t pages[] = {PAGE, LARGE / 2, LARGE};

	for (unsigned i = 0; i < 3; i++) {
		const size_t most = pages[i] > MAPPING_PIECE ? pages[i] : MAPPING_PIECE;
		uint8_t *base = map(10 * LARGE);
		/* Where a page of that size begins. */
		uint8_t *at = base + (-(uintptr_t)base & (LARGE - 1)) + LARGE;
		const size_t length = 5 * (size_t)LARGE + (i == 0 ? 3 * PAGE : 0);

		at += i == 0 ? PAGE : 0;
		mapping_end(at, length, pages[i]);
		assert_int_equal(longest, most);
		assert_true(is_mapped(at - PAGE));
		assert_true(is_mapped(at + length));
		for (size_t offset = 0; offset < length; offset += PAGE)
			assert_false(is_mapped(at + offset));
		munmap(base, 10 * LARGE);
	}
}

static void every_page_is_made(void **state)
{
	uint8_t *base = map(LARGE + PAGE);
	unsigned char there[LARGE / PAGE + 1];

	if (mapping_populate(base, LARGE + PAGE, PAGE) != 0 && errno == EINVAL)
		skip(); /* this kernel does not know how */
	assert_in_range(longest, PAGE, MAPPING_PIECE);
	assert_int_equal(mincore(base, LARGE + PAGE, there), 0);
	for (unsigned i = 0; i < sizeof(there); i++)
		assert_true(there[i] & 1);
	mapping_end(base, LARGE + PAGE, PAGE);
	assert_int_equal(mapping_populate(base, LARGE, PAGE), -1);
	assert_int_equal(errno, ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lies_beside_stays),
		cmocka_unit_test(every_page_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
