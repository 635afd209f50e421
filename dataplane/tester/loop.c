/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include "common/log.h"
#include "common/signature.h"
#include "loop.h"

enum {
	RECEIVE_BURST = 64,
	IDLE_TICK = 10,		 /* ms between two looks at the receive rings, when there is no trial */
	IDLE_TICKS_OF_LINK = 10, /* ... and at the links */
};

#define DRAINED	      1e-3 /* seconds without a frame after which the rings are taken as drained */
#define DRAIN_LONGEST 0.2  /* seconds; then the trial starts all the same, and counts what comes as foreign */
#define QUIET	      0.1  /* seconds that a port is silent before its link is looked at */

/* The signature of a received frame, copied to `room` if it is not in one piece; NULL if the frame is too short. */
static inline const void *signature_place(const struct rte_mbuf *mbuf, void *room)
{
	if (likely(mbuf->nb_segs == 1 && mbuf->data_len >= SIGNATURE_SIZE))
		return rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, mbuf->data_len - SIGNATURE_SIZE);
	if (mbuf->pkt_len < SIGNATURE_SIZE)
		return NULL;
	return rte_pktmbuf_read(mbuf, mbuf->pkt_len - SIGNATURE_SIZE, SIGNATURE_SIZE, room);
}

/*
 * A frame that does not end with a signature: a device may have added padding or a trailer behind a datagram, which
 * ends with one.  Returns whether it does.
 */
static bool look_before_the_end(const struct rte_mbuf *mbuf, uint32_t key, struct signature *signature)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint16_t end;

	if (mbuf->nb_segs != 1)
		return false;
	end = capture_datagram_end(bytes, mbuf->data_len);
	return end < mbuf->data_len && end >= SIGNATURE_SIZE &&
	       signature_read(bytes + end - SIGNATURE_SIZE, key, signature);
}

/* Add what a burst brought for one stream. */
static inline void credit(struct trial *trial, struct stream *stream, const struct tally *latency, uint64_t bytes,
			  uint64_t now)
{
	if (unlikely(stream->received == 0))
		stream->first_received = now;
	else if (unlikely(now - stream->last_received > stream->longest_gap))
		stream->longest_gap = now - stream->last_received;
	stream->last_received = now;
	stream->received += latency->count;
	stream->received_bytes += bytes;
	tally_merge(&stream->counting->tally, latency);
	tally_merge(&stream->intervals[trial->nb_intervals - 1].latency, latency);
	atomic_store_explicit(&stream->received_so_far, stream->received, memory_order_relaxed);
}

/* Frames received at one port and not yet looked at. */
struct arrivals {
	struct rte_mbuf *burst[RECEIVE_BURST];
	uint16_t nb_frames;
	uint64_t time; /* TSC after the burst */
};

/*
 * Take what came in and have the signatures fetched.  They lie in another core's cache, some hundred nanoseconds
 * away, so transmit() comes before analyse().
 */
static inline void receive(const struct trial *trial, struct loop_port *port, struct arrivals *arrivals)
{
	arrivals->nb_frames = device_receive(&port->device, 0, arrivals->burst, RECEIVE_BURST);
	if (arrivals->nb_frames == 0)
		return;
	arrivals->time = trial_now(trial);
	port->last_heard = arrivals->time;
	for (uint16_t i = 0; i < arrivals->nb_frames; i++) {
		const struct rte_mbuf *mbuf = arrivals->burst[i];

		rte_prefetch0(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, mbuf->data_len - SIGNATURE_SIZE));
	}
}

/* Give the buffers back; those of a port are of one pool, and nobody else holds them. */
static inline void release(struct arrivals *arrivals, uint32_t nb_segments)
{
	if (likely(nb_segments == arrivals->nb_frames))
		rte_mempool_put_bulk(arrivals->burst[0]->pool, (void **)arrivals->burst, arrivals->nb_frames);
	else
		rte_pktmbuf_free_bulk(arrivals->burst, arrivals->nb_frames);
}

/*
 * Frames of one stream whose numbers follow each other and whose time is the same, as a burst sent by us arrives
 * when nothing goes wrong: what is alike is worked out once for all of them.
 */
