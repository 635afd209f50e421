/* SPDX-License-Identifier: Apache-2.0
 *
 * Replica groups: a flow and its answer always reach the same replica, so that replicas need not share state.
 *
 * A flow is its addresses, protocol and ports, either way round; by `addresses` it is the unordered pair of addresses
 * alone, for functions that look at several flows of two hosts together.  VLAN tags do not count: a flow and its
 * answer may carry different ones.  Where IPv6's extension headers go on where nobody looks (parse.h), the addresses
 * are all that is known, and the flow is they.  A frame that is not IP goes by its unordered pair of MAC addresses; an
 * ICMP error by the flow that it is about.
 *
 * Which replica: each of PIN_SLOTS slots belongs to the replica that scores highest for it (rendezvous hashing, by the
 * replicas' names), and a flow's hash names its slot.  So one of n added or removed moves the slots that it wins or
 * loses, 1/n of all, and nothing else; neither the order of configuration nor a restart matters.
 *
 * A draining replica has no slots.  The flows that it had stay with it as long as they are seen; a table of flows
 * (flows.h), which outlives changes of the group, knows them.
 *
 * The later fragments of a datagram have no ports: a small table remembers where its first fragment went.  A later
 * fragment that arrives before the first decides by the addresses, and the first follows it.
 */
#ifndef TAILRACE_STEER_PIN_H
#define TAILRACE_STEER_PIN_H

#include "steer/flows.h"
#include "steer/hash.h"
#include "steer/parse.h"

enum {
	PIN_BURST = 64,
	PIN_SLOTS = 1 << 16,
	PIN_REPLICAS = FLOWS_REPLICAS,
	PIN_NAME = 48,
	PIN_NOBODY = 255,		/* no replica takes new flows */
	PIN_FLOW_BUCKETS = 1 << 18,	/* two million flows, 16 MB */
	PIN_FRAGMENT_BUCKETS = 1 << 13, /* 65536 datagrams */
	PIN_FLOW_SECONDS = 300,		/* unless the configuration says otherwise */
	PIN_FLOW_SECONDS_MOST = 3600,
	PIN_FRAGMENT_SECONDS = 2,
};

/* What outlives changes of the group: which replica has which number, and which flows are established. */
struct pin_memory {
	struct flows *flows, *fragments;
	char names[PIN_REPLICAS][PIN_NAME]; /* "": the number is free */
	unsigned groups[PIN_REPLICAS];	    /* that have the replica: one, or two during a change */
	unsigned swept;			    /* parts so far */
};

struct pin_replica {
	const char *name;
	bool draining;
};

/* As it was configured; never changed. */
struct pin_group {
	struct pin_memory *memory;
	bool by_addresses;
	uint64_t active, draining; /* sets of replicas, by number */
	uint8_t slots[PIN_SLOTS];  /* the replica's number, or PIN_NOBODY */
};

/* `flow_seconds`: for how long a flow that is not seen is known.  Returns NULL without memory. */
struct pin_memory *pin_memory_new(unsigned flow_seconds);
void pin_memory_free(struct pin_memory *memory);

void pin_memory_set_ageing(struct pin_memory *memory, unsigned flow_seconds);

/* To be called about once a second: forget what has aged, in a part of the memory after the other (flows_sweep()). */
void pin_memory_sweep(struct pin_memory *memory, uint64_t now);

/* How many flows each replica of the group has that are still known, by number.  Takes some milliseconds. */
void pin_count(const struct pin_group *group, uint64_t counts[PIN_REPLICAS]);

/* How often a new flow found its slots in the table taken by others, and it or one of them is not known any more. */
uint64_t pin_crowded(const struct pin_group *group);

/* The number of the replica `name`, which is given one if it has none.  Returns -ENOSPC when there are too many. */
int pin_memory_number(struct pin_memory *memory, const char *name);

/*
 * Returns a group, or NULL with errno: ENOMEM, ENOSPC.  At most PIN_REPLICAS replicas in the group and in the one
 * before it together.
 */
struct pin_group *pin_group_new(struct pin_memory *memory, bool by_addresses, const struct pin_replica *replicas,
				unsigned nb_replicas);

/* No worker uses it any more.  Replicas of it that no other group of its memory has are forgotten, and their flows. */
void pin_group_free(struct pin_group *group);

/*
 * Say for up to PIN_BURST frames, those with the numbers which[0..count), which replica gets each, by number:
 * PIN_NOBODY if there is none.  replicas[i] is for which[i].  `now` is the TSC.  Of an ICMP error parse_embedded() has
 * been asked first.
 */
void pin(const struct pin_group *group, const struct headers *headers, const uint8_t *which, unsigned count,
	 uint64_t now, uint8_t *replicas);

/* Which of `nb_queues` queues a flow and its answer have: by a hash as above, without any memory.  Fragments go by the
 * addresses, all those of a datagram alike; so between them and whole frames of their flow there is no order. */
unsigned pin_spread(const struct headers *headers, unsigned nb_queues);

/* An end of a flow, and both of them, whichever comes first. */
static inline uint64_t pin_hash_end(uint64_t head, uint64_t tail, uint16_t port)
{
	return hash_mix(head ^ HASH_0, tail ^ port ^ HASH_1);
}

static inline uint64_t pin_hash_pair(uint64_t one, uint64_t other, uint64_t also)
{
	return hash_mix((one + other) ^ HASH_2, (one ^ other) ^ also ^ HASH_3);
}

static inline unsigned pin_queue_of(uint64_t hash, unsigned nb_queues)
{
	return (unsigned)((hash >> 32) * nb_queues >> 32);
}

/* The same of a whole datagram of IPv4 with ports; addresses as they lie.  Of each frame, by who has several queues. */
static inline unsigned pin_spread_ipv4(uint32_t source, uint32_t destination, uint16_t source_port,
				       uint16_t destination_port, uint8_t protocol, unsigned nb_queues)
{
	const uint64_t one = pin_hash_end(source, 0, source_port);
	const uint64_t other = pin_hash_end(destination, 0, destination_port);

	return pin_queue_of(pin_hash_pair(one, other, protocol), nb_queues);
}

/* What the fragments of a datagram have in common, for a table of theirs. */
uint64_t pin_datagram(const struct flows *fragments, const struct headers *headers);

#endif
