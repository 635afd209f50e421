/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "balancer_handover.h"
#include "balancer_pass.h"
#include "common/log.h"
#include "function.h"

static void fill(const struct connections *flows, const struct connection *flow, struct handover_record *record)
{
	const struct balancer *balancer = container_of(flows, struct balancer, flows);
	const struct balancer_end *end = &balancer->set.ends[flow->mark % BALANCER_END_NUMBERS];
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
	return balancer_set_end(set, service, headers.family, record->end, record->end_port);
}

static void prepare(struct handover *handover, uint32_t count)
{
	struct balancer *balancer = container_of(handover->flows, struct balancer, flows);
	struct balancer_set *set = &balancer->set;
	bool changed = false;

	pthread_mutex_lock(&set->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct handover_record *record = &handover->batch[i];

		record->end_number = handover_holds(handover, record) ? number_of(set, record) : 0;
		if (record->end_number != 0 && record->has_mac)
			changed |= balancer_health_vouch(balancer, &set->ends[record->end_number], record->mac);
	}
	if (changed && balancer_set_publish(set) != 0)
		log_error("no memory for its tables");
	pthread_mutex_unlock(&set->lock);
}

/* ------- the forwarding thread ------- */

static enum handover_result begin(struct connections *flows, const struct handover_record *record)
{
	const struct balancer *balancer = container_of(flows, struct balancer, flows);
	const struct balancer_end *end = &balancer->set.ends[record->end_number % BALANCER_END_NUMBERS];

	if (record->end_number == 0 || record->port != 0 || !balancer_end_is_up(end) || end->port != record->end_port ||
	    memcmp(end->address.bytes, record->end, sizeof(record->end)) != 0)
		return HANDOVER_unfit;
	return HANDOVER_taken;
}

static void end(struct connections *flows, const struct handover_record *record, struct connection *flow)
{
	struct balancer *balancer = container_of(flows, struct balancer, flows);

	if (flow != NULL)
		balancer_connection_began(balancer, flow, record->end_number % BALANCER_END_NUMBERS);
}

struct handover balancer_handover = {.one_sided = true, .fill = fill, .prepare = prepare, .begin = begin, .end = end};
