/* SPDX-License-Identifier: Apache-2.0
 *
 * A stateful firewall, a bump in the wire between two ports: it has no address, and changes no frame.
 *
 * The first frame of a flow is looked up in the rules; if one allows it, the flow gets an entry, and what follows, both
 * ways, is found there whatever the number of rules.  A frame's first bytes are copied, checked and decided on once.
 * ARP and neighbour discovery pass.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_cycles.h>
#include <rte_memcpy.h>

#include "common/grace.h"
#include "common/log.h"
#include "firewall.h"
#include "function.h"
#include "steer/flows.h"

enum {
	FLOWS = 65536,
	FLOWS_MOST = 16 << 20,
	SECONDS_MOST = 86400,
	FRAGMENT_BUCKETS = 1024,
	FRAGMENT_SECONDS = 60, /* RFC 8200, 4.5 */
};

struct firewall the_firewall;
static uint32_t most_flows = FLOWS;
static uint32_t seconds[FIREWALL_NB_TIMEOUTS] = {
#define X(name, seconds) seconds,
	FIREWALL_TIMEOUTS(X)
#undef X
};

/* What is known of the frames of a burst. */
struct burst {
	struct firewall_frame frames[FIREWALL_BURST];
	struct firewall_key keys[FIREWALL_BURST];
	uint32_t guesses[FIREWALL_BURST];
	uint8_t verdicts[FIREWALL_BURST]; /* enum firewall_verdict; in the end PASS or why it is dropped */
	uint16_t begin[FIREWALL_BURST];	  /* frames that may begin a flow */
	uint16_t nb_begin;
};

/* The frame's first bytes; a copy, because who shares this memory may change it meanwhile. */
static uint32_t copy_head(const struct rte_mbuf *mbuf, uint8_t *head)
{
	uint32_t size = RTE_MIN(mbuf->data_len, (uint32_t)PARSE_BYTES);

	if (unlikely(size < PARSE_BYTES && mbuf->nb_segs > 1)) {
		size = RTE_MIN(mbuf->pkt_len, (uint32_t)PARSE_BYTES);
		rte_pktmbuf_read(mbuf, 0, size, head); /* it is in several pieces, so that it is copied */
		return size;
	}
	rte_memcpy(head, rte_pktmbuf_mtod(mbuf, const void *), size);
	return size;
}

/* ------- fragments ------- */

/* RFC 791 and RFC 8200, 4.5: what fragments of one datagram have in common. */
static uint64_t datagram_hash(const struct firewall *firewall, const struct headers *headers)
{
	uint64_t protocol = headers->family == HEADERS_IPV4 ? headers->protocol : 0;
	uint64_t tags = (uint64_t)headers->vlan << 48 | (uint64_t)headers->inner_vlan << 32;
	uint64_t hash = hash_mix(headers->key[0] ^ firewall->fragment_secret[0],
				 headers->key[1] ^ firewall->fragment_secret[1]) ^
			hash_mix(headers->key[2] ^ firewall->fragment_secret[1], headers->key[3] ^ HASH_3);

	return hash_mix(hash ^ headers->fragment_id ^ tags, protocol ^ firewall->fragment_secret[0]);
}

static void note_first(const struct firewall *firewall, const struct firewall_frame *frame, uint64_t tsc)
{
	const uint64_t hash = datagram_hash(firewall, &frame->headers);
	const uint64_t entry = flow_numbered(flow_signature(hash), flows_tick(tsc), frame->end);
	struct flow_bucket *bucket = flows_bucket(firewall->fragments, hash);
	uint64_t *known = flows_find(bucket, hash);

	if (known != NULL)
		flow_write(known, entry);
	else
		flows_add(firewall->fragments, bucket, entry, flows_tick(tsc), 0);
}

/* What lies where the first fragment had its headers could take their place. */
static enum firewall_verdict decide_later(const struct firewall *firewall, const struct firewall_frame *frame,
					  uint64_t tsc)
{
	const uint64_t hash = datagram_hash(firewall, &frame->headers);
	const uint64_t *known = flows_find(flows_bucket(firewall->fragments, hash), hash);

	if (known == NULL || !flow_fresh(firewall->fragments, *known, flows_tick(tsc)))
		return FIREWALL_DROP_fragment;
	return frame->first < flow_number(*known) ? FIREWALL_DROP_overlap : FIREWALL_PASS;
}

