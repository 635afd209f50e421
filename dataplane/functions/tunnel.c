/* SPDX-License-Identifier: Apache-2.0
 *
 * VXLAN (RFC 7348) and Geneve (RFC 8926) between two ends, over IPv4 or IPv6.  The tunnel has an address of its own in
 * the network at port 1: it answers ARP and neighbour discovery there, and asks for the other end or the gateway.
 *
 * Outer headers are copied, checked once in the copy, and nothing else of them is read.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ether.h>

#include "common/log.h"
#include "inspect.h"
#include "neighbours.h"
#include "router_headers.h"
#include "tunnel.h"

struct tunnel the_tunnel;
static struct tunnel_settings settings = TUNNEL_SETTINGS_DEFAULT;

/* ------- the next hop ------- */

/* Write a frame of the tunnel's own in place of what the buffer had. */
static void give_own(struct tunnel *tunnel, uint16_t queue, struct rte_mbuf *mbuf, const uint8_t *frame,
		     uint32_t length)
{
	rte_pktmbuf_free(mbuf->next); /* what came in several pieces */
	rte_pktmbuf_reset(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
	tunnel->queues[queue].own[tunnel->queues[queue].nb_own++] = mbuf;
}

/* Each thread reads the time at the start of a burst, so what another one has noted may be later than that. */
static inline bool within(uint64_t since, uint64_t tsc, unsigned seconds)
{
	return tsc <= since || tsc - since <= seconds * rte_get_tsc_hz();
}

static void ask(struct tunnel *tunnel, uint16_t nb_frames, uint16_t queue, uint64_t tsc)
{
	uint64_t before = atomic_load_explicit(&tunnel->asked, memory_order_relaxed);
	const bool first = nb_frames > 0 && !atomic_load_explicit(&tunnel->wanted, memory_order_relaxed) &&
			   !atomic_exchange(&tunnel->wanted, true);
	uint8_t frame[NEIGHBOUR_FRAME];
	struct rte_mbuf *mbuf;

	/* One thread asks.  The first frame asks at once: what was asked before it was asked in no chain. */
	if ((before != 0 && !first && within(before, tsc, TUNNEL_ASK)) || tunnel->queues[queue].nb_own == TUNNEL_OWN ||
	    !atomic_compare_exchange_strong(&tunnel->asked, &before, tsc))
		return;
	if (atomic_fetch_add(&tunnel->unheeded, 1) >= TUNNEL_IGNORED)
		atomic_store(&tunnel->mac, 0);
	mbuf = rte_pktmbuf_alloc(tunnel->pool);
	if (mbuf != NULL)
		give_own(tunnel, queue, mbuf, frame, neighbour_write_question(frame, &tunnel->own, &tunnel->next));
}

/* Where frames to the other end go; 0: not known. */
static inline uint64_t next_hop(struct tunnel *tunnel, uint16_t nb_frames, uint16_t queue, uint64_t tsc)
{
	const uint64_t mac = atomic_load_explicit(&tunnel->mac, memory_order_relaxed);

	if (unlikely(!tunnel->fixed && (mac == 0 || !within(atomic_load_explicit(&tunnel->heard, memory_order_relaxed),
							    tsc, TUNNEL_FRESH))))
		ask(tunnel, nb_frames, queue, tsc);
	return mac;
}

static bool same(const struct ip_address *one, const struct ip_address *other)
{
	return one->family == other->family && memcmp(one->bytes, other->bytes, sizeof(one->bytes)) == 0;
}

static void take_answer(struct tunnel *tunnel, const struct neighbour *answer, uint64_t tsc)
{
	const uint64_t asked = atomic_load(&tunnel->asked), mac = router_mac(answer->mac);

	if (tunnel->fixed || !same(&answer->source, &tunnel->next) || asked == 0 ||
	    !within(asked, tsc, TUNNEL_ANSWER) || mac == 0 || rte_is_multicast_ether_addr((const void *)&mac))
		return;
	atomic_store(&tunnel->heard, tsc);
	atomic_store(&tunnel->unheeded, 0);
	atomic_store(&tunnel->mac, mac);
}

/* ARP or neighbour discovery that came in at port 1; it goes no further. */
static void neighbours(struct tunnel *tunnel, struct rte_mbuf *mbuf, const uint8_t *head, uint32_t size, uint16_t queue,
		       uint64_t tsc)
{
	struct tunnel_counters *counters = &tunnel->queues[queue].counters[1];
	struct neighbour said;
	struct inspected frame;
	uint8_t answer[NEIGHBOUR_FRAME];

	function_count(&counters->neighbours, 1);
	if (inspect(head, size, mbuf->pkt_len, &frame) == VERDICT_PASS && neighbour_read(head, size, &said)) {
		if (said.answer) {
			take_answer(tunnel, &said, tsc);
		} else if (same(&said.target, &tunnel->headers.ends.local)) {
			if (tunnel->queues[queue].nb_own < TUNNEL_OWN) {
				give_own(tunnel, queue, mbuf, answer,
					 neighbour_write_answer(answer, &tunnel->own, &said));
				return;
			}
			function_count(&counters->drop_questions, 1);
		}
	}
	rte_pktmbuf_free(mbuf);
}

/* ------- frames ------- */

static inline uint16_t leave(struct tunnel_counters *counters, struct rte_mbuf **burst, uint16_t nb_out,
			     struct rte_mbuf *mbuf, enum tunnel_verdict verdict)
{
	if (likely(verdict == TUNNEL_PASS)) {
		burst[nb_out] = mbuf;
		return nb_out + 1;
	}
	function_count(&counters->drops[verdict], 1);
	rte_pktmbuf_free(mbuf);
	return nb_out;
}

static uint16_t wrap(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t queue, uint64_t tsc)
{
	struct tunnel_counters *counters = &tunnel->queues[queue].counters[0];
	const uint64_t mac = next_hop(tunnel, nb_frames, queue, tsc);
	const bool lost = atomic_load_explicit(&tunnel->liveness.lost, memory_order_relaxed);
	uint16_t nb_out = 0;

	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct rte_mbuf *mbuf = burst[i];
		const enum tunnel_verdict verdict = unlikely(lost)     ? TUNNEL_DROP_lost
						    : likely(mac != 0) ? tunnel_wrap(&tunnel->headers, mbuf, mac)
								       : TUNNEL_DROP_no_neighbour;

		nb_out = leave(counters, burst, nb_out, mbuf, verdict);
	}
	function_count(&counters->passed, nb_out);
	return nb_out;
}

