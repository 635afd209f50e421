/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_tcp.h>

#include "balancer.h"
#include "balancer_frames.h"
#include "function.h"

enum {
	TURN = 64,	     /* probes in a step: the others are a millisecond late */
	ASK_AGAIN = 200,     /* ms, while a MAC address is not known */
	ASK_ANEW = 30000,    /* while it is */
	HEARD_WITHIN = 5000, /* an answer that nobody has asked for is none */
	STEP_MOST = 1000,    /* ms */
	LED_WITHIN = 100,    /* it is found out that frames come in now */
	SILENT = 2000,	     /* since another instance was heard; it says something ten times a second */
	SYN_ACK = RTE_TCP_SYN_FLAG | RTE_TCP_ACK_FLAG,
};

/* ------- frames out ------- */

/* Returns whether it is on its way. */
static bool send_frame(struct balancer *balancer, uint16_t port, const uint8_t *frame, uint32_t length)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(balancer->health.pool);

	if (mbuf != NULL) {
		memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
		if (rte_ring_enqueue(balancer->to_port[port], mbuf) == 0)
			return true;
		rte_pktmbuf_free(mbuf);
	}
	function_count(&balancer->health.unsent, 1);
	return false;
}

static const struct balancer_own *own_of(const struct balancer *balancer)
{
	return &atomic_load(&balancer->set.table)->own;
}

/*
 * Whether somebody has asked for the MAC address of an end's next hop a moment ago.  Where its answer is the probe,
 * only one that is still to come is this end's too.
 */
static bool is_asked(const struct balancer *balancer, const struct balancer_end *end, uint64_t now)
{
	const struct balancer_end *leader = &balancer->set.ends[end->leader];

	if (balancer->set.services[end->service].probe == BALANCER_NEIGHBOUR)
		return leader->health.waits && leader->health.asked == now;
	return leader->health.asked != 0 && now - leader->health.asked < ASK_AGAIN;
}

/* Returns whether the question is on its way. */
static bool ask(struct balancer *balancer, const struct balancer_end *end, uint64_t now)
{
	struct balancer_end *leader = &balancer->set.ends[end->leader];
	uint8_t frame[BALANCER_FRAME];

	if (is_asked(balancer, end, now))
		return true;
	if (!send_frame(balancer, 1, frame,
			neighbour_write_question(frame, &own_of(balancer)->station,
						 balancer_next_hop(&balancer->set, own_of(balancer), end))))
		return false;
	leader->health.asked = now;
	leader->health.waits = true;
	return true;
}

static void mac_of(const struct balancer_end *end, uint8_t *mac)
{
	const uint64_t known = end->mac;

	memcpy(mac, &known, 6);
}

/* ------- up and down ------- */

static void note_event(struct balancer *balancer, const struct balancer_end *end, bool up, const char *why)
{
	struct balancer_health *health = &balancer->health;
	const struct balancer_service *service = &balancer->set.services[end->service];
	struct balancer_event *event = &health->events[health->nb_events++ % BALANCER_EVENTS];

	event->time = (uint64_t)time(NULL);
	event->up = up;
	memcpy(event->service, service->name, sizeof(event->service));
	memcpy(event->end, end->name, sizeof(event->end));
	event->why = why;
	log_within(&health->budget, up ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "service %s: back end %s is %s: %s",
		   service->name, end->name, up ? "up" : "down", why);
}

/* Returns whether it is up or down by that. */
static bool take_result(struct balancer *balancer, struct balancer_end *end, bool well, const char *why)
{
	const struct balancer_service *service = &balancer->set.services[end->service];
	const bool known = end->health.known, up = end->state == BALANCER_UP;

	end->health.sent = 0;
	end->health.known = true;
	end->health.answered |= well;
	end->health.good = well ? (uint8_t)RTE_MIN(end->health.good + 1, UINT8_MAX) : 0;
	end->health.bad = well ? 0 : (uint8_t)RTE_MIN(end->health.bad + 1, UINT8_MAX);
	if (well == up || (up && end->health.bad < service->fall) ||
	    (!up && known && end->health.good < service->rise)) {
		if (!known && !well)
			note_event(balancer, end, false, why);
		return false;
	}
	atomic_store_explicit(&end->state, up ? BALANCER_DOWN : BALANCER_UP, memory_order_release);
	note_event(balancer, end, !up, why);
	return true;
}

/* Whether an end is up by the word of the instance before alone. */
static bool is_believed(const struct balancer_end *end)
{
	return end->health.vouched && !end->health.answered;
}

