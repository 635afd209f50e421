/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst decided on by rules and replica groups.
 */
#include "steer/passage.h"

/*
 * Rules that look at ports or the protocol know the later fragments of a datagram by its first.  What was decided for
 * that one is noted, and holds for those, by whichever queue of the port they come.  Those that are ahead of it go by
 * what they say themselves, and it does not follow them: else they could lead it past a rule that is about its ports.
 */
static uint32_t follow_fragment(const struct steering *steering, const struct headers *headers, uint32_t action,
				uint64_t now)
{
	const uint64_t hash = pin_datagram(steering->fragments, headers);
	struct flow_bucket *bucket = flows_bucket(steering->fragments, hash);
	const uint16_t tick = flows_tick(now);
	uint64_t *slot = flows_find(bucket, hash);
	uint64_t note;

	if (headers->fragment == FRAGMENT_LATER) {
		uint64_t entry = slot != NULL ? flow_read(slot) : 0;

		return slot != NULL && flow_is(entry, hash) && flow_fresh(steering->fragments, entry, tick)
			       ? flow_number(entry)
			       : action;
	}
	if (action > FLOW_NUMBERS)
		return action;
	note = flow_numbered(flow_signature(hash), tick, action);
	if (slot != NULL)
		flow_write(slot, note);
	else
		flows_add(steering->fragments, bucket, note, tick, 0);
	return action;
}

/*
 * An ICMP error goes the way of the flow that it is about, if that has one: those who see a flow are to hear what
 * became of it.  It comes from where the flow goes to.  `action` is what the rules say of the error itself.
 */
static uint32_t follow_flow(const struct steering *steering, const struct packet *packet, const struct headers *headers,
			    uint32_t action)
{
	struct headers flow = *headers;
	uint32_t found;

	parse_embedded(packet->head, packet->head_length, &flow);
	headers_mirror(&flow);
	classify(steering->classifier, &flow, 1, &found);
	return found == STEERING_DROP ? action : found;
}

static void choose_actions(const struct passage *passage, uint32_t *actions)
{
	const struct steering *steering = passage->steering;
	const struct headers *headers = passage->headers;
	const unsigned count = passage->burst->count;

	if (steering->classifier == NULL) {
		for (unsigned i = 0; i < count; i++)
			actions[i] = steering->otherwise;
		return;
	}
	classify(steering->classifier, headers, count, actions);
	for (unsigned i = 0; i < count; i++)
		if (unlikely(headers[i].embedded != 0))
			actions[i] = follow_flow(steering, &passage->burst->packets[i], &headers[i], actions[i]);
	for (unsigned i = 0; i < count; i++)
		if (actions[i] == STEERING_DROP)
			actions[i] = steering->otherwise;
	if (steering->fragments == NULL)
		return;
	for (unsigned i = 0; i < count; i++)
		if (unlikely(headers[i].fragment != FRAGMENT_NONE))
			actions[i] = follow_fragment(steering, &headers[i], actions[i], passage->round->now);
}

/* The egress of one that stands for several: the one of the packet's flow. */
static uint32_t spread(struct passage *passage, unsigned i, const struct step *step, unsigned which)
{
	const struct packet *packet = &passage->burst->packets[i];

	if (likely(step->spread < 2))
		return step->first + which;
	if (unlikely(passage->headers[i].embedded != 0))
		parse_embedded(packet->head, packet->head_length, &passage->headers[i]);
	return step->first + which * step->spread + pin_spread(&passage->headers[i], step->spread);
}

/* All packets of the set are for the same group. */
static void choose_replicas(struct passage *passage, uint64_t packets, const struct step *step)
{
	uint8_t which[VRING_BURST], replicas[VRING_BURST];
	const struct steering *steering = passage->steering;
	struct headers *headers = passage->headers;
	unsigned count = 0;

	for (; packets != 0; packets &= packets - 1) {
		const unsigned i = __builtin_ctzll(packets);
		const struct packet *packet = &passage->burst->packets[i];

		if (unlikely(headers[i].embedded != 0))
			parse_embedded(packet->head, packet->head_length, &headers[i]);
		which[count++] = (uint8_t)i;
	}
	pin(step->group, headers, which, count, passage->round->now, replicas);
	for (unsigned i = 0; i < count; i++) {
		const uint32_t number = replicas[i] < PIN_REPLICAS ? spread(passage, which[i], step, replicas[i])
								   : STEERING_NOWHERE;

		if (unlikely(number >= steering->nb_targets || steering->targets[number].outlet == STEERING_NOWHERE)) {
			passage->reasons.no_replica++;
			FOLLOW(passage->source, passage->burst, which[i],
			       "dropped: no replica takes it (drop_no_replica)");
			continue;
		}
		FOLLOW(passage->source, passage->burst, which[i], "pinned to replica %s",
		       step->group->memory->names[replicas[i]]);
		passage_put(passage, which[i], number);
	}
}

void steer_by_rules(struct passage *passage)
{
	const struct steering *steering = passage->steering;
	const unsigned count = passage->burst->count;
	uint32_t actions[VRING_BURST];
	uint64_t pinned = 0;

	if (steering->looks)
		for (unsigned i = 0; i < count; i++)
			parse_frame(passage->burst->packets[i].head, passage->burst->packets[i].head_length,
				    &passage->headers[i]);
	choose_actions(passage, actions);
	for (unsigned i = 0; i < count; i++) {
		const struct step *step;
		uint32_t number;

		if (unlikely(actions[i] == STEERING_DROP)) {
			passage->reasons.no_match++;
			FOLLOW(passage->source, passage->burst, i, "dropped: no chain's match fits (drop_no_match)");
			continue;
		}
		step = &steering->steps[actions[i]];
		number = step->group == NULL ? spread(passage, i, step, 0) : STEERING_NOWHERE;
		if (step->group != NULL) {
			pinned |= UINT64_C(1) << i;
		} else if (likely(steering->targets[number].outlet != STEERING_NOWHERE)) {
			passage_put(passage, i, number);
		} else {
			passage->reasons.no_chain++;
			FOLLOW(passage->source, passage->burst, i, NO_CHAIN, passage->source->from->name);
		}
	}
	while (pinned != 0) {
		const unsigned first = __builtin_ctzll(pinned);
		uint64_t same = 0;

		for (uint64_t rest = pinned; rest != 0; rest &= rest - 1)
			if (actions[__builtin_ctzll(rest)] == actions[first])
				same |= rest & -rest;
		choose_replicas(passage, same, &steering->steps[actions[first]]);
		pinned &= ~same;
	}
}
