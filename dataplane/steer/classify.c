/* SPDX-License-Identifier: Apache-2.0
 *
 * Srinivasan, Suri and Varghese, "Packet classification using tuple space search", SIGCOMM 1999.  A tuple is a mask
 * over the key; its table holds, for each masked key, the first rule that matches it.  Tuples are visited in the order
 * of the best rule that each holds, so a search ends as soon as what it has found stands before all that is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <rte_bitops.h>
#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_prefetch.h>

#include "steer/classify.h"
#include "steer/hash.h"

enum { WORDS = 6, RANGE_PARTS = 32, NO_RANK = UINT32_MAX };

/* One cache line.  Entry 0 belongs to nobody: it is what an empty slot names, and matches no key. */
struct entry {
	uint64_t key[WORDS];
	uint32_t rank; /* the rule's place */
	uint32_t action;
	uint32_t next; /* entry in the same slot; 0: none */
	uint32_t unused;
};

/*
 * Slots are small and many, so that two keys rarely meet in one: a lookup that has to go on to another entry costs a
 * mispredicted branch, which is more than the lookup.
 */
enum { SLOTS_FOR_ENTRY = 8 };

struct tuple {
	uint64_t mask[WORDS];
	uint32_t best; /* the first rule's rank in this tuple */
	uint32_t first_slot;
	uint32_t slot_mask; /* slots, a power of two, less one */
};

struct classifier {
	unsigned nb_tuples;
	uint32_t otherwise;
	bool reads_transport;
	struct entry *entries; /* entries and slots lie behind the tuples, in the same block */
	uint32_t *slots;
	struct tuple tuples[];
};

static uint64_t hash_masked(const uint64_t *key, const uint64_t *mask)
{
	const uint64_t hash = hash_mix((key[0] & mask[0]) ^ HASH_0, (key[1] & mask[1]) ^ HASH_1) ^
			      hash_mix((key[2] & mask[2]) ^ HASH_2, (key[3] & mask[3]) ^ HASH_3) ^
			      hash_mix((key[4] & mask[4]) ^ HASH_4, (key[5] & mask[5]) ^ HASH_5);

	/* The bits in the middle depend on all of the key. */
	return hash >> 24;
}

/* Is the masked key the entry's? */
static bool same_key(const uint64_t *key, const uint64_t *mask, const struct entry *entry)
{
#if defined(__AVX512F__)
	const __m512i masked = _mm512_and_si512(_mm512_maskz_loadu_epi64(0x3f, key),
						_mm512_maskz_loadu_epi64(0x3f, mask));

	return _mm512_mask_cmpneq_epi64_mask(0x3f, masked, _mm512_loadu_si512(entry->key)) == 0;
#else
	uint64_t difference = 0;

	for (unsigned i = 0; i < WORDS; i++)
		difference |= (key[i] & mask[i]) ^ entry->key[i];
	return difference == 0;
#endif
}

/* ------- building ------- */

/* A rule, or a part of it, as a masked key. */
struct part {
	struct headers value, mask;
	uint32_t rank, action;
	uint32_t tuple;
};

struct builder {
	struct part *parts;
	unsigned nb_parts, room;
	uint64_t (*masks)[WORDS]; /* of the tuples */
	uint32_t *best, *count;	  /* and how many parts each has */
	unsigned nb_tuples;
	uint16_t by_mask[2 * CLASSIFY_TUPLES]; /* hashed: the tuple's number + 1 */
};

struct range_part {
	uint16_t value, mask;
};

/* Cut a range of numbers of `bits` bits into the fewest prefixes.  Returns how many; at most 2 * bits - 2. */
static unsigned cut_range(struct match_range range, unsigned bits, struct range_part *parts)
{
	uint32_t first = range.first, end = (uint32_t)range.last + 1;
	const uint32_t all = (1u << bits) - 1;
	unsigned count = 0;

	while (first < end) {
		uint32_t size = first == 0 ? 1u << bits : first & -first;

		while (size > end - first)
			size /= 2;
		parts[count++] = (struct range_part){first, all & ~(size - 1)};
		first += size;
	}
	return count;
}

static void mask_prefix(const struct match_prefix *prefix, uint8_t *value, uint8_t *mask)
{
	for (unsigned bit = 0; bit < prefix->length; bit += 8) {
		uint8_t bits = prefix->length - bit >= 8 ? 0xff : 0xff << (8 - (prefix->length - bit));

		mask[bit / 8] = bits;
		value[bit / 8] = prefix->address[bit / 8] & bits;
	}
}

