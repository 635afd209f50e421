/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "maglev.h"
#include "steer/hash.h"

/* An end's permutation of the places: from `place` on, in steps of `skip`. */
struct turn {
	uint32_t place, skip;
	uint32_t credit; /* it has a turn when this reaches the largest weight */
};

static int in_order(const void *one, const void *other)
{
	const struct maglev_end *first = one, *second = other;

	return (first->hash > second->hash) - (first->hash < second->hash);
}

/* Its next place that nobody has. */
static void take_place(uint16_t *places, struct turn *turn, uint16_t number)
{
	while (places[turn->place] != 0) {
		turn->place += turn->skip;
		if (turn->place >= MAGLEV_PLACES)
			turn->place -= MAGLEV_PLACES;
	}
	places[turn->place] = number;
}

void maglev_fill(uint16_t places[MAGLEV_PLACES], struct maglev_end *ends, unsigned nb_ends)
{
	struct turn turns[MAGLEV_ENDS];
	uint32_t filled = 0, heaviest = 0;

	memset(places, 0, MAGLEV_PLACES * sizeof(places[0]));
	if (nb_ends == 0)
		return;
	qsort(ends, nb_ends, sizeof(ends[0]), in_order);
	for (unsigned i = 0; i < nb_ends; i++) {
		turns[i] = (struct turn){
			.place = hash_mix(ends[i].hash, HASH_0) % MAGLEV_PLACES,
			.skip = hash_mix(ends[i].hash, HASH_1) % (MAGLEV_PLACES - 1) + 1,
		};
		heaviest = RTE_MAX(heaviest, ends[i].weight);
	}
	for (;;)
		for (unsigned i = 0; i < nb_ends; i++) {
			turns[i].credit += ends[i].weight;
			if (turns[i].credit < heaviest)
				continue;
			turns[i].credit -= heaviest;
			take_place(places, &turns[i], ends[i].number);
			if (++filled == MAGLEV_PLACES)
				return;
		}
}
