/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>

#include <linux/magic.h>
#include <rte_common.h>

#include "common/grace.h"
#include "common/mapping.h"
#include "port/guest_memory.h"
#include "port/guest_pages.h"
#include "port/guest_populate.h"
#include "port/guest_spare.h"

uint64_t guest_memory_unless_said(void)
{
	struct sysinfo machine;

	if (sysinfo(&machine) != 0)
		return GUEST_MEMORY_MOST;
	return RTE_MIN((uint64_t)machine.totalram * machine.mem_unit / 2, GUEST_MEMORY_MOST);
}

enum vring_fault guest_memory_gone(const struct guest_table *table)
{
	for (unsigned i = 0; i < table->count; i++)
		if (table->maps[i].gone)
			return table->maps[i].gone;
	return VRING_FAULT_NONE;
}

uint64_t guest_memory_page(int fd, struct stat *stat)
{
	struct statfs kind;

	if (fstat(fd, stat) != 0 || !S_ISREG(stat->st_mode) || fstatfs(fd, &kind) != 0)
		return 0;
	if (kind.f_type == HUGETLBFS_MAGIC)
		return stat->st_blksize;
	return kind.f_type == TMPFS_MAGIC ? GUEST_PAGES_SMALL : 0;
}

/* Pages as large as no handler makes are made now, by who speaks the protocol. */
static int make_giant_pages(const struct guest_map *map)
{
	/* A kernel before 5.14 does not know how. */
	return mapping_populate(map->base, map->length, map->page) == 0 || errno == EINVAL ? 0 : -ENOMEM;
}

/* Where in its file the mapping begins. */
static uint64_t first_page(const struct guest_map *map)
{
	return map->offset & ~(map->page - 1);
}

/*
 * Where `size` bytes at `offset` of a file lie; a mapping of huge pages begins and ends with one.  Returns 0, or a
 * negative errno when the file has no such memory; nothing is mapped yet.
 */
static int place_in_file(struct guest_map *map, uint64_t size, uint64_t offset, int fd)
{
	struct stat stat;
	uint64_t page, end;

	if (size == 0 || __builtin_add_overflow(offset, size, &end) || end > INT64_MAX)
		return -EINVAL;
	page = guest_memory_page(fd, &stat);
	if (page == 0)
		return -EINVAL;
	/* Pages that the file does not have would fault; a file that is cut later is caught when it does. */
	if (end > (uint64_t)stat.st_size)
		return -EINVAL;
	if (__builtin_add_overflow(end, page - 1, &end))
		return -EINVAL;
	*map = (struct guest_map){
		.length = (end & ~(page - 1)) - (offset & ~(page - 1)),
		.page = page,
		.size = size,
		.device = stat.st_dev,
		.file = stat.st_ino,
		.offset = offset,
	};
	return 0;
}

static int map_file(struct guest_map *map, int fd)
{
	const uint64_t start = first_page(map);

	map->base = mmap(NULL, map->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, start);
	if (map->base == MAP_FAILED)
		return -errno;
	/* A core dump of the switch need not hold its guests' memory. */
	madvise(map->base, map->length, MADV_DONTDUMP);
	map->host = (uint8_t *)map->base + (map->offset - start);
	if (map->page > GUEST_PAGES_LARGE && make_giant_pages(map) != 0) {
		mapping_end(map->base, map->length, map->page);
		return -ENOMEM;
	}
	map->registered = guest_pages_register(map->base, map->length, map->page);
	if (map->registered)
		guest_populate(map->base, map->length, map->page);
	return 0;
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a - b < b_size || b - a < a_size;
}

/* Does the region lie whole in both address spaces, and apart from those that are there?  0 or a negative errno. */
static int check_region(const struct guest_table *table, uint64_t most, const struct guest_region_message *region)
{
	uint64_t end, sum = region->size;

	if (region->size == 0 || __builtin_add_overflow(region->guest, region->size, &end) ||
	    __builtin_add_overflow(region->user, region->size, &end))
		return -EINVAL;
	for (unsigned i = 0; i < table->count; i++) {
		const struct guest_map *map = &table->maps[i];

		if (overlap(map->guest, map->size, region->guest, region->size) ||
		    overlap(map->user, map->size, region->user, region->size))
			return -EINVAL;
		sum += map->size;
	}
	return region->size <= most && sum <= most ? 0 : -E2BIG;
}

