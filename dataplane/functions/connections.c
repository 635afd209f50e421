/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_malloc.h>

#include "common/log.h"
#include "connections.h"
#include "function.h"
#include "steer/hash.h"

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
static const uint8_t after[CONNECTION_NB_STATES][2][EVENT_RST + 1] = {
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
};

unsigned connection_after(enum connection_state state, bool by_opener, enum event event)
{
	if (event <= EVENT_RST)
		return after[state][!by_opener][event];
	switch (state) {
	case S(one_way):
		return by_opener ? S(one_way) : S(two_way);
	case S(asked):
		return by_opener ? S(asked) : S(answered);
	default:
		return state;
	}
}
#undef S

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

/* ------- keys ------- */

static uint64_t hash_of(const struct connections *flows, const uint64_t *words)
{
	uint64_t hash = hash_mix(words[0] ^ flows->secret[0], words[1] ^ flows->secret[1]) ^
			hash_mix(words[2] ^ flows->secret[0], words[3] ^ HASH_3);

	/* Ports one after the other differ by a constant here; once more, or some secrets crowd them into few buckets.
	 */
	return hash_mix(hash_mix(hash ^ words[4], words[5] ^ flows->secret[1]), HASH_3);
}

void connection_key_make(const struct connections *flows, const struct inspected *frame, struct connection_key *key)
{
	const uint64_t *from = frame->headers.key;
	const unsigned __int128 source = (unsigned __int128)from[1] << 64 | from[0],
				destination = (unsigned __int128)from[3] << 64 | from[2];
	struct headers *headers = (struct headers *)key->words; /* of which the key is the beginning */
	const bool swap = source > destination;

	/* The two are never the same (martian), so the ports need not be asked. */
	key->words[0] = swap ? from[2] : from[0];
	key->words[1] = swap ? from[3] : from[1];
	key->words[2] = swap ? from[0] : from[2];
	key->words[3] = swap ? from[1] : from[3];
	key->words[4] = from[4];
	key->words[5] = from[5];
	if (swap) {
		headers->source_port = frame->headers.destination_port;
		headers->destination_port = frame->headers.source_port;
	}
	key->source = swap;
	/* Two that ask each other with the same identifier are two flows. */
	if (unlikely(frame->query != 0)) {
		headers->zero[0] = frame->query;
		headers->zero[1] = (frame->event == EVENT_QUERY) == swap;
	}
	key->hash = hash_of(flows, key->words);
}

/* ------- the table ------- */

static bool has_aged(const struct connections *flows, const struct connection *flow, uint32_t tick)
{
	return tick - flow->seen > flows->timeouts[flow->state];
}

/* The newest of those that give way stands before 0, the oldest behind it. */
static void queue_up(struct connections *flows, struct connection *flow)
{
	const uint32_t number = connection_number(flows, flow), last = flows->flows[0].previous;

	flow->previous = last;
	flow->next = 0;
	flows->flows[last].next = number;
	flows->flows[0].previous = number;
}

static void leave_queue(struct connections *flows, const struct connection *flow)
{
	flows->flows[flow->previous].next = flow->next;
	flows->flows[flow->next].previous = flow->previous;
}

static uint32_t signature_of(uint64_t hash)
{
	return (uint32_t)hash | 1;
}

uint32_t connections_guess(const struct connections *flows, uint64_t hash)
{
	const struct connection_bucket *bucket = connection_bucket(flows, hash);
	unsigned same = 0;
	uint32_t number;

#if defined(__AVX2__)
	same = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(
		_mm256_load_si256((const __m256i *)bucket->signatures), _mm256_set1_epi32((int)signature_of(hash)))));
#else
	for (unsigned i = 0; i < CONNECTION_SLOTS; i++)
		same |= (bucket->signatures[i] == signature_of(hash)) << i;
#endif
	if (unlikely(same == 0))
		return 0;
	number = bucket->flows[__builtin_ctz(same)];
	rte_prefetch0(&flows->flows[number]);
	return number;
}

