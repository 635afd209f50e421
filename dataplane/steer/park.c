/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "steer/hash.h"
#include "steer/park.h"

bool park_open(struct park *park, bool slides)
{
	*park = (struct park){.slides = slides};
	rte_spinlock_init(&park->lock);
	if (getrandom(park->secret, sizeof(park->secret), GRND_NONBLOCK) != sizeof(park->secret))
		park->secret[0] = rte_rdtsc();
	park->secret[1] |= 1;
	if (!shaper_open(&park->given) || !shaper_open(&park->early) || !shaper_open(&park->own) ||
	    !shaper_open(&park->spare)) {
		park_close(park);
		return false;
	}
	park->given.limits = park->early.limits = park->own.limits = park->spare.limits = (struct shaper_limits){
		.bytes = SHAPER_MOST_BYTES, .packets = PARK_PACKETS};
	return true;
}

void park_close(struct park *park)
{
	shaper_close(&park->given);
	shaper_close(&park->early);
	shaper_close(&park->own);
	shaper_close(&park->spare);
	free(park->expected);
	park->expected = NULL;
}

/* ------- which frames are alike ------- */

/* One piece after the other, whatever their lengths: the same bytes have the same hash. */
struct digest {
	const uint64_t *secret;
	uint64_t hash;
	uint8_t word[8];
	unsigned filled;
};

static void digest_add(struct digest *digest, const uint8_t *at, uint32_t length)
{
	while (length > 0) {
		const uint32_t part = RTE_MIN(length, (uint32_t)(sizeof(digest->word) - digest->filled));
		uint64_t word;

		memcpy(digest->word + digest->filled, at, part);
		digest->filled += part;
		at += part;
		length -= part;
		if (digest->filled < sizeof(digest->word))
			return;
		memcpy(&word, digest->word, sizeof(word));
		digest->hash = hash_mix(digest->hash ^ word ^ digest->secret[0], digest->secret[1]);
		digest->filled = 0;
	}
}

static uint64_t hash_of(const struct park *park, const struct packet *packet)
{
	struct digest digest = {.secret = park->secret,
				.hash = hash_mix(packet->length ^ park->secret[0], park->secret[1])};
	static const uint8_t zeros[8];

	digest_add(&digest, packet->head, packet->head_length);
	for (unsigned i = 1; i < packet->nb_pieces; i++)
		digest_add(&digest, packet->pieces[i].at, packet->pieces[i].length);
	if (digest.filled > 0)
		digest_add(&digest, zeros, sizeof(zeros) - digest.filled);
	return hash_mix(digest.hash ^ park->secret[1], park->secret[0] | 1);
}

/* The numbers of hashes, found by them: the last of equal ones. */
struct hashes {
	uint32_t mask;
	uint32_t *slots; /* number + 1; 0: free */
	const uint64_t *values;
};

static bool hashes_open(struct hashes *hashes, const uint64_t *values, uint32_t count)
{
	*hashes = (struct hashes){.mask = 2 * rte_align32pow2(count + 1) - 1, .values = values};
	hashes->slots = calloc((size_t)hashes->mask + 1, sizeof(hashes->slots[0]));
	if (hashes->slots == NULL)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = (uint32_t)values[i] & hashes->mask;

		while (hashes->slots[at] != 0 && values[hashes->slots[at] - 1] != values[i])
			at = (at + 1) & hashes->mask;
		hashes->slots[at] = i + 1;
	}
	return true;
}

/* The number of this one, or UINT32_MAX. */
static uint32_t hashes_find(const struct hashes *hashes, uint64_t value)
{
	uint32_t at = (uint32_t)value & hashes->mask;

	while (hashes->slots[at] != 0 && hashes->values[hashes->slots[at] - 1] != value)
		at = (at + 1) & hashes->mask;
	return hashes->slots[at] - 1;
}

/* ------- for workers ------- */

/* Is this the next of those that are still to come, and that the guest gets from the other switch? */
static bool is_expected(struct park *park, const struct packet *packet)
{
	if (likely(park->next_expected == park->nb_expected) || park->giving)
		return false;
	if (hash_of(park, packet) == park->expected[park->next_expected]) {
		park->next_expected++;
		return true;
	}
	park->next_expected = park->nb_expected; /* the two have gone different ways */
	return false;
}

bool park_put(struct park *park, struct packet *packet)
{
	if (is_expected(park, packet)) {
		park->counts.forgotten++;
		return true;
	}
	while (!shaper_put(&park->own, packet)) {
		if (!park->slides || !shaper_waiting(&park->own)) {
			park->counts.dropped++;
			return false;
		}
		shaper_remove(&park->own, 1);
		park->counts.forgotten++;
	}
	park->counts.parked++;
	return true;
}

void park_delivered(struct park *park, struct shaper *queue, unsigned count)
{
	shaper_remove(queue, count);
	park->counts.delivered += count;
}

/* ------- for the control side ------- */

/* What it looks at now. */
static _Thread_local struct burst burst;