/* ------- flows ------- */

/* Returns FIREWALL_FLOW if the frame belongs to no flow, or begins another one in the place of one that has ended. */
static enum firewall_verdict decide_known(struct firewall *firewall, const struct firewall_frame *frame,
					  const struct firewall_key *key, uint32_t guess, uint16_t in, uint32_t tick)
{
	struct firewall_flow *flow = firewall_flows_find(&firewall->flows, key, guess, tick);
	bool by_opener;
	unsigned state;

	if (unlikely(flow == NULL))
		return FIREWALL_FLOW;
	by_opener = key->source == flow->opener;
	if (unlikely(by_opener != (in == flow->port)))
		return FIREWALL_DROP_wrong_port;
	state = firewall_flow_after(flow->state, by_opener, frame->event);
	if (unlikely(state == FIREWALL_REFUSED))
		return FIREWALL_DROP_state;
	if (unlikely(state == FIREWALL_ANEW)) {
		firewall_flows_remove(&firewall->flows, flow);
		return FIREWALL_FLOW;
	}
	firewall_flows_enter(&firewall->flows, flow, state, tick);
	return FIREWALL_PASS;
}

static enum firewall_verdict begin(struct firewall *firewall, const struct firewall_key *key, enum firewall_event event,
				   uint16_t in, uint32_t tick)
{
	if (firewall_flows_add(&firewall->flows, key, firewall_flow_begin(event), in, tick) == NULL)
		return FIREWALL_DROP_table_full;
	return FIREWALL_PASS;
}

/* Look up the rules for all frames of a burst that no flow is known of. */
static void decide_new(struct firewall *firewall, struct burst *burst, struct rte_mbuf **mbufs, uint16_t in,
		       uint32_t tick)
{
	struct firewall_rules *rules = atomic_load_explicit(&firewall->rules, memory_order_acquire);
	struct headers headers[FIREWALL_BURST];
	uint32_t found[FIREWALL_BURST];

	for (uint16_t i = 0; i < burst->nb_begin; i++)
		headers[i] = burst->frames[burst->begin[i]].headers;
	firewall_rules_find(rules, in, headers, burst->nb_begin, found);
	for (uint16_t i = 0; i < burst->nb_begin; i++) {
		const uint16_t number = burst->begin[i];
		const struct firewall_frame *frame = &burst->frames[number];
		const struct firewall_key *key = &burst->keys[number];
		struct firewall_rule *rule = &rules->rules[found[i]];
		enum firewall_verdict verdict;

		/* One before it in the burst may have begun its flow. */
		verdict = decide_known(firewall, frame, key, 0, in, tick);
		if (verdict == FIREWALL_FLOW && firewall_flow_begin(frame->event) == FIREWALL_REFUSED) {
			verdict = FIREWALL_DROP_state;
		} else if (verdict == FIREWALL_FLOW) {
			firewall_rule_count(rule, mbufs[number]->pkt_len);
			verdict = rule->allow ? begin(firewall, key, frame->event, in, tick) : FIREWALL_DROP_rule;
		}
		burst->verdicts[number] = verdict;
	}
}

/*
 * RFC 5508, 4, and RFC 4890, 4.3.1: an error passes if it quotes what has passed the other way, and goes to who sent
 * that.  It changes nothing of the flow (RFC 5508, 4), because whoever is on the path can send one.
 */
static enum firewall_verdict decide_error(struct firewall *firewall, const struct firewall_frame *quoted, uint16_t in,
					  uint32_t tick)
{
	const struct firewall_flow *flow;
	struct firewall_key key;

	firewall_key_make(&firewall->flows, quoted, &key);
	flow = firewall_flows_find(&firewall->flows, &key, 0, tick);
	/* It comes from where the quoted frame went. */
	if (flow == NULL || (key.source == flow->opener) == (in == flow->port))
		return FIREWALL_DROP_unrelated;
	return FIREWALL_PASS;
}

/* ------- bursts ------- */