static bool sound(const struct match *match)
{
	const unsigned fields = match->fields, both = MATCH_SOURCE | MATCH_DESTINATION;

	if ((fields & both) == both && match->source.family != match->destination.family)
		return false;
	if ((fields & MATCH_VLAN) && (match->vlan.first > match->vlan.last || match->vlan.last > 0xfff))
		return false;
	if ((fields & MATCH_INNER_VLAN) &&
	    (match->inner_vlan.first > match->inner_vlan.last || match->inner_vlan.last > 0xfff))
		return false;
	if ((fields & MATCH_SOURCE_PORT) && match->source_port.first > match->source_port.last)
		return false;
	return !(fields & MATCH_DESTINATION_PORT) || match->destination_port.first <= match->destination_port.last;
}

/* What a rule asks for besides its ranges. */
static void mask_fixed(const struct match *match, struct headers *value, struct headers *mask)
{
	if (match->fields & MATCH_ETHERTYPE) {
		value->ethertype = match->ethertype;
		mask->ethertype = 0xffff;
	}
	if (match->fields & MATCH_PROTOCOL) {
		/* Of a frame without IP the protocol is 0, which is a number of IP's too. */
		value->family = HEADERS_IP;
		mask->family = HEADERS_IP;
		value->protocol = match->protocol;
		mask->protocol = 0xff;
	}
	if (match->fields & MATCH_SOURCE) {
		value->family = match->source.family;
		mask->family = 0xff;
		mask_prefix(&match->source, value->source, mask->source);
	}
	if (match->fields & MATCH_DESTINATION) {
		value->family = match->destination.family;
		mask->family = 0xff;
		mask_prefix(&match->destination, value->destination, mask->destination);
	}
	if (match->fields & (MATCH_SOURCE_PORT | MATCH_DESTINATION_PORT)) {
		value->has_ports = 1;
		mask->has_ports = 0xff;
	}
}

static int find_tuple(struct builder *builder, const uint64_t *mask, uint32_t rank)
{
	unsigned at = hash_masked(mask, mask) % RTE_DIM(builder->by_mask);

	for (; builder->by_mask[at] != 0; at = (at + 1) % RTE_DIM(builder->by_mask))
		if (memcmp(builder->masks[builder->by_mask[at] - 1], mask, sizeof(builder->masks[0])) == 0)
			return builder->by_mask[at] - 1;
	if (builder->nb_tuples == CLASSIFY_TUPLES)
		return -E2BIG;
	memcpy(builder->masks[builder->nb_tuples], mask, sizeof(builder->masks[0]));
	builder->best[builder->nb_tuples] = rank; /* rules come in order: the first is the best */
	builder->by_mask[at] = ++builder->nb_tuples;
	return builder->nb_tuples - 1;
}

static int add_part(struct builder *builder, const struct headers *value, const struct headers *mask, uint32_t rank,
		    uint32_t action)
{
	int tuple = find_tuple(builder, mask->key, rank);

	if (tuple < 0)
		return tuple;
	if (builder->nb_parts == CLASSIFY_ENTRIES)
		return -E2BIG;
	if (builder->nb_parts == builder->room) {
		unsigned room = builder->room * 2;
		struct part *parts = realloc(builder->parts, room * sizeof(*parts));

		if (parts == NULL)
			return -ENOMEM;
		builder->parts = parts;
		builder->room = room;
	}
	builder->count[tuple]++;
	builder->parts[builder->nb_parts++] = (struct part){*value, *mask, rank, action, tuple};
	return 0;
}

/* The parts of a range, or one that holds for everything if the rule has none. */
static unsigned cut(const struct match *match, unsigned field, struct match_range range, unsigned bits,
		    struct range_part *parts)
{
	if (match->fields & field)
		return cut_range(range, bits, parts);
	parts[0] = (struct range_part){0, 0};
	return 1;
}

