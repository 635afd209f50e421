/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_cycles.h>

#include "steer/watch.h"

static const uint8_t all[VRING_BURST] = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
	22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
	44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

/* ------- what comes in ------- */

/* So many frames as the time saved up is worth, by the length of the last ones; a mistake is made up for later. */
static unsigned worth(const struct gate *gate, uint64_t now)
{
	const struct limit *limit = &gate->limit;
	uint64_t most = VRING_BURST;

	if (limit->byte_cost != 0) {
		uint64_t frame = (uint64_t)(((unsigned __int128)limit->byte_cost * (gate->mean + RATE_FCS)) >> 32) + 1;

		most = RTE_MIN(most, (now - limit->byte_due) / frame + 1);
	}
	if (limit->packet_cost != 0)
		most = RTE_MIN(most, (now - limit->packet_due) / ((limit->packet_cost >> 32) + 1) + 1);
	return (unsigned)most;
}

/* With the lock: these have passed, and those that others could not tell of. */
static void spend(struct gate *gate, uint64_t bytes, uint32_t packets)
{
	owed_take(&gate->owed, &bytes, &packets);
	if (packets > 0)
		limit_spend(&gate->limit, bytes, packets);
}

/* What has been dropped so far of what was to be read. */
static struct watch_unread count_unread(const struct source *source)
{
	const struct queue_counters *counters = source_entry(source)->counters;
	struct watch_unread unread;

#define UNREAD_COUNT(reason, text) unread.reason = counters->reason;
	WATCH_UNREAD(UNREAD_COUNT)
#undef UNREAD_COUNT
	return unread;
}

unsigned watch_limit_now(const struct source *source, const struct round *round)
{
	struct watch *watch = source->watch;
	struct gate *gate = watch->gate;
	unsigned most = 0;

	if (unlikely(watch->followed.follow != NULL))
		watch->unread = count_unread(source);
	if (gate == NULL)
		return VRING_BURST;
	if (!rte_spinlock_trylock(&gate->lock))
		return 0;
	spend(gate, 0, 0);
	if (limit_open(&gate->limit, round->now))
		most = worth(gate, round->now);
	rte_spinlock_unlock(&gate->lock);
	return most;
}

void watch_spend_now(struct watch *watch, uint64_t bytes, unsigned packets)
{
	struct gate *gate = watch->gate;

	if (packets == 0)
		return;
	/* It is held for a few instructions, but by a worker that may lose its core. */
	if (!rte_spinlock_trylock(&gate->lock)) {
		owed_add(&gate->owed, bytes, packets);
		return;
	}
	spend(gate, bytes, packets);
	gate->mean = (uint32_t)(bytes / packets);
	rte_spinlock_unlock(&gate->lock);
}

/* Frames that are counted since the source was asked how many it may read. */
static void pick_unread(const struct source *source)
{
	struct watch *watch = source->watch;
	const struct watch_unread now = count_unread(source);
	const unsigned number = watch->number;

#define UNREAD_PICK(reason, text)                                                                                  \
	follow_unread(&watch->followed, (unsigned)(now.reason - watch->unread.reason), source->from->name, number, \
		      text);
	WATCH_UNREAD(UNREAD_PICK)
#undef UNREAD_PICK
}

void watch_pick(const struct source *source, const struct burst *burst, const struct round *round)
{
	struct watch *watch = source->watch;

	watch->followed.worker = round->worker;
	follow_pick(&watch->followed, burst, source->from->name, watch->number);
	if (unlikely(burst->taken > burst->count))
		pick_unread(source);
}

void watch_copy(const struct source *source, struct burst *burst, unsigned count, const struct round *round)
{
	struct watch *watch = source->watch;

	tap_copy(watch->taps, watch->nb_taps, &watch->held, burst, all, count, round);
}

/* ------- what goes out ------- */

#define NOBODY "has nobody attached (drop_receiver_down)"

/* How many of the packets the sender's share of the receiver lets pass. */
static unsigned admit(const struct egress *egress, const struct burst *burst, const uint8_t *which, unsigned n,
		      uint64_t now)
{
	struct division *division = egress->watch->division;
	uint32_t lengths[VRING_BURST];
	unsigned admitted = 0;

	/* Looked at without the lock: whoever finds the receiver full says so with it. */
	if (!shares_limited(division->shares) && !division->shares->contended)
		return n;
	for (unsigned i = 0; i < n; i++)
		lengths[i] = burst->packets[which[i]].length;
	/* What passes unasked counts all the same, and is made up for later. */
	if (!lock_shortly(&division->lock))
		return n;
	if (shares_open(division->shares, egress->watch->member, now))
		admitted = shares_pass(division->shares, egress->watch->member, lengths, n);
	rte_spinlock_unlock(&division->lock);
	return admitted;
}