static bool same_key(const struct connection *flow, const struct connection_key *key)
{
	uint64_t difference = 0;

	for (unsigned i = 0; i < CONNECTION_KEY_WORDS; i++)
		difference |= flow->key[i] ^ key->words[i];
	return difference == 0;
}

/* Of a flow that was not guessed: another one has its signature, or it was added since. */
static struct connection *search(struct connections *flows, const struct connection_key *key)
{
	const struct connection_bucket *bucket = connection_bucket(flows, key->hash);

	for (unsigned i = 0; i < CONNECTION_SLOTS; i++)
		if (bucket->signatures[i] == signature_of(key->hash) && same_key(&flows->flows[bucket->flows[i]], key))
			return &flows->flows[bucket->flows[i]];
	return NULL;
}

struct connection *connections_find(struct connections *flows, const struct connection_key *key, uint32_t guess,
				    uint32_t tick)
{
	struct connection *flow = &flows->flows[guess];

	if (unlikely(guess == 0 || flow->state == CONNECTION_none || !same_key(flow, key))) {
		flow = search(flows, key);
		if (flow == NULL)
			return NULL;
	}
	if (likely(!has_aged(flows, flow, tick)))
		return flow;
	connections_remove(flows, flow);
	function_count(&flows->aged, 1);
	return NULL;
}

/* A place in a full bucket: of one that has aged, or else of the oldest that gives way; -1: there is none. */
static int make_room(struct connections *flows, const struct connection_bucket *bucket, uint32_t tick)
{
	uint32_t oldest = 0;
	int found = -1;

	for (int i = 0; i < CONNECTION_SLOTS; i++) {
		struct connection *flow = &flows->flows[bucket->flows[i]];

		if (has_aged(flows, flow, tick)) {
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
		connections_remove(flows, &flows->flows[bucket->flows[found]]);
		function_count(&flows->gave_way, 1);
	}
	return found;
}

static int free_slot(const struct connection_bucket *bucket)
{
	for (int i = 0; i < CONNECTION_SLOTS; i++)
		if (bucket->flows[i] == 0)
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
		const uint32_t oldest = flows->flows[0].next;

		if (oldest == 0)
			return NULL;
		connections_remove(flows, &flows->flows[oldest]);
		function_count(&flows->gave_way, 1);
	}
	flow = &flows->flows[flows->free];
	flows->free = flow->next;
	bucket->signatures[slot] = signature_of(key->hash);
	bucket->flows[slot] = connection_number(flows, flow);
	memcpy(flow->key, key->words, sizeof(flow->key));
	flow->seen = tick;
	flow->opener = key->source;
	flow->port = in & 1;
	flow->mark = 0;
	flow->state = state;
	if (gives_way[state])
		queue_up(flows, flow);
	atomic_store_explicit(&flows->used, flows->used + 1, memory_order_relaxed);
	function_count(&flows->begun, 1);
	return flow;
}

void connections_remove(struct connections *flows, struct connection *flow)
{
	const uint32_t number = connection_number(flows, flow);
	struct connection_bucket *bucket = connection_bucket(flows, hash_of(flows, flow->key));

	for (unsigned i = 0; i < CONNECTION_SLOTS; i++)
		if (bucket->flows[i] == number)
			bucket->flows[i] = bucket->signatures[i] = 0;
	if (gives_way[flow->state])
		leave_queue(flows, flow);
	if (flows->removed != NULL)
		flows->removed(flows, number);
	flow->state = CONNECTION_none;
	flow->next = flows->free;
	flows->free = number;
	atomic_store_explicit(&flows->used, flows->used - 1, memory_order_relaxed);
}

void connections_enter(struct connections *flows, struct connection *flow, enum connection_state state, uint32_t tick)
{
	if (flow->seen != tick)
		flow->seen = tick;
	if (likely(flow->state == state))
		return;
	if (gives_way[flow->state])
		leave_queue(flows, flow);
	flow->state = state;
	if (gives_way[state])
		queue_up(flows, flow);
}

