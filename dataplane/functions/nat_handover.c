/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>

#include "nat_handover.h"

static void fill(const struct connections *flows, const struct connection *flow, struct handover_record *record)
{
	const struct nat *nat = container_of(flows, struct nat, flows);
	const struct nat_mapping *mapping = nat_mapping_of(nat, flow);

	record->outside = nat_outside_address(flow);
	record->outside_port = nat_outside_port(flow);
	record->has_mac = mapping->has_mac;
	memcpy(record->mac, mapping->mac, sizeof(record->mac));
}

/* The end that is inside; of ICMP the identifier, which both have. */
static struct nat_end inside_of(const struct headers *headers, const struct handover_record *record)
{
	const bool second = record->port == 0 ? record->opener : !record->opener;
	uint32_t address;

	memcpy(&address, second ? headers->destination : headers->source, sizeof(address));
	return (struct nat_end){
		.address = ntohl(address),
		.port = second ? headers->destination_port : headers->source_port,
		.protocol = headers->protocol,
		.tags = (uint32_t)headers->vlan << 16 | headers->inner_vlan,
	};
}

static bool can_be(const struct nat *nat, const struct headers *headers, const struct nat_end *end)
{
	return headers->family == HEADERS_IPV4 &&
	       (end->protocol == IPPROTO_TCP || end->protocol == IPPROTO_UDP || end->protocol == IPPROTO_ICMP) &&
	       nat_prefixes_find(&nat->settings->inside, end->address) >= 0;
}

/* Where frames for an inside end go, as the other instance has it, which has seen that end later. */
static void take_station(struct nat_mapping *mapping, const struct handover_record *record)
{
	if (!record->has_mac)
		return;
	memcpy(mapping->mac, record->mac, sizeof(mapping->mac));
	mapping->has_mac = true;
}

static bool follow(struct connections *flows, struct connection *flow, const struct handover_record *record)
{
	const struct nat *nat = container_of(flows, struct nat, flows);

	if (nat_outside_address(flow) != record->outside || nat_outside_port(flow) != record->outside_port)
		return false;
	take_station(nat_mapping_of(nat, flow), record);
	return true;
}

static enum handover_result begin(struct connections *flows, const struct handover_record *record)
{
	struct nat *nat = container_of(flows, struct nat, flows);
	struct nat_mapping *mapping;
	struct headers headers;
	struct nat_end end;
	enum verdict why;

	memcpy(headers.key, record->key, sizeof(record->key));
	end = inside_of(&headers, record);
	if (!can_be(nat, &headers, &end))
		return HANDOVER_unfit;
	mapping = nat_table_hold_this(&nat->table, &end, record->outside, record->outside_port, record->port == 0,
				      &why);
	if (mapping == NULL)
		return why == VERDICT_DROP_no_ports ? HANDOVER_unfit : HANDOVER_no_room;
	if (!mapping->has_mac)
		take_station(mapping, record);
	return HANDOVER_taken;
}

static void end(struct connections *flows, const struct handover_record *record, struct connection *flow)
{
	struct nat *nat = container_of(flows, struct nat, flows);
	struct nat_mapping *mapping;
	struct headers headers;
	struct nat_end inside;

	memcpy(headers.key, record->key, sizeof(record->key));
	inside = inside_of(&headers, record);
	mapping = nat_table_inside(&nat->table, &inside); /* which begin() holds */
	if (flow == NULL) {
		nat_table_release(&nat->table, mapping, nat->tick);
		return;
	}
	nat_connection_began(nat, flow, mapping);
}

static unsigned home(const struct handover *handover, const struct handover_record *record)
{
	struct headers headers;

	memcpy(headers.key, record->key, sizeof(record->key));
	return nat_table_home(inside_of(&headers, record).address, handover->tables.nb);
}

struct handover nat_handover = {.fill = fill, .begin = begin, .end = end, .follow = follow, .home = home};