/* What the sender has given the receiver, and whether it could have given more. */
static void use_share(const struct egress *egress, const struct share_use *use, uint64_t now)
{
	struct division *division = egress->watch->division;

	/* That it waits it will say again. */
	if (!rte_spinlock_trylock(&division->lock)) {
		shares_owe(division->shares, egress->watch->member, use);
		return;
	}
	shares_spend(division->shares, egress->watch->member, use, now);
	rte_spinlock_unlock(&division->lock);
}

static void account(const struct egress *egress, const struct burst *burst, const uint8_t *which, unsigned n,
		    const struct given *given, uint64_t now)
{
	struct division *division = egress->watch->division;
	struct share_use use = {
		.packets = given->dealt, .waiting = given->dealt < n, .full = given->dealt < given->admitted};

	if (!shares_limited(division->shares) && !division->shares->contended && !use.full)
		return;
	for (unsigned i = 0; i < given->dealt; i++)
		use.bytes += burst->packets[which[i]].length;
	use_share(egress, &use, now);
}

bool egress_turn(const struct egress *egress, const struct round *round)
{
	struct division *division = egress->watch->division;
	bool turn;

	if (division == NULL || !division->shares->contended)
		return true;
	if (!rte_spinlock_trylock(&division->lock))
		return false;
	turn = shares_open(division->shares, egress->watch->member, round->now);
	rte_spinlock_unlock(&division->lock);
	return turn;
}

void egress_turned(const struct egress *egress, uint64_t bytes, unsigned packets, bool waiting,
		   const struct round *round)
{
	struct division *division = egress->watch->division;
	const struct share_use use = {
		.bytes = bytes, .packets = packets, .waiting = waiting, .full = waiting && packets < VRING_BURST};

	if (division == NULL || (!division->shares->contended && !use.full))
		return;
	use_share(egress, &use, round->now);
}

void egress_refused(const struct egress *egress, const struct round *round)
{
	const struct share_use use = {.waiting = true, .full = true};

	if (egress->watch != NULL && egress->watch->division != NULL)
		use_share(egress, &use, round->now);
}

/* Show those who look on what was dealt with: which[0..n), of which some were given and the others dropped. */
static void show(const struct source *source, const struct egress *egress, struct burst *burst, const uint8_t *which,
		 unsigned n, uint64_t delivered, const struct round *round, uint64_t taken_up)
{
	const struct egress_watch *to = egress->watch;
	struct watch *watch = source->watch;
	uint8_t arrived[VRING_BURST];
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++)
		if (likely(delivered >> i & 1))
			arrived[count++] = which[i];
	/* Those who see what is offered, dropped or not, see the rest when it is known to be dropped and not to wait.
	 */
	tap_copy(to->taps, to->nb_offered, &watch->held, burst, which, n, round);
	tap_copy(to->taps + to->nb_offered, to->nb_taps - to->nb_offered, &watch->held, burst, arrived, count, round);
	if (watch->hops != NULL)
		hop_trace_note(watch->hops, round->worker, burst, arrived, count, (uint16_t)watch->number,
			       (uint16_t)to->number, taken_up);
	for (unsigned i = 0; unlikely(watch->followed.packets != 0) && i < n; i++)
		if (delivered >> i & 1)
			FOLLOW(source, burst, which[i], "leaves by port %s%s%s", egress->port->name,
			       to->label[0] != '\0' ? ": " : "", to->label);
		else
			FOLLOW(source, burst, which[i], "dropped: port %s %s", egress->port->name,
			       egress_up(egress) ? "takes no frame so long (drop_receiver_too_small)" : NOBODY);
}

/* Give what the receiver's rate allows. */
static struct given give_admitted(const struct source *source, const struct egress *egress, struct burst *burst,
				  const uint8_t *which, unsigned n, bool only, const struct round *round)
{
	const struct egress_watch *to = egress->watch;
	struct watch *watch = source->watch;
	struct given given = {.admitted = n};
	uint64_t delivered = 0;
	/* A round is long compared with a hop: each burst has its own time. */
	const uint64_t taken_up = watch->hops != NULL ? rte_rdtsc() : 0;

	if (to->division != NULL)
		given.admitted = admit(egress, burst, which, n, round->now);
	/* Mirrors, captures and the hop trace read a frame once it is given. */
	only = only && to->nb_taps == 0 && watch->hops == NULL;
	if (given.admitted > 0)
		given.dealt = egress_write_noting(egress, burst, which, given.admitted, only, &delivered);
	if (to->division != NULL)
		account(egress, burst, which, n, &given, round->now);
	for (unsigned i = 0; i < given.dealt; i++)
		burst->packets[which[i]].delivered |= delivered >> i & 1;
	if (given.dealt > 0)
		show(source, egress, burst, which, given.dealt, delivered, round, taken_up);
	return given;
}

