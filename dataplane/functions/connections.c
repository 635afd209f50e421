/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_malloc.h>

#include "common/log.h"
#include "connections.h"
#include "function.h"

enum {
	SWEEP_SECONDS = 10, /* in which the whole table is looked at */
	SWEEP_MOST = 1024,  /* entries, in a round */
};

static const char *const state_names[CONNECTION_NB_STATES] = {
#define X(name, timeout, gives_way) #name,
	CONNECTION_STATES(X)
#undef X
};

static const char *const timeout_names[CONNECTION_NB_TIMEOUTS] = {
#define X(name, seconds) #name,
	CONNECTION_TIMEOUTS(X)
#undef X
};

static const bool gives_way[CONNECTION_NB_STATES] = {
#define X(name, timeout, gives_way) gives_way,
	CONNECTION_STATES(X)
#undef X
};

/* ------- states ------- */

/*
 * RFC 9293, 3.3.2, as somebody between the two ends sees it.  Where an end would answer a segment with an ACK or a
 * reset, that segment passes: after a crash the ends need it to find out (3.5.1; RFC 5961).  Sequence numbers are not
 * looked at.
 */
#define S(name) CONNECTION_##name
#define ALL(name)                                       \
	{                                               \
		[EVENT_SYN... EVENT_DATAGRAM] = S(name) \
	}
const uint8_t connection_transitions[CONNECTION_NB_STATES][2][EVENTS] = {
	/* SYN, SYN and ACK, ACK, FIN, RST: first by the opener, then by the other end */
	[S(syn_sent)] = {{S(syn_sent), CONNECTION_REFUSED, CONNECTION_REFUSED, CONNECTION_REFUSED, S(reset)},
			 {S(syn_both), S(syn_received), S(syn_sent), CONNECTION_REFUSED, S(reset)}},
	[S(syn_both)] = {{S(syn_both), S(established), CONNECTION_REFUSED, CONNECTION_REFUSED, S(reset)},
			 {S(syn_both), S(established), CONNECTION_REFUSED, CONNECTION_REFUSED, S(reset)}},
	[S(syn_received)] = {{S(syn_received), CONNECTION_REFUSED, S(established), S(closing_opener), S(reset)},
			     {CONNECTION_REFUSED, S(syn_received), S(syn_received), S(closing_other), S(reset)}},
	[S(established)] = {{S(established), S(established), S(established), S(closing_opener), S(reset)},
			    {S(established), S(established), S(established), S(closing_other), S(reset)}},
	[S(closing_opener)] = {{S(closing_opener), S(closing_opener), S(closing_opener), S(closing_opener), S(reset)},
			       {S(closing_opener), S(closing_opener), S(closing_opener), S(time_wait), S(reset)}},
	[S(closing_other)] = {{S(closing_other), S(closing_other), S(closing_other), S(time_wait), S(reset)},
			      {S(closing_other), S(closing_other), S(closing_other), S(closing_other), S(reset)}},
	[S(time_wait)] = {{CONNECTION_ANEW, CONNECTION_REFUSED, S(time_wait), S(time_wait), S(reset)},
			  {CONNECTION_ANEW, CONNECTION_REFUSED, S(time_wait), S(time_wait), S(reset)}},
	/* One who forges a reset ends nothing: what goes on keeps the entry. */
	[S(reset)] = {{CONNECTION_ANEW, CONNECTION_REFUSED, S(reset), S(reset), S(reset)},
		      {CONNECTION_ANEW, CONNECTION_REFUSED, S(reset), S(reset), S(reset)}},
	/* Of other protocols: whatever it is; the other end answers. */
	[S(one_way)] = {ALL(one_way), ALL(two_way)},
	[S(two_way)] = {ALL(two_way), ALL(two_way)},
	[S(asked)] = {ALL(asked), ALL(answered)},
	[S(answered)] = {ALL(answered), ALL(answered)},
};
#undef S
#undef ALL

unsigned connection_begin(enum event event)
{
	switch (event) {
	case EVENT_SYN:
		return CONNECTION_syn_sent;
	case EVENT_QUERY:
		return CONNECTION_asked;
	case EVENT_DATAGRAM:
		return CONNECTION_one_way;
	default:
		return CONNECTION_REFUSED;
	}
}

/* ------- the table ------- */

