/* SPDX-License-Identifier: Apache-2.0
 *
 * A stateful firewall, a bump in the wire between two ports: it has no address, and changes no frame.
 *
 * The first frame of a flow is looked up in the rules; if one allows it, the flow gets an entry, and what follows, both
 * ways, is found there whatever the number of rules.  To a frame that a rule rejects it answers.  A frame's first bytes
 * are copied, checked and decided on once. ARP and neighbour discovery pass.
 *
 * Where there are several queues, each has a table of its own, which is its thread's: a flow belongs to the queue that
 * the switch spreads it to (steer/pin.h), both ways.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/grace.h"
#include "common/log.h"
#include "firewall.h"
#include "function.h"
#include "handover.h"
#include "passing.h"
#include "steer/pin.h"

struct firewall firewalls[FUNCTION_QUEUES];
static unsigned nb_firewalls; /* one for each queue */
static struct connection_limits limits = CONNECTION_LIMITS_DEFAULT;
static struct handover handover;

/* What is known of the frames of a burst. */
struct burst {
	struct passing frames[FIREWALL_BURST];
	uint16_t begin[FIREWALL_BURST]; /* frames that may begin a flow */
	uint16_t nb_begin;
	bool simple; /* all of it is plain, of flows that are known, and passes */
};

/* ------- flows ------- */

/* Returns VERDICT_FLOW if the frame belongs to no flow, or begins another one in the place of one that has ended. */
static inline enum verdict decide_known(struct firewall *firewall, struct passing *passing, uint16_t in, uint32_t tick)
{
	struct connection *flow = passing_find(passing, &firewall->flows, tick);
	bool by_other;
	unsigned state;

	if (unlikely(flow == NULL))
		return VERDICT_FLOW;
	by_other = passing->source ^ flow->opener;
	if (unlikely(by_other != (in ^ flow->port)))
		return VERDICT_DROP_wrong_port;
	state = connection_after(flow->state, !by_other, passing->words.event);
	if (unlikely(state == CONNECTION_REFUSED))
		return VERDICT_DROP_state;
	if (unlikely(state == CONNECTION_ANEW)) {
		connections_remove(&firewall->flows, flow);
		return VERDICT_FLOW;
	}
	connections_enter(&firewall->flows, flow, state, tick);
	return VERDICT_PASS;
}

static enum verdict begin(struct firewall *firewall, const struct connection_key *key, enum event event, uint16_t in,
			  uint32_t tick)
{
	if (connections_add(&firewall->flows, key, connection_begin(event), in, tick) == NULL)
		return VERDICT_DROP_table_full;
	return VERDICT_PASS;
}

/* Look up the rules for all frames of a burst that no flow is known of. */
static void decide_new(struct firewall *firewall, struct burst *burst, struct rte_mbuf **mbufs, uint16_t in,
		       uint64_t tsc)
{
	const uint32_t tick = connections_tick(tsc);
	struct firewall_rules *rules = atomic_load_explicit(&firewall->rules, memory_order_acquire);
	struct headers headers[FIREWALL_BURST];
	uint32_t found[FIREWALL_BURST];

	for (uint16_t i = 0; i < burst->nb_begin; i++) {
		passing_fill(&burst->frames[burst->begin[i]]);
		headers[i] = burst->frames[burst->begin[i]].frame.headers;
	}
	firewall_rules_find(rules, in, headers, burst->nb_begin, found);
	for (uint16_t i = 0; i < burst->nb_begin; i++) {
		const uint16_t number = burst->begin[i];
		struct passing *passing = &burst->frames[number];
		const enum event event = passing->words.event;
		const struct firewall_rule *rule = &rules->rules[found[i]];
		enum verdict verdict;

		/* One before it in the burst may have begun its flow. */
		verdict = decide_known(firewall, passing, in, tick);
		if (verdict == VERDICT_FLOW && connection_begin(event) == CONNECTION_REFUSED) {
			verdict = VERDICT_DROP_state;
		} else if (verdict == VERDICT_FLOW) {
			firewall_rules_count(rules, firewall->queue, found[i], mbufs[number]->pkt_len);
			verdict = rule->action == FIREWALL_ALLOW ? begin(firewall, &passing->key, event, in, tick)
								 : VERDICT_DROP_rule;
			if (rule->action == FIREWALL_REJECT)
				firewall_reject(&firewall->rejects[in], mbufs[number], &passing->frame, tsc);
		}
		passing->verdict = verdict;
	}
}

