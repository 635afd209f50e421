/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages that a guest's memory does not have, or not at hand: made or mapped when they are touched, and what a guest may
 * take of its workers' time so.
 */
#include "test/cmocka_all.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "common/grace.h"
#include "common/mapping.h"
#include "port/guest_backend.h"
#include "port/guest_pages.h"
#include "port/guest_populate.h"

enum { PAGE = 4096, PAGES = 3 * 512 };
#define HZ UINT64_C(2600000000)
#define MS (HZ / 1000)

static volatile unsigned disk_ms;     /* that a page takes to come from swap; a signal handler reads it */
static volatile uint64_t disk_cycles; /* that pages took to come from there */

static volatile unsigned touches; /* of pages that had to be made or mapped */

uint64_t __wrap_rte_get_tsc_hz(void);

uint64_t __wrap_rte_get_tsc_hz(void)
{
	return HZ;
}

enum guest_page __real_guest_pages_map(uintptr_t address, size_t page, size_t left);
enum guest_page __wrap_guest_pages_map(uintptr_t address, size_t page, size_t left);

enum guest_page __wrap_guest_pages_map(uintptr_t address, size_t page, size_t left)
{
	const uint64_t began = rte_rdtsc();

	touches++;
	if (disk_ms > 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000 * disk_ms}, NULL);
	disk_cycles += disk_ms > 0 ? rte_rdtsc() - began : 0;
	return __real_guest_pages_map(address, page, left);
}

static size_t longest_unmapped; /* at a time */

/* Where Linux allows no more mappings, GCC 14's sanitizer cannot map their shadow, and ends: so these are the system
 * calls themselves. */
static int unmap(void *address, size_t length)
{
	return (int)syscall(SYS_munmap, address, length);
}

static void *map(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

int __wrap_munmap(void *address, size_t length);

int __wrap_munmap(void *address, size_t length)
{
	longest_unmapped = RTE_MAX(longest_unmapped, length);
	return unmap(address, length);
}

static volatile size_t longest_replaced; /* at a time, with zeros; a signal handler writes it */

void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (flags & MAP_FIXED)
		longest_replaced = RTE_MAX(longest_replaced, length);
	return map(address, length, protection, flags, fd, offset);
}

static bool populated; /* what is there is mapped before it is touched */

void __real_guest_populate(void *base, size_t length, size_t page);
void __wrap_guest_populate(void *base, size_t length, size_t page);

void __wrap_guest_populate(void *base, size_t length, size_t page)
{
	if (populated)
		__real_guest_populate(base, length, page);
}

/* Memory without a single page, shared with a back end. */
static struct guest_backend *share(int *fd)
{
	static struct queue_counters counters;
	static struct guest guest;
	static struct guest_backend backend;
	const struct guest_region_message region = {.guest = 0x100000, .size = PAGES * PAGE, .user = 0x7000000};

	memset(&counters, 0, sizeof(counters));
	backend = (struct guest_backend){.guest = &guest, .counters = {&counters}, .memory.most = GUEST_MEMORY_MOST};
	/* In each test: cmocka has a handler of its own for each. */
	assert_int_equal(guest_survive_cuts(), 0);
	*fd = memfd_create("guest", MFD_CLOEXEC);
	assert_int_equal(ftruncate(*fd, PAGES * PAGE), 0);
	assert_int_equal(guest_memory_set(&backend.memory, &region, fd, 1), 0);
	atomic_store(&guest_backends, &backend);
	return &backend;
}

static void leave(struct guest_backend *backend, int fd)
{
	guest_memory_drop(&backend->memory);
	atomic_store(&guest_backends, NULL);
	close(fd);
}

static void makes_a_page_where_there_is_none(void **state)
{
	int fd;
	struct guest_backend *backend = share(&fd);
	uint8_t *memory = guest_memory_user(backend->memory.table, 0x7000000, PAGES * PAGE);
	const uint32_t before = vring_pages_made;
	uint8_t byte;

	if (!backend->memory.table->maps[0].registered)
		skip(); /* this kernel does not let us */
	for (unsigned i = 0; i < PAGES; i++) {
		assert_int_equal(memory[i * PAGE + 7], 0);
		memory[i * PAGE + 9] = (uint8_t)i;
	}
	assert_int_equal(vring_pages_made - before, PAGES);
	assert_int_equal(backend->counters[0]->pages_made, PAGES);
	/* What was written is the guest's; what is there already costs nothing, whoever wrote it. */
	assert_int_equal(pread(fd, &byte, 1, 5 * PAGE + 9), 1);
	assert_int_equal(byte, 5);
	assert_int_equal(pwrite(fd, "x", 1, 5 * PAGE), 1);
	assert_int_equal(memory[5 * PAGE], 'x');
	assert_int_equal(vring_pages_made - before, PAGES);
	/* Given back, and used again. */
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * PAGE, PAGE), 0);
	assert_int_equal(memory[5 * PAGE], 0);
	assert_int_equal(vring_pages_made - before, PAGES + 1);
	assert_int_equal(guest_memory_gone(backend->memory.table), VRING_FAULT_NONE);
	leave(backend, fd);
}

