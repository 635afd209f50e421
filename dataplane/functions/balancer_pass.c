/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <netinet/in.h>

#include <rte_common.h>
#include <rte_ether.h>

#include "balancer_frames.h"
#include "balancer_pass.h"
#include "function.h"
#include "steer/hash.h"

enum { CLIENTS, ENDS }; /* ports */

/* ------- connections ------- */

void balancer_connection_began(struct balancer_lane *lane, struct connection *flow, uint16_t number)
{
	struct balancer_end_counts *counts = &lane->ends[number];

	flow->mark = number;
	atomic_store_explicit(&counts->connections, counts->connections + 1, memory_order_relaxed);
}

void balancer_connection_ended(struct connections *flows, uint32_t number)
{
	struct balancer_lane *lane = container_of(flows, struct balancer_lane, flows);
	struct balancer_end_counts *counts = &lane->ends[flows->flows[number].mark];

	atomic_store_explicit(&counts->connections, counts->connections - 1, memory_order_release);
}

/*
 * In mode direct only the opener's frames come by: it cannot be told from a flood of segments that somebody made up. So
 * nothing but a beginning and an end is told apart, and all of it gives way when the table is full.
 */
static unsigned seen_from_one_side(enum connection_state state, enum event event)
{
	switch (event) {
	case EVENT_SYN:
		return state == CONNECTION_time_wait || state == CONNECTION_reset ? CONNECTION_ANEW : state;
	case EVENT_FIN:
		return CONNECTION_time_wait;
	case EVENT_RST:
		return CONNECTION_reset;
	default:
		return state == CONNECTION_time_wait || state == CONNECTION_reset ? state : CONNECTION_one_way;
	}
}

/* A segment that does not fit is for the end to refuse; it changes nothing of the connection. */
static unsigned next_state(const struct connection *flow, bool direct, bool by_opener, enum event event)
{
	const unsigned state = direct ? seen_from_one_side(flow->state, event)
				      : connection_after(flow->state, by_opener, event);

	return state == CONNECTION_REFUSED ? flow->state : state;
}

static uint16_t choose(const struct balancer_table *table, uint16_t service, const uint64_t *words)
{
	const uint64_t hash = hash_mix(hash_mix(words[0] ^ table->own.secret[0], words[1] ^ table->own.secret[1]) ^
					       hash_mix(words[2] ^ table->own.secret[1], words[3] ^ HASH_3),
				       hash_mix(words[4] ^ table->own.secret[0], words[5] ^ HASH_4));

	return table->places[service][maglev_place(hash_mix(hash, HASH_3))];
}

/* Whether an end gets frames without an entry, or did so a while ago: as long as an answer is waited for. */
static bool gets_unkept(const struct balancer_lane *lane, uint16_t number)
{
	const uint32_t unkept = atomic_load_explicit(&lane->ends[number].unkept, memory_order_relaxed);

	return unkept != 0 && lane->tick - unkept <= lane->flows.timeouts[CONNECTION_one_way];
}

/*
 * The end for a frame of no connection that is known.  Only what begins one makes an entry: others go where the hash
 * leads, which is where they went before if nothing has changed, as after a restart.
 */
static __rte_noinline uint16_t begin(struct balancer_lane *lane, const struct balancer_table *table,
				     struct balancer_passing *passing)
{
	const unsigned state = connection_begin(passing->base.words.event);
	struct connection *flow = NULL;
	struct balancer_end *end;
	uint16_t number;

	passing_fill(&passing->base);
	number = choose(table, passing->service, passing->base.key.words);
	end = &lane->set->ends[number];
	if (unlikely(number == 0 || !balancer_end_is_up(end)))
		return 0;
	if (likely(state != CONNECTION_REFUSED))
		flow = connections_add(&lane->flows, &passing->base.key, state, CLIENTS, lane->tick);
	if (unlikely(flow == NULL)) {
		passing->unkept = true;
		atomic_store_explicit(&lane->ends[number].unkept, lane->tick, memory_order_relaxed);
		return number;
	}
	balancer_connection_began(lane, flow, number);
	function_count(&lane->ends[number].begun, 1);
	return number;
}

