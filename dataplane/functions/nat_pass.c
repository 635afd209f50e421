/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>

#include "nat_pass.h"
#include "rewrite.h"

enum {
	MULTICAST = 0xe0000000u,
	NAT_LAG = 8, /* as PASSING_LAG: from outside there are more stages */
};

/* ------- addresses ------- */

static uint32_t address_in(const uint8_t *bytes)
{
	uint32_t address;

	memcpy(&address, bytes, sizeof(address));
	return ntohl(address);
}

static bool in_pool(const struct nat *nat, uint32_t address)
{
	return nat_prefixes_find(&nat->settings->pool, address) >= 0;
}

static bool is_inside(const struct nat *nat, uint32_t address)
{
	return nat_prefixes_find(&nat->settings->inside, address) >= 0;
}

static bool has_port(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_ICMP;
}

static struct nat_end end_of(const struct headers *headers, enum rewrite_side side)
{
	return (struct nat_end){
		.address = address_in(side == REWRITE_SOURCE ? headers->source : headers->destination),
		.port = side == REWRITE_SOURCE ? headers->source_port : headers->destination_port,
		.protocol = headers->protocol,
		.tags = (uint32_t)headers->vlan << 16 | headers->inner_vlan,
	};
}

static inline uint32_t source_of(const struct passing *passing)
{
	return likely(passing->plain != NULL) ? ntohl(passing->words.source)
					      : address_in(passing->frame.headers.source);
}

static inline uint32_t destination_of(const struct passing *passing)
{
	return likely(passing->plain != NULL) ? ntohl(passing->words.destination)
					      : address_in(passing->frame.headers.destination);
}

/* The end of a frame that has a flow. */
static inline struct nat_end passing_end(const struct passing *passing, enum rewrite_side side)
{
	if (unlikely(passing->plain == NULL))
		return end_of(&passing->frame.headers, side);
	return (struct nat_end){
		.address = side == REWRITE_SOURCE ? source_of(passing) : destination_of(passing),
		.port = (uint16_t)(passing->words.ports >> (side == REWRITE_SOURCE ? 0 : 16)),
		.protocol = passing->words.protocol,
	};
}

/* By whole words, because the key is read by words.  ICMP has one identifier for both ends. */
static void set_end(struct headers *headers, enum rewrite_side side, uint32_t address, uint16_t port)
{
	const bool both = headers->protocol == IPPROTO_ICMP;
	const uint64_t mask = both ? UINT32_MAX : side == REWRITE_SOURCE ? UINT16_MAX : (uint64_t)UINT16_MAX << 16;

	headers->key[side == REWRITE_SOURCE ? 0 : 2] = htonl(address);
	headers->key[5] = (headers->key[5] & ~mask) | (((uint64_t)port << 16 | port) & mask);
}

static inline void set_passing_end(struct passing *passing, enum rewrite_side side, uint32_t address, uint16_t port)
{
	struct plain *words = &passing->words;

	passing->filled = false;
	if (unlikely(passing->plain == NULL)) {
		set_end(&passing->frame.headers, side, address, port);
	} else if (side == REWRITE_SOURCE) {
		words->source = htonl(address);
		words->ports = (words->ports & ~(uint32_t)UINT16_MAX) | port;
	} else {
		words->destination = htonl(address);
		words->ports = (words->ports & UINT16_MAX) | (uint32_t)port << 16;
	}
}

/* ------- changing ------- */

static void change_address(const struct rewrite_place *place, enum rewrite_side side, uint32_t address)
{
	address = htonl(address);
	rewrite_address(place, side, &address);
}

static void change_end(struct nat_passing *passing, enum rewrite_side side, uint32_t address, uint16_t port)
{
	address = htonl(address);
	passing_change(&passing->base, side, (const uint8_t *)&address, port);
	passing->changed = true;
}

static void change_quoted(struct nat_passing *passing, const struct inspected *quoted, enum rewrite_side side,
			  uint32_t address, uint16_t port)
{
	const struct rewrite_place error = passing_place(&passing->base);
	const struct rewrite_place within = rewrite_place_quoted(&error, &passing->base.frame, quoted);

	address = htonl(address);
	rewrite_quoted(&error, &within, side, &address, port);
}

