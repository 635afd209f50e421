/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a JSON document into types, with errors that name the key at fault.  A place is where one is in the
 * document: a chain of keys on the stack, written out only when something is wrong.
 */
#ifndef TAILRACE_COMMON_FIELDS_H
#define TAILRACE_COMMON_FIELDS_H

#include <stdbool.h>
#include <string.h>

#include "common/control.h"

struct place {
	const struct place *up; /* NULL: the document itself */
	const char *key;	/* or, if NULL ... */
	size_t index;		/* ... the place in a list */
};

struct fields {
	struct control_error *error;
};

/* Say what is wrong at a place.  Returns false, so that a check can end with it. */
__attribute__((format(printf, 3, 4))) bool wrong(struct fields *fields, const struct place *at, const char *format,
						 ...);

/* The same text?  Most are told apart by their first letter, and there are many where there are many chains. */
static inline bool text_is(const char *one, const char *other)
{
	return *one == *other && strcmp(one, other) == 0;
}

/* Is this an object with no keys but these (a list that ends with NULL)? */
bool field_keys(struct fields *fields, const struct place *at, json_t *object, const char *const *known);

/*
 * Read the object's field `key`.  One that is missing leaves `*value` alone, which holds the default; with `needed`
 * it is wrong.  Each returns whether all is well.
 */
bool field_text(struct fields *fields, const struct place *at, json_t *object, const char *key, bool needed,
		const char **value);
bool field_number(struct fields *fields, const struct place *at, json_t *object, const char *key, json_int_t least,
		  json_int_t most, json_int_t *value);
bool field_boolean(struct fields *fields, const struct place *at, json_t *object, const char *key, bool *value);

/* Of the words (a list that ends with NULL), the number of the one that stands there. */
bool field_word(struct fields *fields, const struct place *at, json_t *object, const char *key, bool needed,
		const char *const *words, unsigned *value);

/* The field as an object or a list; NULL, and well, when it is missing. */
bool field_object(struct fields *fields, const struct place *at, json_t *object, const char *key, json_t **value);
bool field_list(struct fields *fields, const struct place *at, json_t *object, const char *key, json_t **value);

#endif
