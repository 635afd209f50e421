/* SPDX-License-Identifier: Apache-2.0
 *
 * Making watches.  An object is found again by what it is for, and used again if it would be the same; else a new one
 * takes its place and the old one goes when workers have let go of it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "switch/observation.h"
#include "switch/watches.h"

enum { BUCKETS = 1 << 12, SENDER_WORDS = MODEL_PORTS / 64 + 1 };

enum kind { KIND_SOURCE, KIND_EGRESS, KIND_DIVISION, KIND_SHAPER };

/* What an object is for. */
struct key {
	enum kind kind;
	const void *a, *b, *c;
};

struct object {
	struct object *next; /* in its bucket */
	struct key key;
	unsigned used, made;   /* by which wirings; 0: not yet */
	struct shares *shares; /* a division's */
	struct port_queue *to; /* of what waits in a shaper: whose loss it is if the way there ends */
	_Alignas(64) char content[];
};

struct watches {
	unsigned wiring; /* counts them, from 1 on */
	bool failed;
	const struct model *model;
	const struct names *ports;
	uint64_t (*senders)[SENDER_WORDS]; /* by a port's place in the model: who sends to it, a bit each */
	struct object *buckets[BUCKETS];
};

struct watches *watches_new(void)
{
	return calloc(1, sizeof(struct watches));
}

/* ------- objects ------- */

static struct object **bucket_of(struct watches *watches, const struct key *key)
{
	uint64_t hash = (uintptr_t)key->a * UINT64_C(0x9e3779b97f4a7c15) + (uintptr_t)key->b;

	hash = (hash ^ (hash >> 29)) * UINT64_C(0xbf58476d1ce4e5b9) + (uintptr_t)key->c + key->kind;
	return &watches->buckets[(hash ^ (hash >> 32)) % BUCKETS];
}

static void *make(struct watches *watches, const struct key *key, size_t size)
{
	struct object *object = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*object) + size, 64));

	if (object == NULL) {
		watches->failed = true;
		return NULL;
	}
	memset(object, 0, sizeof(*object) + size);
	object->key = *key;
	return object->content;
}

static struct object *object_of(void *content)
{
	return (struct object *)((char *)content - offsetof(struct object, content));
}

static void free_object(struct object *object)
{
	free(object->shares);
	if (object->key.kind == KIND_SHAPER) {
		struct shaper *shaper = (struct shaper *)object->content;

		if (shaper_waiting(shaper))
			object->to->counters->drop_chain_removed += shaper_clear(shaper);
		shaper_close(shaper);
	}
	free(object);
}

static bool same_watch(const struct watch *a, const struct watch *b)
{
	return a->gate == b->gate && a->hops == b->hops && a->number == b->number &&
	       a->followed.follow == b->followed.follow && a->nb_taps == b->nb_taps &&
	       memcmp(a->taps, b->taps, a->nb_taps * sizeof(a->taps[0])) == 0;
}

static bool same_egress_watch(const struct egress_watch *a, const struct egress_watch *b)
{
	return a->division == b->division && a->member == b->member && a->shaper == b->shaper && a->hop == b->hop &&
	       a->number == b->number && a->nb_offered == b->nb_offered && a->nb_taps == b->nb_taps &&
	       strcmp(a->label, b->label) == 0 && memcmp(a->taps, b->taps, a->nb_taps * sizeof(a->taps[0])) == 0;
}

static bool same_shares(const struct shares *a, const struct shares *b)
{
	if (a->byte_cost != b->byte_cost || a->packet_cost != b->packet_cost || a->nb_members != b->nb_members)
		return false;
	for (unsigned i = 0; i < a->nb_members; i++)
		if (a->members[i].weight != b->members[i].weight)
			return false;
	return true;
}

static bool same(const struct object *a, const struct object *b)
{
	const struct key *x = &a->key, *y = &b->key;

	if (x->kind != y->kind || x->a != y->a || x->b != y->b || x->c != y->c)
		return false;
	switch (x->kind) {
	case KIND_SOURCE:
		return same_watch((const struct watch *)a->content, (const struct watch *)b->content);
	case KIND_EGRESS:
		return same_egress_watch((const struct egress_watch *)a->content,
					 (const struct egress_watch *)b->content);
	case KIND_DIVISION:
		return same_shares(a->shares, b->shares);
	case KIND_SHAPER:
		return true; /* what waits in it goes on waiting; its limits can be changed */
	}
	return false;
}

