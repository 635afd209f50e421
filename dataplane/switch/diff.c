/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "switch/diff.h"

static void add(json_t *changes, const char *change, const char *what, const char *name)
{
	json_array_append_new(changes, json_pack("{s:s, s:s, s:s}", "change", change, "what", what, "name", name));
}

static void *skip_absent(json_t *object, void *at, json_t *other)
{
	while (at != NULL && json_object_get(other, json_object_iter_key(at)) == NULL)
		at = json_object_iter_next(object, at);
	return at;
}

/* The first of those in both that stands elsewhere among them; NULL: none. */
static const char *out_of_place(json_t *before, json_t *after)
{
	void *old = skip_absent(before, json_object_iter(before), after);
	void *new = skip_absent(after, json_object_iter(after), before);

	while (new != NULL && strcmp(json_object_iter_key(old), json_object_iter_key(new)) == 0) {
		old = skip_absent(before, json_object_iter_next(before, old), after);
		new = skip_absent(after, json_object_iter_next(after, new), before);
	}
	return new != NULL ? json_object_iter_key(new) : NULL;
}

/* What a patch has left alone is the same object in both, so equality is known at once. */
static void compare(json_t *changes, const char *what, bool in_order, json_t *before, json_t *after)
{
	const char *name, *moved = in_order ? out_of_place(before, after) : NULL;
	json_t *entry;

	if (before == after)
		return;
	json_object_foreach (before, name, entry)
		if (json_object_get(after, name) == NULL)
			add(changes, "remove", what, name);
	json_object_foreach (after, name, entry) {
		json_t *old = json_object_get(before, name);

		if (old == NULL)
			add(changes, "add", what, name);
		else if (!json_equal(old, entry) || (moved != NULL && strcmp(moved, name) == 0))
			add(changes, "change", what, name);
	}
}

static void compare_whole(json_t *changes, const char *what, json_t *before, json_t *after)
{
	if (before == NULL && after != NULL)
		add(changes, "add", what, "");
	else if (before != NULL && after == NULL)
		add(changes, "remove", what, "");
	else if (before != NULL && !json_equal(before, after))
		add(changes, "change", what, "");
}

json_t *config_diff(json_t *before, json_t *after)
{
	static const struct {
		const char *key, *what;
		bool in_order; /* it counts which stands first: of two chains of one priority that one is asked first */
	} sections[] = {{"ports", "port", false},
			{"functions", "function", false},
			{"chains", "chain", true},
			{"bridges", "bridge", false},
			{"mirrors", "mirror", false}};
	json_t *changes = json_array();

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		compare(changes, sections[i].what, sections[i].in_order, json_object_get(before, sections[i].key),
			json_object_get(after, sections[i].key));
	compare_whole(changes, "trace", json_object_get(before, "trace"), json_object_get(after, "trace"));
	compare_whole(changes, "workers", json_object_get(before, "workers"), json_object_get(after, "workers"));
	return changes;
}
