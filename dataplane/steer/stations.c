/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <rte_bitops.h>
#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_spinlock.h>

#include "steer/hash.h"
#include "steer/stations.h"

enum { SWEEP_BUCKETS = 32, FORGET_BUCKETS = 256 };

#define KEY_USED (UINT64_C(1) << 63)

/* A value: when seen 32 bits, ticks; when last moved 16, ticks, 0: never; port 15; used 1. */
#define VALUE_USED 1u

struct memory_port {
	char name[BRIDGE_NAME]; /* "": the number is free */
	unsigned bridges;	/* that have it: one, or two during a change */
	uint32_t learned;
	uint64_t due;
};

struct flap {
	uint64_t key, first, last, moves;
	uint16_t from, to;
};

struct bridge_memory {
	uint64_t secret[2];
	uint32_t bucket_mask, room;
	rte_spinlock_t lock; /* what follows, and every change of a key */

	uint32_t learned, share,
		common; /* stations; that a port may always have; that are beyond their ports' shares */
	uint32_t sweep; /* the bucket to look at next for what has aged */
	uint64_t unlearned, moves, flapped;
	unsigned next_flap;
	struct flap flaps[BRIDGE_FLAPS];
	struct memory_port ports[BRIDGE_PORTS];
	struct station_bucket *buckets;
};

static uint64_t make_value(unsigned port, uint32_t seen, uint16_t moved)
{
	return (uint64_t)seen << 32 | (uint64_t)moved << 16 | port << 1 | VALUE_USED;
}

static unsigned value_port(uint64_t value)
{
	return (value & 0xffff) >> 1;
}

static uint32_t value_seen(uint64_t value)
{
	return value >> 32;
}

static uint16_t value_moved(uint64_t value)
{
	return value >> 16;
}

static bool aged(uint64_t value, uint32_t tick, uint32_t ageing)
{
	/* Another worker's clock may be a tick ahead. */
	return (int32_t)(tick - value_seen(value)) > (int32_t)ageing;
}

struct bridge_memory *bridge_memory_new(unsigned macs)
{
	const uint32_t buckets = rte_align32pow2(RTE_MAX(macs, 16u)) / 2;
	struct bridge_memory *memory = calloc(1, sizeof(*memory));

	if (memory == NULL)
		return NULL;
	memory->buckets = aligned_alloc(sizeof(struct station_bucket), buckets * sizeof(struct station_bucket));
	if (memory->buckets == NULL) {
		free(memory);
		return NULL;
	}
	memset(memory->buckets, 0, buckets * sizeof(struct station_bucket));
	if (getrandom(memory->secret, sizeof(memory->secret), GRND_NONBLOCK) != sizeof(memory->secret))
		memory->secret[0] = rte_rdtsc();
	memory->secret[1] |= 1;
	memory->bucket_mask = buckets - 1;
	memory->room = macs;
	rte_spinlock_init(&memory->lock);
	return memory;
}

void bridge_memory_free(struct bridge_memory *memory)
{
	if (memory == NULL)
		return;
	free(memory->buckets);
	free(memory);
}

struct station_key stations_key(const struct bridge_memory *memory, const uint8_t *mac, uint16_t vlan)
{
	struct station_key key;
	uint32_t first;
	uint16_t last;
	uint64_t hash;

	/* Put together in a register: a word that has just been stored in parts is slow to read. */
	memcpy(&first, mac, 4);
	memcpy(&last, mac + 4, 2);
	key.key = first | (uint64_t)last << 32 | (uint64_t)vlan << 48 | KEY_USED;
	hash = hash_mix(hash_mix(key.key ^ memory->secret[0], memory->secret[1]) ^ HASH_0, HASH_1);
	key.buckets[0] = &memory->buckets[hash & memory->bucket_mask];
	key.buckets[1] = &memory->buckets[hash >> 32 & memory->bucket_mask];
	return key;
}