/* The content of an object that is there and would be the same, or of this one, which is then kept. */
static void *intern(struct watches *watches, void *content)
{
	struct object *made = object_of(content);
	struct object **bucket = bucket_of(watches, &made->key);

	for (struct object *object = *bucket; object != NULL; object = object->next)
		if (same(object, made)) {
			free_object(made);
			object->used = watches->wiring;
			return object->content;
		}
	made->used = watches->wiring;
	made->made = watches->wiring;
	made->next = *bucket;
	*bucket = made;
	return content;
}

enum sweep { SWEEP_UNUSED, SWEEP_NEW, SWEEP_ALL };

static void sweep(struct watches *watches, enum sweep which)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		struct object **link = &watches->buckets[i];

		while (*link != NULL) {
			struct object *object = *link;

			if ((which == SWEEP_UNUSED && object->used == watches->wiring) ||
			    (which == SWEEP_NEW && object->made != watches->wiring)) {
				link = &object->next;
				continue;
			}
			*link = object->next;
			free_object(object);
		}
	}
}

void watches_free(struct watches *watches)
{
	if (watches == NULL)
		return;
	sweep(watches, SWEEP_ALL);
	free(watches->senders);
	free(watches);
}

void watches_drop(struct watches *watches)
{
	sweep(watches, SWEEP_NEW);
}

bool observation_failed(const struct observation *observation)
{
	return observation->watches->failed;
}

/* ------- who sends to whom ------- */

static void add_sender(struct watches *watches, const struct port_model *from, const struct port_model *to)
{
	watches->senders[to->index][from->index / 64] |= UINT64_C(1) << from->index % 64;
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

static void add_chain(struct watches *watches, const struct chain_model *chain)
{
	for (unsigned hop = 0; hop <= chain->nb_through; hop++) {
		const struct port_model *before[MODEL_REPLICAS], *after[MODEL_REPLICAS];
		unsigned nb_before = ports_at(chain, hop, false, before);
		unsigned nb_after = ports_at(chain, hop + 1, true, after);

		for (unsigned i = 0; i < nb_before; i++)
			for (unsigned j = 0; j < nb_after; j++) {
				add_sender(watches, before[i], after[j]);
				add_sender(watches, after[j], before[i]);
			}
	}
}

static void add_bridge(struct watches *watches, const struct bridge_model *bridge)
{
	for (unsigned i = 0; i < bridge->nb_ports; i++)
		for (unsigned j = 0; j < bridge->nb_ports; j++)
			if (i != j)
				add_sender(watches, bridge->ports[i].port, bridge->ports[j].port);
}

int watches_begin(struct watches *watches, const struct model *model, const struct names *ports)
{
	watches->wiring++;
	watches->failed = false;
	watches->model = model;
	watches->ports = ports;
	free(watches->senders);
	watches->senders = calloc(model->nb_ports + 1, sizeof(watches->senders[0]));
	if (watches->senders == NULL)
		return -1;
	for (unsigned i = 0; i < model->nb_chains; i++)
		add_chain(watches, &model->chains[i]);
	for (unsigned i = 0; i < model->nb_bridges; i++)
		add_bridge(watches, &model->bridges[i]);
	return 0;
}

/* ------- dividing a receiver ------- */

static bool is_limited(const struct port_model *port)
{
	return port->to_bits != 0 || port->to_packets != 0;
}

static struct division *make_division(struct watches *watches, const struct port_model *to)
{
	const struct rate rate = {.bits = to->to_bits, .packets = to->to_packets};
	const struct key key = {.kind = KIND_DIVISION, .a = names_find(watches->ports, to->name)};
	uint32_t weights[MODEL_PORTS];
	struct division *division;
	unsigned count = 0;

	for (unsigned word = 0; word < SENDER_WORDS; word++)
		count += (unsigned)__builtin_popcountll(watches->senders[to->index][word]);
	if (count < 2 && !is_limited(to))
		return NULL;
	count = 0;
	for (unsigned i = 0; i < watches->model->nb_ports; i++)
		if (watches->senders[to->index][i / 64] >> i % 64 & 1)
			weights[count++] = watches->model->ports[i].share;
	division = make(watches, &key, sizeof(*division));
	if (division == NULL)
		return NULL;
	rte_spinlock_init(&division->lock);
	division->shares = shares_make(&rate, weights, count, rte_rdtsc(), rte_get_tsc_hz());
	object_of(division)->shares = division->shares;
	if (division->shares == NULL) {
		watches->failed = true;
		free_object(object_of(division));
		return NULL;
	}
	return intern(watches, division);
}

/* The rank of the sender among those of the receiver. */
static unsigned member(const struct watches *watches, const struct port_model *from, const struct port_model *to)
{
	const uint64_t *senders = watches->senders[to->index];
	unsigned rank = 0;

	for (unsigned word = 0; word < from->index / 64; word++)
		rank += (unsigned)__builtin_popcountll(senders[word]);
	return rank +
	       (unsigned)__builtin_popcountll(senders[from->index / 64] & ((UINT64_C(1) << from->index % 64) - 1));
}

/* What of the way's frames is above the receiver's rate, and cannot stay where it is, waits here. */
static struct shaper *make_shaper(struct watches *watches, const struct way *way, const struct port_model *to,
				  const struct egress_watch *watch)
{
	const struct key key = {
		.kind = KIND_SHAPER, .a = &way->from->port.queues[way->queue], .b = way->to, .c = way->hop};
	const struct shares *shares = watch->division->shares;
	struct shaper_limits limits;
	struct shaper *shaper;
	uint64_t whole = 0;

	for (unsigned i = 0; i < shares->nb_members; i++)
		whole += shares->members[i].weight;
	limits = shaper_limits_of(to->to_bits, to->to_packets, to->to_latency, shares->members[watch->member].weight,
				  whole * way->from->port.nb_queues);
	shaper = make(watches, &key, sizeof(*shaper));
	if (shaper == NULL)
		return NULL;
	object_of(shaper)->to = &way->to->port.queues[0];
	if (!shaper_open(shaper)) {
		watches->failed = true;
		free_object(object_of(shaper));
		return NULL;
	}
	shaper->limits = limits;
	shaper = intern(watches, shaper);
	shaper->next = limits;
	return shaper;
}

/* Only now that the change is made. */
static void set_shapers(struct watches *watches)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct object *object = watches->buckets[i]; object != NULL; object = object->next)
			if (object->key.kind == KIND_SHAPER) {
				struct shaper *shaper = (struct shaper *)object->content;

				__atomic_store_n(&shaper->limits.bytes, shaper->next.bytes, __ATOMIC_RELAXED);
				__atomic_store_n(&shaper->limits.packets, shaper->next.packets, __ATOMIC_RELAXED);
			}
}

