/* SPDX-License-Identifier: Apache-2.0
 *
 * Bridging: which ports of a bridge a frame leaves by, from the MAC addresses learned so far and the ports' VLANs.
 *
 * A port is an access port (untagged frames, of one VLAN), a trunk (tagged frames of a set of VLANs, and untagged ones
 * of its native VLAN if it has one), or plain: neither named, it carries every VLAN as tagged and a VLAN of its own
 * kind, number 0, untagged.  Tags are C-TAGs (0x8100).  A frame with an S-TAG (0x88a8) is an untagged one, as in
 * any C-VLAN component (802.1Q, 5.5, 6.9.1 and table 9-1); what is under it is not looked at.
 *
 * A tag with VLAN 0 has a priority alone, and the frame is one of those without a tag.  Between plain ports it goes on
 * as it came, as on Linux's bridge without VLAN filtering.  In the native VLAN of another port it keeps its priority
 * where that VLAN is tagged, and loses its tag where it is not, as on Linux's bridge with VLAN filtering.
 *
 * A frame never leaves by the port it came from.  Frames to 01:80:c2:00:00:00-0f are for bridges and not forwarded.
 * What goes to all ports (unknown, multicast, broadcast) is limited by the rate of its port.
 *
 * Addresses are learned by the workers, into one table for all of them.  Lookups take no lock.  A new or moved address
 * takes a small lock if it is free; if not, this frame teaches nothing and a later one will.  When the table is full
 * nothing is learned: half of it is divided among the ports, and a port beyond its share learns from the common half
 * only, so no guest can keep another from having its share.  Nothing is ever evicted but by age.
 */
#ifndef TAILRACE_STEER_BRIDGE_H
#define TAILRACE_STEER_BRIDGE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	BRIDGE_BURST = 64,
	BRIDGE_PORTS = 1024,
	BRIDGE_NAME = 48,
	BRIDGE_FLAPS = 64,	  /* addresses that are remembered for moving to and fro */
	BRIDGE_FLAP_SECONDS = 10, /* an address that moves again within so long flaps */
	BRIDGE_MACS_MOST = 1 << 20,
};

/* What outlives changes of the bridge: the ports' numbers, what was learned, what flapped. */
struct bridge_memory;

struct bridge_port_config {
	const char *name;
	uint16_t access;   /* its VLAN; 0: none */
	uint16_t native;   /* a trunk's VLAN of untagged frames; 0: none */
	unsigned nb_trunk; /* 0, and no access VLAN: a plain port */
	const uint16_t *trunk;
};

struct bridge_config {
	unsigned nb_ports;
	const struct bridge_port_config *ports;
	unsigned ageing; /* seconds after which an address that is not seen is forgotten */
	unsigned flood;	 /* frames a second that each port may have sent to all */
};

/* As it was configured; never changed. */
struct bridge;

/* Room for `macs` addresses.  Returns NULL without memory. */
struct bridge_memory *bridge_memory_new(unsigned macs);
void bridge_memory_free(struct bridge_memory *memory);

/*
 * Returns a bridge, or NULL with errno: ENOMEM, or ENOSPC when it and the one before it have more than BRIDGE_PORTS
 * ports together.
 */
struct bridge *bridge_new(struct bridge_memory *memory, const struct bridge_config *config);

/* No worker uses it any more.  Ports of it that no other bridge of its memory has are forgotten, and their stations. */
void bridge_free(struct bridge *bridge);

/* Workers use it now: divide the table among its ports. */
void bridge_share(const struct bridge *bridge);

/* ------- for workers.  Ports are known by their place in the configuration. ------- */

#define BRIDGE_OUTCOMES(X)                                      \
	X(FORWARD, "to one port")                               \
	X(FLOOD, "to every port of its VLAN but its own")       \
	X(DROP_SOURCE, "its source is no address of a station") \
	X(DROP_VLAN, "its port does not carry its VLAN")        \
	X(DROP_RESERVED, "it is for bridges themselves")        \
	X(DROP_SAME_PORT, "its receiver is where it came from") \
	X(DROP_FLOOD_LIMITED, "its port has sent too many to all")

enum bridge_outcome {
#define BRIDGE_OUTCOME(name, text) BRIDGE_##name,
	BRIDGE_OUTCOMES(BRIDGE_OUTCOME)
#undef BRIDGE_OUTCOME
};

struct bridge_decision {
	enum bridge_outcome outcome;
	uint16_t port; /* of FORWARD */
	uint16_t vlan;
	bool tagged;	/* it came with an 802.1Q tag, whatever that says */
	bool keeps_tag; /* and leaves with it where its VLAN is untagged, too */
};

/* A frame's beginning: at least 18 bytes, or all of it. */
struct bridge_frame {
	const uint8_t *bytes;
	unsigned length;
};

/*
 * Decide on up to BRIDGE_BURST frames from `port`, and learn from them.  `now` is the TSC.  Adds to `*flaps` the
 * addresses that moved to this port and had moved shortly before.
 */
void bridge_decide(const struct bridge *bridge, unsigned port, const struct bridge_frame *frames, unsigned count,
		   uint64_t now, struct bridge_decision *decisions, uint64_t *flaps);

/* So many frames that were to be flooded from the port have not been, and do not count against its limit. */
void bridge_unflood(const struct bridge *bridge, unsigned port, unsigned frames);

unsigned bridge_ports(const struct bridge *bridge);

bool bridge_carries(const struct bridge *bridge, unsigned port, uint16_t vlan);

/*
 * Do frames of the VLAN leave by the port with its tag?  One with another tag behind it keeps it even in the native
 * VLAN, or else whoever reads tags there would take the inner one for the VLAN.
 */
bool bridge_tags(const struct bridge *bridge, unsigned port, uint16_t vlan, bool keeps_tag);

/* ------- for the control side ------- */

struct bridge_mac {
	uint8_t mac[6];
	uint16_t vlan;
	const char *port;
	double age; /* seconds since it was seen */
};

/* Forget what was learned from these ports, by their place in the configuration; they stay ports. */
void bridge_forget(const struct bridge *bridge, const bool gone[BRIDGE_PORTS]);

/* Hand each address that has not aged to `each`. */
void bridge_list(const struct bridge *bridge, void (*each)(void *context, const struct bridge_mac *mac), void *context);

struct bridge_flap {
	uint8_t mac[6];
	uint16_t vlan;
	char from[BRIDGE_NAME], to[BRIDGE_NAME]; /* the last move */
	uint64_t first, last;			 /* TSC, of its moves since it began to flap */
	uint64_t moves;
};

/* Copy the addresses that flapped, up to BRIDGE_FLAPS.  Returns how many. */
unsigned bridge_flaps(const struct bridge *bridge, struct bridge_flap *flaps);

/* How many moves of addresses that flap there have been.  Cheap, and takes no lock. */
uint64_t bridge_flapped(const struct bridge *bridge);

struct bridge_figures {
	uint64_t learned;   /* addresses now */
	uint64_t room;	    /* for so many */
	uint64_t unlearned; /* times that an address was not learned because the table, or the port's share, was full */
	uint64_t moves;
};

struct bridge_figures bridge_figures(const struct bridge *bridge);

#endif
