/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst decided on by a bridge, and its frames given the tags that each port wants.
 */
#include <rte_ether.h>

#include "steer/passage.h"

/* To a port of the bridge.  One that could not be opened again after a change is nowhere. */
static void put(struct passage *passage, unsigned packet, unsigned port)
{
	if (likely(passage->steering->targets[port].outlet != STEERING_NOWHERE)) {
		passage_put(passage, packet, port);
		return;
	}
	passage->reasons.no_chain++;
	FOLLOW(passage->source, passage->burst, packet, "dropped: a port that it is for is not there (drop_no_chain)");
}

static void flood(struct passage *passage, unsigned packet, uint16_t vlan)
{
	const struct steering *steering = passage->steering;
	unsigned others = 0;

	passage->flooded++;
	for (unsigned port = 0; port < bridge_ports(steering->bridge); port++)
		if (port != steering->bridge_port && bridge_carries(steering->bridge, port, vlan)) {
			put(passage, packet, port);
			others++;
		}
	if (others > 0)
		return;
	passage->reasons.no_chain++;
	FOLLOW(passage->source, passage->burst, packet, "dropped: no other port carries its VLAN (drop_no_chain)");
}

static unsigned *drop_reason(struct reasons *reasons, enum bridge_outcome outcome)
{
	switch (outcome) {
	case BRIDGE_DROP_SOURCE:
		return &reasons->source_address;
	case BRIDGE_DROP_VLAN:
		return &reasons->vlan;
	case BRIDGE_DROP_RESERVED:
		return &reasons->reserved_address;
	case BRIDGE_DROP_SAME_PORT:
		return &reasons->same_port;
	default:
		return &reasons->flood_limited;
	}
}

void steer_by_bridge(struct passage *passage)
{
	static const char *const texts[] = {
#define TEXT(name, text) text,
		BRIDGE_OUTCOMES(TEXT)
#undef TEXT
	};
	const struct steering *steering = passage->steering;
	const unsigned count = passage->burst->count;
	struct bridge_decision decisions[VRING_BURST];
	struct bridge_frame *frames = passage->frames;

	for (unsigned i = 0; i < count; i++) {
		const struct packet *packet = &passage->burst->packets[i];

		frames[i] = (struct bridge_frame){packet->head, packet->head_length};
	}
	bridge_decide(steering->bridge, steering->bridge_port, frames, count, passage->round->now, decisions,
		      &passage->reasons.flaps);
	passage->tagged = 0;
	passage->keeping = 0;
	for (unsigned i = 0; i < count; i++) {
		FOLLOW(passage->source, passage->burst, i, "bridge, VLAN %u: %s", decisions[i].vlan,
		       texts[decisions[i].outcome]);
		passage->vlans[i] = decisions[i].vlan;
		passage->priorities[i] = 0;
		passage->keeping |= (uint64_t)decisions[i].keeps_tag << i;
		if (decisions[i].tagged) {
			passage->tagged |= UINT64_C(1) << i;
			passage->priorities[i] = (uint16_t)(frames[i].bytes[14] << 8 & 0xf000);
		}
		if (decisions[i].outcome == BRIDGE_FLOOD)
			flood(passage, i, decisions[i].vlan);
		else if (decisions[i].outcome != BRIDGE_FORWARD)
			(*drop_reason(&passage->reasons, decisions[i].outcome))++;
		else
			put(passage, i, decisions[i].port);
	}
}

static void write_tag(struct packet *packet, uint16_t tag)
{
	packet->head[12] = RTE_ETHER_TYPE_VLAN >> 8;
	packet->head[13] = RTE_ETHER_TYPE_VLAN & 0xff;
	packet->head[14] = tag >> 8;
	packet->head[15] = tag & 0xff;
}

void passage_set_tags(struct passage *passage, const struct outlet *outlet)
{
	const struct steering *steering = passage->steering;

	for (uint64_t rest = outlet->packets; rest != 0; rest &= rest - 1) {
		const unsigned i = __builtin_ctzll(rest);
		const uint64_t bit = rest & -rest;
		struct packet *packet = &passage->burst->packets[i];
		const bool wanted = bridge_tags(steering->bridge, outlet->bridge_port, passage->vlans[i],
						passage->keeping & bit);

		if (!wanted && (passage->tagged & bit)) {
			memmove(packet->head + 4, packet->head, 12);
			packet_pop(packet, 4);
			passage->tagged &= ~bit;
		} else if (wanted) {
			if (!(passage->tagged & bit)) {
				packet_push(packet, 4);
				memmove(packet->head, packet->head + 4, 12);
				passage->tagged |= bit;
			}
			write_tag(packet, passage->priorities[i] | passage->vlans[i]);
		}
	}
}
