/* SPDX-License-Identifier: Apache-2.0
 *
 * A burst of a source that has to look: read it, decide on all of it, sort it by outlet, take the outlets, write to
 * each, give the frames back.
 *
 * Nobody waits for a receiver that is full: its frames are dropped, and counted there.  An outlet that another worker
 * is just using is waited for for about a microsecond.  After that the burst stays where it is until the next round, if
 * it can; what a device has handed over cannot, and those frames are dropped and counted here.
 */
#include <rte_ether.h>
#include <rte_pause.h>

#include "port/device_io.h"
#include "steer/give.h"
#include "steer/steering.h"

enum { BUSY_PAUSES = 64 };

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
	uint16_t targets[VRING_BURST];	     /* of the packets that go to one outlet */

	/* A bridge's. */
	struct bridge_frame frames[VRING_BURST];
	uint64_t tagged;  /* the packets that have a tag now */
	uint64_t stacked; /* those that came with two */
	uint16_t vlans[VRING_BURST];
	uint16_t priorities[VRING_BURST]; /* the rest of the tag that they came with */
};

static struct queue_counters *sender_counters(const struct source *source)
{
	return source->from->queues[source->queue].counters;
}

static void count_reasons(const struct source *source, const struct reasons *reasons)
{
	struct queue_counters *counters = sender_counters(source);

	counters->drop_no_chain += reasons->no_chain;
	counters->drop_no_match += reasons->no_match;
	counters->drop_no_replica += reasons->no_replica;
	counters->drop_vlan += reasons->vlan;
	counters->drop_source_address += reasons->source_address;
	counters->drop_reserved_address += reasons->reserved_address;
	counters->drop_same_port += reasons->same_port;
	counters->drop_flood_limited += reasons->flood_limited;
	counters->address_flaps += reasons->flaps;
}

/* ------- which target ------- */

static void put(struct passage *passage, unsigned packet, uint32_t number)
{
	struct steering *steering = passage->steering;
	const uint16_t outlet = steering->targets[number].outlet;

	passage->targets[packet] = (uint16_t)number;
	steering->outlets[outlet].packets |= UINT64_C(1) << packet;
	steering->touched[outlet / 64] |= UINT64_C(1) << outlet % 64;
}

/*
 * Rules that look at ports know the later fragments of a datagram by its first.  What was decided for that one is
 * noted, and holds for those.
 */
static uint32_t follow_fragment(const struct steering *steering, const struct headers *headers, uint32_t action,
				uint64_t now)
{
	const uint64_t hash = pin_datagram(headers);
	struct flow_bucket *bucket = flows_bucket(steering->fragments, hash);
	const uint16_t tick = flows_tick(now);
	uint64_t *place = flows_find(bucket, hash);
	uint64_t note;

	if (headers->fragment == FRAGMENT_LATER) {
		uint64_t entry = place != NULL ? flow_read(place) : 0;

		return place != NULL && flow_fresh(steering->fragments, entry, tick) ? flow_number(entry) : action;
	}
	if (action > FLOW_NUMBERS)
		return action;
	note = flow_numbered(flow_signature(hash), tick, action);
	if (place != NULL)
		flow_write(place, note);
	else
		flows_add(steering->fragments, bucket, note, tick, 0);
	return action;
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
		if (actions[i] == STEERING_DROP)
			actions[i] = steering->otherwise;
	if (steering->fragments == NULL)
		return;
	for (unsigned i = 0; i < count; i++)
		if (unlikely(headers[i].fragment != FRAGMENT_NONE))
			actions[i] = follow_fragment(steering, &headers[i], actions[i], passage->round->now);
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
		const uint32_t number = step->first + replicas[i];

		if (unlikely(number >= steering->nb_targets || steering->targets[number].outlet == STEERING_NOWHERE)) {
			passage->reasons.no_replica++;
			FOLLOW(passage->source, passage->burst, which[i],
			       "dropped: no replica takes it (drop_no_replica)");
			continue;
		}
		FOLLOW(passage->source, passage->burst, which[i], "pinned to replica %s",
		       step->group->memory->names[replicas[i]]);
		put(passage, which[i], number);
	}
}