/* The end of a frame from a client; 0: there is none. */
static uint16_t follow(struct balancer_lane *lane, const struct balancer_table *table, struct balancer_passing *passing)
{
	struct connection *flow = passing_find(&passing->base, &lane->flows, lane->tick);
	const struct balancer_service *service = &lane->set->services[passing->service];
	const bool direct = service->direct && service->protocol == IPPROTO_TCP;
	unsigned state;

	if (unlikely(flow == NULL))
		return begin(lane, table, passing);
	state = next_state(flow, direct, true, passing->base.words.event);
	if (unlikely(state == CONNECTION_ANEW || !balancer_end_is_up(&lane->set->ends[flow->mark]))) {
		connections_remove(&lane->flows, flow);
		return begin(lane, table, passing);
	}
	connections_enter(&lane->flows, flow, state, lane->tick);
	return flow->mark;
}

/* ------- changing ------- */

static void send_to(struct balancer_passing *passing, const struct balancer_end *end)
{
	const uint64_t mac = atomic_load_explicit(&end->mac, memory_order_relaxed);
	uint8_t *bytes = passing_bytes(&passing->base);
	uint64_t word;

	/* As a whole word, because six bytes would be put together in memory. */
	memcpy(&word, bytes, sizeof(word));
	word = (word & ~PLAIN_MAC) | mac;
	memcpy(bytes, &word, sizeof(word));
	passing->way = BALANCER_CHANGED;
}

static inline bool is_from(const struct balancer_passing *passing, const struct ip_address *address)
{
	uint32_t word;

	if (unlikely(passing->base.plain == NULL))
		return memcmp(address->bytes, passing->base.frame.headers.source, sizeof(address->bytes)) == 0;
	memcpy(&word, address->bytes, sizeof(word));
	return word == passing->base.words.source;
}

static enum verdict pass_to_end(struct balancer_lane *lane, const struct balancer_table *table,
				struct balancer_passing *passing)
{
	struct balancer_end *end;

	passing->end = follow(lane, table, passing);
	if (unlikely(passing->end == 0))
		return VERDICT_DROP_no_back_end;
	end = &lane->set->ends[passing->end];
	function_count(&lane->ends[passing->end].frames, 1);
	send_to(passing, end);
	if (lane->set->services[passing->service].direct)
		return VERDICT_PASS;
	if (unlikely(is_from(passing, &end->address)))
		return VERDICT_DROP_martian;
	passing_change(&passing->base, REWRITE_DESTINATION, end->address.bytes, end->port);
	return VERDICT_PASS;
}

/*
 * What an end sends from its port without being asked is its own.  While it gets datagrams without an entry, their
 * answers cannot be told from that, and are many more.
 */
static bool is_its_own(const struct balancer_lane *lane, const struct balancer_passing *passing, enum event event)
{
	return lane->set->services[passing->service].protocol == IPPROTO_TCP ? event == EVENT_SYN
									     : !gets_unkept(lane, passing->end);
}

static enum verdict pass_from_end(struct balancer_lane *lane, struct balancer_passing *passing)
{
	const struct balancer_service *service = &lane->set->services[passing->service];
	struct connection *flow = passing_find(&passing->base, &lane->flows, lane->tick);
	const enum event event = passing->base.words.event;
	unsigned state;

	if (unlikely(flow == NULL && is_its_own(lane, passing, event)))
		return VERDICT_PASS;
	if (likely(flow != NULL)) {
		if (unlikely(flow->mark != passing->end))
			return VERDICT_DROP_wrong_end;
		state = next_state(flow, false, false, event);
		if (likely(state != CONNECTION_ANEW))
			connections_enter(&lane->flows, flow, state, lane->tick);
	} else {
		passing->unkept = true;
	}
	passing_change(&passing->base, REWRITE_SOURCE, service->address.bytes, service->port);
	passing->way = BALANCER_CHANGED;
	return VERDICT_PASS;
}

/* ------- errors ------- */

/* The end that has the connection of what an error quotes, as its client has it; 0: nobody. */
static uint16_t end_of(struct balancer_lane *lane, const struct balancer_table *table, uint16_t service,
		       const struct inspected *quoted)
{
	const struct connection *flow;
	struct connection_key key;
	uint16_t number;

	connection_key_make(&lane->flows, quoted, &key);
	flow = connections_find(&lane->flows, &key, 0, lane->tick);
	if (flow != NULL)
		return flow->mark;
	number = choose(table, service, key.words);
	return number != 0 && gets_unkept(lane, number) ? number : 0;
}