/* Whether what the instance before knows of an end counts: what this one has found out itself counts more. */
static bool is_news(const struct balancer *balancer, const struct balancer_end *end)
{
	return !end->health.answered && !end->health.vouched && end->state == BALANCER_DOWN &&
	       (!end->health.known || balancer->health.led == 0);
}

bool balancer_health_vouch(struct balancer *balancer, struct balancer_end *end, const uint8_t mac[6], uint8_t bad)
{
	uint64_t station = 0;

	memcpy(&station, mac, 6);
	if (station == 0 || (mac[0] & 1) != 0)
		return false;
	/* The end may have moved since: who sends no probes does not find that out. */
	if (is_believed(end) && end->state == BALANCER_UP && balancer->health.led == 0)
		end->mac = station;
	if (!is_news(balancer, end))
		return false;
	end->mac = station;
	end->health.known = end->health.vouched = true;
	end->health.good = 0;
	end->health.bad = bad;
	end->health.sent = 0;
	atomic_store_explicit(&end->state, BALANCER_UP, memory_order_release);
	note_event(balancer, end, true, "the instance before had it up");
	return true;
}

bool balancer_health_doubt(struct balancer *balancer, struct balancer_end *end, uint8_t good)
{
	const bool believed = is_believed(end) && end->state == BALANCER_UP && balancer->health.led == 0;

	if (!believed && (!is_news(balancer, end) || end->health.known))
		return false;
	end->health.known = true;
	end->health.vouched = false;
	end->health.good = good;
	atomic_store_explicit(&end->state, BALANCER_DOWN, memory_order_release);
	note_event(balancer, end, false, "the instance before had it down");
	return believed;
}

static uint64_t frames_in(const struct balancer *balancer)
{
	uint64_t frames = 0;

	for (unsigned i = 0; i < 2 * balancer->nb_lanes; i++) {
		const struct balancer_counters *counters = &balancer->lanes[i / 2].counters[i % 2];

		frames += counters->passed + counters->taken;
	}
	return frames;
}

/* Whether anything comes in: before that no answer can. */
static bool is_led(const struct balancer *balancer)
{
	return frames_in(balancer) != balancer->health.frames_before;
}

static bool stands_by(const struct balancer *balancer, uint64_t now)
{
	const struct balancer_health *health = &balancer->health;

	return health->led == 0 && health->heard != 0 && now - health->heard < SILENT;
}

void balancer_health_listen(struct balancer *balancer)
{
	struct balancer_health *health = &balancer->health;

	health->hears |= health->led == 0 && health->heard != 0;
}

void balancer_health_hear(struct balancer *balancer)
{
	struct balancer_health *health = &balancer->health;
	const uint64_t frames = frames_in(balancer);

	if (frames != health->frames_heard) {
		health->frames_heard = frames;
		return;
	}
	health->frames_before = frames;
	health->led = 0;
	health->hears = true;
	for (unsigned i = 0; i < balancer->set.nb_used; i++) {
		struct balancer_end *end = &balancer->set.ends[balancer->set.used[i]];

		end->health.answered = false;
		end->health.vouched = balancer_end_is_up(end);
		end->health.sent = 0;
	}
}

/* ------- frames in ------- */

/* All that have this next hop have its MAC address now. */
static bool take_neighbour(struct balancer *balancer, const struct neighbour *neighbour, uint64_t now)
{
	struct balancer_set *set = &balancer->set;
	const struct balancer_own *own = own_of(balancer);
	uint64_t mac = 0;
	bool changed = false;

	memcpy(&mac, neighbour->mac, sizeof(neighbour->mac));
	if (mac == 0 || (neighbour->mac[0] & 1) != 0) /* a group has no station */
		return false;
	for (unsigned i = 0; i < set->nb_used; i++) {
		struct balancer_end *end = &set->ends[set->used[i]];
		struct balancer_end *leader = &set->ends[end->leader];
		const bool is_probe = set->services[end->service].probe == BALANCER_NEIGHBOUR;

		if (leader->health.asked == 0 || now - leader->health.asked > HEARD_WITHIN ||
		    memcmp(balancer_next_hop(set, own, end), &neighbour->source, sizeof(neighbour->source)) != 0)
			continue;
		leader->health.waits = false;
		if (end->mac == 0 && !is_probe)
			end->health.due = now; /* it has waited for that */
		end->mac = mac;
		if (is_probe && end->health.sent != 0)
			changed |= take_result(balancer, end, true, "its MAC address was answered");
	}
	return changed;
}

/* The end that this number is of, if a frame can be its answer. */
static struct balancer_end *end_of(struct balancer *balancer, uint32_t number, const struct headers *headers,
				   enum balancer_probe_kind kind)
{
	struct balancer_end *end = &balancer->set.ends[number % BALANCER_END_NUMBERS];

