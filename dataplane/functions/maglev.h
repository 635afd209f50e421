/* SPDX-License-Identifier: Apache-2.0
 *
 * Maglev's consistent hashing (Eisenbud and others: Maglev, NSDI 2016, section 3.4): a table whose places are shared
 * out among ends by their weights, evenly, and so that few places change hands when an end comes or goes.  Which
 * places an end gets depends on its own hash and on who else there is, not on their order.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_MAGLEV_H
#define TAILRACE_FUNCTIONS_MAGLEV_H

#include <stdint.h>

enum {
	MAGLEV_PLACES = 65537, /* a prime; the paper's small size, for 655 ends with 1 % between their shares */
	MAGLEV_ENDS = 256,
	MAGLEV_WEIGHT = 256, /* the most */
};

struct maglev_end {
	uint64_t hash; /* of what it is, the same after a restart */
	uint32_t weight;
	uint16_t number; /* what stands in the places that it gets; not 0 */
};

/* Share out all places among these ends, MAGLEV_ENDS at most, which are put in order; with none all places are 0. */
void maglev_fill(uint16_t places[MAGLEV_PLACES], struct maglev_end *ends, unsigned nb_ends);

/* The place of a flow. */
static inline uint32_t maglev_place(uint64_t hash)
{
	return (uint32_t)((hash >> 32) * MAGLEV_PLACES >> 32);
}

#endif