static int add_rule(struct builder *builder, const struct rule *rule, uint32_t rank)
{
	struct range_part vlans[RANGE_PARTS], inner[RANGE_PARTS], sources[RANGE_PARTS], destinations[RANGE_PARTS];
	const struct match *match = &rule->match;
	const unsigned nb_vlans = cut(match, MATCH_VLAN, match->vlan, 12, vlans),
		       nb_inner = cut(match, MATCH_INNER_VLAN, match->inner_vlan, 12, inner),
		       nb_sources = cut(match, MATCH_SOURCE_PORT, match->source_port, 16, sources),
		       nb_destinations = cut(match, MATCH_DESTINATION_PORT, match->destination_port, 16, destinations);
	struct headers value = {0}, mask = {0};
	int rc;

	mask_fixed(match, &value, &mask);
	/* Whether there is a tag is not asked: one with VLAN 0 has a priority and no VLAN (802.1Q, table 9-2). */
	for (unsigned v = 0; v < nb_vlans; v++) {
		value.vlan = vlans[v].value;
		mask.vlan = vlans[v].mask;
		for (unsigned w = 0; w < nb_inner; w++) {
			value.inner_vlan = inner[w].value;
			mask.inner_vlan = inner[w].mask;
			for (unsigned s = 0; s < nb_sources; s++)
				for (unsigned d = 0; d < nb_destinations; d++) {
					value.source_port = sources[s].value;
					mask.source_port = sources[s].mask;
					value.destination_port = destinations[d].value;
					mask.destination_port = destinations[d].mask;
					rc = add_part(builder, &value, &mask, rank, rule->action);
					if (rc != 0)
						return rc;
				}
		}
	}
	return 0;
}

/* Put a part into its tuple's slot, behind those that are there. */
static void place(struct classifier *classifier, const struct part *part, uint32_t number)
{
	const struct tuple *tuple = &classifier->tuples[part->tuple];
	uint32_t *link =
		&classifier->slots[tuple->first_slot + (hash_masked(part->value.key, tuple->mask) & tuple->slot_mask)];
	struct entry *entry = &classifier->entries[number];

	for (; *link != 0; link = &classifier->entries[*link].next)
		if (same_key(part->value.key, tuple->mask, &classifier->entries[*link]))
			return; /* an earlier rule's, which wins */
	*link = number;
	memcpy(entry->key, part->value.key, sizeof(entry->key));
	entry->rank = part->rank;
	entry->action = part->action;
}

static struct classifier *assemble(const struct builder *builder, uint32_t otherwise, bool reads_transport)
{
	const size_t head = RTE_ALIGN_CEIL(sizeof(struct classifier) + builder->nb_tuples * sizeof(struct tuple),
					   sizeof(struct entry));
	const size_t entries = (builder->nb_parts + (size_t)1) * sizeof(struct entry);
	struct classifier *classifier;
	size_t slots = 0, size;

	for (unsigned i = 0; i < builder->nb_tuples; i++)
		slots += rte_align32pow2(SLOTS_FOR_ENTRY * builder->count[i]);
	size = RTE_ALIGN_CEIL(head + entries + slots * sizeof(uint32_t), sizeof(struct entry));
	classifier = aligned_alloc(sizeof(struct entry), size);
	if (classifier == NULL)
		return NULL;
	memset(classifier, 0, size);
	classifier->nb_tuples = builder->nb_tuples;
	classifier->otherwise = otherwise;
	classifier->reads_transport = reads_transport;
	classifier->entries = (struct entry *)((char *)classifier + head);
	classifier->slots = (uint32_t *)((char *)classifier + head + entries);
	classifier->entries[0].rank = NO_RANK;
	/* No masked key has this bit: it is of what the key leaves zero. */
	classifier->entries[0].key[WORDS - 1] = UINT64_C(1) << 63;
	slots = 0;
	for (unsigned i = 0; i < builder->nb_tuples; i++) {
		const uint32_t count = rte_align32pow2(SLOTS_FOR_ENTRY * builder->count[i]);
		struct tuple *tuple = &classifier->tuples[i];

		memcpy(tuple->mask, builder->masks[i], sizeof(tuple->mask));
		tuple->best = builder->best[i];
		tuple->first_slot = (uint32_t)slots;
		tuple->slot_mask = count - 1;
		slots += count;
	}
	for (unsigned i = 0; i < builder->nb_parts; i++)
		place(classifier, &builder->parts[i], i + 1);
	return classifier;
}