/*
 * RFC 5508, 4, and RFC 4890, 4.3.1: an error passes if it quotes what has passed the other way, and goes to who sent
 * that.  It changes nothing of the flow (RFC 5508, 4), because whoever is on the path can send one.
 */
static __rte_noinline enum verdict decide_error(struct firewall *firewall, const struct passing *passing, uint16_t in,
						uint32_t tick)
{
	const struct connection *flow;
	struct connection_key key;
	struct inspected quoted;

	if (!inspect_quoted(passing->head, passing->size, &passing->frame, &quoted))
		return VERDICT_DROP_unrelated;
	connection_key_make(&firewall->flows, &quoted, &key);
	flow = connections_find(&firewall->flows, &key, 0, tick);
	/* It comes from where the quoted frame went. */
	if (flow == NULL || (key.source == flow->opener) == (in == flow->port))
		return VERDICT_DROP_unrelated;
	return VERDICT_PASS;
}

/* ------- bursts ------- */

static __rte_noinline enum verdict look_at_any(struct firewall *firewall, const struct rte_mbuf *mbuf,
					       struct passing *passing, uint16_t in, uint32_t tick)
{
	const enum verdict verdict = passing_inspect(passing, mbuf);

	if (verdict == VERDICT_FLOW)
		return passing_key(passing, &firewall->flows);
	return verdict == VERDICT_ERROR ? decide_error(firewall, passing, in, tick) : verdict;
}

static inline enum verdict look_at(struct firewall *firewall, const struct rte_mbuf *mbuf, struct passing *passing,
				   uint16_t in, uint32_t tick)
{
	if (likely(passing_is_plain(passing, mbuf)))
		return passing_key_plain(passing, &firewall->flows);
	return look_at_any(firewall, mbuf, passing, in, tick);
}

static uint16_t leave(struct firewall *firewall, struct burst *burst, struct rte_mbuf **mbufs, uint16_t nb_frames,
		      uint16_t in, uint64_t tsc)
{
	struct firewall_counters *counters = &firewall->counters[in];
	uint16_t nb_out = 0;

	for (uint16_t i = 0; i < nb_frames; i++) {
		const struct passing *passing = &burst->frames[i];
		const struct inspected *frame = &passing->frame;
		enum verdict verdict = passing->verdict;

		if (unlikely(verdict == VERDICT_LATER))
			verdict = fragments_find(&firewall->fragments, frame, tsc, NULL);
		else if (unlikely(passing->plain == NULL && frame->headers.fragment == FRAGMENT_FIRST &&
				  verdict == VERDICT_PASS))
			fragments_add(&firewall->fragments, frame, tsc, NULL);
		if (likely(verdict == VERDICT_PASS)) {
			mbufs[nb_out++] = mbufs[i];
			continue;
		}
		function_count(&counters->drops[verdict], 1);
		rte_pktmbuf_free(mbufs[i]);
	}
	function_count(&counters->passed, nb_out);
	return nb_out;
}

