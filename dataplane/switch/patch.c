/* SPDX-License-Identifier: Apache-2.0 */
#include "switch/patch.h"

/* RFC 7386, section 2; the depth is bounded by the JSON parser's limit. */
json_t *patch_merge(json_t *document, json_t *patch)
{
	json_t *merged, *value;
	const char *key;

	if (!json_is_object(patch))
		return json_incref(patch);
	merged = json_is_object(document) ? json_copy(document) : json_object();
	if (merged == NULL)
		return NULL;
	json_object_foreach (patch, key, value) {
		if (json_is_null(value)) {
			json_object_del(merged, key);
			continue;
		}
		/* A key that stays keeps its place, which is what orders chains of one priority. */
		if (json_object_set_new(merged, key, patch_merge(json_object_get(merged, key), value)) != 0) {
			json_decref(merged);
			return NULL;
		}
	}
	return merged;
}
