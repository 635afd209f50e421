/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "steer/pin.h"

struct pin_memory *pin_memory_new(unsigned flow_seconds)
{
	struct pin_memory *memory = calloc(1, sizeof(*memory));

	if (memory == NULL)
		return NULL;
	memory->flows = flows_new(PIN_FLOW_BUCKETS, flow_seconds);
	memory->fragments = flows_new(PIN_FRAGMENT_BUCKETS, PIN_FRAGMENT_SECONDS);
	if (memory->flows == NULL || memory->fragments == NULL) {
		pin_memory_free(memory);
		return NULL;
	}
	return memory;
}

void pin_memory_free(struct pin_memory *memory)
{
	if (memory == NULL)
		return;
	flows_free(memory->flows);
	flows_free(memory->fragments);
	free(memory);
}

void pin_memory_set_ageing(struct pin_memory *memory, unsigned flow_seconds)
{
	flows_set_ageing(memory->flows, flow_seconds);
}

void pin_memory_sweep(struct pin_memory *memory, uint64_t now)
{
	enum { PARTS = 256 };
	const unsigned part = memory->swept++ % PARTS;

	flows_sweep(memory->flows, flows_tick(now), part, PARTS);
	flows_sweep(memory->fragments, flows_tick(now), part, PARTS);
}

void pin_count(const struct pin_group *group, uint64_t counts[PIN_REPLICAS])
{
	flows_count(group->memory->flows, flows_tick(rte_rdtsc()), counts);
}

uint64_t pin_crowded(const struct pin_group *group)
{
	return __atomic_load_n(&group->memory->flows->crowded, __ATOMIC_RELAXED);
}

int pin_memory_number(struct pin_memory *memory, const char *name)
{
	int number = -ENOSPC;

	for (unsigned i = 0; i < PIN_REPLICAS; i++) {
		if (strcmp(memory->names[i], name) == 0)
			return i;
		if (memory->names[i][0] == '\0' && number < 0)
			number = i;
	}
	if (number >= 0)
		snprintf(memory->names[number], PIN_NAME, "%s", name);
	return number;
}

static bool in_group(const struct pin_group *group, unsigned number)
{
	return (group->active | group->draining) & UINT64_C(1) << number;
}

void pin_group_free(struct pin_group *group)
{
	struct pin_memory *memory = group->memory;
	uint64_t gone = 0;

	for (unsigned i = 0; i < PIN_REPLICAS; i++) {
		if (!in_group(group, i) || --memory->groups[i] > 0)
			continue;
		gone |= UINT64_C(1) << i;
		memory->names[i][0] = '\0';
	}
	/* Their numbers may be given to others, which have no flows yet. */
	if (gone != 0) {
		flows_forget(memory->flows, gone);
		flows_forget(memory->fragments, gone);
	}
	free(group);
}

/* ------- which replica has which slot ------- */

static uint64_t hash_name(const char *name)
{
	uint64_t hash = HASH_0;

	for (; *name != '\0'; name++)
		hash = hash_mix(hash ^ (uint8_t)*name, HASH_1);
	return hash;
}

static uint64_t score(uint64_t name_hash, unsigned slot)
{
	return hash_mix(hash_mix(name_hash ^ HASH_2, slot ^ HASH_3) ^ name_hash, HASH_4);
}