struct sameness {
	uint16_t stream;
	uint64_t first; /* number of the first frame */
	uint32_t nb_frames;
	uint64_t time;
};

/* Remember single frames, of those that took `cycles`. */
static inline void remember(struct trial *trial, const struct sameness *same, uint64_t cycles, uint64_t now)
{
	struct sighting frame = {.stream = same->stream,
				 .way = trial->streams[same->stream].to,
				 .sequence = same->first,
				 .sent = now - cycles,
				 .received = now};

	if (trial->samples.every != 0 && samples_next(&trial->samples, same->first) < same->first + same->nb_frames)
		samples_add(&trial->samples, &frame, same->nb_frames);
	if (unlikely(cycles > trial->worst.least)) {
		frame.sequence = same->first & SIGNATURE_MASK;
		worst_add(&trial->worst, &frame);
	}
}

/* Add the frames to their stream. */
static inline void record(const struct loop *loop, struct trial *trial, struct stream *stream,
			  const struct sameness *same, uint64_t now, struct tally *latency)
{
	uint64_t cycles = (now - same->time) & SIGNATURE_MASK, ns = clock_ns(&loop->rate, cycles);

	remember(trial, same, cycles, now);
	histogram_count(stream->counting, ns, same->nb_frames);
	tally_add(latency, ns, same->nb_frames);
	records_count(&trial->records, same->stream, &stream->sequence, same->first, same->nb_frames);
}

/*
 * Learning frames have signatures too, with another key: one that comes late, when the trial has begun, is not foreign,
 * and whoever looks for the trial's frames does not take it for one.
 */
static uint32_t learning_key(const struct trial *trial)
{
	return ~trial->key;
}

/* Count a frame that is none of the trial's, unless it is a learning frame that was under way for long. */
static void count_foreign(struct trial *trial, uint16_t port, const struct rte_mbuf *mbuf, const void *place)
{
	struct stranger *stranger = &trial->stranger;
	struct signature signature;

	if (place != NULL && signature_read(place, learning_key(trial), &signature))
		return;
	trial->foreign[port]++;
	if (stranger->nb_bytes > 0)
		return;
	stranger->port = port;
	stranger->length = mbuf->pkt_len;
	stranger->nb_bytes = RTE_MIN(mbuf->data_len, TRIAL_STRANGER);
	memcpy(stranger->bytes, rte_pktmbuf_mtod(mbuf, const void *), stranger->nb_bytes);
}

static void log_stranger(const struct loop *loop, const struct stranger *stranger)
{
	char text[2 * TRIAL_STRANGER + 1];

	for (uint16_t i = 0; i < stranger->nb_bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", stranger->bytes[i]);
	if (stranger->nb_bytes > 0)
		log_info("port %s received frames that are not the trial's; the first had %u bytes: %s",
			 loop->ports[stranger->port].name, stranger->length, text);
}

static inline void analyse(const struct loop *loop, struct trial *trial, uint16_t port, struct arrivals *arrivals)
{
	const uint64_t now = arrivals->time;
	struct sameness same = {.nb_frames = 0};
	struct stream *stream = NULL;
	struct tally latency = TALLY_EMPTY;
	uint32_t nb_segments = 0;
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < arrivals->nb_frames; i++) {
		const struct rte_mbuf *mbuf = arrivals->burst[i];
		uint8_t room[SIGNATURE_SIZE];
		const void *place = signature_place(mbuf, room);
		struct signature signature;

		nb_segments += mbuf->nb_segs;
		if (unlikely(place == NULL || (!signature_read(place, trial->key, &signature) &&
					       !look_before_the_end(mbuf, trial->key, &signature)))) {
			count_foreign(trial, port, mbuf, place);
			continue;
		}
		if (likely(same.nb_frames > 0 && signature.stream == same.stream && signature.time == same.time &&
			   signature.sequence == ((same.first + same.nb_frames) & SIGNATURE_MASK))) {
			same.nb_frames++;
			bytes += mbuf->pkt_len + RTE_ETHER_CRC_LEN;
			continue;
		}
		if (unlikely(signature.stream >= trial->nb_streams || trial->streams[signature.stream].to != port)) {
			count_foreign(trial, port, mbuf, NULL);
			continue;
		}
		if (stream != NULL)
			record(loop, trial, stream, &same, now, &latency);
		if (unlikely(stream != &trial->streams[signature.stream])) {
			if (stream != NULL)
				credit(trial, stream, &latency, bytes, now);
			stream = &trial->streams[signature.stream];
			latency = TALLY_EMPTY;
			bytes = 0;
		}
		same = (struct sameness){signature.stream, signature.sequence, 1, signature.time};
		bytes += mbuf->pkt_len + RTE_ETHER_CRC_LEN;
	}
	if (stream != NULL) {
		record(loop, trial, stream, &same, now, &latency);
		credit(trial, stream, &latency, bytes, now);
	}
	release(arrivals, nb_segments);
}

