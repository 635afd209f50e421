/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "common/log.h"
#include "inspect.h"
#include "tunnel.h"

enum { SOURCES = UINT16_MAX - BFD_FIRST_PORT };

/* ------- frames ------- */

uint32_t tunnel_liveness_write(const struct tunnel *tunnel, uint8_t *frame, const uint8_t *packet, uint64_t mac)
{
	const struct tunnel_ends *ends = &tunnel->headers.ends;
	const bool six = ends->local.family == HEADERS_IPV6;
	const uint16_t length = sizeof(struct rte_udp_hdr) + BFD_PACKET;
	const struct rte_udp_hdr udp = {
		.src_port = rte_cpu_to_be_16(tunnel->liveness.source),
		.dst_port = rte_cpu_to_be_16(ends->liveness),
		.dgram_len = rte_cpu_to_be_16(length),
	};
	uint8_t *at = frame + RTE_ETHER_HDR_LEN + (six ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr));

	memcpy(at, &udp, sizeof(udp));
	memcpy(at + sizeof(udp), packet, BFD_PACKET);
	station_write_ethernet(frame, &tunnel->own, (const uint8_t *)&mac,
			       six ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	return (six ? station_write_ip6 : station_write_ip4)(frame, ends->local.bytes, ends->remote.bytes, IPPROTO_UDP,
							     BFD_TTL, length,
							     offsetof(struct rte_udp_hdr, dgram_cksum));
}

static void send_packet(struct tunnel *tunnel, const uint8_t *packet)
{
	const uint64_t mac = atomic_load(&tunnel->mac);
	uint8_t frame[NEIGHBOUR_FRAME];
	struct rte_mbuf *mbuf = mac != 0 ? rte_pktmbuf_alloc(tunnel->pool) : NULL;

	if (mac == 0)
		atomic_store(&tunnel->liveness.asks, true);
	if (mbuf != NULL) {
		const uint32_t length = tunnel_liveness_write(tunnel, frame, packet, mac);

		memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
		if (rte_ring_enqueue(tunnel->liveness.to_port, mbuf) == 0) {
			function_count(&tunnel->liveness.sent, 1);
			return;
		}
		rte_pktmbuf_free(mbuf);
	}
	function_count(&tunnel->liveness.unsent, 1);
}

static void take_frame(struct tunnel *tunnel, const struct rte_mbuf *mbuf, uint64_t now)
{
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);
	struct tunnel_read read;

	/* Who shares the frame's memory may have changed it meanwhile: so it is read again. */
	if (tunnel_read(&tunnel->headers, head, size, mbuf->pkt_len, &read) == TUNNEL_LIVENESS &&
	    tunnel_checksum_holds(&tunnel->headers, mbuf, &read) &&
	    bfd_take(&tunnel->liveness.session, head + read.inner, RTE_MIN(read.end, size) - read.inner, now))
		function_count(&tunnel->liveness.taken, 1);
	else
		function_count(&tunnel->liveness.ignored, 1);
}

/* ------- the thread ------- */

/* The other end can have it change as often as it likes: so lines have a budget. */
static void tell(struct tunnel *tunnel, enum bfd_state before)
{
	const struct bfd *session = &tunnel->liveness.session;
	struct log_budget *budget = &tunnel->liveness.log;

	if (session->state == BFD_UP && before != BFD_UP)
		log_within(budget, LOG_LEVEL_INFO, "the other end is there");
	if (session->state != BFD_UP && before == BFD_UP && session->remote_state == BFD_ADMIN_DOWN)
		log_within(budget, LOG_LEVEL_INFO,
			   "the session was taken down at the other end; frames to it are sent on");
	else if (session->state != BFD_UP && before == BFD_UP)
		log_within(budget, LOG_LEVEL_WARNING,
			   "the other end is not there: %s; frames to it are dropped until it is back",
			   bfd_diagnostic_name(session->diagnostic));
	log_left_out(budget, "the other end's state");
	/* One that was taken down by its operator says nothing of the way there (RFC 5882, 3.2). */
	atomic_store(&tunnel->liveness.lost,
		     session->state != BFD_UP && session->ups > 0 && session->remote_state != BFD_ADMIN_DOWN);
}

