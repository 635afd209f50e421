/* SPDX-License-Identifier: Apache-2.0
 *
 * A balancer, a bump in the wire: clients are at port 0, back ends at port 1.  What is for a virtual address and port
 * goes to one of its back ends, all frames of a connection to the same one.  What is neither for a virtual address nor
 * from a back end's port passes as it came.
 *
 * A frame's first bytes are copied, checked and changed in the copy, which then takes their place.  Which back end a
 * connection begins at, a consistent hash says (maglev.h); a table remembers it.  A thread of its own probes the back
 * ends, and answers for the virtual addresses (balancer_health.h).
 */
#include <errno.h>
#include <string.h>

#include <rte_cycles.h>

#include "balancer_handover.h"
#include "balancer_pass.h"
#include "common/log.h"
#include "function.h"

enum { OWN_BURST = 32 };

struct balancer the_balancer;
static struct connection_limits limits = CONNECTION_LIMITS_DEFAULT;

/* Returns whether the frame leaves by the other port. */
static bool leave(struct balancer *balancer, struct rte_mbuf *mbuf, const struct balancer_passing *passing, uint16_t in)
{
	struct balancer_counters *counters = &balancer->counters[in];
	enum verdict verdict = passing->base.verdict;

	if (unlikely(verdict == VERDICT_PASS && passing->way == BALANCER_TAKEN)) {
		mbuf->port = in;
		if (balancer_health_give(balancer, mbuf)) {
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

uint16_t balancer_balance(struct balancer *balancer, struct rte_mbuf **mbufs, uint16_t nb_frames, uint16_t in,
			  uint64_t tsc)
{
	const struct balancer_table *table = atomic_load_explicit(&balancer->set.table, memory_order_acquire);
	struct balancer_passing burst[BALANCER_BURST];
	uint16_t nb_out = 0;

	balancer->tick = connections_tick(tsc);
	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = balancer_look(balancer, table, mbufs[i], &burst[i], in);
		if (i >= PASSING_LAG)
			passing_guess(&burst[i - PASSING_LAG].base, &balancer->flows);
	}
	for (uint16_t i = RTE_MAX(nb_frames, PASSING_LAG) - PASSING_LAG; i < nb_frames; i++)
		passing_guess(&burst[i].base, &balancer->flows);
	for (uint16_t i = 0; i < nb_frames; i++) {
		burst[i].base.verdict = balancer_decide(balancer, table, &burst[i], in, tsc);
		if (likely(leave(balancer, mbufs[i], &burst[i], in)))
			mbufs[nb_out++] = mbufs[i];
	}
	function_count(&balancer->counters[in].passed, nb_out);
	/* What leaves at a port of its own goes with what came in at the other one. */
	return nb_out +
	       (uint16_t)rte_ring_dequeue_burst(balancer->to_port[1 - in], (void **)(mbufs + nb_out), OWN_BURST, NULL);
}

static uint16_t balancer_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	const uint64_t tsc = rte_rdtsc();

	connections_sweep(&the_balancer.flows, connections_tick(tsc));
	if (unlikely(handover_waits(&balancer_handover, queue)))
		handover_take(&balancer_handover, connections_tick(tsc));
	return nb_frames > 0 || !rte_ring_empty(the_balancer.to_port[1 - in])
		       ? balancer_balance(&the_balancer, burst, nb_frames, in, tsc)
		       : 0;
}

static bool balancer_full(uint16_t in)
{
	return false;
}

/* Whoever puts a frame there wakes the forwarding thread; more than a burst take several rounds. */
static bool balancer_pending(uint16_t queue)
{
	return handover_waits(&balancer_handover, queue) || !rte_ring_empty(the_balancer.to_port[0]) ||
	       !rte_ring_empty(the_balancer.to_port[1]);
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
		*rings[i] = rte_ring_create(names[i], BALANCER_QUEUE, SOCKET_ID_ANY,
					    RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		if (*rings[i] == NULL) {
			log_error("no memory for queues; use a larger --memory");
			return -ENOMEM;
		}
	}
	return 0;
}

static int balancer_open(const struct function_start *start)
{
	struct balancer *balancer = &the_balancer;

	balancer_handover.tables = (struct connection_tables){{&balancer->flows}, 1};
	if (balancer_set_open(&balancer->set) != 0 || fragments_open(&balancer->fragments) != 0 ||
	    connections_open(&balancer->flows, &limits) != 0 || open_queues(balancer) != 0 ||
	    handover_open(&balancer_handover, start) != 0)
		return -ENOMEM;
	balancer->flows.removed = balancer_connection_ended;
	balancer->flows.describe = describe_connection;
	return balancer_health_open(balancer, start->pool, start->wake_fd);
}

static json_t *describe_port(const struct balancer_counters *counters)
{
	json_t *port = json_pack("{s:I, s:I, s:I, s:I}", "passed", (json_int_t)counters->passed, "untouched",
				 (json_int_t)counters->untouched, "unkept", (json_int_t)counters->unkept, "taken",
				 (json_int_t)counters->taken);

	inspect_describe(port, counters->drops);
#define X(name) \
	json_object_set_new(port, "drop_" #name, json_integer((json_int_t)counters->drops[VERDICT_DROP_##name]));
	ADDRESS_DROPS(X)
	BALANCER_DROPS(X)
#undef X
	return port;
}

static void balancer_describe(json_t *into)
{
	json_t *balanced = json_array();

	for (unsigned port = 0; port < 2; port++)
		json_array_append_new(balanced, describe_port(&the_balancer.counters[port]));
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
	fragments_close(&balancer->fragments);
	connections_close(&balancer->flows);
	balancer_set_close(&balancer->set);
	memset(balancer, 0, sizeof(*balancer));
}

static const struct function_keeping balancer_keeping = {
	.buffers = 3 * BALANCER_QUEUE,
	.open = balancer_open,
	.full = balancer_full,
	.pending = balancer_pending,
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
	.set = balancer_set_value,
	.keeping = &balancer_keeping,
};
