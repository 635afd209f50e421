/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for many things that end together.
 */
#ifndef TAILRACE_SWITCH_ARENA_H
#define TAILRACE_SWITCH_ARENA_H

#include <obstack.h>
#include <stddef.h>

struct arena {
	struct obstack memory;
};

void arena_open(struct arena *arena);

/* Zeroed memory for so many things of this size, which lives until arena_close(); without memory the program ends. */
void *arena_take(struct arena *arena, size_t count, size_t size);

void arena_close(struct arena *arena);

#endif