static void maps_what_is_there_a_few_pages_at_a_time(void **state)
{
	int fd;
	struct guest_backend *backend = share(&fd);
	uint8_t *memory = guest_memory_user(backend->memory.table, 0x7000000, PAGES * PAGE);

	if (!backend->memory.table->maps[0].registered)
		skip(); /* this kernel does not let us */
	for (unsigned i = 0; i < PAGES / 2; i++)
		assert_int_equal(pwrite(fd, "x", 1, i * PAGE), 1);
	touches = 0;
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(memory[i * PAGE], i < PAGES / 2 ? 'x' : 0);
	/* Holes stay holes until they are touched themselves. */
	assert_int_equal(backend->counters[0]->pages_made, PAGES / 2);
	assert_in_range(touches, PAGES / 2, PAGES / 2 + PAGES / 8);
	assert_int_equal(guest_memory_gone(backend->memory.table), VRING_FAULT_NONE);
	leave(backend, fd);
}

/* How many of these pages are mapped here. */
static unsigned count_mapped(const uint8_t *memory, unsigned pages)
{
	const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	unsigned count = 0;
	uint64_t entry;

	for (unsigned i = 0; i < pages; i++) {
		assert_int_equal(pread(fd, &entry, 8, 8 * ((uintptr_t)memory / PAGE + i)), 8);
		count += entry >> 63;
	}
	close(fd);
	return count;
}

static void maps_what_is_there_before_it_is_touched(void **state)
{
	const struct guest_region_message again = {.guest = 0x100000, .size = PAGES * PAGE, .user = 0x7000000};
	int fd, other = memfd_create("guest", MFD_CLOEXEC);
	struct guest_backend *backend = share(&fd);
	uint8_t *memory;
	struct stat file;

	if (!backend->memory.table->maps[0].registered)
		skip(); /* this kernel does not let us */
	assert_int_equal(ftruncate(other, PAGES * PAGE), 0);
	for (unsigned i = 0; i < PAGES; i += i % 100 < 50 ? 1 : 7)
		assert_int_equal(pwrite(other, "x", 1, i * PAGE), 1);
	assert_int_equal(fstat(other, &file), 0);
	touches = 0;
	populated = true;
	assert_int_equal(guest_memory_set(&backend->memory, &again, &other, 1), 0);
	populated = false;
	memory = guest_memory_user(backend->memory.table, 0x7000000, PAGES * PAGE);
	alarm(60); /* or this waits */
	while (count_mapped(memory, PAGES) < file.st_blocks * 512 / PAGE)
		sched_yield();
	alarm(0);
	for (unsigned i = 0; i < PAGES; i += i % 100 < 50 ? 1 : 7)
		assert_int_equal(memory[i * PAGE], 'x');
	assert_int_equal(touches, 0);
	/* Holes stay holes. */
	assert_int_equal(count_mapped(memory, PAGES), file.st_blocks * 512 / PAGE);
	close(other);
	leave(backend, fd);
}

static void a_guest_may_leave_while_its_pages_are_mapped(void **state)
{
	enum { HUGE = 1 << 20 };
	const struct guest_region_message region = {
		.guest = 1ULL << 32, .size = (uint64_t)HUGE * PAGE, .user = 1ULL << 40};
	int fd, other = memfd_create("guest", MFD_CLOEXEC);
	struct guest_backend *backend = share(&fd);

	assert_int_equal(ftruncate(other, (off_t)HUGE * PAGE), 0);
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(pwrite(other, "x", 1, (off_t)i * 64 * PAGE), 1);
	populated = true;
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(guest_memory_add(&backend->memory, &region, other), 0);
		/* Its file may become shorter meanwhile, and longer. */
		if (i % 2 == 0)
			assert_int_equal(ftruncate(other, (off_t)(HUGE - 64 * i) * PAGE), 0);
		assert_int_equal(guest_memory_remove(&backend->memory, &region), 0);
		assert_int_equal(ftruncate(other, (off_t)HUGE * PAGE), 0);
	}
	populated = false;
	close(other);
	leave(backend, fd);
}

