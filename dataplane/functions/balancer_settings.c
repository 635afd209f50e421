/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "balancer_settings.h"
#include "common/fields.h"
#include "steer/hash.h"

enum {
	MILLISECONDS_LEAST = 100,
	MILLISECONDS_MOST = 3600000,
	IN_A_ROW = 10,
	INTERVAL = 2000,
	TIMEOUT = 1000,
};

/* ------- addresses ------- */

static bool same(const struct ip_address *one, const struct ip_address *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

static bool field_address(struct fields *fields, const struct place *at, json_t *object, struct ip_address *address)
{
	const char *text;

	if (!field_text(fields, at, object, "address", true, &text))
		return false;
	if (!ip_address_read(text, address))
		return wrong(fields, &(struct place){.up = at, .key = "address"},
			     "expected an IPv4 or IPv6 address, not '%s'", text);
	return true;
}

/* One of each IP version at most. */
static bool field_addresses(struct fields *fields, json_t *document, const char *key, struct ip_address addresses[2])
{
	const struct place at = {.key = key};
	json_t *list, *each;
	size_t i;

	if (!field_list(fields, NULL, document, key, &list))
		return false;
	json_array_foreach (list, i, each) {
		struct ip_address address;

		if (!json_is_string(each) || !ip_address_read(json_string_value(each), &address))
			return wrong(fields, &(struct place){.up = &at, .index = i},
				     "expected an IPv4 or IPv6 address");
		if (addresses[ip_version(address.family)].family != HEADERS_OTHER)
			return wrong(fields, &at, "expected one address of each IP version");
		addresses[ip_version(address.family)] = address;
	}
	return true;
}

/* ------- services ------- */

static bool field_u32(struct fields *fields, const struct place *at, json_t *object, const char *key, uint32_t least,
		      uint32_t most, uint32_t *value)
{
	json_int_t number = *value;

	if (!field_number(fields, at, object, key, least, most, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

static bool field_name(struct fields *fields, const struct place *at, json_t *object, char *name)
{
	const char *text;

	if (!field_text(fields, at, object, "name", true, &text))
		return false;
	if (strlen(text) >= BALANCER_NAME)
		return wrong(fields, at, "expected a name of less than %d bytes", BALANCER_NAME);
	strcpy(name, text);
	return true;
}

static bool field_port(struct fields *fields, const struct place *at, json_t *object, uint16_t *port)
{
	uint32_t number = 0;

	if (!field_u32(fields, at, object, "port", 1, UINT16_MAX, &number))
		return false;
	if (number == 0)
		return wrong(fields, at, "lacks 'port'");
	*port = (uint16_t)number;
	return true;
}

static bool read_health(struct fields *fields, const struct place *at, json_t *object, struct balancer_service *service)
{
	static const char *const known[] = {"by", "interval", "timeout", "rise", "fall", NULL};
	static const char *const kinds[] = {
		[BALANCER_TCP] = "tcp", [BALANCER_ECHO] = "echo", [BALANCER_NEIGHBOUR] = "neighbour", NULL};
	unsigned kind = service->protocol == IPPROTO_TCP ? BALANCER_TCP : BALANCER_ECHO;
	uint32_t rise = 2, fall = 3;

	service->interval = INTERVAL;
	service->timeout = TIMEOUT;
	if (object != NULL &&
	    (!field_keys(fields, at, object, known) || !field_word(fields, at, object, "by", false, kinds, &kind) ||
	     !field_u32(fields, at, object, "interval", MILLISECONDS_LEAST, MILLISECONDS_MOST, &service->interval) ||
	     !field_u32(fields, at, object, "timeout", MILLISECONDS_LEAST, MILLISECONDS_MOST, &service->timeout) ||
	     !field_u32(fields, at, object, "rise", 1, IN_A_ROW, &rise) ||
	     !field_u32(fields, at, object, "fall", 1, IN_A_ROW, &fall)))
		return false;
	if (service->timeout > service->interval)
		return wrong(fields, at, "the timeout is longer than the interval");
	service->probe = (uint8_t)kind;
	service->rise = (uint8_t)rise;
	service->fall = (uint8_t)fall;
	return true;
}

static bool read_end(struct fields *fields, const struct place *at, json_t *object,
		     const struct balancer_settings *settings, struct balancer_settings_end *found)
{
	static const char *const known[] = {"name", "address", "port", "weight", "drain", NULL};
	const struct balancer_service *service = &settings->services[found->service];
	struct balancer_end *end = &found->end;
	uint32_t weight = 1;

	if (!field_keys(fields, at, object, known) || !field_name(fields, at, object, end->name) ||
	    !field_address(fields, at, object, &end->address) || !field_port(fields, at, object, &end->port) ||
	    !field_u32(fields, at, object, "weight", 1, MAGLEV_WEIGHT, &weight) ||
	    !field_boolean(fields, at, object, "drain", &end->drain))
		return false;
	end->weight = (uint16_t)weight;
	if (end->address.family != service->address.family)
		return wrong(fields, at, "its address is not of the IP version of its service");
	if (settings->own.station.addresses[ip_version(end->address.family)].family == HEADERS_OTHER)
		return wrong(fields, at, "there is no source of the IP version of its address");
	if (service->direct && end->port != service->port)
		return wrong(fields, at, "expected the port of its service in mode direct");
	for (unsigned i = 0; i < settings->nb_ends; i++) {
		const struct balancer_settings_end *other = &settings->ends[i];
		const struct balancer_service *theirs = &settings->services[other->service];
		const bool rivals = other->service == found->service ||
				    (!theirs->direct && !service->direct && theirs->protocol == service->protocol);

		if (rivals && other->end.port == end->port && same(&other->end.address, &end->address))
			return wrong(fields, at, "its address and port are those of '%s' of service '%s'",
				     other->end.name, theirs->name);
	}
	return true;
}

static bool read_ends(struct fields *fields, const struct place *at, json_t *list, struct balancer_settings *settings)
{
	const struct place ends = {.up = at, .key = "back_ends"};
	json_t *each;
	size_t i;

	if (json_array_size(list) > MAGLEV_ENDS)
		return wrong(fields, &ends, "expected %d at most", MAGLEV_ENDS);
	json_array_foreach (list, i, each) {
		struct balancer_settings_end *end = &settings->ends[settings->nb_ends];

		if (settings->nb_ends == BALANCER_ENDS)
			return wrong(fields, &ends, "expected %d of all services at most", BALANCER_ENDS);
		end->service = settings->nb_services;
		if (!read_end(fields, &(struct place){.up = &ends, .index = i}, each, settings, end))
			return false;
		settings->nb_ends++;
	}
	return true;
}

static bool read_service(struct fields *fields, const struct place *at, json_t *object,
			 struct balancer_settings *settings)
{
	static const char *const known[] = {"name", "address", "port", "protocol", "mode", "health", "back_ends", NULL};
	static const char *const protocols[] = {"tcp", "udp", NULL}, *const modes[] = {"rewrite", "direct", NULL};
	struct balancer_service *service = &settings->services[settings->nb_services];
	const struct place health_at = {.up = at, .key = "health"};
	unsigned protocol = 0, mode = 0;
	json_t *health, *ends;

	if (!field_keys(fields, at, object, known) || !field_name(fields, at, object, service->name) ||
	    !field_address(fields, at, object, &service->address) || !field_port(fields, at, object, &service->port) ||
	    !field_word(fields, at, object, "protocol", false, protocols, &protocol) ||
	    !field_word(fields, at, object, "mode", false, modes, &mode) ||
	    !field_object(fields, at, object, "health", &health) || !field_list(fields, at, object, "back_ends", &ends))
		return false;
	service->protocol = protocol == 0 ? IPPROTO_TCP : IPPROTO_UDP;
	service->direct = mode == 1;
	service->used = true;
	for (unsigned i = 0; i < settings->nb_services; i++)
		if (settings->services[i].port == service->port &&
		    settings->services[i].protocol == service->protocol &&
		    same(&settings->services[i].address, &service->address))
			return wrong(fields, at, "its address and port are those of service '%s'",
				     settings->services[i].name);
	return read_health(fields, &health_at, health, service) && read_ends(fields, at, ends, settings);
}

/* An address is of one kind: who sends to it or from it is known by it. */
static bool check_addresses(struct fields *fields, const struct balancer_settings *settings)
{
	for (unsigned i = 0; i < settings->nb_services; i++) {
		const struct ip_address *virtual = &settings->services[i].address;

		if (same(virtual, &settings->own.station.addresses[ip_version(virtual->family)]))
			return wrong(fields, NULL, "the address of service '%s' is the balancer's own",
				     settings->services[i].name);
		for (unsigned j = 0; j < settings->nb_ends; j++)
			if (same(virtual, &settings->ends[j].end.address))
				return wrong(fields, NULL, "the address of service '%s' is that of back end '%s'",
					     settings->services[i].name, settings->ends[j].end.name);
	}
	for (unsigned j = 0; j < settings->nb_ends; j++) {
		const struct ip_address *address = &settings->ends[j].end.address;

		if (same(address, &settings->own.station.addresses[ip_version(address->family)]))
			return wrong(fields, NULL, "the address of back end '%s' is the balancer's own",
				     settings->ends[j].end.name);
	}
	return true;
}

static bool read_document(struct fields *fields, json_t *document, struct balancer_settings *settings)
{
	static const char *const known[] = {"source", "gateway", "secret", "services", NULL};
	const struct place services_at = {.key = "services"};
	json_t *services, *each;
	const char *secret = NULL;
	size_t i;

	if (!field_keys(fields, NULL, document, known) ||
	    !field_addresses(fields, document, "source", settings->own.station.addresses) ||
	    !field_addresses(fields, document, "gateway", settings->own.gateways) ||
	    !field_text(fields, NULL, document, "secret", false, &secret) ||
	    !field_list(fields, NULL, document, "services", &services))
		return false;
	station_make_mac(&settings->own.station);
	settings->has_secret = secret != NULL;
	for (size_t at = 0; secret != NULL && secret[at] != '\0'; at++)
		for (unsigned j = 0; j < 2; j++)
			settings->own.secret[j] = hash_mix(settings->own.secret[j] ^ (uint8_t)secret[at] ^ HASH_4,
							   (at + 1) ^ (j == 0 ? HASH_0 : HASH_5));
	if (json_array_size(services) > BALANCER_SERVICES)
		return wrong(fields, &services_at, "expected %d at most", BALANCER_SERVICES);
	json_array_foreach (services, i, each) {
		if (!read_service(fields, &(struct place){.up = &services_at, .index = i}, each, settings))
			return false;
		settings->nb_services++;
	}
	return check_addresses(fields, settings);
}

struct balancer_settings *balancer_settings_read(json_t *params, struct control_error *error)
{
	struct fields fields = {.error = error};
	struct balancer_settings *settings = aligned_alloc(RTE_CACHE_LINE_SIZE,
							   RTE_ALIGN_CEIL(sizeof(*settings), RTE_CACHE_LINE_SIZE));

	if (settings == NULL) {
		control_fail(error, CONTROL_FAILED, "no memory for its settings");
		return NULL;
	}
	memset(settings, 0, sizeof(*settings));
	if (read_document(&fields, params, settings))
		return settings;
	free(settings);
	return NULL;
}