/* ------- what waits for the rate ------- */

/* How many of the packets may pass the queue by: none if others wait in it, and none that it has to cut. */
static unsigned past_shaper(const struct shaper *shaper, const struct burst *burst, const uint8_t *which, unsigned n)
{
	unsigned count = 0;

	while (!shaper_waiting(shaper) && count < n && !shaper_cuts(shaper, &burst->packets[which[count]]))
		count++;
	return count;
}

/* ------- what is put aside for a guest that moves ------- */

static void drop_parked(const struct source *source, const struct egress *egress, const struct burst *burst,
			uint8_t packet)
{
	egress_counters(egress)->drop_parked++;
	EGRESS_COUNT(egress, drop_receiver_down, 1);
	FOLLOW(source, burst, packet, "dropped: it cannot be put aside for port %s (drop_parked)", egress->port->name);
}

/* For who has to drop frames otherwise: whoever has it gives a burst of what waits there meanwhile. */
static bool lock_park(struct park *park)
{
	enum { TRIES = 8 };

	for (unsigned i = 0; i < TRIES; i++)
		if (lock_shortly(&park->lock))
			return true;
	return false;
}

/* Put all of the packets aside.  Behind one that finds no room none is: they stay in order. */
static struct given put_aside(const struct source *source, const struct egress *egress, struct burst *burst,
			      const uint8_t *which, unsigned n)
{
	struct park *park = egress->watch->park;
	unsigned put = 0;
	uint64_t parked;

	if (!lock_park(park))
		return (struct given){.kept_off = true};
	parked = park->counts.parked;
	while (put < n && park_put(park, &burst->packets[which[put]]))
		put++;
	park->counts.dropped += put < n ? n - put - 1 : 0;
	parked = park->counts.parked - parked;
	rte_spinlock_unlock(&park->lock);
	egress_counters(egress)->parked_packets += parked;
	for (unsigned i = 0; i < put; i++) {
		burst->packets[which[i]].delivered = true;
		FOLLOW(source, burst, which[i], "is put aside: the guest of port %s is moving", egress->port->name);
	}
	for (unsigned i = put; i < n; i++)
		drop_parked(source, egress, burst, which[i]);
	return (struct given){.shaped = put, .refused = n - put};
}

/* Has the packet to be put aside: is its guest not there, or do others wait that came before? */
static bool is_put_aside(const struct egress *egress)
{
	return egress->watch->park != NULL && (egress_parks(egress) || !egress_up(egress));
}

struct given egress_give_watched(const struct source *source, const struct egress *egress, struct burst *burst,
				 const uint8_t *which, unsigned n, bool only, const struct round *round)
{
	struct shaper *shaper = egress->watch->shaper;
	struct given given;
	unsigned past;

	if (unlikely(is_put_aside(egress)))
		return put_aside(source, egress, burst, which, n);
	if (shaper == NULL)
		return give_admitted(source, egress, burst, which, n, only, round);
	past = past_shaper(shaper, burst, which, n);
	given = (struct given){.admitted = past};
	if (past > 0)
		given = give_admitted(source, egress, burst, which, past, only, round);
	for (unsigned i = RTE_MAX(given.admitted, given.dealt); i < n; i++, given.shaped++) {
		struct packet *packet = &burst->packets[which[i]];

		if (!shaper_put(shaper, packet))
			break;
		packet->delivered = true;
		FOLLOW(source, burst, which[i], "waits for the rate of port %s", egress->port->name);
	}
	return given;
}

/*
 * The receiver has no room for what its rate would allow.  Has it had none for longer than frames are kept waiting?
 * While it is not there at all it is not full.
 */
static bool full_too_long(struct shaper *shaper, bool up, const struct round *round)
{
	if (!up)
		shaper->full_since = 0;
	else if (shaper->full_since == 0)
		shaper->full_since = round->now;
	return up && round->now - shaper->full_since > round->patience;
}

/* Of frames out of a queue of the switch's own. */
static _Thread_local struct burst waiting;