/* ------- onlookers ------- */

enum { TAPS = MODEL_MIRRORS + CAPTURES };

static unsigned add_mirror(const struct observation *observation, const struct mirror_model *mirror, struct tap *tap)
{
	struct switch_port *to = names_find(observation->watches->ports, mirror->to->name);

	if (to == NULL)
		return 0;
	memset(tap, 0, sizeof(*tap)); /* taps are compared whole */
	tap->mirror.port = &to->port;
	tap->mirror.locked = observation->nb_workers > 1;
	tap->mirror.shared = observation->nb_workers > 1;
	tap->mirror.hop = ((struct running_mirror *)names_find(&observation->mirrors, mirror->name))->counters;
	return 1;
}

/* Is the port or chain of this name what is looked at?  Each of the two may be NULL. */
static bool looked_at(const char *name, bool of_chain, const char *port, const char *chain)
{
	const char *what = of_chain ? chain : port;

	return what != NULL && strcmp(name, what) == 0;
}

/* Collect who looks at frames that come in, or go out, by this port or this chain.  Returns how many. */
static unsigned collect(const struct observation *observation, const char *port, const char *chain, bool in,
			struct tap *taps)
{
	const struct model *model = observation->watches->model;
	struct capture_session *session;
	unsigned count = 0;

	for (unsigned i = 0; i < model->nb_mirrors; i++) {
		const struct mirror_model *mirror = &model->mirrors[i];

		if ((in ? mirror->in : mirror->out) &&
		    looked_at(mirror->chain != NULL ? mirror->chain->name : mirror->port->name, mirror->chain != NULL,
			      port, chain))
			count += add_mirror(observation, mirror, &taps[count]);
	}
	TAILQ_FOREACH (session, &observation->captures, entry)
		if ((in ? session->in : session->out) && looked_at(session->name, session->of_chain, port, chain)) {
			memset(&taps[count], 0, sizeof(taps[count]));
			taps[count++].capture = &session->capture;
		}
	return count;
}