/* The slots of a bucket that have the key, as a set. */
static unsigned matching_slots(const struct station_bucket *bucket, uint64_t key)
{
#if defined(__AVX512F__)
	/* Keys are every other word. */
	const __mmask8 same = _mm512_mask_cmpeq_epi64_mask(0x55, _mm512_load_si512(bucket),
							   _mm512_set1_epi64((long long)key));

	return _pext_u32(same, 0x55);
#else
	unsigned same = 0;

	for (unsigned i = 0; i < 4; i++)
		same |= (unsigned)(__atomic_load_n(&bucket->stations[i].key, __ATOMIC_RELAXED) == key) << i;
	return same;
#endif
}

/* The station with the key, and its value as it was while it had the key; NULL: none. */
static struct station *find(struct station_key key, uint64_t *value)
{
	for (unsigned set = matching_slots(key.buckets[0], key.key) | matching_slots(key.buckets[1], key.key) << 4;
	     set != 0; set &= set - 1) {
		const unsigned slot = __builtin_ctz(set);
		struct station *station = &key.buckets[slot / 4]->stations[slot % 4];

		if (unlikely(__atomic_load_n(&station->key, __ATOMIC_ACQUIRE) != key.key))
			continue;
		*value = __atomic_load_n(&station->value, __ATOMIC_ACQUIRE);
		if (likely(__atomic_load_n(&station->key, __ATOMIC_RELAXED) == key.key && *value != 0))
			return station;
	}
	return NULL;
}

int stations_find(const struct bridge_memory *memory, struct station_key key, uint32_t tick, uint32_t ageing)
{
	uint64_t value;

	if (find(key, &value) == NULL || aged(value, tick, ageing))
		return -1;
	return value_port(value);
}

/* ------- learning; the lock is held where a key changes ------- */

static void count_port(struct bridge_memory *memory, unsigned port, int change)
{
	uint32_t *learned = &memory->ports[port].learned;

	if (change < 0 && *learned > memory->share)
		memory->common--;
	*learned += change;
	memory->learned += change;
	if (change > 0 && *learned > memory->share)
		memory->common++;
}

static void forget(struct bridge_memory *memory, struct station *station)
{
	count_port(memory, value_port(station->value), -1);
	__atomic_store_n(&station->value, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&station->key, 0, __ATOMIC_RELEASE);
}

static void sweep_bucket(struct bridge_memory *memory, struct station_bucket *bucket, uint32_t tick, uint32_t ageing)
{
	for (unsigned i = 0; i < 4; i++)
		if (bucket->stations[i].key != 0 && aged(bucket->stations[i].value, tick, ageing))
			forget(memory, &bucket->stations[i]);
}

static struct station *free_slot(struct station_key key)
{
	struct station *free_station[2] = {NULL};
	unsigned taken[2] = {0};

	for (unsigned b = 0; b < 2; b++)
		for (unsigned i = 0; i < 4; i++) {
			if (key.buckets[b]->stations[i].key != 0)
				taken[b]++;
			else
				free_station[b] = &key.buckets[b]->stations[i];
		}
	return taken[0] <= taken[1] ? free_station[0] : free_station[1];
}

static void add(struct bridge_memory *memory, struct station_key key, unsigned port, uint32_t tick, uint32_t ageing)
{
	struct station *station;

	/* Each new address pays for looking at a few old ones. */
	for (unsigned i = 0; i < SWEEP_BUCKETS; i++)
		sweep_bucket(memory, &memory->buckets[memory->sweep++ & memory->bucket_mask], tick, ageing);
	sweep_bucket(memory, key.buckets[0], tick, ageing);
	sweep_bucket(memory, key.buckets[1], tick, ageing);
	station = free_slot(key);
	if (station == NULL || memory->learned >= memory->room ||
	    (memory->ports[port].learned >= memory->share && memory->common >= memory->room / 2)) {
		memory->unlearned++;
		return;
	}
	count_port(memory, port, 1);
	/* Nobody reads a value of a key that is not there yet. */
	__atomic_store_n(&station->value, make_value(port, tick, 0), __ATOMIC_RELEASE);
	__atomic_store_n(&station->key, key.key, __ATOMIC_RELEASE);
}