/* The station where inside frames for a mapping go: who has sent from there last. */
static void note_station(struct nat_mapping *mapping, struct nat_passing *passing)
{
	memcpy(mapping->mac, passing_bytes(&passing->base) + RTE_ETHER_ADDR_LEN, sizeof(mapping->mac));
	mapping->has_mac = true;
}

static void send_to_station(struct nat_passing *passing, const uint8_t *mac, bool known)
{
	uint8_t *bytes = passing_bytes(&passing->base);

	if (passing->back) { /* from whom it was sent to */
		uint8_t source[RTE_ETHER_ADDR_LEN];

		memcpy(source, bytes + RTE_ETHER_ADDR_LEN, sizeof(source));
		memcpy(bytes + RTE_ETHER_ADDR_LEN, bytes, sizeof(source));
		memcpy(bytes, source, sizeof(source));
	}
	if (known)
		memcpy(bytes, mac, RTE_ETHER_ADDR_LEN);
}

/* ------- connections ------- */

/* Of the connections that the inside end of a mapping has begun: how many there are. */
static uint32_t *begun_of(const struct nat *nat, struct nat_mapping *mapping)
{
	return mapping->fixed ? &mapping->begun : &nat->table.hosts[mapping->host].connections;
}

void nat_connection_began(struct nat *nat, struct connection *flow, struct nat_mapping *mapping)
{
	mapping->flow = connection_number(&nat->flows, flow);
	flow->marks[0] = (uint32_t)(mapping - nat->table.mappings);
	flow->marks[1] = mapping->outside;
	flow->mark = mapping->outside_port;
	if (flow->port == 0)
		++*begun_of(nat, mapping);
}

void nat_connection_ended(struct connections *flows, uint32_t number)
{
	struct nat *nat = container_of(flows, struct nat, flows);
	struct nat_mapping *mapping = nat_mapping_of(nat, &flows->flows[number]);

	if (flows->flows[number].port == 0)
		--*begun_of(nat, mapping);
	nat_table_release(&nat->table, mapping, nat->tick);
}

/* The mapping is held.  Returns NULL without room. */
static struct connection *add(struct nat *nat, struct nat_passing *passing, struct nat_mapping *mapping, uint16_t in)
{
	const unsigned state = connection_begin(passing->base.words.event);
	struct connection *flow;

	passing_fill(&passing->base);
	flow = connections_add(&nat->flows, &passing->base.key, state, in, nat->tick);
	if (flow == NULL) {
		nat_table_release(&nat->table, mapping, nat->tick);
		return NULL;
	}
	nat_connection_began(nat, flow, mapping);
	return flow;
}

static __rte_noinline enum verdict begin(struct nat *nat, struct nat_passing *passing, uint16_t in,
					 struct connection **flow)
{
	const struct nat_end end = passing_end(&passing->base, in == 0 ? REWRITE_SOURCE : REWRITE_DESTINATION);
	struct nat_mapping *mapping = passing->mapping;
	enum verdict why;

	if (connection_begin(passing->base.words.event) == CONNECTION_REFUSED)
		return VERDICT_DROP_state;
	if (in == 0) {
		mapping = nat_table_hold(&nat->table, &end, &why);
		if (mapping == NULL)
			return why;
		note_station(mapping, passing);
	} else {
		if (nat->settings->filters && !mapping->fixed)
			return VERDICT_DROP_filtered;
		mapping->references++;
	}
	*flow = add(nat, passing, mapping, in);
	return *flow != NULL ? VERDICT_PASS : VERDICT_DROP_table_full;
}

/* One begins in the place of one that has ended, and with its mapping. */
static __rte_noinline enum verdict begin_anew(struct nat *nat, struct nat_passing *passing, uint16_t in,
					      struct connection **flow)
{
	struct nat_mapping *mapping = nat_mapping_of(nat, *flow);
	enum verdict verdict;

	mapping->references++;
	connections_remove(&nat->flows, *flow);
	verdict = begin(nat, passing, in, flow);
	nat_table_release(&nat->table, mapping, nat->tick);
	return verdict;
}