/* ------- watches ------- */

static void label(struct egress_watch *watch, const struct way *way)
{
	if (way->chain != NULL)
		snprintf(watch->label, sizeof(watch->label), "chain %s, hop %u%s", way->chain->name, way->number,
			 way->back ? ", back" : "");
}

struct egress_watch *observation_egress(struct observation *observation, const struct way *way)
{
	struct watches *watches = observation->watches;
	const struct key key = {
		.kind = KIND_EGRESS, .a = &way->from->port.queues[way->queue], .b = way->to, .c = way->hop};
	const char *chain = way->chain != NULL ? way->chain->name : NULL;
	const struct port_model *from, *to;
	struct tap taps[2 * TAPS];
	struct division *division;
	struct egress_watch *watch;
	unsigned offered, all;

	if (way->from == NULL || way->to == NULL)
		return NULL;
	from = names_find(&watches->model->ports_by_name, way->from->port.name);
	to = names_find(&watches->model->ports_by_name, way->to->port.name);
	division = make_division(watches, to);
	offered = way->first ? collect(observation, NULL, chain, true, taps) : 0;
	all = offered + collect(observation, to->name, way->last ? chain : NULL, false, taps + offered);
	if (division == NULL && all == 0 && observation->trace == NULL && observation->follow == NULL)
		return NULL;
	watch = make(watches, &key, sizeof(*watch) + all * sizeof(watch->taps[0]));
	if (watch == NULL)
		return NULL;
	watch->division = division;
	watch->member = division != NULL ? member(watches, from, to) : 0;
	watch->hop = way->hop;
	if (division != NULL && shares_limited(division->shares) && !way->stays)
		watch->shaper = make_shaper(watches, way, to, watch);
	watch->number = way->to->port.number;
	watch->nb_offered = offered;
	watch->nb_taps = all;
	memcpy(watch->taps, taps, all * sizeof(taps[0]));
	label(watch, way);
	return intern(watches, watch);
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

/* What the ports may send lies in them and not in a watch, so it changes only now that the change is made. */
static void set_gates(struct watches *watches)
{
	for (unsigned i = 0; i < watches->model->nb_ports; i++) {
		const struct port_model *model = &watches->model->ports[i];
		struct switch_port *port = names_find(watches->ports, model->name);

		if (port != NULL && is_gated(model))
			set_gate(&port->gate, model);
	}
}

void watches_keep(struct watches *watches)
{
	sweep(watches, SWEEP_UNUSED);
	set_gates(watches);
	set_shapers(watches);
}

struct watch *observation_source(struct observation *observation, struct switch_port *port, unsigned queue,
				 bool egress_watched)
{
	struct watches *watches = observation->watches;
	const struct key key = {.kind = KIND_SOURCE, .a = &port->port.queues[queue]};
	const struct port_model *model = names_find(&watches->model->ports_by_name, port->port.name);
	struct gate *gate = is_gated(model) ? &port->gate : NULL;
	struct tap taps[TAPS];
	unsigned count = collect(observation, model->name, NULL, true, taps);
	struct watch *watch;

	if (gate == NULL && count == 0 && !egress_watched && observation->trace == NULL && observation->follow == NULL)
		return NULL;
	watch = make(watches, &key, sizeof(*watch) + count * sizeof(watch->taps[0]));
	if (watch == NULL)
		return NULL;
	watch->gate = gate;
	watch->hops = observation->trace != NULL ? &observation->trace->hops : NULL;
	watch->number = port->port.number;
	watch->followed.follow = observation->follow;
	watch->nb_taps = count;
	memcpy(watch->taps, taps, count * sizeof(taps[0]));
	return intern(watches, watch);
}

bool observation_looks(const struct watch *watch, const struct egress_watch *egress)
{
	if (watch != NULL &&
	    (watch->gate != NULL || watch->nb_taps > 0 || watch->hops != NULL || watch->followed.follow != NULL))
		return true;
	return egress != NULL &&
	       (egress->nb_taps > 0 || (egress->division != NULL && shares_limited(egress->division->shares)));
}
