/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

enum { NAMES_SIZE = 16 };

/* FNV-1a: names are short, and who chooses them is the operator. */
static uint32_t hash_of(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name != '\0'; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash ^ hash >> 15;
}

/* The slot of the name, or the free slot where it would go; there is always a free one. */
static struct names_entry *slot_of(const struct names *names, const char *name, uint32_t hash)
{
	unsigned at = hash & (names->size - 1);

	while (names->entries[at].name != NULL &&
	       (names->entries[at].hash != hash || strcmp(names->entries[at].name, name) != 0))
		at = (at + 1) & (names->size - 1);
	return &names->entries[at];
}

static int grow(struct names *names)
{
	struct names larger = {.count = names->count, .size = names->size ? names->size * 2 : NAMES_SIZE};

	larger.entries = calloc(larger.size, sizeof(larger.entries[0]));
	if (larger.entries == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < names->size; i++)
		if (names->entries[i].name != NULL)
			*slot_of(&larger, names->entries[i].name, names->entries[i].hash) = names->entries[i];
	free(names->entries);
	*names = larger;
	return 0;
}

int names_add(struct names *names, const char *name, void *value)
{
	const uint32_t hash = hash_of(name);
	struct names_entry *slot;

	if (names->count >= names->size / 2 && grow(names) != 0)
		return -ENOMEM;
	slot = slot_of(names, name, hash);
	if (slot->name != NULL)
		return -EEXIST;
	*slot = (struct names_entry){name, hash, value};
	names->count++;
	return 0;
}

void *names_find(const struct names *names, const char *name)
{
	return names->size > 0 ? slot_of(names, name, hash_of(name))->value : NULL;
}

void names_remove(struct names *names, const char *name)
{
	const unsigned mask = names->size - 1;
	struct names_entry *slot;
	unsigned hole;

	if (names->size == 0)
		return;
	slot = slot_of(names, name, hash_of(name));
	if (slot->name == NULL)
		return;
	names->count--;
	/* Those behind the hole that a search would no longer reach move into it. */
	hole = slot - names->entries;
	for (unsigned at = (hole + 1) & mask; names->entries[at].name != NULL; at = (at + 1) & mask)
		if (((at - names->entries[at].hash) & mask) >= ((at - hole) & mask)) {
			names->entries[hole] = names->entries[at];
			hole = at;
		}
	names->entries[hole] = (struct names_entry){0};
}

void names_clear(struct names *names)
{
	free(names->entries);
	*names = (struct names){0};
}
