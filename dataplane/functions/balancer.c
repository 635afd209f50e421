/* SPDX-License-Identifier: Apache-2.0
 *
 * A balancer, a bump in the wire: clients are at port 0, back ends at port 1.  What is for a virtual address and port
 * goes to one of its back ends, all frames of a connection to the same one.  What is neither for a virtual address nor
 * from a back end's port passes as it came.
 *
 * A frame's first bytes are copied, checked and changed in the copy, which then takes their place.  Which back end a
 * connection begins at, a consistent hash says (maglev.h); a table remembers it.  A thread of its own probes the back
 * ends, and answers for the virtual addresses (balancer_health.h).
 *
 * Where there are several queues, each has a table of its own: a connection belongs to the queue that the switch
 * spreads its client's frames to (steer/pin.h), and so does what its back end answers.
 */
#include <errno.h>
#include <string.h>

#include <rte_cycles.h>

#include "balancer_handover.h"
#include "balancer_pass.h"
#include "common/log.h"
#include "function.h"
#include "steer/pin.h"

enum { OWN_BURST = 32 };

struct balancer the_balancer;
static struct connection_limits limits = CONNECTION_LIMITS_DEFAULT;

/* Returns whether the frame leaves by the other port. */
static bool leave(struct balancer_lane *lane, struct rte_mbuf *mbuf, const struct balancer_passing *passing,
		  uint16_t in)
{
	struct balancer_counters *counters = &lane->counters[in];
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_PASS && passing->way == BALANCER_TAKEN)) {
		mbuf->port = in;
		if (balancer_health_give(lane->balancer, mbuf)) {
			function_count(&counters->taken, 1);
			return false;
		}
		verdict = VERDICT_DROP_itself;
	}
	if (unlikely(verdict != VERDICT_PASS)) {
		function_count(&counters->drops[verdict], 1);
		rte_pktmbuf_free(mbuf);
		return false;
	}
	if (likely(passing->way == BALANCER_CHANGED))
		passing_put(&passing->base, mbuf);
	else
		function_count(&counters->untouched, 1);
	if (unlikely(passing->unkept))
		function_count(&counters->unkept, 1);
	return true;
}

uint16_t balancer_balance(struct balancer_lane *lane, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in,
			  uint64_t tsc)
{
	const struct balancer_table *table = atomic_load_explicit(&lane->set->table, memory_order_acquire);
	struct balancer_passing burst[BALANCER_BURST];
	uint16_t nb_out = 0;

	lane->tick = connections_tick(tsc);
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = balancer_look(lane, table, mbufs[i], &burst[i], in);
		if (i >= PASSING_LAG)
			passing_guess(&burst[i - PASSING_LAG].base, &lane->flows);
	}
	for (uint16_t i = RTE_MAX(nb_frames, PASSING_LAG) - PASSING_LAG; i < nb_frames; i++)
		passing_guess(&burst[i].base, &lane->flows);
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = balancer_decide(lane, table, &burst[i], in, tsc);
		if (likely(leave(lane, mbufs[i], &burst[i], in)))
			mbufs[nb_out++] = mbufs[i];
	}
	function_count(&lane->counters[in].passed, nb_out);
	/* What leaves at a port of its own goes with what came in at the other one. */
	if (likely(lane->number > 0 || rte_ring_empty(lane->balancer->to_port[1 - in])))
		return nb_out;
	return nb_out + (uint16_t)rte_ring_dequeue_burst(lane->balancer->to_port[1 - in], (void **)(mbufs + nb_out),
							 OWN_BURST, NULL);
}

static uint16_t balancer_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	struct balancer_lane *lane = &the_balancer.lanes[queue];
	const uint64_t tsc = rte_rdtsc();

	connections_sweep(&lane->flows, connections_tick(tsc));
	if (unlikely(handover_waits(&balancer_handover, queue)))
		handover_take(&balancer_handover, queue, connections_tick(tsc));
	return nb_frames > 0 || (queue == 0 && !rte_ring_empty(the_balancer.to_port[1 - in]))
		       ? balancer_balance(lane, burst, nb_frames, in, tsc)
		       : 0;
}

/* ------- which queue a flow belongs to ------- */

/*
 * That of its client's frames, by the hash that the switch spreads them by.  What an end answers is of a service: as
 * its client knows it.  `side` is where the end would stand.
 */