struct pin_group *pin_group_new(struct pin_memory *memory, bool by_addresses, const struct pin_replica *replicas,
				unsigned nb_replicas)
{
	struct pin_group *group = calloc(1, sizeof(*group));
	uint64_t names[PIN_REPLICAS];
	uint8_t numbers[PIN_REPLICAS];
	unsigned nb_active = 0;

	if (group == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	group->memory = memory;
	group->by_addresses = by_addresses;
	for (unsigned i = 0; i < nb_replicas; i++) {
		int number = pin_memory_number(memory, replicas[i].name);

		if (number < 0) {
			pin_group_free(group);
			errno = ENOSPC;
			return NULL;
		}
		memory->groups[number]++;
		if (replicas[i].draining) {
			group->draining |= UINT64_C(1) << number;
			continue;
		}
		group->active |= UINT64_C(1) << number;
		names[nb_active] = hash_name(replicas[i].name);
		numbers[nb_active++] = number;
	}
	for (unsigned slot = 0; slot < PIN_SLOTS; slot++) {
		uint64_t best = 0;

		group->slots[slot] = PIN_NOBODY;
		for (unsigned i = 0; i < nb_active; i++) {
			uint64_t here = score(names[i], slot);

			if (here >= best) {
				best = here;
				group->slots[slot] = numbers[i];
			}
		}
	}
	return group;
}

/* ------- flows ------- */

static uint64_t hash_addresses(const struct headers *headers, uint64_t also)
{
	return pin_hash_pair(hash_mix(headers->key[0] ^ HASH_0, headers->key[1] ^ HASH_1),
			     hash_mix(headers->key[2] ^ HASH_0, headers->key[3] ^ HASH_1), also);
}

static uint64_t hash_flow(const struct headers *headers)
{
	return pin_hash_pair(pin_hash_end(headers->key[0], headers->key[1], headers->source_port),
			     pin_hash_end(headers->key[2], headers->key[3], headers->destination_port),
			     headers->protocol);
}

unsigned pin_spread(const struct headers *headers, unsigned nb_queues)
{
	const bool whole = headers->fragment == FRAGMENT_NONE;

	return pin_queue_of(whole ? hash_flow(headers) : hash_addresses(headers, 0), nb_queues);
}

static uint8_t slot_owner(const struct pin_group *group, uint64_t hash)
{
	return group->slots[hash >> 48];
}

/* What the slots say, except for a flow that is established on a draining replica. */
static uint8_t decide(const struct pin_group *group, struct flow_bucket *bucket, uint64_t hash, uint16_t tick)
{
	struct flows *flows = group->memory->flows;
	const uint8_t owner = slot_owner(group, hash);
	uint64_t *slot = flows_find(bucket, hash), entry = slot != NULL ? flow_read(slot) : 0;
	uint8_t replica;

	if (unlikely(slot == NULL || !flow_is(entry, hash))) {
		if (owner != PIN_NOBODY)
			flows_add(flows, bucket, flow_entry(flow_signature(hash), tick, owner, 0), tick,
				  group->draining);
		return owner;
	}
	replica = flow_replica(entry);
	if (likely(replica == owner && flow_seen(entry) == tick))
		return owner;
	if (replica != owner &&
	    !((group->draining & UINT64_C(1) << replica % PIN_REPLICAS) && flow_fresh(flows, entry, tick)))
		replica = owner;
	if (replica == PIN_NOBODY)
		flow_write(slot, 0);
	else if (replica != flow_replica(entry) || flow_seen(entry) != tick)
		flow_write(slot, flow_entry(flow_signature(hash), tick, replica, FLOW_LASTING));
	return replica;
}

/*
 * One way only: two hosts that send each other datagrams of the same number send two.  IPv4 numbers by protocol (RFC
 * 791).  IPv6 does not (RFC 8200, 4.5), and only its first fragment shows what lies behind further extension headers.
 *
 * The tags count, though not for flows: a datagram has one direction, and its fragments the same tags.  VLANs have the
 * same addresses and numbers by chance or on purpose, and a first fragment in one must not lead another's later ones:
 * out of its chain, or to a replica that does not know their first.  So nobody may find out what collides, either.
 */
uint64_t pin_datagram(const struct flows *fragments, const struct headers *headers)
{
	const uint64_t source = hash_mix(headers->key[0] ^ HASH_0, headers->key[1] ^ HASH_1);
	const uint8_t protocol = headers->family == HEADERS_IPV6 ? 0 : headers->protocol;

	const uint64_t datagram = hash_mix(hash_mix(headers->key[2] ^ source, headers->key[3] ^ HASH_2),
					   (uint64_t)headers->fragment_id << 32 | protocol);

	return hash_mix(datagram ^ fragments->secret[0],
			((uint64_t)headers->vlan << 16 | headers->inner_vlan) ^ fragments->secret[1]);
}

/* A datagram's fragments, by what they have in common.  `wish` is where the flow of the first goes. */
static uint8_t decide_fragment(const struct pin_group *group, const struct headers *headers, uint8_t wish,
			       uint16_t tick)
{
	struct flows *fragments = group->memory->fragments;
	const uint64_t hash = pin_datagram(fragments, headers);
	struct flow_bucket *bucket = flows_bucket(fragments, hash);
	uint64_t *slot = flows_find(bucket, hash), entry = slot != NULL ? flow_read(slot) : 0;
	const bool first = headers->fragment == FRAGMENT_FIRST;
	const bool known = slot != NULL && flow_is(entry, hash) && flow_fresh(fragments, entry, tick) &&
			   ((group->active | group->draining) & UINT64_C(1) << flow_replica(entry) % PIN_REPLICAS);
	uint64_t note;

	/* A first fragment after a first one is another datagram: its sender has come round to the same number. */
	if (known && !(first && (entry & FLOW_MARK)))
		wish = flow_replica(entry);
	if (wish == PIN_NOBODY)
		return wish;
	note = flow_entry(flow_signature(hash), tick, wish, first || (known && (entry & FLOW_MARK)) ? FLOW_MARK : 0);
	if (slot != NULL && flow_is(entry, hash))
		flow_write(slot, note);
	else
		flows_add(fragments, bucket, note, tick, 0);
	return wish;
}

void pin(const struct pin_group *group, const struct headers *headers, const uint8_t *which, unsigned count,
	 uint64_t now, uint8_t *replicas)
{
	const uint16_t tick = flows_tick(now);
	struct flow_bucket *buckets[PIN_BURST];
	uint64_t hashes[PIN_BURST];

	for (unsigned i = 0; i < count; i++) {
		const struct headers *frame = &headers[which[i]];
		const bool by_addresses = group->by_addresses || unlikely(frame->unread);

		hashes[i] = by_addresses ? hash_addresses(frame, 0) : hash_flow(frame);
		buckets[i] = flows_bucket(group->memory->flows, hashes[i]);
		rte_prefetch0(buckets[i]);
		rte_prefetch0(&group->slots[hashes[i] >> 48]);
	}
	for (unsigned i = 0; i < count; i++) {
		const struct headers *frame = &headers[which[i]];

		if (unlikely(frame->fragment != FRAGMENT_NONE && !group->by_addresses)) {
			uint8_t wish = frame->fragment == FRAGMENT_FIRST ? decide(group, buckets[i], hashes[i], tick)
									 : slot_owner(group, hash_addresses(frame, 0));

			replicas[i] = decide_fragment(group, frame, wish, tick);
			continue;
		}
		replicas[i] = decide(group, buckets[i], hashes[i], tick);
	}
}
