/* SPDX-License-Identifier: Apache-2.0
 *
 * Source NAT for IPv4, a bump in the wire: inside is port 0.  What inside hosts send leaves with an address and port of
 * the pool, the same whomever they send to (RFC 4787, REQ-1), and what comes for that goes to them.  What is neither
 * from an inside address nor to the pool passes as it came; so do ARP and IPv6.
 *
 * A frame's first bytes are copied, checked and changed in the copy, which then takes their place.  Connections are
 * known as they are inside.  A frame from inside to the pool goes both ways at once, and back by its port (hairpinning;
 * RFC 4787, REQ-9).
 *
 * Where there are several queues, each inside host belongs to one of them, by a hash of its address, and to that queue
 * belong the blocks of ports that it has: so a frame from outside belongs where the block of its port does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "function.h"
#include "nat_handover.h"
#include "nat_log.h"
#include "nat_pass.h"
#include "nat_settings.h"

struct nat nats[FUNCTION_QUEUES];
static unsigned nb_nats; /* one for each queue */
static struct nat_pool pool;
static struct nat_tables tables;
static struct nat_log block_log;
static struct function_start started;
static struct connection_limits limits = CONNECTION_LIMITS_DEFAULT;
static struct nat_settings settings = NAT_SETTINGS_DEFAULT;

/* Have another queue do the rest, and count it.  Returns whether there is room. */
static bool turn_to(struct nat *nat, const struct nat *other, struct rte_mbuf *mbuf, const struct nat_passing *passing)
{
	mbuf->hash.usr = passing->turned;
	mbuf->vlan_tci = passing->turned_port;
	if (rte_ring_enqueue(other->turning, mbuf) != 0)
		return false;
	nat->to_wake |= UINT32_C(1) << other->number;
	return true;
}

/* Once for all frames of a burst. */
static inline void wake_others(struct nat *nat)
{
	for (; unlikely(nat->to_wake != 0); nat->to_wake &= nat->to_wake - 1)
		function_wake(&started, (unsigned)__builtin_ctz(nat->to_wake));
}

/* Returns whether the frame leaves by the other port. */
static inline bool leave(struct nat *nat, struct rte_mbuf *mbuf, const struct nat_passing *passing, uint16_t in)
{
	struct nat_counters *counters = &nat->counters[in];
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_PASS && passing->onward != 0)) {
		if (turn_to(nat, &nats[passing->onward - 1], mbuf, passing))
			return false;
		verdict = VERDICT_DROP_hairpin_full;
	}
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
	wake_others(nat);
	function_count(&nat->counters[in].passed, nb_out);
	if (unlikely(in == 1 && nat->nb_back > 0)) {
		memcpy(mbufs + nb_out, nat->back, nat->nb_back * sizeof(mbufs[0]));
		nb_out += nat->nb_back;
		nat->nb_back = 0;
	}
	return nb_out;
}

__rte_noinline void nat_turn_back(struct nat *nat, uint64_t tsc)
{
	struct rte_mbuf *mbufs[NAT_BURST];
	const unsigned nb = rte_ring_sc_dequeue_burst(
		nat->turning, (void **)mbufs, RTE_MIN((unsigned)NAT_BURST, NAT_BACK - (unsigned)nat->nb_back), NULL);

	for (unsigned i = 0; i < nb; i++) {
		struct nat_passing passing;

		nat_look_back(nat, mbufs[i], &passing);
		passing.base.verdict = nat_decide(nat, &passing, 1, tsc);
		leave(nat, mbufs[i], &passing, 0);
	}
	wake_others(nat);
}

static inline bool has_turning(const struct nat *nat)
{
	return nat->turning != NULL && !rte_ring_empty(nat->turning);
}

static uint16_t nat_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	struct nat *nat = &nats[queue];
	const uint64_t tsc = rte_rdtsc();

	nat->tick = connections_tick(tsc);
	connections_sweep(&nat->flows, nat->tick);
	nat_table_sweep(&nat->table, nat->tick);
	if (unlikely(handover_waits(&nat_handover, queue)))
		handover_take(&nat_handover, queue, nat->tick);
	if (unlikely(has_turning(nat)))
		nat_turn_back(nat, tsc);
	return nb_frames > 0 || nat->nb_back > 0 ? nat_translate(nat, burst, nb_frames, in, tsc) : 0;
}

/* ------- which queue a frame belongs to ------- */

static unsigned home_of(uint32_t source, uint32_t destination, uint16_t destination_port, uint8_t protocol, uint16_t in,
			unsigned queue)
{
	if (in == 1)
		return nat_pool_home(&pool, destination, destination_port, protocol, queue);
	return nat_prefixes_find(&settings.inside, source) >= 0 ? nat_table_home(source, nb_nats) : queue;
}

static unsigned home_of_plain(const struct plain *words, uint16_t in, unsigned queue, unsigned nb_queues)
{
	return home_of(ntohl(words->source), ntohl(words->destination), (uint16_t)(words->ports >> 16), words->protocol,
		       in, queue);
}

/* An error quotes what went the other way. */
static unsigned home_of_any(const struct headers *headers, bool quoted, uint16_t in, unsigned queue, unsigned nb_queues)
{
	uint32_t source, destination;

	if (headers->family != HEADERS_IPV4)
		return queue;
	memcpy(&source, headers->source, sizeof(source));
	memcpy(&destination, headers->destination, sizeof(destination));
	if (quoted)
		return home_of(ntohl(destination), ntohl(source), headers->source_port, headers->protocol, in, queue);
	return home_of(ntohl(source), ntohl(destination), headers->destination_port, headers->protocol, in, queue);
}