/* The connection that a frame belongs to, or begins; or why it does not. */
static inline enum verdict follow(struct nat *nat, struct nat_passing *passing, uint16_t in, struct connection **flow)
{
	bool by_other;
	unsigned state;

	*flow = passing_find(&passing->base, &nat->flows, nat->tick);
	if (unlikely(*flow == NULL)) {
		/* With the last connection its mapping went. */
		if (in == 1 && passing->mapping->references == 0)
			return VERDICT_DROP_unmapped;
		return begin(nat, passing, in, flow);
	}
	by_other = passing->base.source ^ (*flow)->opener;
	if (unlikely(by_other != (in ^ (*flow)->port)))
		return VERDICT_DROP_wrong_port;
	state = connection_after((*flow)->state, !by_other, passing->base.words.event);
	if (unlikely(state == CONNECTION_REFUSED))
		return VERDICT_DROP_state;
	if (likely(state != CONNECTION_ANEW)) {
		connections_enter(&nat->flows, *flow, state, nat->tick);
		return VERDICT_PASS;
	}
	return begin_anew(nat, passing, in, flow);
}

/* ------- from outside ------- */

static inline enum verdict ask_outside(struct nat *nat, struct nat_passing *passing)
{
	const struct headers *headers = &passing->base.frame.headers;

	if (unlikely(passing->base.plain == NULL &&
		     (!has_port(headers->protocol) || passing->base.words.event == EVENT_QUERY)))
		return VERDICT_DROP_unmapped;
	passing->outside = passing_end(&passing->base, REWRITE_DESTINATION);
	passing->chain = nat_table_ask(&nat->table, &passing->outside);
	return VERDICT_FLOW;
}

/* Make a frame what it is inside, but for its bytes. */
static inline enum verdict find_inside(struct nat *nat, struct nat_passing *passing)
{
	struct nat_mapping *mapping = nat_table_outside_in(&nat->table, passing->chain, &passing->outside);

	passing->changes = nat->table.changes;
	passing->mapping = mapping;
	if (unlikely(mapping == NULL))
		return VERDICT_DROP_unmapped;
	if (unlikely(mapping->inside.address == source_of(&passing->base)))
		return VERDICT_DROP_martian;
	set_passing_end(&passing->base, REWRITE_DESTINATION, mapping->inside.address, mapping->inside.port);
	/* Most mappings have one connection, which is known without the index. */
	if (likely(mapping->references == 1u + mapping->fixed)) {
		passing_make_key(&passing->base, &nat->flows);
		passing_take_guess(&passing->base, &nat->flows, mapping->flow);
		return VERDICT_FLOW;
	}
	return passing_key(&passing->base, &nat->flows);
}

/* The mapping may have gone since it was looked up, with a connection that gave way to one of another frame. */
static __rte_noinline enum verdict look_again(struct nat *nat, struct nat_passing *passing)
{
	set_passing_end(&passing->base, REWRITE_DESTINATION, passing->outside.address, passing->outside.port);
	passing->base.guess = 0;
	return find_inside(nat, passing);
}

static enum verdict pass_from_outside(struct nat *nat, struct nat_passing *passing)
{
	struct nat_mapping *mapping;
	struct connection *flow;
	enum verdict verdict = VERDICT_FLOW;

	if (unlikely(passing->changes != nat->table.changes))
		verdict = look_again(nat, passing);
	if (likely(verdict == VERDICT_FLOW))
		verdict = follow(nat, passing, 1, &flow);
	if (unlikely(verdict != VERDICT_PASS))
		return verdict;
	mapping = passing->mapping;
	/* Another one was it, and has ended. */
	if (unlikely(mapping->flow != connection_number(&nat->flows, flow)))
		mapping->flow = connection_number(&nat->flows, flow);
	change_end(passing, REWRITE_DESTINATION, mapping->inside.address, mapping->inside.port);
	send_to_station(passing, mapping->mac, mapping->has_mac);
	return VERDICT_PASS;
}

/* RFC 5508, 4.1: an error about what was sent from inside. */
static enum verdict pass_error_from_outside(struct nat *nat, struct nat_passing *passing, struct inspected *quoted)
{
	const struct nat_end end = end_of(&quoted->headers, REWRITE_SOURCE);
	const struct nat_mapping *mapping = nat_table_outside(&nat->table, &end);
	const struct rewrite_place place = passing_place(&passing->base);
	const struct connection *flow;
	struct connection_key key;

