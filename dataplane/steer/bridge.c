/* SPDX-License-Identifier: Apache-2.0
 *
 * What a bridge decides; what it remembers is stations.c's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>

#include "steer/bridge.h"
#include "steer/stations.h"

enum { VLANS = 4096, TAG_TYPE = 0x8100 };

struct bridge_port {
	uint16_t number; /* in the memory */
	uint16_t native; /* the VLAN of untagged frames */
	bool takes_untagged, takes_tagged;
	uint64_t vlans[VLANS / 64]; /* that it carries */
};

struct bridge {
	struct bridge_memory *memory;
	unsigned nb_ports;
	uint64_t flood_cost, flood_burst; /* TSC cycles: of one frame, and that may be saved up */
	uint32_t ageing;		  /* station ticks */
	uint16_t index[BRIDGE_PORTS];	  /* the index in `ports` of each number of the memory; nb_ports: none */
	struct bridge_port ports[];
};

static void set_vlan(struct bridge_port *port, uint16_t vlan)
{
	port->vlans[vlan / 64] |= UINT64_C(1) << vlan % 64;
}

static void set_port(struct bridge_port *port, const struct bridge_port_config *config)
{
	if (config->access != 0) {
		port->native = config->access;
		port->takes_untagged = true;
		set_vlan(port, config->access);
		return;
	}
	port->takes_tagged = true;
	if (config->nb_trunk == 0 && config->native == 0) {
		port->takes_untagged = true;
		memset(port->vlans, 0xff, sizeof(port->vlans));
		return;
	}
	for (unsigned i = 0; i < config->nb_trunk; i++)
		set_vlan(port, config->trunk[i]);
	if (config->native != 0) {
		port->native = config->native;
		port->takes_untagged = true;
		set_vlan(port, config->native);
	}
}

struct bridge *bridge_new(struct bridge_memory *memory, const struct bridge_config *config)
{
	struct bridge *bridge = calloc(1, sizeof(*bridge) + config->nb_ports * sizeof(bridge->ports[0]));
	const uint64_t hz = rte_get_tsc_hz();

	if (bridge == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	bridge->memory = memory;
	bridge->ageing = stations_ticks(hz, config->ageing);
	/* A tenth of a second's worth at once, and at least a burst's. */
	bridge->flood_cost = config->flood != 0 ? RTE_MAX(hz / config->flood, 1u) : 0;
	bridge->flood_burst = RTE_MAX(hz / 10, (BRIDGE_BURST - 1) * bridge->flood_cost);
	for (unsigned i = 0; i < BRIDGE_PORTS; i++)
		bridge->index[i] = config->nb_ports;
	for (unsigned i = 0; i < config->nb_ports; i++) {
		int number = stations_join(memory, config->ports[i].name);

		if (number < 0) {
			bridge_free(bridge);
			errno = ENOSPC;
			return NULL;
		}
		bridge->ports[bridge->nb_ports++].number = number;
		bridge->index[number] = i;
		set_port(&bridge->ports[i], &config->ports[i]);
	}
	return bridge;
}

void bridge_free(struct bridge *bridge)
{
	bool left[BRIDGE_PORTS] = {false};

	for (unsigned i = 0; i < bridge->nb_ports; i++)
		left[bridge->ports[i].number] = true;
	stations_leave(bridge->memory, left);
	free(bridge);
}

void bridge_share(const struct bridge *bridge)
{
	stations_share(bridge->memory, bridge->nb_ports);
}

void bridge_forget(const struct bridge *bridge, const bool gone[BRIDGE_PORTS])
{
	bool numbers[BRIDGE_PORTS] = {false};

	for (unsigned i = 0; i < bridge->nb_ports; i++)
		numbers[bridge->ports[i].number] = gone[i];
	stations_forget_learned(bridge->memory, numbers);
}

unsigned bridge_ports(const struct bridge *bridge)
{
	return bridge->nb_ports;
}

bool bridge_carries(const struct bridge *bridge, unsigned port, uint16_t vlan)
{
	return bridge->ports[port].vlans[vlan / 64] >> vlan % 64 & 1;
}

bool bridge_tags(const struct bridge *bridge, unsigned port, uint16_t vlan, bool keeps_tag)
{
	return bridge->ports[port].takes_tagged &&
	       (keeps_tag || !(bridge->ports[port].takes_untagged && vlan == bridge->ports[port].native));
}

/* ------- one frame ------- */

/* The frame's VLAN as its port sees it; false: the port does not carry it. */
static bool frame_vlan(const struct bridge_port *port, const struct bridge_frame *frame,
		       struct bridge_decision *decision)
{
	uint16_t vlan = 0;
	bool stacked;