static uint32_t step(void *context, uint64_t milliseconds)
{
	struct tunnel *tunnel = context;
	struct tunnel_liveness *liveness = &tunnel->liveness;
	const uint64_t now = milliseconds * 1000;
	uint8_t packet[BFD_PACKET];
	enum bfd_state before;
	struct rte_mbuf *mbuf;
	uint64_t next;

	pthread_mutex_lock(&liveness->lock);
	before = liveness->session.state;
	for (unsigned i = 0; i < LIVENESS_QUEUE && rte_ring_dequeue(liveness->to_session, (void **)&mbuf) == 0; i++) {
		take_frame(tunnel, mbuf, now);
		rte_pktmbuf_free(mbuf);
	}
	while (bfd_step(&liveness->session, packet, now, &next))
		send_packet(tunnel, packet);
	tell(tunnel, before);
	pthread_mutex_unlock(&liveness->lock);
	if (tunnel_liveness_waits(tunnel))
		aside_notify(liveness->forward_fd);
	return (uint32_t)RTE_MIN((next - now + 999) / 1000, (uint64_t)BFD_SLOW / 1000);
}

bool tunnel_liveness_give(struct tunnel *tunnel, struct rte_mbuf *mbuf)
{
	return tunnel->liveness.to_session != NULL && aside_give(&tunnel->liveness.aside, mbuf);
}

bool tunnel_liveness_waits(const struct tunnel *tunnel)
{
	const struct tunnel_liveness *liveness = &tunnel->liveness;

	return liveness->to_port != NULL &&
	       (!rte_ring_empty(liveness->to_port) || atomic_load_explicit(&liveness->asks, memory_order_relaxed));
}

uint16_t tunnel_liveness_leave(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t most)
{
	struct tunnel_liveness *liveness = &tunnel->liveness;

	if (!tunnel_liveness_waits(tunnel))
		return 0;
	atomic_store_explicit(&liveness->asks, false, memory_order_relaxed); /* next_hop() has asked */
	return (uint16_t)rte_ring_dequeue_burst(liveness->to_port, (void **)burst, most, NULL);
}

/* ------- start and end ------- */

static struct rte_ring *ring_of(const char *name, unsigned flags)
{
	struct rte_ring *ring = rte_ring_create(name, LIVENESS_QUEUE, SOCKET_ID_ANY, flags | RING_F_EXACT_SZ);

	if (ring == NULL)
		log_error("no memory for queues (%s); use a larger --memory", rte_strerror(rte_errno));
	return ring;
}

int tunnel_liveness_open(struct tunnel *tunnel, const struct bfd_settings *settings, int forward_fd)
{
	struct tunnel_liveness *liveness = &tunnel->liveness;
	uint32_t numbers[2] = {0};
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (getrandom(numbers, sizeof(numbers), 0) != sizeof(numbers)) {
		log_error("no random numbers: %s", strerror(errno));
		return -EIO;
	}
	pthread_mutex_init(&liveness->lock, NULL);
	liveness->forward_fd = forward_fd;
	liveness->source = (uint16_t)(BFD_FIRST_PORT + numbers[1] % SOURCES);
	liveness->to_port = ring_of("liveness to port", RING_F_SP_ENQ | RING_F_SC_DEQ);
	liveness->to_session = ring_of("liveness to session", RING_F_SC_DEQ); /* of all queues' threads */
	if (liveness->to_port == NULL || liveness->to_session == NULL)
		return -ENOMEM;
	bfd_begin(&liveness->session, settings, RTE_MAX(numbers[0], 1u), (uint64_t)now.tv_sec * 1000000);
	liveness->aside = (struct aside){.step = step, .context = tunnel, .frames = liveness->to_session};
	return aside_open(&liveness->aside);
}

static void free_ring(struct rte_ring *ring)
{
	struct rte_mbuf *mbuf;

	while (ring != NULL && rte_ring_dequeue(ring, (void **)&mbuf) == 0)
		rte_pktmbuf_free(mbuf);
	rte_ring_free(ring);
}

void tunnel_liveness_close(struct tunnel *tunnel)
{
	aside_close(&tunnel->liveness.aside);
	free_ring(tunnel->liveness.to_port);
	free_ring(tunnel->liveness.to_session);
	tunnel->liveness.to_port = tunnel->liveness.to_session = NULL;
}

json_t *tunnel_liveness_row(struct tunnel *tunnel)
{
	struct tunnel_liveness *liveness = &tunnel->liveness;
	struct timespec now;
	struct bfd session;

	pthread_mutex_lock(&liveness->lock);
	session = liveness->session;
	pthread_mutex_unlock(&liveness->lock);
	clock_gettime(CLOCK_MONOTONIC, &now);
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "state", bfd_state_name(session.state),
			 "other_end", bfd_state_name(session.remote_state), "why",
			 bfd_diagnostic_name(session.why_down), "for_s",
			 (json_int_t)(now.tv_sec - (int64_t)(session.since / 1000000)), "detection_ms",
			 (json_int_t)(bfd_detection(&session) / 1000), "losses", (json_int_t)session.downs, "sent",
			 (json_int_t)liveness->sent, "taken", (json_int_t)liveness->taken, "ignored",
			 (json_int_t)liveness->ignored, "unsent", (json_int_t)liveness->unsent);
}
