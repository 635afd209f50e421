/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/fields.h"

static size_t write_place(const struct place *at, char *text, size_t size)
{
	size_t used;
	int length;

	if (at == NULL)
		return 0;
	used = write_place(at->up, text, size);
	if (at->key != NULL)
		length = snprintf(text + used, size - used, "%s%s", used > 0 ? "." : "", at->key);
	else
		length = snprintf(text + used, size - used, "[%zu]", at->index);
	return used + length < size ? used + length : size - 1;
}

bool wrong(struct fields *fields, const struct place *at, const char *format, ...)
{
	char *text = fields->error->message;
	const size_t size = sizeof(fields->error->message);
	size_t used = write_place(at, text, size);
	va_list arguments;

	fields->error->code = CONTROL_INVALID_PARAMS;
	if (used > 0 && used + 2 < size) {
		strcpy(text + used, ": ");
		used += 2;
	}
	va_start(arguments, format);
	vsnprintf(text + used, size - used, format, arguments);
	va_end(arguments);
	return false;
}

bool field_keys(struct fields *fields, const struct place *at, json_t *object, const char *const *known)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return wrong(fields, at, "expected an object");
	json_object_foreach (object, key, value) {
		const char *const *name = known;

		while (*name != NULL && !text_is(*name, key))
			name++;
		if (*name == NULL)
			return wrong(fields, &(struct place){.up = at, .key = key}, "no such key");
	}
	return true;
}

bool field_text(struct fields *fields, const struct place *at, json_t *object, const char *key, bool needed,
		const char **value)
{
	json_t *field = json_object_get(object, key);

	if (field == NULL && !needed)
		return true;
	if (field == NULL)
		return wrong(fields, &(struct place){.up = at, .key = key}, "is missing");
	if (!json_is_string(field) || strlen(json_string_value(field)) != json_string_length(field))
		return wrong(fields, &(struct place){.up = at, .key = key}, "expected a text");
	*value = json_string_value(field);
	return true;
}

bool field_number(struct fields *fields, const struct place *at, json_t *object, const char *key, json_int_t least,
		  json_int_t most, json_int_t *value)
{
	json_t *field = json_object_get(object, key);

	if (field == NULL)
		return true;
	if (!json_is_integer(field) || json_integer_value(field) < least || json_integer_value(field) > most)
		return wrong(fields, &(struct place){.up = at, .key = key},
			     "expected a whole number from %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT, least,
			     most);
	*value = json_integer_value(field);
	return true;
}

bool field_boolean(struct fields *fields, const struct place *at, json_t *object, const char *key, bool *value)
{
	json_t *field = json_object_get(object, key);

	if (field == NULL)
		return true;
	if (!json_is_boolean(field))
		return wrong(fields, &(struct place){.up = at, .key = key}, "expected true or false");
	*value = json_is_true(field);
	return true;
}

bool field_word(struct fields *fields, const struct place *at, json_t *object, const char *key, bool needed,
		const char *const *words, unsigned *value)
{
	const char *text = NULL;
	char list[128] = "";

	if (!field_text(fields, at, object, key, needed, &text))
		return false;
	if (text == NULL)
		return true;
	for (unsigned i = 0; words[i] != NULL; i++) {
		size_t used = strlen(list);

		if (text_is(words[i], text)) {
			*value = i;
			return true;
		}
		snprintf(list + used, sizeof(list) - used, "%s'%s'",
			 i == 0		? ""
			 : words[i + 1] ? ", "
					: " or ",
			 words[i]);
	}
	return wrong(fields, &(struct place){.up = at, .key = key}, "'%s': expected %s", text, list);
}

static bool field_of(struct fields *fields, const struct place *at, json_t *object, const char *key, bool list,
		     json_t **value)
{
	json_t *field = json_object_get(object, key);

	if (field != NULL && (list ? !json_is_array(field) : !json_is_object(field)))
		return wrong(fields, &(struct place){.up = at, .key = key}, "expected %s",
			     list ? "a list" : "an object");
	*value = field;
	return true;
}

bool field_object(struct fields *fields, const struct place *at, json_t *object, const char *key, json_t **value)
{
	return field_of(fields, at, object, key, false, value);
}

bool field_list(struct fields *fields, const struct place *at, json_t *object, const char *key, json_t **value)
{
	return field_of(fields, at, object, key, true, value);
}
