/* SPDX-License-Identifier: Apache-2.0
 *
 * Things by name: a hash table that keeps the names' addresses, not the names.  One thread at a time.
 */
#ifndef TAILRACE_COMMON_NAMES_H
#define TAILRACE_COMMON_NAMES_H

#include <stdint.h>

struct names_entry {
	const char *name; /* NULL: a free slot */
	uint32_t hash;
	void *value;
};

struct names {
	unsigned count, size; /* size: slots, a power of two or 0 */
	struct names_entry *entries;
};

/* The name must live as long as it stands here.  Returns 0, -EEXIST, or -ENOMEM. */
int names_add(struct names *names, const char *name, void *value);

/* What stands under the name, or NULL. */
void *names_find(const struct names *names, const char *name);

/* Forget the name, if it is there. */
void names_remove(struct names *names, const char *name);

/* Forget all. */
void names_clear(struct names *names);

#endif