static void note_flap(struct bridge_memory *memory, uint64_t key, unsigned from, unsigned to, uint64_t now)
{
	struct flap *flap = NULL;

	for (unsigned i = 0; i < BRIDGE_FLAPS && flap == NULL; i++)
		if (memory->flaps[i].key == key)
			flap = &memory->flaps[i];
	if (flap == NULL) {
		flap = &memory->flaps[memory->next_flap++ % BRIDGE_FLAPS];
		*flap = (struct flap){.key = key, .first = now, .moves = 1};
	}
	flap->last = now;
	flap->moves++;
	__atomic_store_n(&memory->flapped, memory->flapped + 1, __ATOMIC_RELAXED);
	flap->from = from;
	flap->to = to;
}

static unsigned move(struct bridge_memory *memory, struct station *station, unsigned port, uint32_t tick,
		     uint32_t ageing, uint64_t now)
{
	const uint64_t value = station->value;
	const unsigned from = value_port(value);
	const uint16_t moved = value_moved(value), within = stations_ticks(rte_get_tsc_hz(), BRIDGE_FLAP_SECONDS);
	const bool flaps = !aged(value, tick, ageing) && moved != 0 && (uint16_t)(tick - moved) <= within;

	/* It counts as the new port's, unless that has no room for it. */
	if (memory->ports[port].learned >= memory->share && memory->common >= memory->room / 2 &&
	    memory->ports[from].learned <= memory->share) {
		memory->unlearned++;
		return 0;
	}
	count_port(memory, from, -1);
	count_port(memory, port, 1);
	memory->moves++;
	__atomic_store_n(&station->value, make_value(port, tick, (uint16_t)tick != 0 ? tick : 1), __ATOMIC_RELEASE);
	if (flaps)
		note_flap(memory, station->key, from, port, now);
	return flaps;
}