static void as_client_has_it(struct headers *headers, enum rewrite_side side)
{
	const struct balancer_set *set = &the_balancer.set;
	const struct balancer_table *table = atomic_load_explicit(&set->table, memory_order_acquire);
	uint8_t *address = side == REWRITE_SOURCE ? headers->source : headers->destination;
	uint16_t *port = side == REWRITE_SOURCE ? &headers->source_port : &headers->destination_port;
	const uint16_t end = balancer_table_end(set, table, address, headers->family, *port, headers->protocol);
	const struct balancer_service *service = &set->services[set->ends[end].service];

	if (end == 0)
		return;
	memcpy(address, service->address.bytes, sizeof(service->address.bytes));
	*port = service->port;
}

static unsigned home_of_any(const struct headers *headers, bool quoted, uint16_t in, unsigned queue, unsigned nb_queues)
{
	struct headers whole = *headers;

	whole.fragment = FRAGMENT_NONE;
	if (in == 1)
		as_client_has_it(&whole, quoted ? REWRITE_DESTINATION : REWRITE_SOURCE);
	return pin_spread(&whole, nb_queues);
}

static unsigned home_of_plain(const struct plain *words, uint16_t in, unsigned queue, unsigned nb_queues)
{
	struct inspected frame;

	if (in == 0)
		return pin_spread_ipv4(words->source, words->destination, (uint16_t)words->ports,
				       (uint16_t)(words->ports >> 16), words->protocol, nb_queues);
	plain_fill(words, &frame);
	return home_of_any(&frame.headers, false, in, queue, nb_queues);
}

static void balancer_homes(struct rte_mbuf *const *burst, uint16_t nb_frames, uint16_t in, uint16_t queue,
			   uint8_t *homes)
{
	static const struct homes_by by_client = {home_of_plain, home_of_any};

	homes_find(&the_balancer.lanes[queue].homes, burst, nb_frames, in, queue, &by_client, homes);
}

static bool balancer_full(uint16_t in)
{
	return false;
}

/* Whoever puts a frame there wakes the forwarding thread; more than a burst take several rounds. */
static bool balancer_pending(uint16_t queue)
{
	return handover_waits(&balancer_handover, queue) || connections_sweep_waits(&the_balancer.lanes[queue].flows) ||
	       (queue == 0 && (!rte_ring_empty(the_balancer.to_port[0]) || !rte_ring_empty(the_balancer.to_port[1])));
}

/* ------- settings, start and end ------- */

static int balancer_configure(json_t *params, struct control_error *error)
{
	const int rc = balancer_set_take(&the_balancer.set, params, error);

	if (rc == 0)
		balancer_health_wake(&the_balancer);
	return rc;
}

static const char *balancer_set_value(const char *name, const char *value)
{
	const char *expected = "connections, or the name of a time-out";

	connections_set(&limits, name, value, &expected);
	return expected;
}

/* Which back end has a connection. */
static void describe_connection(const struct connection *flow, json_t *row)
{
	char name[BALANCER_NAME + 1] = "";

	strncpy(name, the_balancer.set.ends[flow->mark % BALANCER_END_NUMBERS].name, BALANCER_NAME);
	json_object_set_new(row, "back_end", json_string(name));
}

static int open_queues(struct balancer *balancer)
{
	static const char *const names[] = {"to port 0", "to port 1", "to health"};
	struct rte_ring **const rings[] = {&balancer->to_port[0], &balancer->to_port[1], &balancer->to_health};

	for (unsigned i = 0; i < RTE_DIM(rings); i++) {
		/* Any queue's thread may have frames for the health thread.  They may share a CPU: none is to wait for
		 * another that was stopped on its way in. */
		const bool by_several = rings[i] == &balancer->to_health && balancer->nb_lanes > 1;

		*rings[i] = rte_ring_create(names[i], BALANCER_QUEUE, SOCKET_ID_ANY,
					    (by_several ? RING_F_MP_RTS_ENQ : RING_F_SP_ENQ) | RING_F_SC_DEQ |
						    RING_F_EXACT_SZ);
		if (*rings[i] == NULL || (by_several && rte_ring_set_prod_htd_max(*rings[i], BALANCER_QUEUE) != 0)) {
			log_error("no memory for queues; use a larger --memory");
			return -ENOMEM;
		}
	}
	return 0;
}