/* The newest of those that give way stands before 0, the oldest behind it. */
static void queue_up(struct connections *flows, struct connection *flow)
{
	const uint32_t number = connection_number(flows, flow), last = flows->links[0].previous;

	flows->links[number] = (struct connection_link){.previous = last};
	flows->links[last].next = number;
	flows->links[0].previous = number;
}

static void leave_queue(struct connections *flows, const struct connection *flow)
{
	const struct connection_link *link = &flows->links[connection_number(flows, flow)];

	flows->links[link->previous].next = link->next;
	flows->links[link->next].previous = link->previous;
}

static struct connection *in_slot(const struct connections *flows, const struct connection_bucket *bucket,
				  unsigned slot)
{
	return &flows->flows[bucket->slots[slot] & CONNECTION_NUMBER];
}

/* Another flow may have its tag, and it may have been added since it was guessed. */
struct connection *connections_search(struct connections *flows, const struct connection_key *key, uint32_t tick)
{
	const struct connection_bucket *bucket = connection_bucket(flows, key->hash);
	unsigned slots = connection_slots(bucket, connection_tag(key->hash));

	for (; slots != 0; slots &= slots - 1) {
		struct connection *flow = in_slot(flows, bucket, (unsigned)__builtin_ctz(slots));

		if (flow->state == CONNECTION_none || !connection_same(flow, key))
			continue;
		if (likely(!connection_aged(flows, flow, tick)))
			return flow;
		connections_remove(flows, flow);
		function_count(&flows->aged, 1);
		return NULL;
	}
	return NULL;
}

/* A place in a full bucket: of one that has aged, or else of the oldest that gives way; -1: there is none. */
static int make_room(struct connections *flows, const struct connection_bucket *bucket, uint32_t tick)
{
	uint32_t oldest = 0;
	int found = -1;

	for (int i = 0; i < CONNECTION_SLOTS; i++) {
		struct connection *flow = in_slot(flows, bucket, (unsigned)i);

		if (connection_aged(flows, flow, tick)) {
			connections_remove(flows, flow);
			function_count(&flows->aged, 1);
			return i;
		}
		if (gives_way[flow->state] && (found < 0 || tick - flow->seen > oldest)) {
			oldest = tick - flow->seen;
			found = i;
		}
	}
	if (found >= 0) {
		connections_remove(flows, in_slot(flows, bucket, (unsigned)found));
		function_count(&flows->gave_way, 1);
	}
	return found;
}

static int free_slot(const struct connection_bucket *bucket)
{
	for (int i = 0; i < CONNECTION_SLOTS; i++)
		if (bucket->slots[i] == 0)
			return i;
	return -1;
}

struct connection *connections_add(struct connections *flows, const struct connection_key *key,
				   enum connection_state state, uint16_t in, uint32_t tick)
{
	struct connection_bucket *bucket = connection_bucket(flows, key->hash);
	int slot = free_slot(bucket);
	struct connection *flow;

	if (unlikely(slot < 0))
		slot = make_room(flows, bucket, tick);
	if (unlikely(slot < 0))
		return NULL;
	if (unlikely(flows->free == 0)) {
		const uint32_t oldest = flows->links[0].next;

		if (oldest == 0)
			return NULL;
		connections_remove(flows, &flows->flows[oldest]);
		function_count(&flows->gave_way, 1);
	}
	flow = &flows->flows[flows->free];
	flows->free = flows->links[flows->free].next;
	bucket->slots[slot] = connection_tag(key->hash) | connection_number(flows, flow);
	memcpy(flow->key, key->words, sizeof(flow->key));
	flow->seen = tick;
	flow->opener = key->source;
	flow->port = in & 1;
	flow->mark = 0;
	flow->state = state;
	flows->changed[connection_number(flows, flow)] = tick;
	if (gives_way[state])
		queue_up(flows, flow);
	atomic_store_explicit(&flows->used, flows->used + 1, memory_order_relaxed);
	function_count(&flows->begun, 1);
	return flow;
}

