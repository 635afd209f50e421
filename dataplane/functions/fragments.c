/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/random.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "fragments.h"
#include "steer/hash.h"

enum {
	BUCKETS = 2048,
	SLOTS = 4,
	SECONDS = 60, /* RFC 8200, 4.5 */
};

struct entry {
	uint64_t hash, since; /* 0: free */
	uint16_t end;	      /* the place behind the first fragment, in units of 8 bytes */
	struct fragment_way way;
};

struct fragment_bucket {
	struct entry entries[SLOTS];
};

/* RFC 791 and RFC 8200, 4.5: what fragments of one datagram have in common. */
static uint64_t datagram_hash(const struct fragments *fragments, const struct headers *headers)
{
	uint64_t protocol = headers->family == HEADERS_IPV4 ? headers->protocol : 0;
	uint64_t tags = (uint64_t)headers->vlan << 48 | (uint64_t)headers->inner_vlan << 32;
	uint64_t hash = hash_mix(headers->key[0] ^ fragments->secret[0], headers->key[1] ^ fragments->secret[1]) ^
			hash_mix(headers->key[2] ^ fragments->secret[1], headers->key[3] ^ HASH_3);

	return hash_mix(hash ^ headers->fragment_id ^ tags, protocol ^ fragments->secret[0]) | 1;
}

static struct entry *find(const struct fragments *fragments, uint64_t hash)
{
	struct fragment_bucket *bucket = &fragments->buckets[(hash >> 32) % BUCKETS];

	for (unsigned i = 0; i < SLOTS; i++)
		if (bucket->entries[i].hash == hash)
			return &bucket->entries[i];
	return NULL;
}

static struct entry *oldest(const struct fragments *fragments, uint64_t hash)
{
	struct fragment_bucket *bucket = &fragments->buckets[(hash >> 32) % BUCKETS];
	struct entry *found = &bucket->entries[0];

	for (unsigned i = 1; i < SLOTS; i++)
		if (bucket->entries[i].since < found->since)
			found = &bucket->entries[i];
	return found;
}

int fragments_open(struct fragments *fragments)
{
	*fragments = (struct fragments){.kept = rte_get_tsc_hz() * SECONDS};
	if (getrandom(fragments->secret, sizeof(fragments->secret), GRND_NONBLOCK) != sizeof(fragments->secret))
		fragments->secret[0] = rte_rdtsc();
	fragments->buckets = rte_zmalloc("fragments", BUCKETS * sizeof(struct fragment_bucket), 64);
	return fragments->buckets != NULL ? 0 : -ENOMEM;
}

void fragments_close(struct fragments *fragments)
{
	rte_free(fragments->buckets);
	*fragments = (struct fragments){.buckets = NULL};
}

void fragments_add(struct fragments *fragments, const struct inspected *frame, uint64_t tsc,
		   const struct fragment_way *way)
{
	const uint64_t hash = datagram_hash(fragments, &frame->headers);
	struct entry *entry = find(fragments, hash);

	if (entry == NULL)
		entry = oldest(fragments, hash);
	*entry = (struct entry){.hash = hash, .since = tsc, .end = frame->end};
	if (way != NULL)
		entry->way = *way;
}

static const struct entry *known(const struct fragments *fragments, const struct inspected *frame, uint64_t tsc)
{
	const struct entry *entry = find(fragments, datagram_hash(fragments, &frame->headers));

	return entry != NULL && tsc - entry->since <= fragments->kept ? entry : NULL;
}

/* What lies where the first fragment had its headers could take their place. */
enum verdict fragments_find(const struct fragments *fragments, const struct inspected *frame, uint64_t tsc,
			    struct fragment_way *way)
{
	const struct entry *entry = known(fragments, frame, tsc);

	if (entry == NULL)
		return VERDICT_DROP_fragment;
	if (frame->first < entry->end)
		return VERDICT_DROP_overlap;
	if (way != NULL)
		*way = entry->way;
	return VERDICT_PASS;
}

bool fragments_mark(const struct fragments *fragments, const struct inspected *frame, uint64_t tsc, uint16_t *mark)
{
	const struct entry *entry = known(fragments, frame, tsc);

	if (entry != NULL)
		*mark = entry->way.mark;
	return entry != NULL;
}