	if (number == 0 || number >= BALANCER_END_NUMBERS || end->state < BALANCER_DOWN ||
	    balancer->set.services[end->service].probe != kind || end->address.family != headers->family ||
	    memcmp(end->address.bytes, headers->source, sizeof(headers->source)) != 0)
		return NULL;
	return end;
}

/* An answer to a SYN is answered by a reset, so that the end keeps nothing. */
static bool take_tcp(struct balancer *balancer, const uint8_t *head, const struct inspected *frame)
{
	struct balancer_segment segment, reset;
	struct balancer_end *end;
	uint8_t bytes[BALANCER_FRAME], mac[6];
	bool ours;

	balancer_read_tcp(head, frame, &segment);
	end = end_of(balancer, (uint32_t)segment.to - BALANCER_FIRST_PORT, &frame->headers, BALANCER_TCP);
	if (end == NULL || segment.from != end->port || !(segment.flags & RTE_TCP_ACK_FLAG))
		return false;
	ours = end->health.sent != 0 && segment.acknowledged == end->health.nonce + 1;
	if (frame->event == EVENT_RST)
		return ours && take_result(balancer, end, false, "it refuses connections");
	if ((segment.flags & SYN_ACK) != SYN_ACK)
		return false;
	reset = (struct balancer_segment){
		.from = segment.to, .to = segment.from, .sequence = segment.acknowledged, .flags = RTE_TCP_RST_FLAG};
	mac_of(end, mac);
	send_frame(balancer, 1, bytes, balancer_write_tcp(bytes, own_of(balancer), mac, &end->address, &reset));
	return ours && take_result(balancer, end, true, "it accepts connections");
}

static bool take_echo(struct balancer *balancer, const uint8_t *head, uint32_t size, const struct inspected *frame)
{
	struct balancer_end *end = end_of(balancer, frame->headers.source_port, &frame->headers, BALANCER_ECHO);
	uint32_t nonce;

	if (frame->event != EVENT_ANSWER || end == NULL || end->health.sent == 0 ||
	    !balancer_read_echo(head, size, frame, &nonce) || nonce != end->health.nonce)
		return false;
	return take_result(balancer, end, true, "it answers echo");
}

/* Returns whether an end is up or down by that. */
static bool take(struct balancer *balancer, const struct rte_mbuf *mbuf, uint64_t now)
{
	uint8_t head[PARSE_BYTES], answer[BALANCER_FRAME];
	const uint32_t size = inspect_copy(mbuf, head);
	struct neighbour neighbour;
	struct inspected frame;
	const enum verdict verdict = inspect(head, size, mbuf->pkt_len, &frame);

	if (verdict == VERDICT_FLOW) {
		if (frame.headers.fragment != FRAGMENT_NONE)
			return false;
		if (frame.headers.protocol == IPPROTO_TCP)
			return take_tcp(balancer, head, &frame);
		return frame.query != 0 && take_echo(balancer, head, size, &frame);
	}
	/* It was for the balancer when it came. */
	if (verdict != VERDICT_PASS ||
	    !balancer_frame_asks(atomic_load(&balancer->set.table), head, size, mbuf->port) ||
	    !neighbour_read(head, size, &neighbour))
		return false;
	if (neighbour.answer)
		return mbuf->port == 1 && take_neighbour(balancer, &neighbour, now);
	send_frame(balancer, mbuf->port, answer,
		   neighbour_write_answer(answer, &own_of(balancer)->station, &neighbour));
	return false;
}

/* ------- probes ------- */

/* Returns whether it is on its way; one without a MAC address waits for that alone. */
static bool probe(struct balancer *balancer, struct balancer_end *end, uint64_t now)
{
	const struct balancer_service *service = &balancer->set.services[end->service];
	const uint16_t number = (uint16_t)(end - balancer->set.ends);
	const struct balancer_own *own = own_of(balancer);
	uint8_t frame[BALANCER_FRAME], mac[6];
	struct balancer_segment segment;
	uint32_t nonce;

	if (getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK) != sizeof(nonce))
		nonce = (uint32_t)rte_rdtsc();
	end->health.nonce = nonce;
	mac_of(end, mac);
	if (end->mac == 0 || service->probe == BALANCER_NEIGHBOUR)
		return ask(balancer, end, now);
	if (end->health.bad > 0 || now - balancer->set.ends[end->leader].health.asked > ASK_ANEW)
		ask(balancer, end, now);
	if (service->probe == BALANCER_ECHO)
		return send_frame(balancer, 1, frame,
				  balancer_write_echo(frame, own, mac, &end->address, number, nonce));
	segment = (struct balancer_segment){.from = (uint16_t)(BALANCER_FIRST_PORT + number),
					    .to = end->port,
					    .sequence = nonce,
					    .flags = RTE_TCP_SYN_FLAG};
	return send_frame(balancer, 1, frame, balancer_write_tcp(frame, own, mac, &end->address, &segment));
}

