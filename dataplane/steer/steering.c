/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <rte_common.h>

#include "steer/steering.h"

enum { FRAGMENT_BUCKETS = 1 << 11 }; /* for each queue */

static int compare_egresses(const struct egress *a, const struct egress *b)
{
	if (a->port != b->port)
		return (uintptr_t)a->port < (uintptr_t)b->port ? -1 : 1;
	if (a->queue != b->queue)
		return a->queue < b->queue ? -1 : 1;
	if (a->watch != b->watch)
		return (uintptr_t)a->watch < (uintptr_t)b->watch ? -1 : 1;
	return 0;
}

static int compare_outlets(const void *a, const void *b)
{
	return compare_egresses(&((const struct outlet *)a)->egress, &((const struct outlet *)b)->egress);
}

/* Sort the outlets and leave one of each. */
static void unite(struct steering *steering, unsigned collected)
{
	qsort(steering->outlets, collected, sizeof(steering->outlets[0]), compare_outlets);
	for (unsigned i = 0; i < collected; i++) {
		struct outlet *outlet = &steering->outlets[i];

		if (steering->nb_outlets > 0) {
			struct outlet *last = &steering->outlets[steering->nb_outlets - 1];

			if (compare_outlets(last, outlet) == 0) {
				last->egress.locked |= outlet->egress.locked;
				continue;
			}
			outlet->same_queue = last->egress.port == outlet->egress.port &&
					     last->egress.queue == outlet->egress.queue;
		}
		steering->outlets[steering->nb_outlets++] = *outlet;
	}
}

static struct target find_target(const struct steering *steering, const struct egress *egress)
{
	const struct outlet wanted = {.egress = *egress};
	const struct outlet *outlet;

	if (egress->port == NULL)
		return (struct target){.outlet = STEERING_NOWHERE};
	outlet = bsearch(&wanted, steering->outlets, steering->nb_outlets, sizeof(wanted), compare_outlets);
	return (struct target){(uint32_t)(outlet - steering->outlets), egress->shared, egress->hop};
}

static bool set_egresses(struct steering *steering, const struct steering_config *config)
{
	unsigned collected = 0;

	steering->nb_targets = config->nb_egresses;
	steering->outlets = calloc(config->nb_egresses + 1, sizeof(steering->outlets[0]));
	steering->targets = calloc(config->nb_egresses + 1, sizeof(steering->targets[0]));
	if (steering->outlets == NULL || steering->targets == NULL)
		return false;
	for (unsigned i = 0; i < config->nb_egresses; i++)
		if (config->egresses[i].port != NULL) {
			struct outlet *outlet = &steering->outlets[collected++];

			outlet->egress = config->egresses[i];
			outlet->egress.hop = NULL;
		}
	unite(steering, collected);
	steering->touched = calloc(steering->nb_outlets / 64 + 1, sizeof(steering->touched[0]));
	steering->owed = calloc(steering->nb_outlets / 64 + 1, sizeof(steering->owed[0]));
	for (unsigned i = 0; i < config->nb_egresses; i++) {
		steering->targets[i] = find_target(steering, &config->egresses[i]);
		if (config->bridge != NULL && steering->targets[i].outlet != STEERING_NOWHERE)
			steering->outlets[steering->targets[i].outlet].bridge_port = i;
	}
	return steering->touched != NULL && steering->owed != NULL;
}

static bool set_steps(struct steering *steering, const struct steering_config *config)
{
	steering->classifier = config->classifier;
	steering->fragments = config->fragments;
	steering->otherwise = config->otherwise;
	steering->looks = config->classifier != NULL;
	steering->waits = config->waits;
	steering->steps = calloc(config->nb_steps + 1, sizeof(steering->steps[0]));
	if (steering->steps == NULL)
		return false;
	for (unsigned i = 0; i < config->nb_steps; i++) {
		steering->steps[i] = config->steps[i];
		steering->looks |= config->steps[i].group != NULL || config->steps[i].spread > 1;
	}
	return true;
}

struct flows *steering_fragments_new(unsigned nb_queues)
{
	return flows_new(FRAGMENT_BUCKETS * rte_align32pow2(nb_queues), PIN_FRAGMENT_SECONDS);
}

struct steering *steering_new(const struct steering_config *config)
{
	struct steering *steering = calloc(1, sizeof(*steering));

	if (steering == NULL)
		return NULL;
	steering->bridge = config->bridge;
	steering->bridge_port = config->bridge_port;
	if (set_egresses(steering, config) && set_steps(steering, config))
		return steering;
	steering_free(steering);
	return NULL;
}

void steering_free(struct steering *steering)
{
	if (steering == NULL)
		return;
	free(steering->outlets);
	free(steering->steps);
	free(steering->targets);
	free(steering->touched);
	free(steering->owed);
	free(steering);
}
