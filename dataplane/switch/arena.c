/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "switch/arena.h"

#define obstack_chunk_alloc malloc
#define obstack_chunk_free  free

void arena_open(struct arena *arena)
{
	obstack_init(&arena->memory);
}

/* The macro aligns an address by adding it to a null pointer, which is what it means to do. */
__attribute__((no_sanitize("pointer-overflow"))) void *arena_take(struct arena *arena, size_t count, size_t size)
{
	void *memory = obstack_alloc(&arena->memory, count * size + 1); /* what is empty has a place of its own too */

	memset(memory, 0, count * size);
	return memory;
}

void arena_close(struct arena *arena)
{
	obstack_free(&arena->memory, NULL);
}