static void swap(struct shaper *one, struct shaper *other)
{
	const struct shaper kept = *one;

	*one = *other;
	*other = kept;
}

void park_take(struct park *park, struct shaper *out)
{
	out->limits = park->own.limits;
	rte_spinlock_lock(&park->lock);
	/* Where something was given, it stays: this switch is where the guest goes to. */
	swap(&park->own, out);
	park->counts.taken += out->packets;
	rte_spinlock_unlock(&park->lock);
}

void park_lose(struct park *park, uint32_t count)
{
	rte_spinlock_lock(&park->lock);
	park->counts.dropped += count;
	park->lost += count;
	rte_spinlock_unlock(&park->lock);
}

/* What has come here so far goes behind what had come before. */
static void collect(struct park *park)
{
	uint32_t lost = 0;

	rte_spinlock_lock(&park->lock);
	park->giving = true;
	swap(&park->own, &park->spare);
	rte_spinlock_unlock(&park->lock);
	while (shaper_waiting(&park->spare)) {
		shaper_read(&park->spare, &burst);
		for (unsigned i = 0; i < burst.count; i++)
			lost += !shaper_put(&park->early, &burst.packets[i]);
		shaper_remove(&park->spare, burst.count);
	}
	park_lose(park, lost);
}

/*
 * How many of the oldest frames of what has come here the guest has got, or gets, from the other switch: up to the last
 * that is one of these.  `*next` is the number behind that one's; 0: none is.
 */
static uint32_t known(const struct park *park, const struct hashes *hashes, uint32_t *next)
{
	struct shaper rest = park->early; /* read to its end, and left as it is */
	uint32_t behind = 0, at = 0;

	*next = 0;
	while (shaper_waiting(&rest)) {
		shaper_read(&rest, &burst);
		for (unsigned i = 0; i < burst.count; i++, at++) {
			const uint32_t number = hashes_find(hashes, hash_of(park, &burst.packets[i]));

			if (number == UINT32_MAX)
				continue;
			behind = at + 1;
			*next = number + 1;
		}
		shaper_remove(&rest, burst.count);
	}
	return behind;
}

/* With the lock: some that were expected may have come while it was found out that they are. */
static void forget_expected(struct park *park)
{
	unsigned count;

	do {
		shaper_read(&park->own, &burst);
		for (count = 0; count < burst.count && is_expected(park, &burst.packets[count]);)
			count++;
		shaper_remove(&park->own, count);
		park->counts.forgotten += count;
	} while (count > 0 && count == burst.count);
}

/* What is expected now: what still was, and these.  `*count` is how many in all.  NULL without memory. */
static uint64_t *expect_more(struct park *park, const struct packet *packets, unsigned more, uint32_t *count)
{
	uint64_t *values = malloc(((size_t)park->nb_expected + more + 1) * sizeof(values[0]));
	uint32_t at = 0;

	if (park->nb_expected - park->next_expected > PARK_PACKETS) /* it is nowhere near them */
		park->next_expected = park->nb_expected;
	for (uint32_t i = park->next_expected; values != NULL && i < park->nb_expected; i++)
		values[at++] = park->expected[i];
	for (unsigned i = 0; values != NULL && i < more; i++)
		values[at++] = hash_of(park, &packets[i]);
	*count = at;
	return values;
}

/* Forget what has come here and the guest gets from the other switch.  Returns how many; `*next`: as known()'s. */
static uint32_t forget_known(struct park *park, const struct hashes *hashes, uint32_t *next)
{
	uint32_t behind = known(park, hashes, next);

	/* What came before the other switch's first frame the guest has got from there. */
	if (park->slides && behind == 0)
		behind = park->early.packets;
	shaper_remove(&park->early, behind);
	return behind;
}

bool park_give(struct park *park, struct packet *packets, unsigned count)
{
	struct hashes hashes = {0};
	uint32_t nb_expected = 0, next, forgotten, given = 0;
	uint64_t *expected, *former;

	collect(park);
	expected = expect_more(park, packets, count, &nb_expected);
	if (expected == NULL || !hashes_open(&hashes, expected, nb_expected)) {
		free(expected);
		rte_spinlock_lock(&park->lock);
		park->giving = false;
		rte_spinlock_unlock(&park->lock);
		return false;
	}
	forgotten = forget_known(park, &hashes, &next);
	free(hashes.slots);
	for (unsigned i = 0; i < count; i++)
		given += shaper_put(&park->given, &packets[i]);
	park_lose(park, count - given);
	rte_spinlock_lock(&park->lock);
	park->slides = park->giving = false;
	park->counts.forgotten += forgotten;
	park->counts.given += given;
	former = park->expected;
	park->expected = expected;
	park->nb_expected = nb_expected;
	/* What is left here did not come there: nothing that did is still to come. */
	park->next_expected = shaper_waiting(&park->early) ? nb_expected : next;
	forget_expected(park);
	rte_spinlock_unlock(&park->lock);
	free(former); /* where it is long, that takes the kernel a while */
	return true;
}
