/* SPDX-License-Identifier: Apache-2.0
 *
 * What is watched beyond the moving of frames, and where: the rates, shares and mirrors of the configuration, its hop
 * trace, the captures that readers have asked for, frames that are followed.  From all that come the watches of sources
 * and egresses (steer/watch.h).  A watch that would say the same as the one before is that one, so that what it belongs
 * to can stay too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "switch/maker.h"
#include "switch/parking.h"
#include "switch/switch.h"

/* ------- who sends to whom ------- */

static void add_sender(struct maker *maker, const struct port_model *from, const struct port_model *to)
{
	maker->senders[to->index][from->index / 64] |= UINT64_C(1) << from->index % 64;
}

/* All ports at one end of a hop: a function's replicas, or the end of the chain. */
static unsigned ports_at(const struct chain_model *chain, unsigned place, bool left, const struct port_model **ports)
{
	const struct function_model *function;

	if (place == 0 || place > chain->nb_through) {
		ports[0] = place == 0 ? chain->from : chain->to;
		return 1;
	}
	function = chain->through[place - 1];
	for (unsigned i = 0; i < function->nb_replicas; i++)
		ports[i] = left ? function->replicas[i].left : function->replicas[i].right;
	return function->nb_replicas;
}

static void add_chain(struct maker *maker, const struct chain_model *chain)
{
	for (unsigned hop = 0; hop <= chain->nb_through; hop++) {
		const struct port_model *before[MODEL_REPLICAS], *after[MODEL_REPLICAS];
		unsigned nb_before = ports_at(chain, hop, false, before);
		unsigned nb_after = ports_at(chain, hop + 1, true, after);

		for (unsigned i = 0; i < nb_before; i++)
			for (unsigned j = 0; j < nb_after; j++) {
				add_sender(maker, before[i], after[j]);
				add_sender(maker, after[j], before[i]);
			}
	}
}

static void add_bridge(struct maker *maker, const struct bridge_model *bridge)
{
	for (unsigned i = 0; i < bridge->nb_ports; i++)
		for (unsigned j = 0; j < bridge->nb_ports; j++)
			if (i != j)
				add_sender(maker, bridge->ports[i].port, bridge->ports[j].port);
}

void make_senders(struct maker *maker)
{
	const struct model *model = maker->model;

	maker->senders = arena_take(&maker->memory, model->nb_ports, sizeof(maker->senders[0]));
	for (unsigned i = 0; i < model->nb_ports; i++)
		maker->senders[i] = arena_take(&maker->memory, model->nb_ports / 64 + 1, sizeof(maker->senders[0][0]));
	for (unsigned i = 0; i < model->nb_chains; i++)
		add_chain(maker, &model->chains[i]);
	for (unsigned i = 0; i < model->nb_bridges; i++)
		add_bridge(maker, &model->bridges[i]);
}

/* ------- dividing a receiver ------- */

static bool is_limited(const struct port_model *port)
{
	return port->to_bits != 0 || port->to_packets != 0;
}

static struct division *new_division(const struct rate *rate, const uint32_t *weights, unsigned count)
{
	struct division *division = malloc(sizeof(*division));

	if (division == NULL)
		return NULL;
	rte_spinlock_init(&division->lock);
	division->shares = shares_make(rate, weights, count, rte_rdtsc(), rte_get_tsc_hz());
	if (division->shares != NULL)
		return division;
	free(division);
	return NULL;
}

void division_end(struct division *division)
{
	free(division->shares);
	free(division);
}

struct division_key {
	const struct switch_port *to;
	uint64_t bits, packets;
	uint32_t weights[MODEL_PORTS];
};

static struct division *make_division(struct maker *maker, const struct port_model *to)
{
	const struct rate rate = {.bits = to->to_bits, .packets = to->to_packets};
	const uint64_t *senders = maker->senders[to->index];
	struct division_key key;
	unsigned count = 0;
	struct part *part;

	for (unsigned i = 0; i < maker->model->nb_ports; i++)
		if (senders[i / 64] >> i % 64 & 1)
			key.weights[count++] = maker->model->ports[i].share;
	if (count < 2 && !is_limited(to))
		return NULL;
	key.to = maker->generation->ports[to->index].port;
	key.bits = rate.bits;
	key.packets = rate.packets;
	part = holding_take(&maker->generation->parts, PART_DIVISION, &key,
			    offsetof(struct division_key, weights) + count * sizeof(key.weights[0]));
	if (part != NULL && part->content == NULL)
		part->content = new_division(&rate, key.weights, count);
	return part != NULL && part->content != NULL ? part->content : maker_fail(maker);
}

/* The rank of the sender among those of the receiver. */
static unsigned member(const struct maker *maker, unsigned from, unsigned to)
{
	const uint64_t *senders = maker->senders[to];
	unsigned rank = 0;

	for (unsigned word = 0; word < from / 64; word++)
		rank += (unsigned)__builtin_popcountll(senders[word]);
	return rank + (unsigned)__builtin_popcountll(senders[from / 64] & ((UINT64_C(1) << from % 64) - 1));
}