static __rte_noinline void steer_by_rules(struct passage *passage)
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

		if (unlikely(actions[i] == STEERING_DROP)) {
			passage->reasons.no_match++;
			FOLLOW(passage->source, passage->burst, i, "dropped: no chain's match fits (drop_no_match)");
			continue;
		}
		step = &steering->steps[actions[i]];
		if (step->group != NULL) {
			pinned |= UINT64_C(1) << i;
		} else if (likely(steering->targets[step->first].outlet != STEERING_NOWHERE)) {
			put(passage, i, step->first);
		} else {
			passage->reasons.no_chain++;
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

/* ------- a bridge ------- */

static void flood(struct passage *passage, unsigned packet, uint16_t vlan)
{
	const struct steering *steering = passage->steering;

	for (unsigned port = 0; port < bridge_ports(steering->bridge); port++)
		if (port != steering->bridge_port && bridge_carries(steering->bridge, port, vlan) &&
		    steering->targets[port].outlet != STEERING_NOWHERE)
			put(passage, packet, port);
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

static __rte_noinline void steer_by_bridge(struct passage *passage)
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
	passage->stacked = 0;
	for (unsigned i = 0; i < count; i++) {
		FOLLOW(passage->source, passage->burst, i, "bridge, VLAN %u: %s", decisions[i].vlan,
		       texts[decisions[i].outcome]);
		passage->vlans[i] = decisions[i].vlan;
		passage->priorities[i] = 0;
		passage->stacked |= (uint64_t)decisions[i].stacked << i;
		if (decisions[i].tagged) {
			passage->tagged |= UINT64_C(1) << i;
			passage->priorities[i] = (uint16_t)(frames[i].bytes[14] << 8 & 0xf000);
		}
		if (decisions[i].outcome == BRIDGE_FLOOD)
			flood(passage, i, decisions[i].vlan);
		else if (decisions[i].outcome != BRIDGE_FORWARD)
			(*drop_reason(&passage->reasons, decisions[i].outcome))++;
		else if (steering->targets[decisions[i].port].outlet != STEERING_NOWHERE)
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

/* Give each packet of the outlet the form that its port wants: with the VLAN's tag, or without one. */
static void set_tags(struct passage *passage, const struct outlet *outlet)
{
	const struct steering *steering = passage->steering;

	for (uint64_t rest = outlet->packets; rest != 0; rest &= rest - 1) {
		const unsigned i = __builtin_ctzll(rest);
		const uint64_t bit = rest & -rest;
		struct packet *packet = &passage->burst->packets[i];
		const bool wanted = bridge_tags(steering->bridge, outlet->bridge_port, passage->vlans[i],
						passage->stacked & bit);

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

/* ------- giving ------- */

static bool take(const struct exit *exit)
{
	for (unsigned i = 0; i < BUSY_PAUSES; i++) {
		if (exit_take(exit))
			return true;
		rte_pause();
	}
	return false;
}

/* Hops are counted for each frame: those of one outlet may belong to different chains. */
#define COUNT_HOP(target, field, count)                                                                 \
	do {                                                                                            \
		if (unlikely((target)->shared))                                                         \
			__atomic_fetch_add(&(target)->hop->field, (uint64_t)(count), __ATOMIC_RELAXED); \
		else                                                                                    \
			(target)->hop->field += (count);                                                \
	} while (0)

static void count_hops(const struct passage *passage, const struct exit *exit, const uint8_t *which, unsigned n,
		       struct given given)
{
	for (unsigned i = 0; i < n; i++) {
		const struct target *target = &passage->steering->targets[passage->targets[which[i]]];
		const struct packet *packet = &passage->burst->packets[which[i]];

		if (target->hop == NULL)
			continue;
		if (likely(i < given.dealt && packet->delivered)) {
			COUNT_HOP(target, packets, 1);
			COUNT_HOP(target, bytes, packet->length);
		} else if (i < given.dealt) {
			COUNT_HOP(target, drop_receiver_too_small, 1);
		} else if (i >= given.admitted) {
			COUNT_HOP(target, drop_rate, 1);
		} else if (exit_up(exit)) {
			COUNT_HOP(target, drop_receiver_full, 1);
		} else {
			COUNT_HOP(target, drop_receiver_down, 1);
		}
	}
}

static void give(struct passage *passage, const struct outlet *outlet)
{
	const struct exit *exit = &outlet->exit;
	uint8_t which[VRING_BURST];
	struct given given;
	unsigned n = 0;

	if (passage->steering->bridge != NULL)
		set_tags(passage, outlet);
	for (uint64_t rest = outlet->packets; rest != 0; rest &= rest - 1)
		which[n++] = (uint8_t)__builtin_ctzll(rest);
	given = exit_give(passage->source, exit, passage->burst, which, n, passage->round);
	if (unlikely(given.dealt < n))
		exit_drop(passage->source, exit, passage->burst, which, n, given, passage->round);
	if (passage->steering->bridge == NULL)
		count_hops(passage, exit, which, n, given);
}

/* ------- a burst ------- */

/* Visit the touched outlets in their order: FOR_OUTLETS(steering, number) { ... } */
#define FOR_OUTLETS(steering, number)                                           \
	for (unsigned word_ = 0; word_ <= (steering)->nb_outlets / 64; word_++) \
		for (uint64_t rest_ = (steering)->touched[word_];               \
		     rest_ != 0 && (number = word_ * 64 + __builtin_ctzll(rest_), true); rest_ &= rest_ - 1)

/* An outlet of a queue that an outlet before it has taken, too, needs no taking. */
static bool taken_before(const struct steering *steering, unsigned number)
{
	for (; steering->outlets[number].same_queue; number--)
		if (steering->outlets[number - 1].packets != 0)
			return true;
	return false;
}

static void forget_packets(struct steering *steering, unsigned number)
{
	steering->outlets[number].packets = 0;
	steering->touched[number / 64] &= ~(UINT64_C(1) << number % 64);
}

/* Let go of the outlets before `end`. */
static void release(struct steering *steering, unsigned end)
{
	unsigned number;

	FOR_OUTLETS(steering, number)
	if (number < end && !taken_before(steering, number))
		exit_release(&steering->outlets[number].exit);
}

/* Take all outlets.  False: one is busy, none is taken, and the burst may stay where it is. */
static bool take_all(struct passage *passage, bool may_stay)
{
	struct steering *steering = passage->steering;
	unsigned number;

	FOR_OUTLETS(steering, number)
	{
		struct outlet *outlet = &steering->outlets[number];

		if (likely(!outlet->exit.locked) || taken_before(steering, number) || take(&outlet->exit))
			continue;
		if (may_stay) {
			release(steering, number);
			return false;
		}
		sender_counters(passage->source)->drop_receiver_busy += __builtin_popcountll(outlet->packets);
		forget_packets(steering, number);
	}
	return true;
}

/* Decide on the burst and deliver it.  False: it has to stay; nothing has been done. */
static bool pass(struct source *source, struct burst *burst, bool may_stay, const struct round *round)
{
	struct steering *steering = source->steering;
	struct passage passage;
	bool taken;
	unsigned number;

	passage.source = source;
	passage.steering = steering;
	passage.burst = burst;
	passage.round = round;
	passage.reasons = (struct reasons){0};
	if (steering->bridge != NULL)
		steer_by_bridge(&passage);
	else if (steering->classifier != NULL || steering->otherwise != STEERING_DROP)
		steer_by_rules(&passage);
	else
		passage.reasons.no_chain = burst->count;
	taken = take_all(&passage, may_stay);
	if (likely(taken)) {
		count_reasons(source, &passage.reasons);
		watch_in(source, burst, burst->count, round);
		FOR_OUTLETS(steering, number)
		give(&passage, &steering->outlets[number]);
	}
	return taken;
}

/* What was given has been shown: others may use the outlets. */
static void finish(struct steering *steering, bool taken)
{
	unsigned number;

	if (likely(taken)) {
		release(steering, UINT32_MAX);
		steering->unsettled = true;
	}
	FOR_OUTLETS(steering, number)
	steering->outlets[number].packets = 0;
	for (unsigned word = 0; word <= steering->nb_outlets / 64; word++)
		steering->touched[word] = 0;
}

static uint64_t bytes_of(const struct burst *burst)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < burst->count; i++)
		bytes += burst->packets[i].received;
	return bytes;
}

static unsigned poll_guest(struct source *source, struct virtqueue *from, unsigned limit, const struct round *round)
{
	struct burst burst;
	bool taken = true;
	unsigned done;

	if (vring_read(from, &burst, limit) == 0) {
		vring_read_done(from, &burst);
		return 0;
	}
	watch_read(source, &burst, round);
	if (burst.count > 0) {
		/* Frames that were dropped on reading lie between the others, and are counted: they cannot stay. */
		taken = pass(source, &burst, burst.count == burst.taken, round);
		if (unlikely(!taken)) {
			watch_stay(source, &burst, 0);
			burst.count = 0;
			burst.taken = 0;
		}
	}
	watch_spend(source, bytes_of(&burst), burst.taken);
	done = burst.taken;
	vring_read_done(from, &burst);
	finish(source->steering, taken);
	return done;
}

static unsigned poll_device(struct source *source, unsigned limit, const struct round *round)
{
	struct burst burst;
	unsigned received = device_read(source->from, source->queue, &burst, limit);

	if (received > 0) {
		watch_read(source, &burst, round);
		if (burst.count > 0)
			pass(source, &burst, false, round);
		watch_spend(source, bytes_of(&burst), received);
	}
	device_read_done(source->from, source->queue, &burst);
	if (received > 0)
		finish(source->steering, true);
	return received;
}

/*
 * What was given to guests last may still have to be told to them: a receiver that nothing goes to now is told here,
 * since no write comes by.  Once after each time that frames came.
 */
static void settle_outlets(struct steering *steering)
{
	steering->unsettled = false;
	for (unsigned i = 0; i < steering->nb_outlets; i++) {
		const struct exit *exit = &steering->outlets[i].exit;
		struct virtqueue *to;

		if (exit->port->kind == PORT_DEVICE) {
			if (exit->port->queues[exit->queue].nb_held > 0 && exit_take(exit)) {
				exit_flush(exit);
				exit_release(exit);
			}
			continue;
		}
		to = port_receiver(exit->port, exit->queue);
		if (to == NULL || to->unsettled == 0)
			continue;
		if (!exit_take(exit)) {
			steering->unsettled = true;
			continue;
		}
		vring_settle(to, NULL);
		exit_release(exit);
	}
}

unsigned steer_poll(struct source *source, const struct round *round)
{
	struct virtqueue *from = NULL;
	unsigned limit, moved;

	if (source->from->kind == PORT_GUEST)
		from = port_sender(source->from, source->queue);
	limit = watch_limit(source, round);
	if (unlikely(limit == 0 || (from == NULL && source->from->kind == PORT_GUEST)))
		moved = 0;
	else if (from != NULL)
		moved = poll_guest(source, from, limit, round);
	else
		moved = poll_device(source, limit, round);
	if (moved == 0 && unlikely(source->steering->unsettled))
		settle_outlets(source->steering);
	watch_done(source);
	return moved;
}