static bool has_port(const struct headers *headers)
{
	return headers->protocol == IPPROTO_TCP || headers->protocol == IPPROTO_UDP;
}

/* About what an end has answered. */
static enum verdict pass_error_to_end(struct balancer_lane *lane, const struct balancer_table *table,
				      struct balancer_passing *passing)
{
	const struct rewrite_place place = passing_place(&passing->base);
	struct inspected quoted;
	struct rewrite_place within;
	const struct balancer_end *end;
	uint16_t service, number;

	if (!inspect_quoted(passing->base.head, passing->base.size, &passing->base.frame, &quoted) ||
	    !has_port(&quoted.headers))
		return VERDICT_DROP_unrelated;
	service = balancer_table_service(lane->set, table, quoted.headers.source, quoted.headers.family,
					 quoted.headers.source_port, quoted.headers.protocol);
	number = service != 0 ? end_of(lane, table, service, &quoted) : 0;
	end = &lane->set->ends[number];
	if (number == 0 || !balancer_end_is_up(end))
		return VERDICT_DROP_unrelated;
	send_to(passing, end);
	if (lane->set->services[service].direct)
		return VERDICT_PASS;
	within = rewrite_place_quoted(&place, &passing->base.frame, &quoted);
	rewrite_quoted(&place, &within, REWRITE_SOURCE, end->address.bytes, end->port);
	rewrite_error(&place, REWRITE_DESTINATION, end->address.bytes);
	return VERDICT_PASS;
}

/* About what a client has sent; from its end, or from a router on the way there. */
static enum verdict pass_error_from_ends(struct balancer_lane *lane, const struct balancer_table *table,
					 struct balancer_passing *passing)
{
	const struct rewrite_place place = passing_place(&passing->base);
	const struct balancer_service *service;
	struct rewrite_place within;
	struct inspected quoted;
	struct headers *headers = &quoted.headers;
	uint16_t number;

	if (!inspect_quoted(passing->base.head, passing->base.size, &passing->base.frame, &quoted) ||
	    !has_port(headers))
		return VERDICT_PASS;
	number = balancer_table_end(lane->set, table, headers->destination, headers->family, headers->destination_port,
				    headers->protocol);
	if (number == 0)
		return VERDICT_PASS;
	service = &lane->set->services[lane->set->ends[number].service];
	memcpy(headers->destination, service->address.bytes, sizeof(headers->destination));
	headers->destination_port = service->port;
	if (memcmp(headers->source, headers->destination, sizeof(headers->source)) == 0)
		return VERDICT_DROP_martian;
	if (end_of(lane, table, lane->set->ends[number].service, &quoted) != number)
		return VERDICT_DROP_unrelated;
	within = rewrite_place_quoted(&place, &passing->base.frame, &quoted);
	rewrite_quoted(&place, &within, REWRITE_DESTINATION, service->address.bytes, service->port);
	if (memcmp(passing->base.frame.headers.source, lane->set->ends[number].address.bytes,
		   sizeof(headers->source)) == 0)
		rewrite_error(&place, REWRITE_SOURCE, service->address.bytes);
	passing->way = BALANCER_CHANGED;
	return VERDICT_PASS;
}

/* ------- looking ------- */

/* What is for a service is not looked up by its address too. */
static inline uint16_t service_of(const struct balancer_lane *lane, const struct balancer_table *table,
				  const struct balancer_passing *passing, enum verdict verdict)
{
	const struct headers *headers = &passing->base.frame.headers;

	return likely(verdict == VERDICT_FLOW)
		       ? balancer_table_service(lane->set, table, headers->destination, headers->family,
						headers->destination_port, headers->protocol)
		       : 0;
}

static enum verdict look_from_clients(struct balancer_lane *lane, const struct balancer_table *table,
				      struct balancer_passing *passing, enum verdict verdict)
{
	const struct headers *headers = &passing->base.frame.headers;
	const unsigned from = balancer_table_whose(table, headers->source, headers->family);
	unsigned whose;