static void nat_homes(struct rte_mbuf *const *burst, uint16_t nb_frames, uint16_t in, uint16_t queue, uint8_t *homes)
{
	static const struct homes_by by_host = {home_of_plain, home_of_any};

	homes_find(&nats[queue].homes, burst, nb_frames, in, queue, &by_host, homes);
}

static bool nat_full(uint16_t in)
{
	return false;
}

static bool nat_pending(uint16_t queue)
{
	const struct nat *nat = &nats[queue];

	return nat->nb_back > 0 || handover_waits(&nat_handover, queue) || has_turning(nat) ||
	       connections_sweep_waits(&nat->flows) || nat_table_sweep_waits(&nat->table, nat->tick);
}

/* ------- start and end ------- */

static const char *nat_set(const char *name, const char *value)
{
	const char *expected;

	return connections_set(&limits, name, value, &expected) ? expected : nat_settings_take(&settings, name, value);
}

static int open_several(struct nat *nat)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "turning %u", nat->number);
	/* Threads may share a CPU: none is to wait for another that was stopped on its way in. */
	nat->turning = rte_ring_create(name, NAT_TURNING, SOCKET_ID_ANY,
				       RING_F_MP_RTS_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
	if (nat->turning == NULL || rte_ring_set_prod_htd_max(nat->turning, NAT_TURNING) != 0) {
		log_error("no memory for queues; use a larger --memory");
		return -ENOMEM;
	}
	return homes_open(&nat->homes, nat->nb);
}

static int open_queue(unsigned number)
{
	const struct connection_limits share = connections_share(&limits, number, nb_nats);
	struct nat *nat = &nats[number];

	nat->number = number;
	nat->nb = nb_nats;
	nat->settings = &settings;
	if (fragments_open(&nat->fragments) != 0 || connections_open(&nat->flows, &share) != 0 ||
	    nat_table_open(&nat->table, &pool, number, share.most) != 0)
		return -ENOMEM;
	nat->flows.removed = nat_connection_ended;
	nat_handover.tables.tables[number] = &nat->flows;
	tables.tables[number] = &nat->table;
	return nb_nats > 1 ? open_several(nat) : 0;
}

static int nat_open(const struct function_start *start)
{
	const char *wrong = nat_settings_wrong(&settings);

	if (wrong != NULL) {
		log_error("%s", wrong);
		return -EINVAL;
	}
	started = *start;
	nb_nats = start->nb_queues;
	if (nat_pool_open(&pool, &settings, nb_nats) != 0)
		return -ENOMEM;
	for (unsigned i = 0; i < nb_nats; i++)
		if (open_queue(i) != 0)
			return -ENOMEM;
	if (nats[0].table.host_connections < settings.host_connections)
		log_info("with %u queues a host may have %u connections, not %u: it has them in the table of one queue",
			 nb_nats, nats[0].table.host_connections, settings.host_connections);
	nat_handover.tables.nb = tables.nb = nb_nats;
	nat_log_begin(&block_log, &pool, nat_log_clock());
	return handover_open(&nat_handover, start);
}

static json_t *describe_port(unsigned port)
{
	const struct nat_counters *of = &nats[0].counters[port];
	const struct function_counter counters[] = {{"passed", &of->passed},
						    {"untouched", &of->untouched},
						    {"hairpinned", &of->hairpinned},
#define X(name) {"drop_" #name, &of->drops[VERDICT_DROP_##name]},
						    VERDICT_DROPS(X) ADDRESS_DROPS(X) NAT_DROPS(X)
#undef X
	};

	return function_counters(counters, RTE_DIM(counters), sizeof(nats[0]), nb_nats);
}

static void nat_describe(json_t *into)
{
	json_t *translated = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(translated, describe_port(port));
	json_object_set_new(into, "translated", translated);
	json_object_set_new(into, "connections", connections_describe(&nat_handover.tables));
	json_object_set_new(into, "handed_over", handover_describe(&nat_handover));
	nat_tables_describe(&tables, into);
}

static void nat_show(json_t *into, unsigned most)
{
	nat_tables_show(&tables, into, most);
	json_object_set_new(into, "connections",
			    connections_show(&nat_handover.tables, most, connections_tick(rte_rdtsc())));
}

static void nat_say(bool ends)
{
	if (ends)
		nat_log_end(&block_log);
	else
		nat_log_write(&block_log, nat_log_clock());
}

static void close_queue(struct nat *nat)
{
	struct rte_mbuf *mbuf;

	rte_pktmbuf_free_bulk(nat->back, nat->nb_back);
	while (nat->turning != NULL && rte_ring_sc_dequeue(nat->turning, (void **)&mbuf) == 0)
		rte_pktmbuf_free(mbuf);
	rte_ring_free(nat->turning);
	homes_close(&nat->homes);
	fragments_close(&nat->fragments);
	connections_close(&nat->flows);
	nat_table_close(&nat->table);
	*nat = (struct nat){.settings = NULL};
}

static void nat_close(void)
{
	handover_close(&nat_handover);
	for (unsigned i = 0; i < nb_nats; i++)
		close_queue(&nats[i]);
	nat_pool_close(&pool);
	nb_nats = tables.nb = 0;
}

static const struct function_keeping nat_keeping = {
	.buffers = NAT_BACK + NAT_TURNING,
	.open = nat_open,
	.full = nat_full,
	.pending = nat_pending,
	.ages = true,
	.describe = nat_describe,
	.tables = nat_show,
	.handover = &nat_handover,
	.say = nat_say,
	.close = nat_close,
};

const struct function nat = {
	.name = "nat",
	.help = "give what inside hosts (port 0) send an address and port of a pool: pool, inside, forwards, block, "
		"blocks, host-connections, filtering, connections, time-outs",
	.process = nat_process,
	.several = true,
	.homes = nat_homes,
	.set = nat_set,
	.keeping = &nat_keeping,
};