/* A shaper, and whose loss it is what waits in it if the way there ends. */
struct owned_shaper {
	struct shaper shaper;
	struct port_queue *to;
};

static struct shaper *new_shaper(struct port_queue *to, struct shaper_limits limits)
{
	struct owned_shaper *owned = malloc(sizeof(*owned));

	if (owned == NULL || !shaper_open(&owned->shaper)) {
		free(owned);
		return NULL;
	}
	owned->shaper.limits = limits;
	owned->to = to;
	return &owned->shaper;
}

void shaper_end(struct shaper *shaper)
{
	struct owned_shaper *owned = (struct owned_shaper *)shaper;

	if (shaper_waiting(shaper))
		owned->to->counters->drop_chain_removed += shaper_clear(shaper);
	shaper_close(shaper);
	free(owned);
}

/*
 * What of the way's frames is above the receiver's rate, and cannot stay where it is, waits here.  It goes on waiting
 * when the limits change.
 */
static struct shaper *make_shaper(struct maker *maker, const struct way *way, const struct egress_watch *watch)
{
	struct generation *generation = maker->generation;
	const struct port_model *to = &maker->model->ports[way->to];
	struct port *from = &generation->ports[way->from].port->port;
	const void *const key[] = {&from->queues[way->queue], generation->ports[way->to].port, way->hop};
	const struct shares *shares = watch->division->shares;
	struct shaper_setting *setting = arena_take(&generation->memory, 1, sizeof(*setting));
	struct part *part = holding_take(&generation->parts, PART_SHAPER, key, sizeof(key));
	uint64_t whole = 0;

	for (unsigned i = 0; i < shares->nb_members; i++)
		whole += shares->members[i].weight;
	setting->limits = shaper_limits_of(to->to_bits, to->to_packets, to->to_latency,
					   shares->members[watch->member].weight, whole * from->nb_queues);
	if (part != NULL && part->content == NULL)
		part->content = new_shaper(&generation->ports[way->to].port->port.queues[0], setting->limits);
	if (part == NULL || part->content == NULL)
		return maker_fail(maker);
	setting->shaper = part->content;
	setting->next = generation->shapers;
	generation->shapers = setting;
	return setting->shaper;
}

static void set_shapers(const struct generation *generation)
{
	for (const struct shaper_setting *setting = generation->shapers; setting != NULL; setting = setting->next) {
		__atomic_store_n(&setting->shaper->limits.bytes, setting->limits.bytes, __ATOMIC_RELAXED);
		__atomic_store_n(&setting->shaper->limits.packets, setting->limits.packets, __ATOMIC_RELAXED);
	}
}

/* ------- onlookers ------- */

enum { TAPS = MODEL_MIRRORS + CAPTURES };

static unsigned add_mirror(const struct maker *maker, unsigned number, struct tap *tap)
{
	const struct generation *generation = maker->generation;
	struct switch_port *to = generation->ports[maker->model->mirrors[number].to->index].port;
	const bool several = generation->state->workers.count > 1;

	if (to == NULL)
		return 0;
	memset(tap, 0, sizeof(*tap)); /* taps are compared whole */
	tap->mirror.port = &to->port;
	tap->mirror.locked = several;
	tap->mirror.shared = several;
	tap->mirror.hop = generation->mirrors[number];
	return 1;
}

/* Is the port or chain of this name what is looked at?  Each of the two may be NULL. */
static bool looked_at(const char *name, bool of_chain, const char *port, const char *chain)
{
	const char *what = of_chain ? chain : port;

	return what != NULL && strcmp(name, what) == 0;
}

/* Collect who looks at frames that come in, or go out, by this port or this chain.  Returns how many. */
static unsigned collect(const struct maker *maker, const char *port, const char *chain, bool in, struct tap *taps)
{
	const struct model *model = maker->model;
	struct capture_session *session;
	unsigned count = 0;

	for (unsigned i = 0; i < model->nb_mirrors; i++) {
		const struct mirror_model *mirror = &model->mirrors[i];

		if ((in ? mirror->in : mirror->out) &&
		    looked_at(mirror->chain != NULL ? mirror->chain->name : mirror->port->name, mirror->chain != NULL,
			      port, chain))
			count += add_mirror(maker, i, &taps[count]);
	}
	TAILQ_FOREACH (session, &maker->generation->state->observation.captures, entry)
		if ((in ? session->in : session->out) && looked_at(session->name, session->of_chain, port, chain)) {
			memset(&taps[count], 0, sizeof(taps[count]));
			taps[count++].capture = &session->capture;
		}
	return count;
}

/* ------- watches ------- */