static uint16_t filter(struct firewall *firewall, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in,
		       uint64_t tsc)
{
	const uint32_t tick = connections_tick(tsc);
	struct burst burst;

	burst.nb_begin = 0;
	burst.simple = true;
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst.frames[i].verdict = look_at(firewall, mbufs[i], &burst.frames[i], in, tick);
		if (i >= PASSING_LAG)
			passing_guess(&burst.frames[i - PASSING_LAG], &firewall->flows);
	}
	for (uint16_t i = RTE_MAX(nb_frames, PASSING_LAG) - PASSING_LAG; i < nb_frames; i++)
		passing_guess(&burst.frames[i], &firewall->flows);
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct passing *passing = &burst.frames[i];

		if (likely(passing->verdict == VERDICT_FLOW))
			passing->verdict = decide_known(firewall, passing, in, tick);
		burst.simple &= passing->verdict == VERDICT_PASS && passing->plain != NULL;
		if (unlikely(passing->verdict == VERDICT_FLOW))
			burst.begin[burst.nb_begin++] = i;
	}
	if (likely(burst.simple)) {
		function_count(&firewall->counters[in].passed, nb_frames);
		return nb_frames;
	}
	if (unlikely(burst.nb_begin > 0))
		decide_new(firewall, &burst, mbufs, in, tsc);
	return leave(firewall, &burst, mbufs, nb_frames, in, tsc);
}

uint16_t firewall_filter(struct firewall *firewall, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in,
			 uint64_t tsc)
{
	uint16_t nb_out = likely(nb_frames > 0) ? filter(firewall, mbufs, nb_frames, in, tsc) : 0;

	if (unlikely(firewall->rejects[!in].nb > 0))
		nb_out += firewall_rejects_take(&firewall->rejects[!in], mbufs + nb_out);
	return nb_out;
}

static uint16_t firewall_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	struct firewall *firewall = &firewalls[queue];
	const uint64_t tsc = rte_rdtsc();

	connections_sweep(&firewall->flows, connections_tick(tsc));
	if (unlikely(handover_waits(&handover, queue)))
		handover_take(&handover, queue, connections_tick(tsc));
	return firewall_filter(firewall, burst, nb_frames, in, tsc);
}

/* ------- which queue a flow belongs to ------- */

static unsigned home_of_plain(const struct plain *words, uint16_t in, unsigned queue, unsigned nb_queues)
{
	return pin_spread_ipv4(words->source, words->destination, (uint16_t)words->ports,
			       (uint16_t)(words->ports >> 16), words->protocol, nb_queues);
}

/* Of a fragment too: that of its flow. */
static unsigned home_of_any(const struct headers *headers, bool quoted, uint16_t in, unsigned queue, unsigned nb_queues)
{
	struct headers whole = *headers;

	whole.fragment = FRAGMENT_NONE;
	return pin_spread(&whole, nb_queues);
}

static void firewall_homes(struct rte_mbuf *const *burst, uint16_t nb_frames, uint16_t in, uint16_t queue,
			   uint8_t *homes)
{
	static const struct homes_by by_flow = {home_of_plain, home_of_any};

	homes_find(&firewalls[queue].homes, burst, nb_frames, in, queue, &by_flow, homes);
}

static unsigned home_of_record(const struct handover *handover, const struct handover_record *record)
{
	struct headers headers = {0};

	memcpy(headers.key, record->key, sizeof(record->key));
	return pin_spread(&headers, handover->tables.nb);
}

static bool firewall_full(uint16_t in)
{
	return false;
}

static bool firewall_pending(uint16_t queue)
{
	return handover_waits(&handover, queue) || firewalls[queue].rejects[0].nb > 0 ||
	       firewalls[queue].rejects[1].nb > 0 || connections_sweep_waits(&firewalls[queue].flows);
}

/* ------- settings, start and end ------- */

/* Flows that are known stay, whatever the rules say of them now. */
static int firewall_configure(json_t *params, struct control_error *error)
{
	struct firewall_rules *rules = firewall_rules_read(params, nb_firewalls, error), *before = firewalls[0].rules;

	if (rules == NULL)
		return -1;
	for (unsigned i = 0; i < nb_firewalls; i++)
		atomic_store(&firewalls[i].rules, rules);
	grace_wait();
	firewall_rules_free(before);
	return 0;
}

static const char *firewall_set(const char *name, const char *value)
{
	const char *expected = "connections, or the name of a time-out";

	connections_set(&limits, name, value, &expected);
	return expected;
}

