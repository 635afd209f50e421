/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "function.h"
#include "nat_settings.h"

enum { TEXT = 128, BLOCK_LEAST = 64, BLOCK_MOST = 16384, HOST_CONNECTIONS_MOST = 16 << 20 };

/* An address in the machine's order. */
static bool read_address(const char *text, uint32_t *address)
{
	struct in_addr read;

	if (inet_pton(AF_INET, text, &read) != 1)
		return false;
	*address = ntohl(read.s_addr);
	return true;
}

/* 198.51.100.0/28 */
static bool read_prefix(char *text, struct nat_prefix *prefix)
{
	char *slash = strchr(text, '/');
	uint32_t length;

	if (slash == NULL)
		return false;
	*slash = '\0';
	if (function_number(slash + 1, 32, "", &length) != NULL || !read_address(text, &prefix->address))
		return false;
	prefix->mask = UINT32_MAX << (32 - length);
	return (prefix->address & ~prefix->mask) == 0;
}

/* Take each part of a list with commas between them; returns whether all are right. */
static bool read_list(const char *value, bool (*take)(struct nat_settings *settings, char *text), void *settings)
{
	for (;;) {
		const size_t length = strcspn(value, ",");
		char text[TEXT];

		if (length >= sizeof(text))
			return false;
		memcpy(text, value, length);
		text[length] = '\0';
		if (!take(settings, text))
			return false;
		if (value[length] == '\0')
			return true;
		value += length + 1;
	}
}

static bool overlap(const struct nat_prefix *one, const struct nat_prefix *other)
{
	const uint32_t mask = one->mask & other->mask;

	return (one->address & mask) == (other->address & mask);
}

static bool add_prefix(struct nat_prefixes *prefixes, char *text)
{
	struct nat_prefix prefix = {.first = prefixes->addresses};

	if (prefixes->nb == NAT_PREFIXES || !read_prefix(text, &prefix))
		return false;
	for (unsigned i = 0; i < prefixes->nb; i++)
		if (overlap(&prefixes->list[i], &prefix))
			return false;
	prefixes->list[prefixes->nb++] = prefix;
	prefixes->addresses += ~prefix.mask + 1;
	return true;
}

static bool add_pool(struct nat_settings *settings, char *text)
{
	const uint32_t before = settings->pool.addresses;

	return add_prefix(&settings->pool, text) && settings->pool.addresses - before <= NAT_ADDRESSES &&
	       settings->pool.addresses <= NAT_ADDRESSES;
}

static bool add_inside(struct nat_settings *settings, char *text)
{
	return add_prefix(&settings->inside, text);
}

static bool read_port(const char *text, uint16_t *port)
{
	uint32_t number;

	if (text == NULL || function_number(text, UINT16_MAX, "", &number) != NULL)
		return false;
	*port = (uint16_t)number;
	return true;
}

/* tcp:198.51.100.1:80:10.0.0.5:8080 */
static bool add_forward(struct nat_settings *settings, char *text)
{
	struct nat_forward forward;
	char *rest, *protocol = strtok_r(text, ":", &rest), *address = strtok_r(NULL, ":", &rest);
	const char *port = strtok_r(NULL, ":", &rest), *inside = strtok_r(NULL, ":", &rest);
	const char *inside_port = strtok_r(NULL, ":", &rest);

	if (settings->nb_forwards == NAT_FORWARDS || protocol == NULL || address == NULL || inside == NULL)
		return false;
	if (strcmp(protocol, "tcp") != 0 && strcmp(protocol, "udp") != 0)
		return false;
	forward.protocol = strcmp(protocol, "tcp") == 0 ? IPPROTO_TCP : IPPROTO_UDP;
	if (!read_address(address, &forward.address) || !read_address(inside, &forward.inside) ||
	    !read_port(port, &forward.port) || !read_port(inside_port, &forward.inside_port))
		return false;
	for (unsigned i = 0; i < settings->nb_forwards; i++) {
		const struct nat_forward *other = &settings->forwards[i];

		if (other->protocol == forward.protocol &&
		    ((other->address == forward.address && other->port == forward.port) ||
		     (other->inside == forward.inside && other->inside_port == forward.inside_port)))
			return false;
	}
	settings->forwards[settings->nb_forwards++] = forward;
	return true;
}

static const char *take_block(struct nat_settings *settings, const char *value)
{
	static const char expected[] = "ports, a power of two from 64 to 16384";
	const char *wrong = function_number(value, BLOCK_MOST, expected, &settings->block);

	if (wrong == NULL && (settings->block < BLOCK_LEAST || (settings->block & (settings->block - 1)) != 0))
		return expected;
	return wrong;
}

const char *nat_settings_take(struct nat_settings *settings, const char *name, const char *value)
{
	if (strcmp(name, "pool") == 0)
		return read_list(value, add_pool, settings)
			       ? NULL
			       : "prefixes that do not overlap, with commas between them, of 1024 addresses at most";
	if (strcmp(name, "inside") == 0)
		return read_list(value, add_inside, settings)
			       ? NULL
			       : "prefixes that do not overlap, 16 at most, with commas between them";
	if (strcmp(name, "forwards") == 0)
		return read_list(value, add_forward, settings)
			       ? NULL
			       : "tcp|udp:ADDRESS:PORT:INSIDE:PORT, 64 at most, each once, with commas between them";
	if (strcmp(name, "block") == 0)
		return take_block(settings, value);
	if (strcmp(name, "blocks") == 0)
		return function_number(value, NAT_HOST_BLOCKS, "blocks of a host, from 1 to 16", &settings->blocks);
	if (strcmp(name, "host-connections") == 0)
		return function_number(value, HOST_CONNECTIONS_MOST, "connections of a host, from 1 to 16777216",
				       &settings->host_connections);
	if (strcmp(name, "filtering") == 0) {
		settings->filters = strcmp(value, "address-and-port-dependent") == 0;
		return settings->filters || strcmp(value, "endpoint-independent") == 0
			       ? NULL
			       : "endpoint-independent or address-and-port-dependent";
	}
	return "pool, inside, forwards, block, blocks, host-connections, filtering, connections, or the name of a "
	       "time-out";
}

const char *nat_settings_wrong(const struct nat_settings *settings)
{
	if (settings->pool.nb == 0 || settings->inside.nb == 0)
		return "expected --set pool=PREFIX and --set inside=PREFIX";
	for (unsigned i = 0; i < settings->pool.nb; i++)
		for (unsigned j = 0; j < settings->inside.nb; j++)
			if (overlap(&settings->pool.list[i], &settings->inside.list[j]))
				return "an address of the pool is inside; expected each on one side";
	for (unsigned i = 0; i < settings->nb_forwards; i++)
		if (nat_prefixes_find(&settings->pool, settings->forwards[i].address) < 0 ||
		    nat_prefixes_find(&settings->inside, settings->forwards[i].inside) < 0)
			return "a forward is not from an address of the pool to one inside";
	return NULL;
}