static void who_leaves_holds_up_nobody_by_the_size_of_what_it_shared(void **state)
{
	enum { LARGE = 128 << 20 };
	const struct guest_region_message region = {.guest = 1ULL << 32, .size = LARGE, .user = 1ULL << 40};
	int fd, other = memfd_create("guest", MFD_CLOEXEC);
	struct guest_backend *backend = share(&fd);
	unsigned char resident;
	uint8_t *memory;

	assert_int_equal(posix_fallocate(other, 0, LARGE), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(guest_memory_add(&backend->memory, &region, other), 0);
		memory = guest_memory_user(backend->memory.table, 1ULL << 40, LARGE);
		for (size_t at = 0; at < LARGE; at += PAGE)
			memory[at] = 1;
		longest_unmapped = 0;
		/* It removes a region, and all. */
		if (i == 0)
			assert_int_equal(guest_memory_remove(&backend->memory, &region), 0);
		else
			guest_memory_drop(&backend->memory);
		assert_in_range(longest_unmapped, PAGE, MAPPING_PIECE);
		for (size_t at = 0; at < LARGE; at += PAGE)
			assert_int_equal(mincore(memory + at, PAGE, &resident), -1);
	}
	close(other);
	leave(backend, fd);
}

static void stops_a_guest_whose_pages_are_read_from_swap_again_and_again(void **state)
{
	enum { FAR = 16 };
	int fd;
	struct guest_backend *backend = share(&fd);
	uint8_t *memory = guest_memory_user(backend->memory.table, 0x7000000, PAGES * PAGE);
	const uint32_t before = vring_pages_made;
	uint64_t began, waited = 0;
	unsigned read = 0;

	if (!backend->memory.table->maps[0].registered)
		skip(); /* this kernel does not let us */
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(pwrite(fd, "x", 1, i * PAGE), 1);
	backend->rings[0].started = true;
	disk_cycles = 0;
	disk_ms = 40;
	began = rte_rdtsc();
	while (read < PAGES / FAR && memory[read * FAR * PAGE] == 'x') {
		read++;
		waited = disk_cycles;
	}
	disk_ms = 0;
	/* A second's worth, of which the time gives back a twentieth: not before, and by the next page.  What a page
	 * took beside the disk is charged, too. */
	assert_in_range(waited, 1, HZ + (rte_rdtsc() - began) / 20);
	assert_true(rte_rdtsc() - began > HZ);
	assert_int_equal(backend->counters[0]->pages_swapped, read + 1);
	assert_true(vring_work_of_pages(before) > read * VRING_WORK / 2);
	assert_int_equal(guest_memory_gone(backend->memory.table), VRING_FAULT_memory_swapped);
	assert_int_equal(backend->guest->fault[0], VRING_FAULT_memory_swapped);
	leave(backend, fd);
}

static void puts_zeros_where_the_file_has_become_shorter(void **state)
{
	int fd;
	struct guest_backend *backend = share(&fd);
	uint8_t *memory = guest_memory_user(backend->memory.table, 0x7000000, PAGES * PAGE);

	memory[0] = 1;
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_int_equal(memory[(PAGES - 1) * PAGE], 0);
	assert_int_equal(guest_memory_gone(backend->memory.table), VRING_FAULT_memory_cut);
	/* What is far from it is left alone: who shares a lot takes nobody's time by cutting a little. */
	assert_int_equal(memory[0], 1);
	assert_int_equal(memory[PAGES / 2 * PAGE], 0);
	assert_int_equal(memory[PAGE], 0);
	leave(backend, fd);
}

enum { SPACED = 3000 };

/* A region in whose every other piece a place is gone, all but the first. */
static uint8_t *share_spaced(struct guest_backend *backend, int *fd)
{
	const size_t size = 2 * (size_t)MAPPING_PIECE * SPACED;
	const struct guest_region_message region = {.guest = 1ULL << 32, .size = size, .user = 1ULL << 40};
	uint8_t *memory;

	*fd = memfd_create("spaced", MFD_CLOEXEC);
	assert_int_equal(ftruncate(*fd, (off_t)size), 0);
	assert_int_equal(guest_memory_add(&backend->memory, &region, *fd), 0);
	memory = guest_memory_user(backend->memory.table, 1ULL << 40, size);
	memory[0] = 1;
	assert_int_equal(ftruncate(*fd, PAGE), 0);
	longest_replaced = 0;
	return memory;
}

