/* SPDX-License-Identifier: Apache-2.0
 *
 * What one guest takes of its workers' time by what it alone can cause: pages of its memory that are missing
 * (port/guest_pages.h), and a descriptor to wake it by on which very many wait (vring_notify()).  It may take a second
 * at once, and a twentieth in the long run, which no guest comes near that means no harm.
 */
#ifndef TAILRACE_VRING_ACCOUNT_H
#define TAILRACE_VRING_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

enum { ACCOUNT_AT_ONCE_S = 1, ACCOUNT_LONG_RUN = 20 /* one part of so many of the time */ };

/* All zeros at first.  TSC; atomic. */
struct account {
	uint64_t due;
	uint64_t timed_until; /* until then each waking is timed */
};

/* The guest has taken so many cycles, until `now`.  Returns whether it is within its account. */
static inline bool account_charge(struct account *account, uint64_t cycles, uint64_t now, uint64_t hz)
{
	const uint64_t before = __atomic_load_n(&account->due, __ATOMIC_RELAXED);
	const uint64_t due = RTE_MAX(before, now) + cycles * ACCOUNT_LONG_RUN;

	/* Of two workers at one moment one charge may be lost: it is an account, not a lock. */
	__atomic_store_n(&account->due, due, __ATOMIC_RELAXED);
	return due - now <= hz * ACCOUNT_AT_ONCE_S * ACCOUNT_LONG_RUN;
}

#endif
