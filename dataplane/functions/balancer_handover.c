/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/in.h>

#include "balancer_handover.h"
#include "balancer_pass.h"
#include "common/log.h"
#include "function.h"
#include "steer/pin.h"

static void fill(const struct connections *flows, const struct connection *flow, struct handover_record *record)
{
	const struct balancer_lane *lane = container_of(flows, struct balancer_lane, flows);
	const struct balancer_end *end = &lane->set->ends[flow->mark % BALANCER_END_NUMBERS];
	const uint64_t mac = end->mac;

	memcpy(record->end, end->address.bytes, sizeof(record->end));
	record->end_port = end->port;
	record->has_mac = balancer_end_is_up(end) && mac != 0;
	if (record->has_mac)
		memcpy(record->mac, &mac, sizeof(record->mac));
}

/* ------- the control thread ------- */

/* The back end of a record among those of the set; 0: it has none. */
static uint16_t number_of(const struct balancer_set *set, const struct handover_record *record)
{
	const struct balancer_table *table = atomic_load(&set->table);
	struct headers headers;
	const uint8_t *address;
	uint16_t port, service;

	memcpy(headers.key, record->key, sizeof(record->key));
	address = record->opener ? headers.source : headers.destination;
	port = record->opener ? headers.source_port : headers.destination_port;
	service = balancer_table_service(set, table, address, headers.family, port, headers.protocol);
	if (service == 0 || headers.vlan != 0)
		return 0;
	/* In mode rewrite both directions come through here. */
	if (record->state == CONNECTION_one_way && headers.protocol == IPPROTO_TCP && !set->services[service].direct)
		return 0;
	return balancer_set_end(set, service, headers.family, record->end, record->end_port);
}

static void prepare(struct handover *handover, uint32_t count)
{
	struct balancer *balancer = &the_balancer;
	struct balancer_set *set = &balancer->set;
	bool changed = false;

	pthread_mutex_lock(&set->lock);
	balancer_health_listen(balancer);
	for (uint32_t i = 0; i < count; i++) {
		struct handover_record *record = &handover->batch[i];

		record->end_number = handover_holds(handover, record) ? number_of(set, record) : 0;
		if (record->end_number != 0 && record->has_mac)
			changed |= balancer_health_vouch(balancer, &set->ends[record->end_number], record->mac, 0);
	}
	if (changed && balancer_set_publish(set) != 0)
		log_error("no memory for its tables");
	pthread_mutex_unlock(&set->lock);
}

/* What is known of a back end: which one it is, and how it is. */
struct told_end {
	uint8_t service[16], end[16];
	uint16_t service_port, end_port;
	uint8_t family, protocol;
	uint8_t mac[6];
	uint8_t up, good, bad, unused;
};
static_assert(sizeof(struct told_end) == 48 && sizeof(struct told_end) * BALANCER_ENDS <= HANDOVER_TOLD,
	      "all are told");

static uint32_t tell(struct handover *handover, uint8_t *told, uint32_t most)
{
	struct balancer *balancer = &the_balancer;
	struct balancer_set *set = &balancer->set;
	uint32_t length = 0;

	pthread_mutex_lock(&set->lock);
	for (unsigned i = 0; i < set->nb_used && length + sizeof(struct told_end) <= most; i++) {
		const struct balancer_end *end = &set->ends[set->used[i]];
		const struct balancer_service *service = &set->services[end->service];
		struct told_end one = {.service_port = service->port,
				       .end_port = end->port,
				       .family = end->address.family,
				       .protocol = service->protocol,
				       .up = balancer_end_is_up(end),
				       .good = end->health.good,
				       .bad = end->health.bad};
		const uint64_t mac = end->mac;

		if (!end->health.known)
			continue;
		memcpy(one.service, service->address.bytes, sizeof(one.service));
		memcpy(one.end, end->address.bytes, sizeof(one.end));
		memcpy(one.mac, &mac, sizeof(one.mac));
		memcpy(told + length, &one, sizeof(one));
		length += (uint32_t)sizeof(one);
	}
	pthread_mutex_unlock(&set->lock);
	return length;
}

static bool hear_one(struct balancer *balancer, const struct told_end *told)
{
	struct balancer_set *set = &balancer->set;
	uint16_t service, number;

	if (told->family > HEADERS_IPV6 || told->up > 1)
		return false;
	service = balancer_table_service(set, atomic_load(&set->table), told->service, told->family, told->service_port,
					 told->protocol);
	number = service != 0 ? balancer_set_end(set, service, told->family, told->end, told->end_port) : 0;
	if (number == 0)
		return false;
	return told->up ? balancer_health_vouch(balancer, &set->ends[number], told->mac, told->bad)
			: balancer_health_doubt(balancer, &set->ends[number], told->good);
}

static void hear(struct handover *handover, const uint8_t *told, uint32_t length)
{
	struct balancer *balancer = &the_balancer;
	struct balancer_set *set = &balancer->set;
	struct told_end one;
	bool changed = false;

	pthread_mutex_lock(&set->lock);
	balancer_health_hear(balancer);
	for (uint32_t at = 0; at + sizeof(one) <= length; at += (uint32_t)sizeof(one)) {
		memcpy(&one, told + at, sizeof(one));
		changed |= hear_one(balancer, &one);
	}
	if (changed && balancer_set_publish(set) != 0)
		log_error("no memory for its tables");
	pthread_mutex_unlock(&set->lock);
	balancer_health_wake(balancer);
}

/* ------- the forwarding thread ------- */

static enum handover_result begin(struct connections *flows, const struct handover_record *record)
{
	const struct balancer_lane *lane = container_of(flows, struct balancer_lane, flows);
	const struct balancer_end *end = &lane->set->ends[record->end_number % BALANCER_END_NUMBERS];

	if (record->end_number == 0 || record->port != 0 || !balancer_end_is_up(end) || end->port != record->end_port ||
	    memcmp(end->address.bytes, record->end, sizeof(record->end)) != 0)
		return HANDOVER_unfit;
	return HANDOVER_taken;
}

/* Which back end has it there does not count where that one is not, or not up. */
static bool follow(struct connections *flows, struct connection *flow, const struct handover_record *record)
{
	return flow->mark == record->end_number || begin(flows, record) != HANDOVER_taken;
}

static void end(struct connections *flows, const struct handover_record *record, struct connection *flow)
{
	struct balancer_lane *lane = container_of(flows, struct balancer_lane, flows);

	if (flow != NULL)
		balancer_connection_began(lane, flow, record->end_number % BALANCER_END_NUMBERS);
}

/* As its client has it (balancer_homes()). */
static unsigned home(const struct handover *handover, const struct handover_record *record)
{
	struct headers headers = {0};

	memcpy(headers.key, record->key, sizeof(record->key));
	return pin_spread(&headers, handover->tables.nb);
}

struct handover balancer_handover = {.one_sided = true,
				     .home = home,
				     .fill = fill,
				     .prepare = prepare,
				     .begin = begin,
				     .end = end,
				     .follow = follow,
				     .tell = tell,
				     .hear = hear};