static int open_queue(unsigned number, const struct function_start *start)
{
	struct firewall *firewall = &firewalls[number];
	const struct connection_limits share = connections_share(&limits, number, start->nb_queues);

	firewall->queue = number;
	for (unsigned port = 0; port < 2; port++) {
		firewall->rejects[port].pool = start->pool;
		firewall->rejects[port].nb_queues = start->nb_queues;
	}
	if (fragments_open(&firewall->fragments) != 0 || connections_open(&firewall->flows, &share) != 0)
		return -ENOMEM;
	handover.tables.tables[number] = &firewall->flows;
	return start->nb_queues > 1 ? homes_open(&firewall->homes, start->nb_queues) : 0;
}

static int firewall_open(const struct function_start *start)
{
	struct control_error error;
	json_t *nothing = json_object();
	int rc;

	nb_firewalls = start->nb_queues;
	rc = firewall_configure(nothing, &error);
	json_decref(nothing);
	if (rc != 0)
		return -ENOMEM;
	for (unsigned i = 0; i < nb_firewalls; i++)
		if (open_queue(i, start) != 0)
			return -ENOMEM;
	handover.tables.nb = nb_firewalls;
	handover.home = home_of_record;
	return handover_open(&handover, start);
}

static json_t *describe_port(unsigned port)
{
	const struct firewall_counters *of = &firewalls[0].counters[port];
	const struct firewall_rejects *rejects = &firewalls[0].rejects[port];
	const struct function_counter counters[] = {{"passed", &of->passed},
						    {"rejected", &rejects->answered},
						    {"unanswered", &rejects->unanswered},
#define X(name) {"drop_" #name, &of->drops[VERDICT_DROP_##name]},
						    VERDICT_DROPS(X) FIREWALL_DROPS(X)
#undef X
	};

	return function_counters(counters, RTE_DIM(counters), sizeof(firewalls[0]), nb_firewalls);
}

static void firewall_describe(json_t *into)
{
	json_t *filtered = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(filtered, describe_port(port));
	json_object_set_new(into, "filtered", filtered);
	json_object_set_new(into, "connections", connections_describe(&handover.tables));
	json_object_set_new(into, "handed_over", handover_describe(&handover));
}

/* Who asks and who configures are one thread, so that the rules stay meanwhile. */
static void firewall_tables(json_t *tables, unsigned most)
{
	json_object_set_new(tables, "rules", firewall_rules_show(firewalls[0].rules, most));
	json_object_set_new(tables, "connections",
			    connections_show(&handover.tables, most, connections_tick(rte_rdtsc())));
}

static void firewall_close(void)
{
	handover_close(&handover);
	firewall_rules_free(firewalls[0].rules);
	for (struct firewall *firewall = firewalls; firewall < firewalls + nb_firewalls; firewall++) {
		for (unsigned port = 0; port < 2; port++)
			rte_pktmbuf_free_bulk(firewall->rejects[port].answers, firewall->rejects[port].nb);
		homes_close(&firewall->homes);
		fragments_close(&firewall->fragments);
		connections_close(&firewall->flows);
		*firewall = (struct firewall){.rules = NULL};
	}
	nb_firewalls = 0;
}

static const struct function_keeping firewall_keeping = {
	.buffers = 2 * FIREWALL_REJECTS_ONCE,
	.open = firewall_open,
	.full = firewall_full,
	.pending = firewall_pending,
	.ages = true,
	.describe = firewall_describe,
	.tables = firewall_tables,
	.configure = firewall_configure,
	.handover = &handover,
	.close = firewall_close,
};

const struct function firewall = {
	.name = "firewall",
	.help = "let through what rules allow, and what belongs to it: rules (a file), connections (the most), "
		"time-outs",
	.process = firewall_process,
	.several = true,
	.homes = firewall_homes,
	.set = firewall_set,
	.keeping = &firewall_keeping,
};