static inline void transmit(struct loop *loop, struct trial *trial, uint16_t number)
{
	struct stream *stream = &trial->streams[number];
	uint64_t unsent = stream->pace.unsent;
	uint32_t allowed = pace_allow(&stream->pace, trial_now(trial) - trial->started, FRAME_BURST);
	uint16_t nb_made = stream->nb_held, nb_frames, nb_sent;
	uint64_t bytes = 0, now;

	if (unlikely(stream->pace.unsent > unsent) && stream->nb_held > 0)
		stream->refused += stream->pace.unsent - unsent;
	if (allowed == 0)
		return;
	for (; nb_made < allowed; nb_made++) {
		stream->burst[nb_made] = frames_next(&stream->frames);
		if (unlikely(stream->burst[nb_made] == NULL))
			break;
	}
	nb_frames = RTE_MIN(nb_made, allowed);

	/* Frames that the port did not take last time are signed anew: they have not been sent. */
	now = trial_now(trial);
	for (uint16_t i = 0; i < nb_frames; i++) {
		struct rte_mbuf *mbuf = stream->burst[i];

		frames_sign(&stream->frames, mbuf, trial->key, number, stream->next + i, now);
		bytes += mbuf->data_len + RTE_ETHER_CRC_LEN;
	}
	nb_sent = 0;
	if (likely(nb_frames > 0)) /* memif's driver of DPDK 24.11 looks at the first even of none */
		nb_sent = rte_eth_tx_burst(loop->ports[stream->from].device.port, 0, stream->burst, nb_frames);

	stream->nb_held = nb_made - nb_sent;
	if (unlikely(stream->nb_held > 0)) {
		stream->held += nb_sent < nb_frames;
		for (uint16_t i = nb_sent; i < nb_frames; i++)
			bytes -= stream->burst[i]->data_len + RTE_ETHER_CRC_LEN;
		for (uint16_t i = 0; i < stream->nb_held; i++)
			stream->burst[i] = stream->burst[nb_sent + i];
	}
	if (nb_sent == 0)
		return;
	stream->next += nb_sent;
	stream->pace.sent += nb_sent;
	stream->sent_bytes += bytes;
	stream->intervals[trial->nb_intervals - 1].sent += nb_sent;
	if (unlikely(stream->first_sent == 0))
		stream->first_sent = now;
	stream->last_sent = now;
	atomic_store_explicit(&stream->sent_so_far, stream->pace.sent, memory_order_relaxed);
}

static bool all_sent(const struct trial *trial, uint64_t elapsed)
{
	for (uint16_t i = 0; i < trial->nb_streams; i++)
		if (!pace_finished(&trial->streams[i].pace, elapsed))
			return false;
	return true;
}

/*
 * Look at the link of a port that has been silent for a while: a look costs a system call, which frames under way
 * should not wait for.  Returns false if it is down.
 */
static inline bool check_link(struct loop_port *port, uint64_t quiet, uint64_t now)
{
	if (likely(now - port->last_heard < quiet))
		return true;
	port->last_heard = now;
	if (device_link_up(&port->device))
		return true;
	atomic_store_explicit(&port->up, false, memory_order_relaxed);
	return false;
}

