/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "page.h"

enum { PAGE_LINE = 64, PAGE_SCHEMA = PAGE_LINE };

struct page_header {
	char magic[8];
	uint32_t version, schema_length, slots_offset, slot_size, slots, used;
};

struct page_slot {
	uint32_t kind, generation;
	char name[PAGE_NAME];
	uint64_t fields[];
};

struct page {
	struct page_header *header;
	size_t size;
	uint32_t first_free; /* no slot before this one is free */
	char path[256];
};

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

static char *schema_text(const struct page_kind *kinds, unsigned nb_kinds)
{
	json_t *schema = json_object(), *numbers = json_object();
	char *text;

	for (unsigned kind = 0; kind < nb_kinds; kind++) {
		json_t *fields = json_array();

		for (unsigned i = 0; i < kinds[kind].nb_fields; i++)
			json_array_append_new(fields,
					      kinds[kind].fields[i] ? json_string(kinds[kind].fields[i]) : json_null());
		json_object_set_new(schema, kinds[kind].name, fields);
		json_object_set_new(numbers, kinds[kind].name, json_integer(kind + 1));
	}
	json_object_set_new(schema, "kinds", numbers);
	text = json_dumps(schema, JSON_COMPACT);
	json_decref(schema);
	return text;
}

struct page *page_create(const char *path, const struct page_kind *kinds, unsigned nb_kinds, unsigned slots)
{
	char *schema = schema_text(kinds, nb_kinds);
	struct page *page = calloc(1, sizeof(*page));
	struct page_header *header;
	char temporary[280];
	size_t fields = 0;
	int fd = -1;

	if (schema == NULL || page == NULL)
		goto fail;
	if (strlen(path) >= sizeof(page->path)) {
		errno = ENAMETOOLONG;
		goto fail;
	}
	strcpy(page->path, path);
	for (unsigned kind = 0; kind < nb_kinds; kind++)
		if (kinds[kind].nb_fields > fields)
			fields = kinds[kind].nb_fields;

	size_t slot_size = round_up(sizeof(struct page_slot) + fields * sizeof(uint64_t), PAGE_LINE);
	size_t slots_offset = round_up(PAGE_SCHEMA + strlen(schema) + 1, 4096);

	page->size = slots_offset + slot_size * slots;
	/* A reader opens a page that is whole or none: it gets its name when it is ready. */
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || ftruncate(fd, page->size) != 0)
		goto fail;
	header = mmap(NULL, page->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		goto fail;
	*header = (struct page_header){
		.magic = "TAILRACE",
		.version = PAGE_VERSION,
		.schema_length = strlen(schema),
		.slots_offset = slots_offset,
		.slot_size = slot_size,
		.slots = slots,
	};
	strcpy((char *)header + PAGE_SCHEMA, schema);
	page->header = header;
	if (rename(temporary, path) != 0) {
		munmap(header, page->size);
		goto fail;
	}
	close(fd);
	free(schema);
	return page;

fail:
	log_error("counter page %s: %s", path, strerror(errno));
	if (fd >= 0) {
		close(fd);
		unlink(temporary);
	}
	free(schema);
	free(page);
	return NULL;
}

static struct page_slot *slot_at(const struct page *page, uint32_t i)
{
	return (struct page_slot *)((char *)page->header + page->header->slots_offset +
				    (size_t)page->header->slot_size * i);
}

uint64_t *page_slot_open(struct page *page, unsigned kind, const char *name)
{
	for (uint32_t i = page->first_free; i < page->header->slots; i++) {
		struct page_slot *slot = slot_at(page, i);

		if (slot->kind != 0)
			continue;
		memset(slot->fields, 0, page->header->slot_size - sizeof(*slot));
		slot->generation++;
		snprintf(slot->name, sizeof(slot->name), "%s", name);
		__atomic_store_n(&slot->kind, kind + 1, __ATOMIC_RELEASE);
		page->first_free = i + 1;
		if (page->header->used < i + 1)
			__atomic_store_n(&page->header->used, i + 1, __ATOMIC_RELEASE);
		return slot->fields;
	}
	return NULL;
}

void page_slot_close(struct page *page, uint64_t *fields)
{
	struct page_slot *slot;
	uint32_t i;

	if (fields == NULL)
		return;
	slot = (struct page_slot *)((char *)fields - sizeof(struct page_slot));
	__atomic_store_n(&slot->kind, 0, __ATOMIC_RELEASE);
	i = ((char *)slot - (char *)slot_at(page, 0)) / page->header->slot_size;
	if (i < page->first_free)
		page->first_free = i;
}

void page_close(struct page *page)
{
	if (page == NULL)
		return;
	munmap(page->header, page->size);
	unlink(page->path);
	free(page);
}