	if (unlikely(from != 0 && table->list[from].kind != BALANCER_END))
		return VERDICT_DROP_spoofed;
	passing->service = service_of(lane, table, passing, verdict);
	if (likely(passing->service != 0))
		return passing_key(&passing->base, &lane->flows);
	whose = balancer_table_whose(table, headers->destination, headers->family);
	if (unlikely(whose == 0 || table->list[whose].kind == BALANCER_END))
		return VERDICT_PASS;
	if (unlikely(table->list[whose].kind == BALANCER_OWN))
		return VERDICT_DROP_itself;
	if (unlikely(verdict == VERDICT_ERROR))
		return pass_error_to_end(lane, table, passing);
	return verdict == VERDICT_FLOW ? VERDICT_DROP_no_service : verdict;
}

static enum verdict look_from_ends(struct balancer_lane *lane, const struct balancer_table *table,
				   struct balancer_passing *passing, enum verdict verdict)
{
	struct headers *headers = &passing->base.frame.headers;
	const unsigned whose = balancer_table_whose(table, headers->source, headers->family);
	const unsigned to = balancer_table_whose(table, headers->destination, headers->family);
	const struct balancer_service *service;

	if (unlikely(to != 0 && table->list[to].kind == BALANCER_OWN)) {
		if (verdict != VERDICT_FLOW)
			return verdict == VERDICT_PASS || verdict > VERDICT_LATER ? verdict : VERDICT_DROP_itself;
		passing->way = BALANCER_TAKEN;
		return VERDICT_PASS;
	}
	if (unlikely(to != 0 && table->list[to].kind == BALANCER_VIRTUAL))
		return VERDICT_DROP_back_side;
	if (unlikely(verdict == VERDICT_ERROR))
		return pass_error_from_ends(lane, table, passing);
	if (unlikely(whose == 0))
		return VERDICT_PASS;
	if (unlikely(table->list[whose].kind != BALANCER_END))
		return table->list[whose].direct ? VERDICT_PASS : VERDICT_DROP_spoofed;
	if (unlikely(verdict != VERDICT_FLOW))
		return verdict;
	passing->end = balancer_table_end(lane->set, table, headers->source, headers->family, headers->source_port,
					  headers->protocol);
	if (unlikely(passing->end == 0))
		return VERDICT_PASS;
	passing->service = lane->set->ends[passing->end].service;
	service = &lane->set->services[passing->service];
	memcpy(headers->source, service->address.bytes, sizeof(headers->source));
	headers->key[5] = (headers->key[5] & ~(uint64_t)UINT16_MAX) | service->port; /* the source's; as a word */
	passing->base.words.source = (uint32_t)headers->key[0];
	passing->base.words.ports = (uint32_t)headers->key[5];
	return passing_key(&passing->base, &lane->flows);
}

/* As struct headers has it: a plain frame's words are looked up as they are, without headers in memory. */
struct plain_address {
	uint64_t words[2];
};

static inline const uint8_t *bytes_of(const struct plain_address *address)
{
	return (const uint8_t *)address->words;
}

/* As look_from_clients(), of a plain frame that is for a service.  Returns false if it is another one. */
static inline bool look_plain_from_clients(struct balancer_lane *lane, const struct balancer_table *table,
					   struct balancer_passing *passing)
{
	const struct plain *words = &passing->base.words;
	const struct plain_address source = {{words->source}}, destination = {{words->destination}};

	if (unlikely(balancer_table_whose(table, bytes_of(&source), HEADERS_IPV4) != 0))
		return false;
	passing->service = balancer_table_service(lane->set, table, bytes_of(&destination), HEADERS_IPV4,
						  (uint16_t)(words->ports >> 16), words->protocol);
	return likely(passing->service != 0);
}

/* As look_from_ends(), of a plain frame that is an end's answer.  An address is of one kind, so that of an end is not
 * looked up once more. */
static inline bool look_plain_from_ends(struct balancer_lane *lane, const struct balancer_table *table,
					struct balancer_passing *passing)
{
	struct plain *words = &passing->base.words;
	const struct plain_address source = {{words->source}}, destination = {{words->destination}};
	const struct balancer_service *service;

