/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst on its way through a steering: read and delivered by steer.c, decided on by by_rules.c or by_bridge.c.  The
 * worker's, on its stack.
 */
#ifndef TAILRACE_STEER_PASSAGE_H
#define TAILRACE_STEER_PASSAGE_H

#include "steer/steering.h"

/* Reasons of the sender's port, counted when it is certain that the burst goes on. */
struct reasons {
	unsigned no_chain, no_match, no_replica, vlan, source_address, reserved_address, same_port, flood_limited;
	uint64_t flaps;
};

/* One burst on its way. */
struct passage {
	struct source *source;
	struct steering *steering;
	struct burst *burst;
	const struct round *round;
	struct reasons reasons;
	struct headers headers[VRING_BURST]; /* of a steering that looks at them */
	uint32_t targets[VRING_BURST];	     /* of the packets that go to one outlet */
	unsigned flooded;		     /* so many packets go to several */

	/* A bridge's. */
	struct bridge_frame frames[VRING_BURST];
	uint64_t tagged;  /* the packets that have a tag now */
	uint64_t keeping; /* those that leave with it everywhere */
	uint16_t vlans[VRING_BURST];
	uint16_t priorities[VRING_BURST]; /* the rest of the tag that they came with */
};

/* The packet leaves by the target of this number. */
static inline void passage_put(struct passage *passage, unsigned packet, uint32_t number)
{
	struct steering *steering = passage->steering;
	const uint32_t outlet = steering->targets[number].outlet;

	passage->targets[packet] = number;
	steering->outlets[outlet].packets |= UINT64_C(1) << packet;
	steering->touched[outlet / 64] |= UINT64_C(1) << outlet % 64;
}

/* Decide where each packet goes. */
void steer_by_rules(struct passage *passage);
void steer_by_bridge(struct passage *passage);

/* Give each packet of the outlet the form that its bridge port wants: with the VLAN's tag, or without one. */
void passage_set_tags(struct passage *passage, const struct outlet *outlet);

#endif