static int open_lane(struct balancer *balancer, unsigned number)
{
	const struct connection_limits share = connections_share(&limits, number, balancer->nb_lanes);
	struct balancer_lane *lane = &balancer->lanes[number];

	lane->number = number;
	lane->balancer = balancer;
	lane->set = &balancer->set;
	lane->ends = balancer->set.counts[number];
	if (fragments_open(&lane->fragments) != 0 || connections_open(&lane->flows, &share) != 0)
		return -ENOMEM;
	lane->flows.removed = balancer_connection_ended;
	lane->flows.describe = describe_connection;
	balancer_handover.tables.tables[number] = &lane->flows;
	return balancer->nb_lanes > 1 ? homes_open(&lane->homes, balancer->nb_lanes) : 0;
}

static int balancer_open(const struct function_start *start)
{
	struct balancer *balancer = &the_balancer;

	balancer->nb_lanes = start->nb_queues;
	if (balancer_set_open(&balancer->set, start->nb_queues) != 0 || open_queues(balancer) != 0)
		return -ENOMEM;
	for (unsigned i = 0; i < balancer->nb_lanes; i++)
		if (open_lane(balancer, i) != 0)
			return -ENOMEM;
	balancer_handover.tables.nb = balancer->nb_lanes;
	if (handover_open(&balancer_handover, start) != 0)
		return -ENOMEM;
	return balancer_health_open(balancer, start->pool, start->wake_fd);
}

static json_t *describe_port(unsigned port)
{
	const struct balancer_counters *of = &the_balancer.lanes[0].counters[port];
	const struct function_counter counters[] = {{"passed", &of->passed},
						    {"untouched", &of->untouched},
						    {"unkept", &of->unkept},
						    {"taken", &of->taken},
#define X(name) {"drop_" #name, &of->drops[VERDICT_DROP_##name]},
						    VERDICT_DROPS(X) ADDRESS_DROPS(X) BALANCER_DROPS(X)
#undef X
	};

	return function_counters(counters, RTE_DIM(counters), sizeof(the_balancer.lanes[0]), the_balancer.nb_lanes);
}

static void balancer_describe(json_t *into)
{
	json_t *balanced = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(balanced, describe_port(port));
	json_object_set_new(into, "balanced", balanced);
	json_object_set_new(into, "connections", connections_describe(&balancer_handover.tables));
	json_object_set_new(into, "handed_over", handover_describe(&balancer_handover));
	balancer_show_counters(&the_balancer, into);
}

static void balancer_tables(json_t *tables, unsigned most)
{
	balancer_show_tables(&the_balancer, tables, most);
	json_object_set_new(tables, "connections",
			    connections_show(&balancer_handover.tables, most, connections_tick(rte_rdtsc())));
}

static void free_queue(struct rte_ring *ring)
{
	struct rte_mbuf *mbuf;

	while (ring != NULL && rte_ring_dequeue(ring, (void **)&mbuf) == 0)
		rte_pktmbuf_free(mbuf);
	rte_ring_free(ring);
}

static void balancer_close(void)
{
	struct balancer *balancer = &the_balancer;

	handover_close(&balancer_handover);
	balancer_health_close(balancer);
	free_queue(balancer->to_port[0]);
	free_queue(balancer->to_port[1]);
	free_queue(balancer->to_health);
	for (unsigned i = 0; i < balancer->nb_lanes; i++) {
		homes_close(&balancer->lanes[i].homes);
		fragments_close(&balancer->lanes[i].fragments);
		connections_close(&balancer->lanes[i].flows);
	}
	balancer_set_close(&balancer->set);
	memset(balancer, 0, sizeof(*balancer));
}

static const struct function_keeping balancer_keeping = {
	.buffers = 3 * BALANCER_QUEUE,
	.open = balancer_open,
	.full = balancer_full,
	.pending = balancer_pending,
	.ages = true,
	.describe = balancer_describe,
	.tables = balancer_tables,
	.configure = balancer_configure,
	.handover = &balancer_handover,
	.close = balancer_close,
};

const struct function balancer = {
	.name = "balancer",
	.help = "lead what is for virtual addresses to back ends: services (told while it runs), connections (the "
		"most), "
		"time-outs",
	.process = balancer_process,
	.several = true,
	.homes = balancer_homes,
	.set = balancer_set_value,
	.keeping = &balancer_keeping,
};