/* What a frame's headers say; of one that has a flow, its key, whose bucket is asked for. */
static enum firewall_verdict look_at(struct firewall *firewall, const struct rte_mbuf *mbuf,
				     struct firewall_frame *frame, struct firewall_key *key, uint16_t in, uint32_t tick)
{
	uint8_t head[PARSE_BYTES] __rte_cache_aligned;
	const uint32_t size = copy_head(mbuf, head);
	enum firewall_verdict verdict = firewall_check(head, size, mbuf->pkt_len, frame);

	if (likely(verdict == FIREWALL_FLOW)) {
		firewall_key_make(&firewall->flows, frame, key);
		firewall_flows_prefetch(&firewall->flows, key->hash);
	} else if (verdict == FIREWALL_ERROR) {
		struct firewall_frame quoted;

		return firewall_quoted(head, size, frame, &quoted) ? decide_error(firewall, &quoted, in, tick)
								   : FIREWALL_DROP_unrelated;
	}
	return verdict;
}

static uint16_t leave(struct firewall *firewall, struct burst *burst, struct rte_mbuf **mbufs, uint16_t nb_frames,
		      uint16_t in, uint64_t tsc)
{
	struct firewall_counters *counters = &firewall->counters[in];
	uint16_t nb_out = 0;

	for (uint16_t i = 0; i < nb_frames; i++) {
		enum firewall_verdict verdict = burst->verdicts[i];

		if (unlikely(verdict == FIREWALL_LATER))
			verdict = decide_later(firewall, &burst->frames[i], tsc);
		else if (unlikely(burst->frames[i].headers.fragment == FRAGMENT_FIRST && verdict == FIREWALL_PASS))
			note_first(firewall, &burst->frames[i], tsc);
		if (likely(verdict == FIREWALL_PASS)) {
			mbufs[nb_out++] = mbufs[i];
			continue;
		}
		function_count(&counters->drops[verdict], 1);
		rte_pktmbuf_free(mbufs[i]);
	}
	function_count(&counters->passed, nb_out);
	return nb_out;
}

uint16_t firewall_filter(struct firewall *firewall, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in,
			 uint64_t tsc)
{
	const uint32_t tick = firewall_tick(tsc);
	struct burst burst;

	burst.nb_begin = 0;
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++)
		burst.verdicts[i] = look_at(firewall, mbufs[i], &burst.frames[i], &burst.keys[i], in, tick);
	for (uint16_t i = 0; i < nb_frames; i++)
		if (likely(burst.verdicts[i] == FIREWALL_FLOW))
			burst.guesses[i] = firewall_flows_guess(&firewall->flows, burst.keys[i].hash);
	for (uint16_t i = 0; i < nb_frames; i++) {
		if (unlikely(burst.verdicts[i] != FIREWALL_FLOW))
			continue;
		burst.verdicts[i] = decide_known(firewall, &burst.frames[i], &burst.keys[i], burst.guesses[i], in,
						 tick);
		if (unlikely(burst.verdicts[i] == FIREWALL_FLOW))
			burst.begin[burst.nb_begin++] = i;
	}
	if (unlikely(burst.nb_begin > 0))
		decide_new(firewall, &burst, mbufs, in, tick);
	return leave(firewall, &burst, mbufs, nb_frames, in, tsc);
}

/* Before ticks come round, and what is long gone would seem to be fresh. */
static void sweep_fragments(struct firewall *firewall, uint16_t tick)
{
	if (likely(tick == firewall->fragment_tick))
		return;
	firewall->fragment_tick = tick;
	flows_sweep(firewall->fragments, tick, tick % FRAGMENT_BUCKETS, FRAGMENT_BUCKETS);
}

static uint16_t firewall_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	const uint64_t tsc = rte_rdtsc();

	firewall_flows_sweep(&the_firewall.flows, firewall_tick(tsc));
	sweep_fragments(&the_firewall, flows_tick(tsc));
	return nb_frames > 0 ? firewall_filter(&the_firewall, burst, nb_frames, in, tsc) : 0;
}

static bool firewall_full(uint16_t in)
{
	return false;
}

static bool firewall_pending(uint16_t queue)
{
	return false;
}

/* ------- settings, start and end ------- */