int classifier_build(struct classifier **classifier, const struct rule *rules, unsigned nb_rules, uint32_t otherwise,
		     unsigned *culprit)
{
	struct builder *builder = calloc(1, sizeof(*builder));
	const unsigned transport = MATCH_PROTOCOL | MATCH_SOURCE_PORT | MATCH_DESTINATION_PORT;
	bool reads_transport = false;
	int rc = -ENOMEM;

	*culprit = 0;
	if (builder == NULL)
		return -ENOMEM;
	builder->room = nb_rules + 64;
	builder->parts = malloc(builder->room * sizeof(builder->parts[0]));
	builder->masks = malloc(CLASSIFY_TUPLES * sizeof(builder->masks[0]));
	builder->best = malloc(CLASSIFY_TUPLES * sizeof(builder->best[0]));
	builder->count = calloc(CLASSIFY_TUPLES, sizeof(builder->count[0]));
	if (builder->parts == NULL || builder->masks == NULL || builder->best == NULL || builder->count == NULL)
		goto out;
	for (unsigned i = 0; i < nb_rules; i++) {
		*culprit = i;
		rc = sound(&rules[i].match) ? add_rule(builder, &rules[i], i) : -EINVAL;
		if (rc != 0)
			goto out;
		reads_transport |= (rules[i].match.fields & transport) != 0;
	}
	*classifier = assemble(builder, otherwise, reads_transport);
	rc = *classifier != NULL ? 0 : -ENOMEM;
out:
	free(builder->parts);
	free(builder->masks);
	free(builder->best);
	free(builder->count);
	free(builder);
	return rc;
}

void match_mirror(struct match *match)
{
	const struct match other = *match;
	const unsigned addresses = MATCH_SOURCE | MATCH_DESTINATION, ports = MATCH_SOURCE_PORT | MATCH_DESTINATION_PORT;

	match->source = other.destination;
	match->destination = other.source;
	match->source_port = other.destination_port;
	match->destination_port = other.source_port;
	match->fields = other.fields & ~(addresses | ports);
	if (other.fields & MATCH_SOURCE)
		match->fields |= MATCH_DESTINATION;
	if (other.fields & MATCH_DESTINATION)
		match->fields |= MATCH_SOURCE;
	if (other.fields & MATCH_SOURCE_PORT)
		match->fields |= MATCH_DESTINATION_PORT;
	if (other.fields & MATCH_DESTINATION_PORT)
		match->fields |= MATCH_SOURCE_PORT;
}

bool classifier_reads_transport(const struct classifier *classifier)
{
	return classifier->reads_transport;
}

/* ------- searching ------- */

/* The slot has been read, and its first entry asked for. */
static void search_slot(const struct classifier *classifier, const struct tuple *tuple, const uint64_t *key,
			uint32_t number, uint32_t *rank, uint32_t *action)
{
	const struct entry *entry = &classifier->entries[number];
	bool found = same_key(key, tuple->mask, entry);

	while (unlikely(!found && entry->next != 0)) {
		entry = &classifier->entries[entry->next];
		found = same_key(key, tuple->mask, entry);
	}
	found &= entry->rank < *rank;
	*rank = found ? entry->rank : *rank;
	*action = found ? entry->action : *action;
}

void classify(const struct classifier *classifier, const struct headers *headers, unsigned count, uint32_t *actions)
{
	uint32_t ranks[CLASSIFY_BURST], at[CLASSIFY_BURST];

	for (unsigned i = 0; i < count; i++) {
		ranks[i] = NO_RANK;
		actions[i] = classifier->otherwise;
	}
	for (unsigned t = 0; t < classifier->nb_tuples; t++) {
		const struct tuple *tuple = &classifier->tuples[t];
		uint32_t worst = 0;

		for (unsigned i = 0; i < count; i++)
			worst = RTE_MAX(worst, ranks[i]);
		if (worst < tuple->best)
			break;
		/* The misses of a whole burst run beside each other: first those of slots, then those of entries. */
		for (unsigned i = 0; i < count; i++) {
			at[i] = tuple->first_slot + (hash_masked(headers[i].key, tuple->mask) & tuple->slot_mask);
			rte_prefetch0(&classifier->slots[at[i]]);
		}
		for (unsigned i = 0; i < count; i++) {
			at[i] = classifier->slots[at[i]];
			rte_prefetch0(&classifier->entries[at[i]]);
		}
		for (unsigned i = 0; i < count; i++)
			search_slot(classifier, tuple, headers[i].key, at[i], &ranks[i], &actions[i]);
	}
}

uint32_t classify_unread(const struct classifier *classifier)
{
	static const uint64_t nothing[WORDS];
	uint32_t rank = NO_RANK, action = classifier->otherwise;

	for (unsigned t = 0; t < classifier->nb_tuples; t++) {
		const struct tuple *tuple = &classifier->tuples[t];
		const uint32_t slot = tuple->first_slot + (hash_masked(nothing, nothing) & tuple->slot_mask);

		if (memcmp(tuple->mask, nothing, sizeof(nothing)) == 0)
			search_slot(classifier, tuple, nothing, classifier->slots[slot], &rank, &action);
	}
	return action;
}
