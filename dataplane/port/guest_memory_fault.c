/* SPDX-License-Identifier: Apache-2.0
 *
 * An access to guest memory that is not there: SIGBUS finds the guest whose it is.  Its page is made or mapped, or
 * zeros take the place of what is gone and its rings stop.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "common/mapping.h"
#include "port/guest_backend.h"
#include "port/guest_pages.h"
#include "port/guest_spare.h"

/*
 * What follows runs in the thread that touched the memory: a worker, in a round, so that no grace period ends
 * meanwhile; or the one that changes tables.
 */
static void stop_rings(struct guest_backend *backend, enum vring_fault fault)
{
	bool stopped = false;

	for (unsigned ring = 0; ring < GUEST_VRINGS; ring++) {
		struct virtqueue *live = atomic_load(&backend->guest->live[ring]);

		if (!backend->rings[ring].started)
			continue;
		__atomic_store_n(&backend->guest->fault[ring], fault, __ATOMIC_RELAXED);
		__atomic_fetch_add(&backend->counters[0]->quarantines, 1, __ATOMIC_RELAXED);
		if (live != NULL)
			__atomic_store_n(&live->fault, fault, __ATOMIC_RELAXED);
		stopped = true;
	}
	if (stopped && vring_on_quarantine != NULL)
		vring_on_quarantine();
}

static bool put_zeros(uintptr_t start, size_t length)
{
	do
		if (mmap((void *)start, length, PROT_READ | PROT_WRITE,
			 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
			return true;
	while (errno == ENOMEM && guest_spare_give());
	return false;
}

/*
 * The last resort, for the process to go on: all of it becomes one mapping, which needs none more.  That takes as long
 * as there is of it, but others wait for a piece only, as there is nothing left to unmap in the end.
 */
static bool put_zeros_everywhere(uintptr_t base, size_t length, size_t piece)
{
	for (size_t at = 0; at < length; at += piece)
		(void)madvise((void *)(base + at), RTE_MIN(piece, length - at), MADV_DONTNEED);
	return put_zeros(base, length);
}

/*
 * Zeros take the place of what is gone, for the access to go on: around the access only, since to unmap all that the
 * guest has shared takes as long as there is of it, and this is a worker's time.  It is charged to the visit, which so
 * ends before long, and no other begins: there are never many such places.
 */
static bool patch(struct guest_backend *backend, struct guest_map *map, uintptr_t address, enum vring_fault fault)
{
	const uintptr_t base = (uintptr_t)map->base, end = base + map->length;
	const size_t size = RTE_MAX(map->page, (size_t)MAPPING_PIECE);
	const uintptr_t start = RTE_MAX(RTE_ALIGN_FLOOR(address, size), base);

	if (!put_zeros(start, RTE_MIN(RTE_ALIGN_FLOOR(address, size) + size, end) - start) &&
	    !put_zeros_everywhere(base, map->length, size))
		return false;
	vring_pages_made += VRING_LARGE_PAGE;
	/* What comes after the first fault may be its consequence. */
	if (map->gone == VRING_FAULT_NONE) {
		map->gone = fault;
		stop_rings(backend, fault);
	}
	return true;
}

/* The file has a page there again.  Returns false when the guest has had too much of its workers' time by that. */
static bool charge_made(struct guest_backend *backend, const struct guest_map *map)
{
	const uint64_t now = rte_rdtsc(), since = guest_worker_since;

	vring_pages_made += map->page > GUEST_PAGES_SMALL ? VRING_LARGE_PAGE : 1;
	__atomic_fetch_add(&backend->counters[0]->pages_made, 1, __ATOMIC_RELAXED);
	if (since != 0)
		guest_worker_since = now;
	return guest_pages_charge(&backend->account, map->page, since, now, rte_get_tsc_hz());
}

/*
 * A page that was there has been mapped.  That is charged where it was waited for, and then ends the visit: by the next
 * such page others would wait as long again.  Returns as charge_made() does.
 */
static bool charge_mapped(struct guest_backend *backend, uint64_t began)
{
	const uint64_t now = rte_rdtsc(), hz = rte_get_tsc_hz();

	vring_pages_made++;
	if (!guest_pages_swapped(now - began, hz))
		return true;
	vring_pages_made += VRING_LARGE_PAGE;
	__atomic_fetch_add(&backend->counters[0]->pages_swapped, 1, __ATOMIC_RELAXED);
	if (guest_worker_since != 0)
		guest_worker_since = now;
	return account_charge(&backend->account, now - began, now, hz);
}

static bool mend(struct guest_backend *backend, struct guest_map *map, const siginfo_t *info)
{
	const uintptr_t address = (uintptr_t)info->si_addr, offset = address - (uintptr_t)map->base;
	const bool served = map->registered && !map->gone && info->si_code == BUS_ADRERR;
	const uint64_t began = rte_rdtsc();

	if (offset >= map->length)
		return false;
	switch (served ? guest_pages_map(address, map->page, map->length - offset) : GUEST_PAGE_GONE) {
	case GUEST_PAGE_MADE:
		return charge_made(backend, map) || patch(backend, map, address, VRING_FAULT_memory_taken);
	case GUEST_PAGE_MAPPED:
		return charge_mapped(backend, began) || patch(backend, map, address, VRING_FAULT_memory_swapped);
	default:
		return patch(backend, map, address, VRING_FAULT_memory_cut);
	}
}

static void on_memory_fault(int signal_number, siginfo_t *info, void *context)
{
	const int saved = errno;

	for (struct guest_backend *backend = atomic_load(&guest_backends); backend != NULL;
	     backend = atomic_load(&backend->next)) {
		struct guest_table *table = atomic_load(&backend->memory.table);
		bool mended = false;

		if (table == NULL)
			continue;
		for (unsigned i = 0; i < table->count && !mended; i++)
			mended = mend(backend, &table->maps[i], info);
		if (mended || mend(backend, &table->log, info)) {
			errno = saved;
			return;
		}
	}
	/* Not a guest's doing: the same access faults again, and ends the program. */
	signal(signal_number, SIG_DFL);
}

int guest_survive_cuts(void)
{
	struct sigaction action = {.sa_sigaction = on_memory_fault, .sa_flags = SA_SIGINFO};

	guest_pages_open();
	guest_spare_open();
	return sigaction(SIGBUS, &action, NULL) == 0 ? 0 : -errno;
}