static void touch_spaced(uint8_t *memory, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		uint8_t *at = memory + 2 * (size_t)MAPPING_PIECE * i;

		assert_int_equal(*at, 0);
		*at = 1;
	}
}

static void puts_zeros_in_many_places_one_at_a_time(void **state)
{
	int fd, spaced;
	struct guest_backend *backend = share(&fd);
	uint8_t *memory = share_spaced(backend, &spaced);

	touch_spaced(memory, 1, SPACED);
	assert_int_equal(longest_replaced, MAPPING_PIECE);
	assert_int_equal(memory[0], 1);
	close(spaced);
	leave(backend, fd);
}

/* Take all mappings that Linux allows. */
static void *take_mappings(size_t size)
{
	uint8_t *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t at = PAGE;

	assert_ptr_not_equal(memory, MAP_FAILED);
	while (at < size - PAGE && mprotect(memory + at, PAGE, PROT_READ) == 0)
		at += 2 * PAGE;
	assert_true(at < size - PAGE);
	return memory;
}

static void puts_zeros_when_there_are_no_more_mappings(void **state)
{
	int fd, spaced;
	struct guest_backend *backend = share(&fd);
	FILE *limit = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned most = 0;
	uint8_t *memory;
	size_t size;
	void *taken;

	assert_non_null(limit);
	assert_int_equal(fscanf(limit, "%u", &most), 1);
	fclose(limit);
	if (most > 300000)
		skip(); /* it would take long, and much of the kernel's memory */
	size = 2 * (size_t)most * PAGE;
	/* The second time with what it was given back. */
	for (unsigned round = 0; round < 2; round++) {
		memory = share_spaced(backend, &spaced);
		taken = take_mappings(size);
		touch_spaced(memory, 1, 400);
		assert_int_equal(longest_replaced, MAPPING_PIECE);
		assert_int_equal(memory[0], 1);
		/* However many: it goes on. */
		if (round == 1)
			touch_spaced(memory, 400, SPACED);
		unmap(taken, size);
		guest_memory_drop(&backend->memory);
		close(spaced);
	}
	leave(backend, fd);
}

static void lets_no_guest_take_more_time_than_it_has(void **state)
{
	struct account account = {0};
	uint64_t now = 5 * HZ;
	unsigned made = 0;

	/* As fast as it can: a second's worth. */
	for (; guest_pages_charge(&account, PAGE, now, now, HZ); made++)
		now += HZ / 200000;
	assert_in_range(made, 99000, 107000);
	/* Then a twentieth: 10 us of every 200. */
	now += 40 * HZ;
	for (made = 0; made < 500000; made++, now += HZ / 5000)
		assert_true(guest_pages_charge(&account, PAGE, now, now, HZ));
}

static void charges_what_was_waited_for(void **state)
{
	struct account account = {0};
	const uint64_t now = 50 * HZ;

	/* A worker that lost its core for a moment costs nobody anything, nor does a thread that no one waits for. */
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(guest_pages_charge(&account, PAGE, now - 4 * MS, now, HZ));
		assert_true(guest_pages_charge(&account, PAGE, 0, now, HZ));
	}
	assert_true(guest_pages_charge(&account, PAGE, now - 600 * MS, now, HZ));
	assert_false(guest_pages_charge(&account, PAGE, now - 600 * MS, now, HZ));
	assert_true(guest_pages_charge(&account, PAGE, now + 10 * HZ, now + 10 * HZ, HZ));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_a_page_where_there_is_none),
		cmocka_unit_test(maps_what_is_there_a_few_pages_at_a_time),
		cmocka_unit_test(maps_what_is_there_before_it_is_touched),
		cmocka_unit_test(a_guest_may_leave_while_its_pages_are_mapped),
		cmocka_unit_test(who_leaves_holds_up_nobody_by_the_size_of_what_it_shared),
		cmocka_unit_test(stops_a_guest_whose_pages_are_read_from_swap_again_and_again),
		cmocka_unit_test(puts_zeros_where_the_file_has_become_shorter),
		cmocka_unit_test(puts_zeros_in_many_places_one_at_a_time),
		cmocka_unit_test(puts_zeros_when_there_are_no_more_mappings),
		cmocka_unit_test(lets_no_guest_take_more_time_than_it_has),
		cmocka_unit_test(charges_what_was_waited_for),
	};

	if (grace_open() != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