/* How much of its pages are none of the first `count` mappings'. */
static uint64_t pages_of_its_own(const struct guest_table *table, unsigned count, const struct guest_map *map)
{
	const uint64_t end = first_page(map) + map->length;
	uint64_t own = 0, next;

	for (uint64_t at = first_page(map); at < end; at = next) {
		bool shared = false;

		next = end;
		for (unsigned i = 0; i < count && !shared; i++) {
			const struct guest_map *other = &table->maps[i];
			const uint64_t start = first_page(other);

			if (other->device != map->device || other->file != map->file || start + other->length <= at)
				continue;
			shared = start <= at;
			next = shared ? RTE_MIN(start + other->length, end) : RTE_MIN(start, next);
		}
		own += shared ? 0 : next - at;
	}
	return own;
}

/*
 * Regions may be small and their pages large, and of a page the switch makes all: do those of the table's mappings and
 * of the one after them come to no more than the port allows?  Regions of one file may share pages, as QEMU's do.
 */
static int check_pages(const struct guest_table *table, uint64_t most)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i <= table->count; i++)
		sum += pages_of_its_own(table, i, &table->maps[i]);
	return sum <= most ? 0 : -E2BIG;
}

/* Put the region after the table's mappings, for the caller to count it.  Returns 0 or a negative errno. */
static int map_region(struct guest_table *table, uint64_t most, const struct guest_region_message *region, int fd)
{
	struct guest_map *map = &table->maps[table->count];
	int rc = place_in_file(map, region->size, region->offset, fd);

	if (rc == 0)
		rc = check_pages(table, most);
	return rc == 0 ? map_file(map, fd) : rc;
}

static bool same_bytes(const struct guest_map *a, const struct guest_map *b)
{
	return a->base == b->base;
}

/* The old table's mapping of the same part of the same file: page tables that are warm stay warm. */
static const struct guest_map *mapped(const struct guest_table *table, const struct guest_region_message *region,
				      int fd)
{
	struct stat stat;

	if (table == NULL || fstat(fd, &stat) != 0)
		return NULL;
	for (unsigned i = 0; i < table->count; i++) {
		const struct guest_map *map = &table->maps[i];

		if (!map->gone && map->device == stat.st_dev && map->file == stat.st_ino &&
		    map->offset == region->offset && map->size == region->size &&
		    region->offset + region->size <= (uint64_t)stat.st_size)
			return map;
	}
	return NULL;
}

static int larger_first(const void *a, const void *b)
{
	const struct guest_region *left = a, *right = b;

	return left->size < right->size ? 1 : left->size > right->size ? -1 : 0;
}

/* Put the table in the place of the old one, and unmap what only the old one has. */
static void swap(struct guest_mappings *memory, struct guest_table *table)
{
	struct guest_table *old;

	if (table != NULL) {
		table->memory.nb_regions = table->count;
		for (unsigned i = 0; i < table->count; i++)
			table->memory.regions[i] = (struct guest_region){
				.guest = table->maps[i].guest,
				.size = table->maps[i].size,
				.host = table->maps[i].host,
			};
		qsort(table->memory.regions, table->count, sizeof(table->memory.regions[0]), larger_first);
	}
	old = atomic_exchange(&memory->table, table);
	/* A worker may be looking through the tables for the address of another guest's fault. */
	grace_wait();
	if (old == NULL)
		return;
	for (unsigned i = 0; i < old->count; i++) {
		bool kept = false;

		for (unsigned j = 0; table != NULL && j < table->count; j++)
			kept |= same_bytes(&old->maps[i], &table->maps[j]);
		if (!kept)
			guest_populate_unmap(old->maps[i].base, old->maps[i].length, old->maps[i].page);
	}
	if (old->log.length > 0 && (table == NULL || !same_bytes(&old->log, &table->log)))
		guest_populate_unmap(old->log.base, old->log.length, old->log.page);
	free(old);
	guest_spare_take_back();
}

/* A copy to change, or an empty table. */
static struct guest_table *copy(const struct guest_table *table)
{
	struct guest_table *copied = calloc(1, sizeof(*copied));

	if (copied != NULL && table != NULL)
		*copied = *table;
	return copied;
}