void connections_remove(struct connections *flows, struct connection *flow)
{
	const uint32_t number = connection_number(flows, flow);
	struct connection_bucket *bucket = connection_bucket(flows, connection_hash(flows, flow->key));

	for (unsigned i = 0; i < CONNECTION_SLOTS; i++)
		if ((bucket->slots[i] & CONNECTION_NUMBER) == number)
			bucket->slots[i] = 0;
	if (gives_way[flow->state])
		leave_queue(flows, flow);
	if (flows->removed != NULL)
		flows->removed(flows, number);
	flow->state = CONNECTION_none;
	flows->links[number].next = flows->free;
	flows->free = number;
	atomic_store_explicit(&flows->used, flows->used - 1, memory_order_relaxed);
}

void connections_change(struct connections *flows, struct connection *flow, enum connection_state state)
{
	if (gives_way[flow->state])
		leave_queue(flows, flow);
	flow->state = state;
	flows->changed[connection_number(flows, flow)] = flow->seen;
	if (gives_way[state])
		queue_up(flows, flow);
}

void connections_sweep(struct connections *flows, uint32_t tick)
{
	const uint64_t round = (rte_get_tsc_hz() * SWEEP_SECONDS >> CONNECTION_TICK_SHIFT) + 1;
	uint32_t part;

	if (likely(tick == flows->sweep_tick && flows->sweep_left == 0))
		return;
	if (tick != flows->sweep_tick)
		flows->sweep_left = (uint32_t)RTE_MIN(
			flows->sweep_left + (tick - flows->sweep_tick) * (uint64_t)flows->most / round + 1,
			(uint64_t)flows->most);
	flows->sweep_tick = tick;
	part = RTE_MIN(flows->sweep_left, (uint32_t)SWEEP_MOST);
	flows->sweep_left -= part;
	for (; part > 0; part--) {
		struct connection *flow;

		flows->swept = flows->swept % flows->most + 1;
		flow = &flows->flows[flows->swept];
		if (flow->state != CONNECTION_none && connection_aged(flows, flow, tick)) {
			connections_remove(flows, flow);
			function_count(&flows->aged, 1);
		}
	}
}

bool connections_copy(const struct connections *flows, uint32_t number, struct connection *flow)
{
	*flow = *(const volatile struct connection *)&flows->flows[number];
	return flow->state != CONNECTION_none;
}

/* An end of a flow: 10.0.0.1:80, [2001:db8::1]:80, or the address alone where there are no ports. */
static void write_end(char *text, size_t size, const struct headers *headers, unsigned end)
{
	const bool six = headers->family == HEADERS_IPV6;
	const uint8_t *address = end == 0 ? headers->source : headers->destination;
	char words[INET6_ADDRSTRLEN];

	inet_ntop(six ? AF_INET6 : AF_INET, address, words, sizeof(words));
	if (!headers->has_ports)
		snprintf(text, size, "%s", words);
	else
		snprintf(text, size, six ? "[%s]:%u" : "%s:%u", words,
			 end == 0 ? headers->source_port : headers->destination_port);
}

static json_t *row(const struct connection *flow, uint32_t tick)
{
	const int32_t age = (int32_t)(tick - flow->seen); /* below 0: it was seen since the tick was read */
	char from[INET6_ADDRSTRLEN + 8], to[INET6_ADDRSTRLEN + 8];
	struct headers headers = {0};

	memcpy(headers.key, flow->key, sizeof(headers.key));
	write_end(from, sizeof(from), &headers, flow->opener);
	write_end(to, sizeof(to), &headers, !flow->opener);
	return json_pack("{s:i, s:s, s:s, s:i, s:s, s:I}", "protocol", headers.protocol, "from", from, "to", to, "port",
			 flow->port, "state", state_names[flow->state], "idle_s",
			 ((json_int_t)RTE_MAX(age, 0) << CONNECTION_TICK_SHIFT) / (json_int_t)rte_get_tsc_hz());
}

static void show(const struct connections *flows, json_t *rows, unsigned most, uint32_t tick)
{
	struct connection flow;

	for (uint32_t number = 1; number <= flows->most && json_array_size(rows) < most; number++)
		if (connections_copy(flows, number, &flow)) {
			json_t *object = row(&flow, tick);

			if (flows->describe != NULL)
				flows->describe(&flow, object);
			json_array_append_new(rows, object);
		}
}