	if (mapping == NULL)
		return VERDICT_DROP_unrelated;
	set_end(&quoted->headers, REWRITE_SOURCE, mapping->inside.address, mapping->inside.port);
	connection_key_make(&nat->flows, quoted, &key);
	flow = connections_find(&nat->flows, &key, 0, nat->tick);
	if (flow == NULL || (key.source == flow->opener) != (flow->port == 0))
		return VERDICT_DROP_unrelated;
	change_quoted(passing, quoted, REWRITE_SOURCE, mapping->inside.address, mapping->inside.port);
	change_address(&place, REWRITE_DESTINATION, mapping->inside.address);
	send_to_station(passing, mapping->mac, mapping->has_mac);
	passing->changed = true;
	return VERDICT_PASS;
}

/* ------- from inside ------- */

/*
 * Whether an end of the pool has its table at another queue, which is then to do the rest, and is told what the sender
 * has outside.
 */
static bool goes_onward(const struct nat *nat, struct nat_passing *passing, const struct nat_end *end,
			const struct connection *flow)
{
	const unsigned home = likely(nat->nb == 1) ? nat->number
						   : nat_pool_home(nat->table.pool, end->address, end->port,
								   end->protocol, nat->number);

	if (likely(home == nat->number))
		return false;
	passing->onward = (uint8_t)(home + 1);
	passing->turned = nat_outside_address(flow);
	passing->turned_port = nat_outside_port(flow);
	return true;
}

/* From inside to an address of the pool. */
static __rte_noinline enum verdict pass_back(struct nat *nat, struct nat_passing *passing,
					     const struct connection *flow)
{
	const struct nat_end end = passing_end(&passing->base, REWRITE_DESTINATION);
	enum verdict verdict;

	passing->back = true;
	if (goes_onward(nat, passing, &end, flow))
		return VERDICT_PASS;
	change_end(passing, REWRITE_SOURCE, nat_outside_address(flow), nat_outside_port(flow));
	passing->base.guess = 0;
	set_passing_end(&passing->base, REWRITE_SOURCE, nat_outside_address(flow), nat_outside_port(flow));
	verdict = ask_outside(nat, passing);
	if (verdict == VERDICT_FLOW)
		verdict = find_inside(nat, passing);
	return verdict == VERDICT_FLOW ? pass_from_outside(nat, passing) : verdict;
}

static inline enum verdict pass_from_inside(struct nat *nat, struct nat_passing *passing)
{
	struct connection *flow;
	const enum verdict verdict = follow(nat, passing, 0, &flow);

	if (unlikely(verdict != VERDICT_PASS))
		return verdict;
	if (unlikely(in_pool(nat, destination_of(&passing->base))))
		return pass_back(nat, passing, flow);
	change_end(passing, REWRITE_SOURCE, nat_outside_address(flow), nat_outside_port(flow));
	return VERDICT_PASS;
}

/* What an error from inside quotes was sent to this end of the pool. */
static void hide_sender(const struct nat *nat, struct nat_passing *passing, struct inspected *quoted, uint32_t address,
			uint16_t port)
{
	const struct rewrite_place place = passing_place(&passing->base);

	change_quoted(passing, quoted, REWRITE_DESTINATION, address, port);
	if (is_inside(nat, address_in(passing->base.frame.headers.source)))
		change_address(&place, REWRITE_SOURCE, address);
	set_end(&quoted->headers, REWRITE_DESTINATION, address, port);
	passing->changed = true;
}

/* RFC 5508, 4.2: an error about what was sent to inside; who sends it need not have a mapping of its own. */
static enum verdict pass_error_from_inside(struct nat *nat, struct nat_passing *passing, struct inspected *quoted)
{
	const struct connection *flow;
	const struct nat_end end = end_of(&quoted->headers, REWRITE_SOURCE);
	struct connection_key key;

	connection_key_make(&nat->flows, quoted, &key);
	flow = connections_find(&nat->flows, &key, 0, nat->tick);
	if (flow == NULL || (key.source == flow->opener) != (flow->port == 1))
		return VERDICT_DROP_unrelated;
	passing->back = in_pool(nat, address_in(passing->base.frame.headers.destination));
	if (passing->back && goes_onward(nat, passing, &end, flow))
		return VERDICT_PASS;
	hide_sender(nat, passing, quoted, nat_outside_address(flow), nat_outside_port(flow));
	return passing->back ? pass_error_from_outside(nat, passing, quoted) : VERDICT_PASS;
}

/* ------- bursts ------- */

