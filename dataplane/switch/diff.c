/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "switch/diff.h"

static void add(json_t *changes, const char *change, const char *what, const char *name)
{
	json_array_append_new(changes, json_pack("{s:s, s:s, s:s}", "change", change, "what", what, "name", name));
}

/* What a patch has left alone is the same object in both, so equality is known at once. */
static void compare(json_t *changes, const char *what, json_t *before, json_t *after)
{
	const char *name;
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
		else if (!json_equal(old, entry))
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
	} sections[] = {{"ports", "port"},
			{"functions", "function"},
			{"chains", "chain"},
			{"bridges", "bridge"},
			{"mirrors", "mirror"}};
	json_t *changes = json_array();

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		compare(changes, sections[i].what, json_object_get(before, sections[i].key),
			json_object_get(after, sections[i].key));
	compare_whole(changes, "trace", json_object_get(before, "trace"), json_object_get(after, "trace"));
	compare_whole(changes, "workers", json_object_get(before, "workers"), json_object_get(after, "workers"));
	return changes;
}