json_t *connections_show(const struct connection_tables *tables, unsigned most, uint32_t tick)
{
	json_t *rows = json_array();
	json_int_t total = 0;

	for (unsigned i = 0; i < tables->nb; i++) {
		total += (json_int_t)tables->tables[i]->used;
		show(tables->tables[i], rows, most, tick);
	}
	return json_pack("{s:I, s:o}", "total", total, "rows", rows);
}

json_t *connections_describe(const struct connection_tables *tables)
{
	json_int_t known = 0, most = 0, begun = 0, aged = 0, gave_way = 0;

	for (unsigned i = 0; i < tables->nb; i++) {
		const struct connections *flows = tables->tables[i];

		known += (json_int_t)flows->used;
		most += (json_int_t)flows->most;
		begun += (json_int_t)flows->begun;
		aged += (json_int_t)flows->aged;
		gave_way += (json_int_t)flows->gave_way;
	}
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "known", known, "most", most, "begun", begun, "aged", aged,
			 "gave_way", gave_way);
}

/* ------- settings, start and end ------- */

static_assert(CONNECTIONS_MOST <= CONNECTION_NUMBER, "a slot has room for each number");

enum { SECONDS_MOST = 86400 };

bool connections_set(struct connection_limits *limits, const char *name, const char *value, const char **expected)
{
	if (strcmp(name, "connections") == 0) {
		*expected = function_number(value, CONNECTIONS_MOST, "connections, from 1 to 16777216", &limits->most);
		return true;
	}
	for (unsigned i = 0; i < CONNECTION_NB_TIMEOUTS; i++)
		if (strcmp(name, timeout_names[i]) == 0) {
			*expected = function_number(value, SECONDS_MOST, "seconds, from 1 to 86400",
						    &limits->seconds[i]);
			return true;
		}
	return false;
}

struct connection_limits connections_share(const struct connection_limits *limits, unsigned number, unsigned nb)
{
	struct connection_limits share = *limits;

	share.most = RTE_MAX(limits->most / nb + (number < limits->most % nb), 1u);
	return share;
}

int connections_open(struct connections *flows, const struct connection_limits *limits)
{
	const uint32_t most = limits->most;
	static const uint8_t timeouts[CONNECTION_NB_STATES] = {
#define X(name, timeout, gives_way) CONNECTION_TIMEOUT_##timeout,
		CONNECTION_STATES(X)
#undef X
	};
	/* Two flows for eight slots where the table is full: one of some thousand flows then finds its bucket full. */
	const uint32_t buckets = rte_align32pow2(most / 2 + 1);
	uint64_t secrets[RTE_DIM(flows->secret) + RTE_DIM(flows->tails_secret)] = {0};

	*flows = (struct connections){
		.most = most, .bucket_mask = buckets - 1, .sweep_tick = connections_tick(rte_rdtsc())};
	flows->buckets = rte_zmalloc("connection buckets", buckets * sizeof(struct connection_bucket), 64);
	flows->flows = rte_zmalloc("connections", (most + (size_t)1) * sizeof(struct connection), 64);
	flows->links = rte_zmalloc("connection links", (most + (size_t)1) * sizeof(struct connection_link), 64);
	flows->changed = rte_zmalloc("connection changes", (most + (size_t)1) * sizeof(uint32_t), 64);
	if (flows->buckets == NULL || flows->flows == NULL || flows->links == NULL || flows->changed == NULL) {
		log_error("no memory for %u connections; use a larger --memory", most);
		return -ENOMEM;
	}
	if (getrandom(secrets, sizeof(secrets), GRND_NONBLOCK) != sizeof(secrets))
		secrets[0] = secrets[2] = rte_rdtsc();
	memcpy(flows->secret, secrets, sizeof(flows->secret));
	memcpy(flows->tails_secret, secrets + RTE_DIM(flows->secret), sizeof(flows->tails_secret));
	for (unsigned i = 0; i < CONNECTION_NB_STATES; i++)
		flows->timeouts[i] = (uint32_t)(rte_get_tsc_hz() * limits->seconds[timeouts[i]] >>
						CONNECTION_TICK_SHIFT);
	for (uint32_t number = most; number > 0; number--) {
		flows->links[number].next = flows->free;
		flows->free = number;
	}
	return 0;
}

void connections_close(struct connections *flows)
{
	rte_free(flows->buckets);
	rte_free(flows->flows);
	rte_free(flows->links);
	rte_free(flows->changed);
	*flows = (struct connections){0};
}