/* The watch that begins as this one, which is its key, with `more` bytes behind it. */
static void *take_watch(struct maker *maker, enum part_kind kind, const void *begins, size_t size, size_t more)
{
	struct part *part = holding_take(&maker->generation->parts, kind, begins, size + more);

	if (part != NULL && part->content == NULL) {
		part->content = aligned_alloc(64, RTE_ALIGN_CEIL(size, 64));
		if (part->content != NULL)
			memcpy(part->content, begins, size);
	}
	return part != NULL && part->content != NULL ? part->content : maker_fail(maker);
}

static void label(struct egress_watch *watch, const struct way *way)
{
	if (way->chain != NULL)
		snprintf(watch->label, sizeof(watch->label), "chain %s, hop %u%s", way->chain->name, way->number,
			 way->back ? ", back" : "");
}

struct egress_watch *make_egress_watch(struct maker *maker, const struct way *way)
{
	const struct generation *generation = maker->generation;
	const struct port_model *to = &maker->model->ports[way->to];
	const char *chain = way->chain != NULL ? way->chain->name : NULL;
	struct division *division = make_division(maker, to);
	struct park *park = parking_of(&generation->state->observation, to->name);
	struct tap taps[2 * TAPS];
	struct egress_watch *watch;
	unsigned offered, all;

	offered = way->first ? collect(maker, NULL, chain, true, taps) : 0;
	all = offered + collect(maker, to->name, way->last ? chain : NULL, false, taps + offered);
	if (division == NULL && park == NULL && all == 0 && generation->trace == NULL &&
	    generation->state->observation.follow == NULL)
		return NULL;
	watch = arena_take(&maker->memory, 1, sizeof(*watch) + all * sizeof(watch->taps[0]));
	watch->division = division;
	watch->member = division != NULL ? member(maker, way->from, way->to) : 0;
	watch->hop = way->hop;
	watch->park = park;
	if (division != NULL && shares_limited(division->shares) && !way->stays)
		watch->shaper = make_shaper(maker, way, watch);
	watch->number = generation->ports[way->to].port->port.number;
	watch->nb_offered = offered;
	watch->nb_taps = all;
	memcpy(watch->taps, taps, all * sizeof(taps[0]));
	label(watch, way);
	return take_watch(maker, PART_EGRESS, watch, sizeof(*watch) + all * sizeof(watch->taps[0]), 0);
}

static bool is_gated(const struct port_model *port)
{
	return port->most_bits != 0 || port->most_packets != 0;
}

/* Set the port's limit up anew if the configuration has changed it. */
static void set_gate(struct gate *gate, const struct port_model *model)
{
	const struct rate rate = {.bits = model->most_bits, .packets = model->most_packets};

	if (gate->rate.bits == rate.bits && gate->rate.packets == rate.packets)
		return;
	rte_spinlock_lock(&gate->lock);
	limit_set(&gate->limit, &rate, rte_rdtsc(), rte_get_tsc_hz());
	gate->rate = rate;
	rte_spinlock_unlock(&gate->lock);
}

static void set_gates(const struct generation *generation)
{
	for (unsigned i = 0; i < generation->model->nb_ports; i++) {
		const struct port_model *model = &generation->model->ports[i];
		struct switch_port *port = generation->ports[i].port;

		if (port != NULL && is_gated(model))
			set_gate(&port->gate, model);
	}
}

void watches_settle(const struct generation *generation)
{
	set_gates(generation);
	set_shapers(generation);
}

struct watch *make_watch(struct maker *maker, unsigned port, unsigned queue)
{
	const struct generation *generation = maker->generation;
	const struct port_model *model = &maker->model->ports[port];
	struct switch_port *running = generation->ports[port].port;
	const struct port_queue *entry = &running->port.queues[queue];
	struct gate *gate = is_gated(model) ? &running->gate : NULL;
	struct follow *follow = generation->state->observation.follow;
	struct tap taps[TAPS];
	const unsigned count = collect(maker, model->name, NULL, true, taps);
	const size_t size = sizeof(struct watch) + count * sizeof(taps[0]);
	struct watch *watch;

	if (gate == NULL && count == 0 && !maker->egress_watched && generation->trace == NULL && follow == NULL)
		return NULL;
	watch = arena_take(&maker->memory, 1, size + sizeof(entry));
	watch->gate = gate;
	watch->hops = generation->trace != NULL ? &generation->trace->hops : NULL;
	watch->number = running->port.number;
	watch->followed.follow = follow;
	watch->nb_taps = count;
	memcpy(watch->taps, taps, count * sizeof(taps[0]));
	memcpy((char *)watch + size, &entry, sizeof(entry));
	return take_watch(maker, PART_SOURCE, watch, size, sizeof(entry));
}

bool watches_look(const struct watch *watch, const struct egress_watch *egress)
{
	if (watch != NULL &&
	    (watch->gate != NULL || watch->nb_taps > 0 || watch->hops != NULL || watch->followed.follow != NULL))
		return true;
	return egress != NULL && (egress->nb_taps > 0 || egress->park != NULL ||
				  (egress->division != NULL && shares_limited(egress->division->shares)));
}
