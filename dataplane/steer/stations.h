/* SPDX-License-Identifier: Apache-2.0
 *
 * The stations that a bridge has learned: (VLAN, MAC address) to port.  This is bridge.c's memory; nobody else's.
 *
 * An address has two buckets, each a cache line of four, by a hash with a secret in it; it is put where there is more
 * room, so that a table half full takes nearly everything.  A station is two words.  A reader takes the key, the value,
 * and the key again: a value is only ever changed to nothing before its key is, so what lies between two readings of
 * the same key belongs to it.  Whoever changes a key holds the lock; whoever only brings a value up to date does so if
 * nobody else has.
 */
#ifndef TAILRACE_STEER_STATIONS_H
#define TAILRACE_STEER_STATIONS_H

#include <rte_prefetch.h>

#include "steer/bridge.h"

enum { STATIONS_TICK_SHIFT = 28 /* a tick is 2^28 TSC cycles, about a tenth of a second */ };

struct station {
	uint64_t key;	/* 0: free.  VLAN and MAC address, and a bit so that it is not 0 */
	uint64_t value; /* 0: being changed */
};

struct station_bucket {
	_Alignas(64) struct station stations[4];
};

/* An address with its two buckets. */
struct station_key {
	uint64_t key;
	struct station_bucket *buckets[2];
};

struct station_key stations_key(const struct bridge_memory *memory, const uint8_t *mac, uint16_t vlan);

static inline void stations_prefetch(struct station_key key)
{
	rte_prefetch0(key.buckets[0]);
	rte_prefetch0(key.buckets[1]);
}

static inline uint32_t stations_tick(uint64_t tsc)
{
	return tsc >> STATIONS_TICK_SHIFT;
}

static inline uint32_t stations_ticks(uint64_t hz, unsigned seconds)
{
	return (hz * seconds >> STATIONS_TICK_SHIFT) + 1;
}

/* The port's number; -1: not known, or not seen for `ageing` ticks. */
int stations_find(const struct bridge_memory *memory, struct station_key key, uint32_t tick, uint32_t ageing);

/* The station is behind the port.  Returns 1 when it had been behind another until now, and moved there recently. */
unsigned stations_learn(struct bridge_memory *memory, struct station_key key, unsigned port, uint32_t tick,
			uint32_t ageing, uint64_t now);

/* Where the rate of what the port sends to all is kept. */
uint64_t *stations_due(struct bridge_memory *memory, unsigned port);

/* ------- the control side ------- */

/* A bridge has the port `name`.  Returns its number, which it is given if it has none; -1 when there are too many. */
int stations_join(struct bridge_memory *memory, const char *name);

/* Divide the table among so many ports. */
void stations_share(struct bridge_memory *memory, unsigned ports);

/* Forget what was learned from these ports, a few slots at a time, so that learning goes on between. */
void stations_forget_learned(struct bridge_memory *memory, const bool gone[BRIDGE_PORTS]);

/* A bridge has these ports no more.  Those that no other one has are forgotten, with all that was learned from them. */
void stations_leave(struct bridge_memory *memory, const bool left[BRIDGE_PORTS]);

void stations_list(const struct bridge_memory *memory, uint32_t tick, uint32_t ageing,
		   void (*each)(void *context, struct bridge_mac *mac, unsigned port), void *context);

unsigned stations_flaps(struct bridge_memory *memory, struct bridge_flap *flaps);

/* How many moves of addresses that flap there have been. */
uint64_t stations_flapped(const struct bridge_memory *memory);

struct bridge_figures stations_figures(struct bridge_memory *memory, uint32_t tick, uint32_t ageing);

#endif