/* Empty the receive rings once; returns how many frames there were. */
static uint32_t drain(struct loop *loop)
{
	struct rte_mbuf *burst[RECEIVE_BURST];
	uint32_t nb_drained = 0;

	for (uint16_t i = 0; i < loop->nb_ports; i++) {
		/* As many as a ring holds, lest a back end that never stops keep us here. */
		for (uint32_t nb_left = DEVICE_DESCRIPTORS; nb_left > 0; nb_left -= RECEIVE_BURST) {
			uint16_t nb_frames = device_receive(&loop->ports[i].device, 0, burst, RECEIVE_BURST);

			if (nb_frames == 0)
				break;
			rte_pktmbuf_free_bulk(burst, nb_frames);
			nb_drained += nb_frames;
		}
	}
	return nb_drained;
}

static void drain_leftovers(struct loop *loop)
{
	uint64_t begin = rte_rdtsc(), quiet_since = begin, now = begin;

	while (now - quiet_since < clock_cycles(&loop->rate, DRAINED) &&
	       now - begin < clock_cycles(&loop->rate, DRAIN_LONGEST)) {
		uint32_t nb_drained = drain(loop);

		now = rte_rdtsc();
		if (nb_drained > 0)
			quiet_since = now;
	}
}

/* Send a frame to one port's addresses from the other's.  Returns whether it was sent. */
static bool send_learning_frame(const struct trial *trial, const struct loop_port *from, bool reverse)
{
	const uint16_t length = FRAME_SMALLEST - RTE_ETHER_CRC_LEN;
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(from->pool);
	uint8_t *frame;

	if (mbuf == NULL)
		return false;
	frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	frame_make(frame, length, reverse);
	signature_write(frame + length - SIGNATURE_SIZE, learning_key(trial), 0, 0, rte_rdtsc());
	frame_set_length(mbuf, length);
	if (rte_eth_tx_burst(from->device.port, 0, &mbuf, 1) == 1)
		return true;
	rte_pktmbuf_free(mbuf);
	return false;
}

/*
 * For each stream a frame the other way round, whose source is the destination of the stream's own, so that a bridge
 * need not flood these (RFC 2544, section 23).  Captures have addresses of their own, the same in both directions.
 */
static void teach(struct loop *loop, const struct trial *trial)
{
	uint32_t nb_sent = 0, nb_back = 0;
	uint64_t begin;

	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		const struct stream *stream = &trial->streams[i];
		bool taught = stream->frames.capture != NULL;

		for (uint16_t k = 0; k < i && !taught; k++)
			taught = trial->streams[k].from == stream->from && trial->streams[k].to == stream->to &&
				 trial->streams[k].frames.capture == NULL;
		if (!taught)
			nb_sent += send_learning_frame(trial, &loop->ports[stream->to], stream->from < stream->to);
	}
	begin = rte_rdtsc();
	while (nb_back < nb_sent && rte_rdtsc() - begin < clock_cycles(&loop->rate, LOOP_LEARN))
		nb_back += drain(loop);
}

static enum trial_state send_and_receive(struct loop *loop, struct trial *trial)
{
	const uint64_t wait = clock_cycles(&loop->rate, trial->wait), quiet = clock_cycles(&loop->rate, QUIET);
	struct arrivals arrivals[LOOP_PORTS];
	uint64_t before = trial_now(trial);
	bool sending = true;

	for (;;) {
		uint64_t now, moved = 0;

		for (uint16_t port = 0; port < loop->nb_ports; port++)
			receive(trial, &loop->ports[port], &arrivals[port]);
		if (sending)
			for (uint16_t i = 0; i < trial->nb_streams; i++)
				transmit(loop, trial, i);
		for (uint16_t port = 0; port < loop->nb_ports; port++)
			if (arrivals[port].nb_frames > 0) {
				moved += arrivals[port].nb_frames;
				analyse(loop, trial, port, &arrivals[port]);
			}

		now = trial_now(trial);
		gaps_check(&loop->gaps, before - trial->clock_ahead, now - trial->clock_ahead, moved);
		before = now;
		atomic_store_explicit(&trial->elapsed, now - trial->started, memory_order_relaxed);
		if (unlikely(now >= trial->interval_end))
			trial_next_interval(trial, now);
		if (sending) {
			bool stop = atomic_load_explicit(&trial->stop, memory_order_relaxed);

			if (unlikely(stop || all_sent(trial, now - trial->started))) {
				trial->stopped = stop;
				trial->ended = now;
				sending = false;
				atomic_store_explicit(&trial->state, TRIAL_WAITING, memory_order_relaxed);
			} else if (trial->records.cycles != 0) {
				trial_look_at_records(trial, now);
			}
		} else if (now - trial->ended >= wait || atomic_load_explicit(&loop->quit, memory_order_relaxed)) {
			return TRIAL_DONE;
		}
		for (uint16_t i = 0; i < loop->nb_ports; i++)
			if (unlikely(!check_link(&loop->ports[i], quiet, now))) {
				if (sending)
					trial->ended = now;
				snprintf(trial->reason, sizeof(trial->reason),
					 "the link of port %s (%.128s) went down during the trial", loop->ports[i].name,
					 loop->ports[i].uri);
				return TRIAL_FAILED;
			}
	}
}

