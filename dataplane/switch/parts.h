/* SPDX-License-Identifier: Apache-2.0
 *
 * What generations (generation.h) are made of and share.  A part is found by its kind and its key, which is all that it
 * is made from; it is made by the first who takes it, and ends with the last who has taken it.  The control thread's.
 *
 * A key may name other parts by their addresses.  Who takes such a part has taken those before, and parts are dropped
 * in the reverse order: so an address in a key is never that of something newer.
 */
#ifndef TAILRACE_SWITCH_PARTS_H
#define TAILRACE_SWITCH_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PARTS_BUCKETS = 1 << 12 };

struct part {
	void *content;	   /* NULL: still to be made */
	struct part *next; /* in its bucket */
	uint32_t hash;
	unsigned kind, holders;
	size_t size; /* of the key */
	char key[];
};

/* All that there are. */
struct parts {
	void (*end)(void *context, unsigned kind, void *content);
	void *context;
	struct part *buckets[PARTS_BUCKETS];
};

/* Those that one generation has taken, in this order. */
struct holding {
	struct parts *parts;
	struct part **list;
	unsigned count, room;
	bool failed; /* there was no memory for one, or for its content */
};

/* Take a part.  Whoever finds it without content makes that.  Returns NULL without memory. */
struct part *holding_take(struct holding *holding, unsigned kind, const void *key, size_t size);

/* The same with a text for a key. */
struct part *holding_take_text(struct holding *holding, unsigned kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Let go of the part that was taken last: it is not needed, or could not be made. */
void holding_untake(struct holding *holding);

/* Let go of all, the last taken first, and be ready for others. */
void holding_drop(struct holding *holding);

#endif
