/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "common/log.h"
#include "common/mapping.h"
#include "port/guest_spare.h"

/* More than the places that one visit to a ring may touch; each is two mappings, as what lies in another splits it. */
enum { SPARES = 512 };

/*
 * Pages that nobody may touch, and every other of them may be read: Linux keeps a mapping for each.  It joins those
 * that are alike, so that no hole is left that others could map something in.
 */
static uint8_t *pages;
static atomic_uint given; /* the first of them */

static bool set(unsigned spare, int protection)
{
	return mprotect(pages + (2 * (size_t)spare + 1) * MAPPING_PAGE, MAPPING_PAGE, protection) == 0;
}

void guest_spare_open(void)
{
	void *memory;

	if (pages != NULL)
		return;
	memory = mmap(NULL, (2 * (size_t)SPARES + 1) * MAPPING_PAGE, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		log_warning(
			"spare mappings: %s; a guest that cuts its memory ends the switch where there are no others",
			strerror(errno));
		return;
	}
	pages = memory;
	atomic_store(&given, SPARES);
	guest_spare_take_back();
	if (atomic_load(&given) > 0)
		log_warning("spare mappings: %s; there are %u of %d (vm.max_map_count)", strerror(errno),
			    SPARES - atomic_load(&given), SPARES);
}

bool guest_spare_give(void)
{
	unsigned spare;

	if (pages == NULL)
		return false;
	spare = atomic_load(&given);
	do
		if (spare == SPARES)
			return false;
	while (!atomic_compare_exchange_weak(&given, &spare, spare + 1));
	return set(spare, PROT_NONE);
}

void guest_spare_take_back(void)
{
	unsigned count = atomic_load(&given);

	/* Who is given one meanwhile has the next. */
	while (pages != NULL && count > 0 && set(count - 1, PROT_READ))
		if (atomic_compare_exchange_strong(&given, &count, count - 1))
			count--;
}