int guest_memory_set(struct guest_mappings *memory, const struct guest_region_message *regions, const int *fds,
		     unsigned count)
{
	const struct guest_table *old = atomic_load(&memory->table);
	struct guest_table *table = calloc(1, sizeof(*table));
	int rc = 0;

	if (table == NULL)
		return -ENOMEM;
	if (old != NULL)
		table->log = old->log;
	for (unsigned i = 0; i < count && rc == 0; i++) {
		struct guest_map *map = &table->maps[table->count];
		const struct guest_map *same = mapped(old, &regions[i], fds[i]);

		rc = check_region(table, memory->most, &regions[i]);
		if (rc != 0)
			break;
		/* No part twice: it would be unmapped twice. */
		for (unsigned j = 0; same != NULL && j < table->count; j++)
			if (same_bytes(same, &table->maps[j]))
				same = NULL;
		if (same != NULL) {
			*map = *same;
			rc = check_pages(table, memory->most);
		} else {
			rc = map_region(table, memory->most, &regions[i], fds[i]);
		}
		map->guest = regions[i].guest;
		map->user = regions[i].user;
		table->count += rc == 0;
	}
	swap(memory, table);
	/* Of a table that is refused nothing stays, nor of the one before, which the front end no longer means. */
	if (rc != 0) {
		table = copy(NULL);
		if (table != NULL)
			table->log = atomic_load(&memory->table)->log;
		swap(memory, table);
	}
	return rc;
}

/*
 * QEMU before 8.1 adds and removes each region once for every queue pair, so what is there already, or is gone already,
 * is as it was asked for.
 */
int guest_memory_add(struct guest_mappings *memory, const struct guest_region_message *region, int fd)
{
	const struct guest_table *old = atomic_load(&memory->table);
	const struct guest_map *same = old != NULL ? mapped(old, region, fd) : NULL;
	struct guest_table *table;
	int rc;

	if (same != NULL && same->guest == region->guest && same->user == region->user)
		return 0;
	table = copy(old);
	if (table == NULL)
		return -ENOMEM;
	rc = table->count < GUEST_REGIONS ? check_region(table, memory->most, region) : -ENOSPC;
	if (rc == 0)
		rc = map_region(table, memory->most, region, fd);
	if (rc != 0) {
		free(table);
		return rc;
	}
	table->maps[table->count].guest = region->guest;
	table->maps[table->count].user = region->user;
	table->count++;
	swap(memory, table);
	return 0;
}

int guest_memory_remove(struct guest_mappings *memory, const struct guest_region_message *region)
{
	const struct guest_table *old = atomic_load(&memory->table);
	struct guest_table *table;
	unsigned i;

	for (i = 0; old != NULL && i < old->count; i++)
		if (old->maps[i].guest == region->guest && old->maps[i].user == region->user &&
		    old->maps[i].size == region->size)
			break;
	if (old == NULL || i == old->count)
		return 0;
	table = copy(old);
	if (table == NULL)
		return -ENOMEM;
	table->maps[i] = table->maps[--table->count];
	swap(memory, table);
	return 0;
}

int guest_memory_log(struct guest_mappings *memory, uint64_t size, uint64_t offset, int fd)
{
	struct guest_table *table = copy(atomic_load(&memory->table));
	int rc;

	if (table == NULL)
		return -ENOMEM;
	if (size > GUEST_LOG_MOST) {
		free(table);
		return -E2BIG;
	}
	rc = place_in_file(&table->log, size, offset, fd);
	if (rc == 0)
		rc = map_file(&table->log, fd);
	if (rc != 0) {
		free(table);
		return rc;
	}
	swap(memory, table);
	return 0;
}

void guest_memory_drop(struct guest_mappings *memory)
{
	if (atomic_load(&memory->table) != NULL)
		swap(memory, NULL);
}

void *guest_memory_user(const struct guest_table *table, uint64_t user, size_t size)
{
	for (unsigned i = 0; i < table->count; i++) {
		const struct guest_map *map = &table->maps[i];
		uint64_t offset = user - map->user;

		if (offset < map->size && size <= map->size - offset)
			return map->host + offset;
	}
	return NULL;
}

uint64_t guest_memory_physical(const struct guest_table *table, uint64_t user)
{
	for (unsigned i = 0; i < table->count; i++)
		if (user - table->maps[i].user < table->maps[i].size)
			return table->maps[i].guest + (user - table->maps[i].user);
	return UINT64_MAX;
}
