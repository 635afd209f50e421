/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steer/matches.h"

/* A number, or a list of the first and the last. */
static bool read_range(struct fields *fields, const struct place *up, const char *key, json_t *value, unsigned most,
		       struct match_range *range)
{
	const struct place at = {.up = up, .key = key};
	json_t *first = value, *last = value;

	if (json_is_array(value) && json_array_size(value) == 2) {
		first = json_array_get(value, 0);
		last = json_array_get(value, 1);
	}
	if (!json_is_integer(first) || !json_is_integer(last) || json_integer_value(first) < 0 ||
	    json_integer_value(last) > most)
		return wrong(fields, &at, "expected a number from 0 to %u or [first, last]", most);
	if (json_integer_value(first) > json_integer_value(last))
		return wrong(fields, &at, "the range ends before it begins");
	*range = (struct match_range){json_integer_value(first), json_integer_value(last)};
	return true;
}

static bool read_number(struct fields *fields, const struct place *up, const char *key, json_t *value, unsigned most,
			unsigned *number)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most)
		return wrong(fields, &(struct place){.up = up, .key = key}, "expected a number from 0 to %u", most);
	*number = json_integer_value(value);
	return true;
}

static bool read_prefix(struct fields *fields, const struct place *up, const char *key, json_t *value,
			struct match_prefix *prefix)
{
	const char *text = json_string_value(value), *slash = text ? strchr(text, '/') : NULL;
	char address[INET6_ADDRSTRLEN];
	const size_t length = slash ? (size_t)(slash - text) : text ? strlen(text) : 0;
	unsigned bits;
	char *end;
	long stated;

	if (text == NULL || length >= sizeof(address))
		goto refuse;
	memcpy(address, text, length);
	address[length] = '\0';
	if (inet_pton(AF_INET, address, prefix->address) == 1)
		prefix->family = HEADERS_IPV4;
	else if (inet_pton(AF_INET6, address, prefix->address) == 1)
		prefix->family = HEADERS_IPV6;
	else
		goto refuse;
	bits = prefix->family == HEADERS_IPV4 ? 32 : 128;
	prefix->length = bits;
	if (slash != NULL) {
		stated = strtol(slash + 1, &end, 10);
		if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || stated > bits)
			goto refuse;
		prefix->length = stated;
	}
	return true;
refuse:
	return wrong(fields, &(struct place){.up = up, .key = key},
		     "expected an address or a prefix such as 10.0.0.0/8 or 2001:db8::/32");
}

bool match_read(struct fields *fields, const struct place *at, json_t *object, struct match *match)
{
	const char *key;
	json_t *value;
	unsigned number = 0;

	*match = (struct match){0};
	if (!json_is_object(object))
		return wrong(fields, at, "expected an object");
	json_object_foreach (object, key, value) {
		bool good = false;

		if (text_is(key, "vlan")) {
			match->fields |= MATCH_VLAN;
			good = read_range(fields, at, key, value, 4095, &match->vlan);
		} else if (text_is(key, "inner_vlan")) {
			match->fields |= MATCH_INNER_VLAN;
			good = read_range(fields, at, key, value, 4095, &match->inner_vlan);
		} else if (text_is(key, "ethertype")) {
			match->fields |= MATCH_ETHERTYPE;
			good = read_number(fields, at, key, value, UINT16_MAX, &number);
			match->ethertype = good ? number : 0;
		} else if (text_is(key, "source")) {
			match->fields |= MATCH_SOURCE;
			good = read_prefix(fields, at, key, value, &match->source);
		} else if (text_is(key, "destination")) {
			match->fields |= MATCH_DESTINATION;
			good = read_prefix(fields, at, key, value, &match->destination);
		} else if (text_is(key, "protocol")) {
			match->fields |= MATCH_PROTOCOL;
			good = read_number(fields, at, key, value, UINT8_MAX, &number);
			match->protocol = good ? number : 0;
		} else if (text_is(key, "source_port")) {
			match->fields |= MATCH_SOURCE_PORT;
			good = read_range(fields, at, key, value, UINT16_MAX, &match->source_port);
		} else if (text_is(key, "destination_port")) {
			match->fields |= MATCH_DESTINATION_PORT;
			good = read_range(fields, at, key, value, UINT16_MAX, &match->destination_port);
		} else {
			return wrong(fields, &(struct place){.up = at, .key = key}, "no such key");
		}
		if (!good)
			return false;
	}
	if ((match->fields & (MATCH_SOURCE | MATCH_DESTINATION)) == (MATCH_SOURCE | MATCH_DESTINATION) &&
	    match->source.family != match->destination.family)
		return wrong(fields, at, "source and destination are of two families, so no frame has both");
	return true;
}