static uint16_t unwrap(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t queue, uint64_t tsc)
{
	struct tunnel_counters *counters = &tunnel->queues[queue].counters[1];
	uint16_t nb_out = 0;

	for (uint16_t i = 0; i < nb_frames; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct rte_mbuf *mbuf = burst[i];
		enum tunnel_verdict verdict = TUNNEL_PASS;
		struct tunnel_read read;

		if (unlikely(!tunnel_read_most(&tunnel->headers, mbuf, &read))) {
			uint8_t head[PARSE_BYTES];
			const uint32_t size = inspect_copy(mbuf, head);

			verdict = tunnel_read(&tunnel->headers, head, size, mbuf->pkt_len, &read);
			if (verdict == TUNNEL_ITSELF) {
				neighbours(tunnel, mbuf, head, size, queue, tsc);
				continue;
			}
			if (verdict == TUNNEL_LIVENESS && tunnel_liveness_give(tunnel, mbuf)) {
				function_count(&counters->liveness, 1);
				continue;
			}
			if (verdict == TUNNEL_LIVENESS)
				verdict = TUNNEL_DROP_crowded;
		}
		if (likely(verdict == TUNNEL_PASS))
			verdict = tunnel_unwrap(&tunnel->headers, mbuf, &read);
		nb_out = leave(counters, burst, nb_out, mbuf, verdict);
	}
	function_count(&counters->passed, nb_out);
	return nb_out;
}

uint16_t tunnel_pass(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue,
		     uint64_t tsc)
{
	uint16_t nb_out;

	if (in == 1)
		return unwrap(tunnel, burst, nb_frames, queue, tsc);
	nb_out = wrap(tunnel, burst, nb_frames, queue, tsc);
	if (unlikely(tunnel->queues[queue].nb_own > 0)) {
		memcpy(burst + nb_out, tunnel->queues[queue].own, tunnel->queues[queue].nb_own * sizeof(burst[0]));
		nb_out += (uint16_t)tunnel->queues[queue].nb_own;
		tunnel->queues[queue].nb_own = 0;
	}
	if (queue == 0)
		nb_out += tunnel_liveness_leave(tunnel, burst + nb_out, TUNNEL_OWN);
	return nb_out;
}

static bool tunnel_pending(uint16_t queue)
{
	return the_tunnel.queues[queue].nb_own > 0 || (queue == 0 && tunnel_liveness_waits(&the_tunnel));
}

static uint16_t tunnel_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	/* The first question comes before the first frame. */
	if (nb_frames == 0 &&
	    likely(in == 1 || (!tunnel_pending(queue) && (the_tunnel.fixed || the_tunnel.asked != 0))))
		return 0;
	return tunnel_pass(&the_tunnel, burst, nb_frames, in, queue, rte_rdtsc());
}

static bool tunnel_full(uint16_t in)
{
	return false;
}

/* ------- start and end ------- */

static const char *tunnel_set(const char *name, const char *value)
{
	return tunnel_settings_take(&settings, name, value);
}

