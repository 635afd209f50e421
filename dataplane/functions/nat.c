/* SPDX-License-Identifier: Apache-2.0
 *
 * Source NAT for IPv4, a bump in the wire: inside is port 0.  What inside hosts send leaves with an address and port of
 * the pool, the same whomever they send to (RFC 4787, REQ-1), and what comes for that goes to them.  What is neither
 * from an inside address nor to the pool passes as it came; so do ARP and IPv6.
 *
 * A frame's first bytes are copied, checked and changed in the copy, which then takes their place.  Connections are
 * known as they are inside.  A frame from inside to the pool goes both ways at once, and back by its port (hairpinning;
 * RFC 4787, REQ-9).
 */
#include <errno.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "function.h"
#include "nat_handover.h"
#include "nat_pass.h"
#include "nat_settings.h"

struct nat the_nat;
static struct connection_limits limits = CONNECTION_LIMITS_DEFAULT;
static struct nat_settings settings = NAT_SETTINGS_DEFAULT;

/* Returns whether the frame leaves by the other port. */
static inline bool leave(struct nat *nat, struct rte_mbuf *mbuf, const struct nat_passing *passing, uint16_t in)
{
	struct nat_counters *counters = &nat->counters[in];
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_PASS && passing->back && nat->nb_back == NAT_BACK))
		verdict = VERDICT_DROP_hairpin_full;
	if (unlikely(verdict != VERDICT_PASS)) {
		function_count(&counters->drops[verdict], 1);
		rte_pktmbuf_free(mbuf);
		return false;
	}
	if (likely(passing->changed))
		passing_put(&passing->base, mbuf);
	else
		function_count(&counters->untouched, 1);
	if (likely(!passing->back))
		return true;
	nat->back[nat->nb_back++] = mbuf;
	function_count(&counters->hairpinned, 1);
	return false;
}

uint16_t nat_translate(struct nat *nat, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in, uint64_t tsc)
{
	struct nat_passing burst[NAT_BURST];
	uint16_t nb_out = 0;

	nat->tick = connections_tick(tsc);
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	if (in == 0)
		nat_look_from_inside(nat, mbufs, burst, nb_frames);
	else
		nat_look_from_outside(nat, mbufs, burst, nb_frames);
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = nat_decide(nat, &burst[i], in, tsc);
		if (likely(leave(nat, mbufs[i], &burst[i], in)))
			mbufs[nb_out++] = mbufs[i];
	}
	function_count(&nat->counters[in].passed, nb_out);
	if (unlikely(in == 1 && nat->nb_back > 0)) {
		memcpy(mbufs + nb_out, nat->back, nat->nb_back * sizeof(mbufs[0]));
		nb_out += nat->nb_back;
		nat->nb_back = 0;
	}
	return nb_out;
}

static uint16_t nat_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	const uint64_t tsc = rte_rdtsc();

	the_nat.tick = connections_tick(tsc);
	connections_sweep(&the_nat.flows, the_nat.tick);
	nat_table_sweep(&the_nat.table, the_nat.tick);
	if (unlikely(handover_waits(&nat_handover, queue)))
		handover_take(&nat_handover, the_nat.tick);
	return nb_frames > 0 || the_nat.nb_back > 0 ? nat_translate(&the_nat, burst, nb_frames, in, tsc) : 0;
}

static bool nat_full(uint16_t in)
{
	return false;
}

static bool nat_pending(uint16_t queue)
{
	return the_nat.nb_back > 0 || handover_waits(&nat_handover, queue);
}

/* ------- start and end ------- */

static const char *nat_set(const char *name, const char *value)
{
	const char *expected;

	return connections_set(&limits, name, value, &expected) ? expected : nat_settings_take(&settings, name, value);
}

static int nat_open(const struct function_start *start)
{
	const char *wrong = nat_settings_wrong(&settings);

	if (wrong != NULL) {
		log_error("%s", wrong);
		return -EINVAL;
	}
	if (fragments_open(&the_nat.fragments) != 0 || connections_open(&the_nat.flows, &limits) != 0 ||
	    nat_table_open(&the_nat.table, &settings, limits.most) != 0)
		return -ENOMEM;
	the_nat.settings = &settings;
	the_nat.flows.removed = nat_connection_ended;
	nat_handover.tables = (struct connection_tables){{&the_nat.flows}, 1};
	if (handover_open(&nat_handover, start) != 0)
		return -EIO;
	return 0;
}

static json_t *describe_port(const struct nat_counters *counters)
{
	json_t *port = json_pack("{s:I, s:I, s:I}", "passed", (json_int_t)counters->passed, "untouched",
				 (json_int_t)counters->untouched, "hairpinned", (json_int_t)counters->hairpinned);

	inspect_describe(port, counters->drops);
#define X(name) \
	json_object_set_new(port, "drop_" #name, json_integer((json_int_t)counters->drops[VERDICT_DROP_##name]));
	ADDRESS_DROPS(X)
	NAT_DROPS(X)
#undef X
	return port;
}

static void nat_describe(json_t *into)
{
	json_t *translated = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(translated, describe_port(&the_nat.counters[port]));
	json_object_set_new(into, "translated", translated);
	json_object_set_new(into, "connections", connections_describe(&nat_handover.tables));
	json_object_set_new(into, "handed_over", handover_describe(&nat_handover));
	nat_table_describe(&the_nat.table, into);
}

static void nat_tables(json_t *tables, unsigned most)
{
	nat_table_show(&the_nat.table, tables, most);
	json_object_set_new(tables, "connections",
			    connections_show(&nat_handover.tables, most, connections_tick(rte_rdtsc())));
}

static void nat_close(void)
{
	handover_close(&nat_handover);
	rte_pktmbuf_free_bulk(the_nat.back, the_nat.nb_back);
	fragments_close(&the_nat.fragments);
	connections_close(&the_nat.flows);
	nat_table_close(&the_nat.table);
	the_nat = (struct nat){.settings = NULL};
}

static const struct function_keeping nat_keeping = {
	.buffers = NAT_BACK,
	.open = nat_open,
	.full = nat_full,
	.pending = nat_pending,
	.describe = nat_describe,
	.tables = nat_tables,
	.handover = &nat_handover,
	.close = nat_close,
};

const struct function nat = {
	.name = "nat",
	.help = "give what inside hosts (port 0) send an address and port of a pool: pool, inside, forwards, block, "
		"blocks, host-connections, filtering, connections, time-outs",
	.process = nat_process,
	.set = nat_set,
	.keeping = &nat_keeping,
};