	if (unlikely(balancer_table_whose(table, bytes_of(&destination), HEADERS_IPV4) != 0))
		return false;
	passing->end = balancer_table_end(lane->set, table, bytes_of(&source), HEADERS_IPV4, (uint16_t)words->ports,
					  words->protocol);
	if (unlikely(passing->end == 0))
		return false;
	passing->service = lane->set->ends[passing->end].service;
	service = &lane->set->services[passing->service];
	memcpy(&words->source, service->address.bytes, sizeof(words->source));
	words->ports = (words->ports & ~(uint32_t)UINT16_MAX) | service->port;
	return true;
}

enum verdict balancer_look(struct balancer_lane *lane, const struct balancer_table *table, const struct rte_mbuf *mbuf,
			   struct balancer_passing *passing, uint16_t in)
{
	const struct headers *headers = &passing->base.frame.headers;
	enum verdict verdict = VERDICT_FLOW;

	passing->way = BALANCER_UNTOUCHED;
	passing->unkept = false;
	passing->service = passing->end = 0;
	if (unlikely(!passing_is_plain(&passing->base, mbuf))) {
		verdict = passing_inspect(&passing->base, mbuf);
	} else {
		if (likely(in == CLIENTS ? look_plain_from_clients(lane, table, passing)
					 : look_plain_from_ends(lane, table, passing)))
			return passing_key_plain(&passing->base, &lane->flows);
		plain_fill(&passing->base.words, &passing->base.frame);
	}
	if (unlikely(headers->vlan != 0))
		return VERDICT_PASS;
	if (unlikely(verdict == VERDICT_PASS)) {
		if (balancer_frame_asks(table, passing->base.head, passing->base.size, in))
			passing->way = BALANCER_TAKEN;
		return VERDICT_PASS;
	}
	if (unlikely(!(headers->family & HEADERS_IP)))
		return VERDICT_PASS;
	if (unlikely(headers->fragment == FRAGMENT_FIRST))
		passing->first = passing->base.frame;
	return in == CLIENTS ? look_from_clients(lane, table, passing, verdict)
			     : look_from_ends(lane, table, passing, verdict);
}

/* ------- deciding ------- */

/* Later fragments have no ports: they go the way of their first.  From an end, others may be of its own. */
static enum verdict pass_later(struct balancer_lane *lane, struct balancer_passing *passing, uint16_t in, uint64_t tsc)
{
	const struct rewrite_place place = passing_place(&passing->base);
	struct fragment_way way = {.mark = 0};
	const enum verdict verdict = fragments_find(&lane->fragments, &passing->base.frame, tsc, &way);
	const struct balancer_end *end = &lane->set->ends[way.mark];
	const struct balancer_service *service = &lane->set->services[end->service];

	if (verdict == VERDICT_DROP_fragment && in == ENDS)
		return VERDICT_PASS;
	if (verdict != VERDICT_PASS)
		return verdict;
	if (in == CLIENTS) {
		if (!balancer_end_is_up(end))
			return VERDICT_DROP_no_back_end;
		send_to(passing, end);
	}
	if (!service->direct)
		rewrite_address(&place, in == CLIENTS ? REWRITE_DESTINATION : REWRITE_SOURCE,
				in == CLIENTS ? end->address.bytes : service->address.bytes);
	passing->way = BALANCER_CHANGED;
	return VERDICT_PASS;
}

enum verdict balancer_decide(struct balancer_lane *lane, const struct balancer_table *table,
			     struct balancer_passing *passing, uint16_t in, uint64_t tsc)
{
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_LATER))
		return pass_later(lane, passing, in, tsc);
	if (verdict != VERDICT_FLOW)
		return verdict;
	if (in == CLIENTS)
		verdict = pass_to_end(lane, table, passing);
	else
		verdict = pass_from_end(lane, passing);
	if (unlikely(passing->base.plain == NULL && passing->base.frame.headers.fragment == FRAGMENT_FIRST &&
		     passing->way == BALANCER_CHANGED && verdict == VERDICT_PASS)) {
		const struct fragment_way way = {.mark = passing->end};

		fragments_add(&lane->fragments, &passing->first, tsc, &way);
	}
	return verdict;
}