static enum verdict look_at_error(struct nat *nat, struct nat_passing *passing, uint16_t in)
{
	const uint32_t source = address_in(passing->base.frame.headers.source);
	const uint32_t destination = address_in(passing->base.frame.headers.destination);
	struct inspected quoted;
	const bool sound = inspect_quoted(passing->base.head, passing->base.size, &passing->base.frame, &quoted) &&
			   has_port(quoted.headers.protocol);

	if (in == 1) {
		if (!in_pool(nat, destination))
			return VERDICT_PASS;
		if (sound && passing->back)
			hide_sender(nat, passing, &quoted, passing->turned, passing->turned_port);
		return sound ? pass_error_from_outside(nat, passing, &quoted) : VERDICT_DROP_unrelated;
	}
	if (sound && is_inside(nat, address_in(quoted.headers.destination)))
		return pass_error_from_inside(nat, passing, &quoted);
	return is_inside(nat, source) ? VERDICT_DROP_unrelated : VERDICT_PASS;
}

/* By its addresses: VERDICT_FLOW if it is to be translated, VERDICT_PASS if it leaves as it came. */
static inline enum verdict look_at_addresses(const struct nat *nat, uint32_t source, uint32_t destination, uint16_t in,
					     bool error)
{
	if (unlikely(in_pool(nat, source)))
		return VERDICT_DROP_spoofed;
	if (unlikely(in == 1 && is_inside(nat, destination)))
		return VERDICT_DROP_inside;
	if (unlikely(error))
		return VERDICT_ERROR;
	if (in == 0 ? !is_inside(nat, source) : !in_pool(nat, destination))
		return VERDICT_PASS;
	return unlikely(in == 0 && destination >= MULTICAST) ? VERDICT_DROP_multicast : VERDICT_FLOW;
}

static inline enum verdict look_for_flow(struct nat *nat, struct nat_passing *passing, uint16_t in)
{
	return in == 0 ? passing_key(&passing->base, &nat->flows) : ask_outside(nat, passing);
}

/* One that is not plain. */
static __rte_noinline enum verdict look_at_any(struct nat *nat, const struct rte_mbuf *mbuf,
					       struct nat_passing *passing, uint16_t in)
{
	const struct headers *headers = &passing->base.frame.headers;
	const enum verdict what = passing_inspect(&passing->base, mbuf);
	enum verdict verdict;

	if (headers->ethertype == RTE_ETHER_TYPE_IPV6)
		return VERDICT_PASS;
	if (what == VERDICT_PASS || what > VERDICT_LATER)
		return what;
	verdict = look_at_addresses(nat, address_in(headers->source), address_in(headers->destination), in,
				    what == VERDICT_ERROR);
	if (verdict == VERDICT_ERROR)
		return look_at_error(nat, passing, in);
	if (verdict != VERDICT_FLOW)
		return verdict;
	if (in == 0 && !has_port(headers->protocol))
		return VERDICT_DROP_protocol;
	if (what == VERDICT_LATER)
		return what;
	if (headers->fragment == FRAGMENT_FIRST)
		passing->first = passing->base.frame;
	return look_for_flow(nat, passing, in);
}

static inline void begin_to_look(struct nat_passing *passing)
{
	passing->changed = passing->back = false;
	passing->onward = 0;
	passing->turned = 0;
	passing->turned_port = 0;
	passing->mapping = NULL;
}

static inline enum verdict look(struct nat *nat, const struct rte_mbuf *mbuf, struct nat_passing *passing, uint16_t in)
{
	enum verdict verdict;

	begin_to_look(passing);
	if (unlikely(!passing_is_plain(&passing->base, mbuf)))
		return look_at_any(nat, mbuf, passing, in);
	verdict = look_at_addresses(nat, source_of(&passing->base), destination_of(&passing->base), in, false);
	return likely(verdict == VERDICT_FLOW) ? look_for_flow(nat, passing, in) : verdict;
}

void nat_look_from_inside(struct nat *nat, struct rte_mbuf *const *mbufs, struct nat_passing *burst, uint16_t nb_frames)
{
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = look(nat, mbufs[i], &burst[i], 0);
		if (i >= PASSING_LAG)
			passing_guess(&burst[i - PASSING_LAG].base, &nat->flows);
	}
	for (uint16_t i = RTE_MAX(nb_frames, PASSING_LAG) - PASSING_LAG; i < nb_frames; i++)
		passing_guess(&burst[i].base, &nat->flows);
}