void tunnel_begin(struct tunnel *tunnel, const struct tunnel_settings *with, struct rte_mempool *pool)
{
	struct tunnel_ends ends = with->ends;

	*tunnel = (struct tunnel){.pool = pool, .fixed = with->neighbour != 0, .mac = with->neighbour};
	tunnel->own.addresses[ip_version(ends.local.family)] = ends.local;
	if (router_mac(ends.mac) == 0) {
		station_make_mac(&tunnel->own);
		memcpy(ends.mac, tunnel->own.mac, sizeof(ends.mac));
	}
	memcpy(tunnel->own.mac, ends.mac, sizeof(ends.mac));
	tunnel->next = with->gateway.family != HEADERS_OTHER ? with->gateway : ends.remote;
	if (with->liveness.interval != 0)
		ends.liveness = with->gateway.family != HEADERS_OTHER ? BFD_PORT_FAR : BFD_PORT;
	tunnel_headers_make(&tunnel->headers, &ends);
}

static int tunnel_open(const struct function_start *start)
{
	const char *wrong = tunnel_settings_wrong(&settings);

	if (wrong != NULL) {
		log_error("%s", wrong);
		return -EINVAL;
	}
	tunnel_begin(&the_tunnel, &settings, start->pool);
	return settings.liveness.interval != 0 ? tunnel_liveness_open(&the_tunnel, &settings.liveness, start->wake_fd)
					       : 0;
}

static void tunnel_close(void)
{
	tunnel_liveness_close(&the_tunnel);
	for (unsigned i = 0; i < FUNCTION_QUEUES; i++) {
		rte_pktmbuf_free_bulk(the_tunnel.queues[i].own, the_tunnel.queues[i].nb_own);
		the_tunnel.queues[i].nb_own = 0;
	}
}

static json_t *describe_port(unsigned port)
{
	const struct tunnel_counters *of = &the_tunnel.queues[0].counters[port];
	const struct function_counter counters[] = {{"passed", &of->passed},
						    {"neighbours", &of->neighbours},
						    {"liveness", &of->liveness},
						    {"drop_questions", &of->drop_questions},
#define X(name) {"drop_" #name, &of->drops[TUNNEL_DROP_##name]},
						    TUNNEL_DROPS(X)
#undef X
	};

	return function_counters(counters, RTE_DIM(counters), sizeof(the_tunnel.queues[0]), FUNCTION_QUEUES);
}

static void tunnel_describe(json_t *into)
{
	json_object_set_new(into, "tunnelled", json_pack("[o, o]", describe_port(0), describe_port(1)));
	json_object_set_new(into, "longest_frame", json_integer((json_int_t)the_tunnel.headers.longest));
}

/* Who the next hop is, and where. */
static void tunnel_tables(json_t *tables, unsigned most)
{
	const uint64_t mac = the_tunnel.mac, heard = the_tunnel.heard;
	const bool six = the_tunnel.next.family == HEADERS_IPV6;
	char address[INET6_ADDRSTRLEN], station[RTE_ETHER_ADDR_FMT_SIZE] = "";
	json_t *rows = json_array(), *row;

	inet_ntop(six ? AF_INET6 : AF_INET, the_tunnel.next.bytes, address, sizeof(address));
	rte_ether_format_addr(station, sizeof(station), (const struct rte_ether_addr *)&mac);
	row = json_pack("{s:s, s:s*, s:s}", "address", address, "mac", mac != 0 ? station : NULL, "state",
			the_tunnel.fixed ? "given"
			: mac != 0	 ? "known"
					 : "not known");
	if (heard != 0)
		json_object_set_new(row, "heard_s_ago",
				    json_integer((json_int_t)((rte_rdtsc() - heard) / rte_get_tsc_hz())));
	if (most > 0)
		json_array_append(rows, row);
	json_decref(row);
	json_object_set_new(tables, "next_hop", json_pack("{s:i, s:o}", "total", 1, "rows", rows));
	if (settings.liveness.interval != 0) {
		rows = json_array();
		if (most > 0)
			json_array_append_new(rows, tunnel_liveness_row(&the_tunnel));
		json_object_set_new(tables, "liveness", json_pack("{s:i, s:o}", "total", 1, "rows", rows));
	}
}

static const struct function_keeping tunnel_keeping = {
	.buffers = FUNCTION_QUEUES * TUNNEL_OWN + 2 * LIVENESS_QUEUE,
	.open = tunnel_open,
	.full = tunnel_full,
	.pending = tunnel_pending,
	.describe = tunnel_describe,
	.tables = tunnel_tables,
	.close = tunnel_close,
};

const struct function tunnel = {
	.name = "tunnel",
	.help = "carry the frames of port 0 to another end by port 1, in VXLAN or Geneve: protocol, vni, local, "
		"remote, "
		"gateway, neighbour, mac, port, mtu, checksum, tagged, liveness, multiplier",
	.process = tunnel_process,
	.several = true,
	.set = tunnel_set,
	.keeping = &tunnel_keeping,
};