void connections_sweep(struct connections *flows, uint32_t tick)
{
	const uint64_t round = (rte_get_tsc_hz() * SWEEP_SECONDS >> CONNECTION_TICK_SHIFT) + 1;
	uint64_t part;

	if (likely(tick == flows->sweep_tick))
		return;
	part = RTE_MIN((tick - flows->sweep_tick) * (uint64_t)flows->most / round + 1, (uint64_t)SWEEP_MOST);
	flows->sweep_tick = tick;
	for (; part > 0; part--) {
		struct connection *flow;

		flows->swept = flows->swept % flows->most + 1;
		flow = &flows->flows[flows->swept];
		if (flow->state != CONNECTION_none && has_aged(flows, flow, tick)) {
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
	const uint32_t age = tick - flow->seen;
	char from[INET6_ADDRSTRLEN + 8], to[INET6_ADDRSTRLEN + 8];
	struct headers headers = {0};

	memcpy(headers.key, flow->key, sizeof(headers.key));
	write_end(from, sizeof(from), &headers, flow->opener);
	write_end(to, sizeof(to), &headers, !flow->opener);
	return json_pack("{s:i, s:s, s:s, s:i, s:s, s:I}", "protocol", headers.protocol, "from", from, "to", to, "port",
			 flow->port, "state", state_names[flow->state], "idle_s",
			 (json_int_t)((uint64_t)age << CONNECTION_TICK_SHIFT) / (json_int_t)rte_get_tsc_hz());
}

json_t *connections_show(const struct connections *flows, unsigned most, uint32_t tick)
{
	json_t *rows = json_array();
	struct connection flow;

	for (uint32_t number = 1; number <= flows->most && json_array_size(rows) < most; number++)
		if (connections_copy(flows, number, &flow)) {
			json_t *object = row(&flow, tick);

			if (flows->describe != NULL)
				flows->describe(&flow, object);
			json_array_append_new(rows, object);
		}
	return json_pack("{s:I, s:o}", "total", (json_int_t)flows->used, "rows", rows);
}

json_t *connections_describe(const struct connections *flows)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "known", (json_int_t)flows->used, "most", (json_int_t)flows->most,
			 "begun", (json_int_t)flows->begun, "aged", (json_int_t)flows->aged, "gave_way",
			 (json_int_t)flows->gave_way);
}

/* ------- settings, start and end ------- */

enum {
	FLOWS_MOST = 16 << 20,
	SECONDS_MOST = 86400,
};

bool connections_set(struct connection_limits *limits, const char *name, const char *value, const char **expected)
{
	if (strcmp(name, "connections") == 0) {
		*expected = function_number(value, FLOWS_MOST, "connections, from 1 to 16777216", &limits->most);
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

	*flows = (struct connections){.most = most, .bucket_mask = buckets - 1};
	flows->buckets = rte_zmalloc("connection buckets", buckets * sizeof(struct connection_bucket), 64);
	flows->flows = rte_zmalloc("connections", (most + (size_t)1) * sizeof(struct connection), 64);
	if (flows->buckets == NULL || flows->flows == NULL) {
		log_error("no memory for %u connections; use a larger --memory", most);
		return -ENOMEM;
	}
	if (getrandom(flows->secret, sizeof(flows->secret), GRND_NONBLOCK) != sizeof(flows->secret))
		flows->secret[0] = rte_rdtsc();
	for (unsigned i = 0; i < CONNECTION_NB_STATES; i++)
		flows->timeouts[i] = (uint32_t)(rte_get_tsc_hz() * limits->seconds[timeouts[i]] >>
						CONNECTION_TICK_SHIFT);
	for (uint32_t number = most; number > 0; number--) {
		flows->flows[number].next = flows->free;
		flows->free = number;
	}
	return 0;
}

void connections_close(struct connections *flows)
{
	rte_free(flows->buckets);
	rte_free(flows->flows);
	*flows = (struct connections){0};
}