/* Give the oldest frames of such a queue.  They stay in it. */
static struct given give_waiting(const struct source *source, const struct egress *to, const struct shaper *queue,
				 const struct round *round)
{
	struct watch *watch = source->watch;
	const uint64_t followed = watch->followed.packets; /* of another burst */
	struct given given;

	shaper_read(queue, &waiting);
	watch->followed.packets = 0;
	given = give_admitted(source, to, &waiting, all, waiting.count, false, round);
	watch->followed.packets = followed;
	burst_show(&waiting);
	egress_send(to);
	return given;
}

/* What waits for the rate of a guest that has been paused: it came before whatever is put aside from now on. */
static void put_waiting_aside(const struct source *source, const struct egress *to)
{
	struct shaper *shaper = to->watch->shaper;
	struct watch *watch = source->watch;
	const uint64_t followed = watch->followed.packets;
	struct given given = {0};

	watch->followed.packets = 0;
	while (shaper_waiting(shaper) && !given.kept_off) {
		shaper_read(shaper, &waiting);
		given = put_aside(source, to, &waiting, all, waiting.count);
		shaper_remove(shaper, given.shaped + given.refused);
	}
	watch->followed.packets = followed;
	shaper->full_since = 0;
}

static void drain_park(const struct source *source, const struct egress *to, const struct round *round)
{
	struct park *park = to->watch->park;
	struct shaper *queue;
	struct given given;

	if (!egress_up(to) || !rte_spinlock_trylock(&park->lock))
		return;
	queue = park_next(park);
	if (queue != NULL) { /* another worker may have been faster */
		given = give_waiting(source, to, queue, round);
		park_delivered(park, queue, given.dealt);
	}
	rte_spinlock_unlock(&park->lock);
}

void egress_drain(const struct source *source, const struct egress *egress, const struct round *round)
{
	enum { DRAINED_BURSTS = 2 };
	struct shaper *shaper = egress->watch->shaper;
	/* An outlet's hops are counted by frame; these have but one. */
	const struct egress to = {.port = egress->port,
				  .queue = egress->queue,
				  .shared = true,
				  .hop = egress->watch->hop,
				  .watch = egress->watch};
	struct given given;

	/* More than comes to be put aside in a poll, so that it ends. */
	for (unsigned i = 0; i < DRAINED_BURSTS && egress_parks(egress); i++)
		drain_park(source, &to, round);
	if (shaper == NULL || !shaper_waiting(shaper))
		return;
	if (egress->watch->park != NULL && !egress_up(&to)) {
		put_waiting_aside(source, &to);
		return;
	}
	given = give_waiting(source, &to, shaper, round);
	shaper_remove(shaper, given.dealt);
	if (given.dealt > 0 || given.admitted == 0)
		shaper->full_since = 0;
	else if (egress_gone(&to) || full_too_long(shaper, egress_up(&to), round))
		egress_drop_rest(&to, shaper_clear(shaper));
}

void egress_drop(const struct source *source, const struct egress *egress, struct burst *burst, const uint8_t *which,
		 unsigned n, struct given given, const struct round *round)
{
	const struct egress_watch *to = egress->watch;
	const unsigned rest = given.admitted > given.dealt ? given.admitted - given.dealt : 0;
	const unsigned waiting = given.dealt + rest + given.shaped, above = n - waiting;

	if (unlikely(given.kept_off)) {
		for (unsigned i = 0; i < n; i++)
			drop_parked(source, egress, burst, which[i]);
		return;
	}
	if (to != NULL) {
		tap_copy(to->taps, to->nb_offered, &source->watch->held, burst, which + given.dealt, rest, round);
		tap_copy(to->taps, to->nb_offered, &source->watch->held, burst, which + waiting, above, round);
	}
	if (above > 0) {
		egress_counters(egress)->drop_rate += above;
		EGRESS_COUNT(egress, drop_rate, above);
	}
	if (rest > 0 && egress_lacks_buffers(egress)) {
		source_entry(source)->counters->drop_no_buffer += rest;
		EGRESS_COUNT(egress, drop_frame, rest);
	} else if (rest > 0) {
		egress_drop_rest(egress, rest);
	}
	for (unsigned i = given.dealt; source->watch != NULL && unlikely(source->watch->followed.packets != 0) && i < n;
	     i++)
		if (i < given.dealt + rest || i >= waiting)
			FOLLOW(source, burst, which[i], "dropped: port %s %s", egress->port->name,
			       i >= given.admitted	      ? "is at its rate (drop_rate)"
			       : egress_lacks_buffers(egress) ? "could be given no packet buffer (drop_no_buffer)"
			       : egress_up(egress)	      ? "is full (drop_receiver_full)"
							      : NOBODY);
}