/* Flows that are known stay, whatever the rules say of them now. */
static int firewall_configure(json_t *params, struct control_error *error)
{
	struct firewall_rules *rules = firewall_rules_read(params, error), *before;

	if (rules == NULL)
		return -1;
	before = atomic_exchange(&the_firewall.rules, rules);
	grace_wait();
	firewall_rules_free(before);
	return 0;
}

static const char *take_number(const char *value, uint32_t most, const char *expected, uint32_t *number)
{
	char *end;
	unsigned long read = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end != '\0' || read == 0 || read > most)
		return expected;
	*number = (uint32_t)read;
	return NULL;
}

static const char *firewall_set(const char *name, const char *value)
{
	if (strcmp(name, "connections") == 0)
		return take_number(value, FLOWS_MOST, "connections, from 1 to 16777216", &most_flows);
	for (unsigned i = 0; i < FIREWALL_NB_TIMEOUTS; i++)
		if (strcmp(name, firewall_timeout_names[i]) == 0)
			return take_number(value, SECONDS_MOST, "seconds, from 1 to 86400", &seconds[i]);
	return "connections, or the name of a time-out";
}

static int firewall_open(struct rte_mempool *pool, int wake_fd)
{
	struct firewall *firewall = &the_firewall;
	struct control_error error;
	json_t *nothing = json_object();
	int rc = firewall_configure(nothing, &error);

	json_decref(nothing);
	if (rc != 0)
		return -ENOMEM;
	if (getrandom(firewall->fragment_secret, sizeof(firewall->fragment_secret), GRND_NONBLOCK) !=
	    sizeof(firewall->fragment_secret))
		firewall->fragment_secret[0] = rte_rdtsc();
	firewall->fragments = flows_new(FRAGMENT_BUCKETS, FRAGMENT_SECONDS);
	if (firewall->fragments == NULL || firewall_flows_open(&firewall->flows, most_flows, seconds) != 0) {
		log_error("no memory for %u connections; use a larger --memory", most_flows);
		return -ENOMEM;
	}
	return 0;
}

static json_t *describe_port(const struct firewall_counters *counters)
{
	static const struct {
		const char *name;
		enum firewall_verdict why;
	} names[] = {
#define X(name) {"drop_" #name, FIREWALL_DROP_##name},
		FIREWALL_DROPS(X)
#undef X
	};
	json_t *port = json_pack("{s:I}", "passed", (json_int_t)counters->passed);

	for (size_t i = 0; i < RTE_DIM(names); i++)
		json_object_set_new(port, names[i].name, json_integer((json_int_t)counters->drops[names[i].why]));
	return port;
}

static void firewall_describe(json_t *into)
{
	const struct firewall_flows *flows = &the_firewall.flows;
	json_t *filtered = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(filtered, describe_port(&the_firewall.counters[port]));
	json_object_set_new(into, "filtered", filtered);
	json_object_set_new(into, "connections",
			    json_pack("{s:I, s:I, s:I, s:I, s:I}", "known", (json_int_t)flows->used, "most",
				      (json_int_t)flows->most, "begun", (json_int_t)flows->begun, "aged",
				      (json_int_t)flows->aged, "gave_way", (json_int_t)flows->gave_way));
}

/* Who asks and who configures are one thread, so that the rules stay meanwhile. */
static void firewall_tables(json_t *tables, unsigned most)
{
	json_object_set_new(tables, "rules", firewall_rules_show(the_firewall.rules, most));
	json_object_set_new(tables, "connections",
			    firewall_flows_show(&the_firewall.flows, most, firewall_tick(rte_rdtsc())));
}

static void firewall_close(void)
{
	flows_free(the_firewall.fragments);
	firewall_flows_close(&the_firewall.flows);
	firewall_rules_free(the_firewall.rules);
	the_firewall = (struct firewall){.fragments = NULL};
}

static const struct function_keeping firewall_keeping = {
	.open = firewall_open,
	.full = firewall_full,
	.pending = firewall_pending,
	.describe = firewall_describe,
	.tables = firewall_tables,
	.configure = firewall_configure,
	.close = firewall_close,
};

const struct function firewall = {
	.name = "firewall",
	.help = "let through what rules allow, and what belongs to it: rules (a file), connections (the most), "
		"time-outs",
	.process = firewall_process,
	.set = firewall_set,
	.keeping = &firewall_keeping,
};