void nat_look_back(struct nat *nat, const struct rte_mbuf *mbuf, struct nat_passing *passing)
{
	enum verdict verdict;

	begin_to_look(passing);
	passing->back = true;
	passing->turned = mbuf->hash.usr;
	passing->turned_port = mbuf->vlan_tci;
	verdict = passing_is_plain(&passing->base, mbuf) ? look_for_flow(nat, passing, 1)
							 : look_at_any(nat, mbuf, passing, 1);
	if (verdict == VERDICT_FLOW) {
		change_end(passing, REWRITE_SOURCE, passing->turned, passing->turned_port);
		set_passing_end(&passing->base, REWRITE_SOURCE, passing->turned, passing->turned_port);
		verdict = find_inside(nat, passing);
	}
	passing->base.verdict = (uint8_t)verdict;
}

static inline bool has_flow(const struct nat_passing *burst, uint16_t number, uint16_t nb_frames)
{
	return number < nb_frames && likely(burst[number].base.verdict == VERDICT_FLOW);
}

void nat_look_from_outside(struct nat *nat, struct rte_mbuf *const *mbufs, struct nat_passing *burst,
			   uint16_t nb_frames)
{
	for (uint16_t i = 0; i < nb_frames + 3 * NAT_LAG; i++) {
		/* Below 0 it is far above any number. */
		const uint16_t asks = (uint16_t)(i - NAT_LAG), finds = (uint16_t)(asks - NAT_LAG);

		if (i < nb_frames)
			burst[i].base.verdict = look(nat, mbufs[i], &burst[i], 1);
		if (has_flow(burst, asks, nb_frames))
			nat_table_ask_mapping(&nat->table, burst[asks].chain);
		if (has_flow(burst, finds, nb_frames))
			burst[finds].base.verdict = find_inside(nat, &burst[finds]);
		if (i >= 3 * NAT_LAG && unlikely(burst[i - 3 * NAT_LAG].base.guess == 0))
			passing_guess(&burst[i - 3 * NAT_LAG].base, &nat->flows);
	}
}

/* Others of the datagram go the same way. */
static void note_first(struct nat *nat, const struct nat_passing *passing, uint64_t tsc)
{
	const unsigned network = passing->base.frame.headers.network;
	struct fragment_way way = {.back = passing->back, .mark = passing->onward};

	memcpy(&way.source, passing->base.head + network + offsetof(struct rte_ipv4_hdr, src_addr), sizeof(way.source));
	memcpy(&way.destination, passing->base.head + network + offsetof(struct rte_ipv4_hdr, dst_addr),
	       sizeof(way.destination));
	if (passing->mapping != NULL && passing->mapping->has_mac) {
		memcpy(way.mac, passing->mapping->mac, sizeof(way.mac));
		way.has_mac = true;
	}
	fragments_add(&nat->fragments, &passing->first, tsc, &way);
}

static enum verdict pass_later(struct nat *nat, struct nat_passing *passing, uint64_t tsc)
{
	const struct rewrite_place place = passing_place(&passing->base);
	struct fragment_way way;
	const enum verdict verdict = fragments_find(&nat->fragments, &passing->base.frame, tsc, &way);

	if (verdict != VERDICT_PASS)
		return verdict;
	passing->onward = (uint8_t)way.mark;
	if (way.mark != 0)
		return VERDICT_PASS;
	change_address(&place, REWRITE_SOURCE, ntohl(way.source));
	change_address(&place, REWRITE_DESTINATION, ntohl(way.destination));
	passing->back = way.back;
	passing->changed = true;
	if (way.back || way.has_mac)
		send_to_station(passing, way.mac, way.has_mac);
	return VERDICT_PASS;
}

enum verdict nat_decide(struct nat *nat, struct nat_passing *passing, uint16_t in, uint64_t tsc)
{
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_LATER))
		return pass_later(nat, passing, tsc);
	if (verdict != VERDICT_FLOW)
		return verdict;
	verdict = in == 0 ? pass_from_inside(nat, passing) : pass_from_outside(nat, passing);
	if (unlikely(passing->base.plain == NULL && passing->base.frame.headers.fragment == FRAGMENT_FIRST &&
		     verdict == VERDICT_PASS))
		note_first(nat, passing, tsc);
	return verdict;
}