unsigned stations_learn(struct bridge_memory *memory, struct station_key key, unsigned port, uint32_t tick,
			uint32_t ageing, uint64_t now)
{
	uint64_t value;
	struct station *station = find(key, &value);
	unsigned flaps = 0;

	if (likely(station != NULL && value_port(value) == port)) {
		/* If it has changed meanwhile, somebody else's news is as good. */
		if (unlikely(value_seen(value) != tick))
			__atomic_compare_exchange_n(&station->value, &value, make_value(port, tick, value_moved(value)),
						    false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
		return 0;
	}
	if (!rte_spinlock_trylock(&memory->lock))
		return 0;
	station = find(key, &value);
	if (station == NULL)
		add(memory, key, port, tick, ageing);
	else if (value_port(value) != port)
		flaps = move(memory, station, port, tick, ageing, now);
	rte_spinlock_unlock(&memory->lock);
	return flaps;
}

uint64_t *stations_due(struct bridge_memory *memory, unsigned port)
{
	return &memory->ports[port].due;
}

/* ------- the control side ------- */

int stations_join(struct bridge_memory *memory, const char *name)
{
	int number = -1;

	for (unsigned i = 0; i < BRIDGE_PORTS; i++) {
		if (strcmp(memory->ports[i].name, name) == 0) {
			memory->ports[i].bridges++;
			return i;
		}
		if (memory->ports[i].name[0] == '\0' && number < 0)
			number = i;
	}
	if (number >= 0) {
		snprintf(memory->ports[number].name, BRIDGE_NAME, "%s", name);
		memory->ports[number].bridges = 1;
	}
	return number;
}

void stations_share(struct bridge_memory *memory, unsigned ports)
{
	rte_spinlock_lock(&memory->lock);
	memory->share = memory->room / 2 / RTE_MAX(ports, 1u);
	memory->common = 0;
	for (unsigned i = 0; i < BRIDGE_PORTS; i++)
		if (memory->ports[i].learned > memory->share)
			memory->common += memory->ports[i].learned - memory->share;
	rte_spinlock_unlock(&memory->lock);
}

/* With the lock: has anything been learned from these ports? */
static bool learned_any(const struct bridge_memory *memory, const bool gone[BRIDGE_PORTS])
{
	for (unsigned i = 0; i < BRIDGE_PORTS; i++)
		if (gone[i] && memory->ports[i].learned > 0)
			return true;
	return false;
}

void stations_forget_learned(struct bridge_memory *memory, const bool gone[BRIDGE_PORTS])
{
	bool any = true;

	for (uint32_t first = 0; any && first <= memory->bucket_mask; first += FORGET_BUCKETS) {
		rte_spinlock_lock(&memory->lock);
		any = learned_any(memory, gone);
		for (uint32_t b = first; any && b <= memory->bucket_mask && b < first + FORGET_BUCKETS; b++)
			for (unsigned i = 0; i < 4; i++) {
				struct station *station = &memory->buckets[b].stations[i];

				if (station->key != 0 && gone[value_port(station->value)])
					forget(memory, station);
			}
		rte_spinlock_unlock(&memory->lock);
	}
}

void stations_leave(struct bridge_memory *memory, const bool left[BRIDGE_PORTS])
{
	bool gone[BRIDGE_PORTS];

	for (unsigned i = 0; i < BRIDGE_PORTS; i++)
		gone[i] = left[i] && --memory->ports[i].bridges == 0;
	stations_forget_learned(memory, gone);
	rte_spinlock_lock(&memory->lock);
	for (unsigned i = 0; i < BRIDGE_PORTS; i++)
		if (gone[i])
			memory->ports[i] = (struct memory_port){.name = ""};
	rte_spinlock_unlock(&memory->lock);
}

static void read_key(uint64_t key, uint8_t *mac, uint16_t *vlan)
{
	memcpy(mac, &key, 6);
	*vlan = key >> 48 & 0xfff;
}

void stations_list(const struct bridge_memory *memory, uint32_t tick, uint32_t ageing,
		   void (*each)(void *context, struct bridge_mac *mac, unsigned port), void *context)
{
	for (uint32_t b = 0; b <= memory->bucket_mask; b++)
		for (unsigned i = 0; i < 4; i++) {
			const struct station *station = &memory->buckets[b].stations[i];
			const uint64_t key = __atomic_load_n(&station->key, __ATOMIC_ACQUIRE);
			const uint64_t value = __atomic_load_n(&station->value, __ATOMIC_ACQUIRE);
			struct bridge_mac mac;

			if (key == 0 || value == 0 || aged(value, tick, ageing) ||
			    __atomic_load_n(&station->key, __ATOMIC_RELAXED) != key)
				continue;
			read_key(key, mac.mac, &mac.vlan);
			mac.port = memory->ports[value_port(value)].name;
			mac.age = (double)(int32_t)(tick - value_seen(value)) * (1ULL << STATIONS_TICK_SHIFT) /
				  rte_get_tsc_hz();
			each(context, &mac, value_port(value));
		}
}

unsigned stations_flaps(struct bridge_memory *memory, struct bridge_flap *flaps)
{
	unsigned count = 0;

	rte_spinlock_lock(&memory->lock);
	for (unsigned i = 0; i < BRIDGE_FLAPS; i++) {
		const struct flap *flap = &memory->flaps[i];

		if (flap->key == 0)
			continue;
		flaps[count] = (struct bridge_flap){.first = flap->first, .last = flap->last, .moves = flap->moves};
		read_key(flap->key, flaps[count].mac, &flaps[count].vlan);
		memcpy(flaps[count].from, memory->ports[flap->from].name, BRIDGE_NAME);
		memcpy(flaps[count].to, memory->ports[flap->to].name, BRIDGE_NAME);
		count++;
	}
	rte_spinlock_unlock(&memory->lock);
	return count;
}

uint64_t stations_flapped(const struct bridge_memory *memory)
{
	return __atomic_load_n(&memory->flapped, __ATOMIC_RELAXED);
}

struct bridge_figures stations_figures(struct bridge_memory *memory, uint32_t tick, uint32_t ageing)
{
	struct bridge_figures figures;

	rte_spinlock_lock(&memory->lock);
	for (uint32_t b = 0; b <= memory->bucket_mask; b++)
		sweep_bucket(memory, &memory->buckets[b], tick, ageing);
	figures = (struct bridge_figures){memory->learned, memory->room, memory->unlearned, memory->moves};
	rte_spinlock_unlock(&memory->lock);
	return figures;
}