	decision->tagged = frame->length >= 18 && frame->bytes[12] == TAG_TYPE >> 8 &&
			   frame->bytes[13] == (TAG_TYPE & 0xff);
	if (decision->tagged)
		vlan = (frame->bytes[14] << 8 | frame->bytes[15]) & 0xfff;
	stacked = decision->tagged && frame->bytes[16] == TAG_TYPE >> 8 && frame->bytes[17] == (TAG_TYPE & 0xff);
	/*
	 * A tag with no VLAN in it carries a priority alone.  Between plain ports it stays.  In a native VLAN the frame
	 * may leave without it, and another tag behind it would be its VLAN somewhere else.
	 */
	if (vlan == 0) {
		decision->vlan = port->native;
		decision->keeps_tag = decision->tagged && port->native == 0;
		return port->takes_untagged && (!stacked || decision->keeps_tag);
	}
	decision->keeps_tag = stacked;
	decision->vlan = vlan;
	return port->takes_tagged && (port->vlans[vlan / 64] >> vlan % 64 & 1);
}

/* 01:80:c2:00:00:00 to 0f (802.1Q, table 8-1). */
static bool reserved(const uint8_t *mac)
{
	return mac[0] == 1 && mac[1] == 0x80 && mac[2] == 0xc2 && mac[3] == 0 && mac[4] == 0 && mac[5] < 16;
}

/* The generic cell rate algorithm: `due` is when the port would be back to having sent nothing too early. */
static bool may_flood(const struct bridge *bridge, const struct bridge_port *port, uint64_t now)
{
	uint64_t *due = stations_due(bridge->memory, port->number);
	uint64_t at = __atomic_load_n(due, __ATOMIC_RELAXED);

	if (bridge->flood_cost == 0)
		return false;
	if (at < now || at > now + 2 * bridge->flood_burst)
		at = now;
	if (at - now > bridge->flood_burst)
		return false;
	__atomic_store_n(due, at + bridge->flood_cost, __ATOMIC_RELAXED);
	return true;
}

void bridge_unflood(const struct bridge *bridge, unsigned port, unsigned frames)
{
	uint64_t *due = stations_due(bridge->memory, bridge->ports[port].number);

	__atomic_store_n(due, __atomic_load_n(due, __ATOMIC_RELAXED) - frames * bridge->flood_cost, __ATOMIC_RELAXED);
}

static enum bridge_outcome choose(const struct bridge *bridge, unsigned from, const struct bridge_frame *frame,
				  struct station_key destination, uint64_t now, struct bridge_decision *decision)
{
	int number = -1;

	if (unlikely(reserved(frame->bytes)))
		return BRIDGE_DROP_RESERVED;
	if (!(frame->bytes[0] & 1))
		number = stations_find(bridge->memory, destination, stations_tick(now), bridge->ageing);
	if (number >= 0 && bridge->index[number] < bridge->nb_ports) {
		decision->port = bridge->index[number];
		if (decision->port == from)
			return BRIDGE_DROP_SAME_PORT;
		if (likely(bridge_carries(bridge, decision->port, decision->vlan)))
			return BRIDGE_FORWARD;
	}
	return may_flood(bridge, &bridge->ports[from], now) ? BRIDGE_FLOOD : BRIDGE_DROP_FLOOD_LIMITED;
}

void bridge_decide(const struct bridge *bridge, unsigned from, const struct bridge_frame *frames, unsigned count,
		   uint64_t now, struct bridge_decision *decisions, uint64_t *flaps)
{
	struct station_key sources[BRIDGE_BURST], destinations[BRIDGE_BURST];
	const struct bridge_port *port = &bridge->ports[from];
	const uint32_t tick = stations_tick(now);

	for (unsigned i = 0; i < count; i++) {
		const uint8_t *bytes = frames[i].bytes;

		decisions[i] = (struct bridge_decision){.outcome = BRIDGE_FORWARD};
		if (unlikely(frames[i].length < 14 || (bytes[6] & 1) || memcmp(bytes + 6, "\0\0\0\0\0\0", 6) == 0)) {
			decisions[i].outcome = BRIDGE_DROP_SOURCE;
		} else if (unlikely(!frame_vlan(port, &frames[i], &decisions[i]))) {
			decisions[i].outcome = BRIDGE_DROP_VLAN;
		} else {
			sources[i] = stations_key(bridge->memory, bytes + 6, decisions[i].vlan);
			destinations[i] = stations_key(bridge->memory, bytes, decisions[i].vlan);
			stations_prefetch(sources[i]);
			stations_prefetch(destinations[i]);
		}
	}
	for (unsigned i = 0; i < count; i++) {
		if (unlikely(decisions[i].outcome != BRIDGE_FORWARD))
			continue;
		*flaps += stations_learn(bridge->memory, sources[i], port->number, tick, bridge->ageing, now);
		decisions[i].outcome = choose(bridge, from, &frames[i], destinations[i], now, &decisions[i]);
	}
}

/* ------- for the control side ------- */

struct listing {
	const struct bridge *bridge;
	void (*each)(void *context, const struct bridge_mac *mac);
	void *context;
};

static void list_station(void *context, struct bridge_mac *mac, unsigned number)
{
	const struct listing *listing = context;

	/* What was learned from a port that has just gone is nowhere. */
	if (listing->bridge->index[number] < listing->bridge->nb_ports)
		listing->each(listing->context, mac);
}

void bridge_list(const struct bridge *bridge, void (*each)(void *context, const struct bridge_mac *mac), void *context)
{
	struct listing listing = {bridge, each, context};

	stations_list(bridge->memory, stations_tick(rte_rdtsc()), bridge->ageing, list_station, &listing);
}

unsigned bridge_flaps(const struct bridge *bridge, struct bridge_flap *flaps)
{
	return stations_flaps(bridge->memory, flaps);
}

uint64_t bridge_flapped(const struct bridge *bridge)
{
	return stations_flapped(bridge->memory);
}

struct bridge_figures bridge_figures(const struct bridge *bridge)
{
	return stations_figures(bridge->memory, stations_tick(rte_rdtsc()), bridge->ageing);
}