/* Returns whether an end is down by that. */
static bool look_at(struct balancer *balancer, struct balancer_end *end, uint64_t now, unsigned *turn)
{
	const struct balancer_service *service = &balancer->set.services[end->service];
	bool changed = false;

	if (stands_by(balancer, now))
		return false;
	/* A probe from before frames came in has lost its answer to the instance before. */
	if (is_believed(end) && end->health.sent != 0 &&
	    (balancer->health.led != 0 ? end->health.sent < balancer->health.led
				       : now - end->health.sent >= service->timeout)) {
		end->health.sent = 0;
		end->health.due = RTE_MIN(end->health.due, balancer->health.led != 0 ? now : UINT64_MAX);
	}
	if (end->health.sent != 0 && now - end->health.sent >= service->timeout)
		changed = take_result(balancer, end, false,
				      end->mac == 0 ? "nobody answers for its MAC address" : "no answer");
	if (end->health.due > now || *turn == 0)
		return changed;
	--*turn;
	if (probe(balancer, end, now)) {
		end->health.sent = now;
		end->health.due = now + service->interval;
		function_count(&balancer->health.probes, 1);
	}
	return changed;
}

static uint32_t due_in(const struct balancer *balancer, uint64_t now)
{
	uint64_t next = now + STEP_MOST;

	if (stands_by(balancer, now))
		return LED_WITHIN;
	for (unsigned i = 0; i < balancer->set.nb_used; i++) {
		const struct balancer_end *end = &balancer->set.ends[balancer->set.used[i]];

		next = RTE_MIN(next, end->health.due);
		if (balancer->health.led == 0 && is_believed(end))
			next = RTE_MIN(next, now + LED_WITHIN);
		if (end->health.sent != 0)
			next = RTE_MIN(next, end->health.sent + balancer->set.services[end->service].timeout);
	}
	return next <= now ? 1 : (uint32_t)(next - now);
}

uint32_t balancer_health_step(struct balancer *balancer, uint64_t now)
{
	struct balancer_set *set = &balancer->set;
	bool changed = false;
	unsigned turn = TURN;
	struct rte_mbuf *mbuf;
	uint32_t wait;

	pthread_mutex_lock(&set->lock);
	for (unsigned i = 0; i < BALANCER_QUEUE && rte_ring_dequeue(balancer->to_health, (void **)&mbuf) == 0; i++) {
		changed |= take(balancer, mbuf, now);
		function_count(&balancer->health.answers, 1);
		rte_pktmbuf_free(mbuf);
	}
	if (balancer->health.hears)
		balancer->health.heard = now;
	balancer->health.hears = false;
	if (balancer->health.led == 0 && is_led(balancer))
		balancer->health.led = now;
	for (unsigned i = 0; i < set->nb_used; i++)
		changed |= look_at(balancer, &set->ends[set->used[i]], now, &turn);
	if (changed && balancer_set_publish(set) != 0)
		log_within(&balancer->health.budget, LOG_LEVEL_ERROR, "no memory for its tables");
	wait = due_in(balancer, now);
	pthread_mutex_unlock(&set->lock);
	if (balancer->health.aside.runs &&
	    (!rte_ring_empty(balancer->to_port[0]) || !rte_ring_empty(balancer->to_port[1])))
		aside_notify(balancer->health.forward_fd);
	return wait;
}

/* ------- the thread ------- */

bool balancer_health_give(struct balancer *balancer, struct rte_mbuf *mbuf)
{
	return aside_give(&balancer->health.aside, mbuf);
}

void balancer_health_wake(const struct balancer *balancer)
{
	aside_wake(&balancer->health.aside);
}

static uint32_t step(void *context, uint64_t now)
{
	return balancer_health_step(context, now);
}

int balancer_health_open(struct balancer *balancer, struct rte_mempool *pool, int forward_fd)
{
	struct balancer_health *health = &balancer->health;

	*health = (struct balancer_health){
		.pool = pool,
		.forward_fd = forward_fd,
		.aside = {.step = step, .context = balancer, .frames = balancer->to_health},
	};
	return forward_fd < 0 ? 0 : aside_open(&health->aside);
}

void balancer_health_close(struct balancer *balancer)
{
	aside_close(&balancer->health.aside);
}
