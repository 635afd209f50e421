/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_hash_crc.h>

#include "switch/parts.h"

static struct part *find(const struct parts *parts, uint32_t hash, unsigned kind, const void *key, size_t size)
{
	struct part *part = parts->buckets[hash % PARTS_BUCKETS];

	while (part != NULL &&
	       (part->hash != hash || part->kind != kind || part->size != size || memcmp(part->key, key, size) != 0))
		part = part->next;
	return part;
}

static struct part *add(struct parts *parts, uint32_t hash, unsigned kind, const void *key, size_t size)
{
	struct part *part = malloc(sizeof(*part) + size);

	if (part == NULL)
		return NULL;
	*part = (struct part){.next = parts->buckets[hash % PARTS_BUCKETS], .hash = hash, .kind = kind, .size = size};
	memcpy(part->key, key, size);
	parts->buckets[hash % PARTS_BUCKETS] = part;
	return part;
}

static bool make_room(struct holding *holding)
{
	const unsigned room = 2 * holding->room + 64;
	struct part **list;

	if (holding->count < holding->room)
		return true;
	list = realloc(holding->list, room * sizeof(list[0]));
	if (list == NULL)
		return false;
	holding->list = list;
	holding->room = room;
	return true;
}

struct part *holding_take(struct holding *holding, unsigned kind, const void *key, size_t size)
{
	const uint32_t hash = rte_hash_crc(key, (uint32_t)size, kind);
	struct part *part = find(holding->parts, hash, kind, key, size);

	if (make_room(holding) && part == NULL)
		part = add(holding->parts, hash, kind, key, size);
	if (part == NULL || holding->count == holding->room) {
		holding->failed = true;
		return NULL;
	}
	part->holders++;
	holding->list[holding->count++] = part;
	return part;
}

struct part *holding_take_text(struct holding *holding, unsigned kind, const char *format, ...)
{
	struct part *part;
	va_list values;
	char *key;
	int size;

	va_start(values, format);
	size = vasprintf(&key, format, values);
	va_end(values);
	if (size < 0) {
		holding->failed = true;
		return NULL;
	}
	part = holding_take(holding, kind, key, (size_t)size);
	free(key);
	return part;
}

static void let_go(struct parts *parts, struct part *part)
{
	struct part **link = &parts->buckets[part->hash % PARTS_BUCKETS];

	if (--part->holders > 0)
		return;
	while (*link != part)
		link = &(*link)->next;
	*link = part->next;
	if (part->content != NULL)
		parts->end(parts->context, part->kind, part->content);
	free(part);
}

void holding_untake(struct holding *holding)
{
	let_go(holding->parts, holding->list[--holding->count]);
}

void holding_drop(struct holding *holding)
{
	while (holding->count > 0)
		holding_untake(holding);
	free(holding->list);
	*holding = (struct holding){.parts = holding->parts};
}