static void run_trial(struct loop *loop, struct trial *trial)
{
	enum trial_state state;
	struct timespec wall;
	uint64_t now;

	drain_leftovers(loop);
	if (trial->learn) {
		teach(loop, trial);
		drain_leftovers(loop);
	}
	clock_gettime(CLOCK_REALTIME, &wall);
	trial->started_at = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9;
	if (trial->age > 0)
		trial_pretend_age(trial, &loop->rate);
	now = trial_now(trial);
	trial->started = now - clock_cycles(&loop->rate, trial->age);
	trial_begin_intervals(trial, &loop->rate, now);
	trial_begin_records(trial, now);
	for (uint16_t i = 0; i < loop->nb_ports; i++)
		loop->ports[i].last_heard = now;

	state = send_and_receive(loop, trial);
	trial_end_records(trial);
	log_stranger(loop, &trial->stranger);

	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct stream *stream = &trial->streams[i];

		rte_pktmbuf_free_bulk(stream->burst, stream->nb_held);
		stream->nb_held = 0;
	}
	/* From here on the trial is the control thread's. */
	atomic_store_explicit(&trial->state, state, memory_order_relaxed);
	atomic_store_explicit(&loop->trial, NULL, memory_order_release);
}

int loop_open(struct loop *loop)
{
	static const char *const name[] = {"tester"};

	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->wake_fd < 0)
		return -errno;
	return gaps_open(&loop->gaps, name, 1, loop->rate.hz);
}

int loop_run(void *context)
{
	struct loop *loop = context;
	unsigned ticks = 0;

	gaps_begin(&loop->gaps);
	while (!atomic_load_explicit(&loop->quit, memory_order_acquire)) {
		struct trial *trial = atomic_load_explicit(&loop->trial, memory_order_acquire);
		struct pollfd wake = {.fd = loop->wake_fd, .events = POLLIN};
		uint64_t value;

		if (trial != NULL) {
			run_trial(loop, trial);
			continue;
		}
		drain(loop);
		if (ticks++ % IDLE_TICKS_OF_LINK == 0)
			for (uint16_t i = 0; i < loop->nb_ports; i++)
				atomic_store_explicit(&loop->ports[i].up, device_link_up(&loop->ports[i].device),
						      memory_order_relaxed);
		if (poll(&wake, 1, IDLE_TICK) == 1 && read(loop->wake_fd, &value, sizeof(value)) < 0)
			continue; /* nothing to read: the flags say what there is to do */
	}
	return 0;
}

static void wake(struct loop *loop)
{
	uint64_t one = 1;

	/* The counter cannot be full, and a missed wake-up would cost one tick. */
	(void)!write(loop->wake_fd, &one, sizeof(one));
}

void loop_start(struct loop *loop, struct trial *trial)
{
	atomic_store_explicit(&trial->state, TRIAL_RUNNING, memory_order_relaxed);
	atomic_store_explicit(&loop->trial, trial, memory_order_release);
	wake(loop);
}

void loop_stop(struct loop *loop)
{
	struct trial *trial = atomic_load_explicit(&loop->trial, memory_order_acquire);

	if (trial != NULL)
		atomic_store_explicit(&trial->stop, true, memory_order_relaxed);
}

bool loop_busy(struct loop *loop)
{
	return atomic_load_explicit(&loop->trial, memory_order_acquire) != NULL;
}

void loop_quit(struct loop *loop)
{
	atomic_store_explicit(&loop->quit, true, memory_order_release);
	loop_stop(loop);
	wake(loop);
}
