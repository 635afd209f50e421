/* SPDX-License-Identifier: Apache-2.0
 *
 * A network that errs as planned: it drops, repeats, delays and reorders frames, each as a seed says beforehand.  So
 * what a measurement has to find is known frame by frame.
 *
 * The frames that come in at a port are numbered from 0.  What becomes of frame n is in two numbers, the (2n + 1)-th
 * and the (2n + 2)-th of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started from the seed, or from its complement
 * for frames that come in at the second port.  Probabilities are given in frames of 2^32; the halves of the first
 * number and then of the second, the lower half of each first, decide:
 *
 *	drop		lost, if the half is below `drop`
 *	duplicate	else sent twice, if it is below `duplicate`
 *	reorder		late, if it is below `reorder`; of a frame that is sent twice, one copy leaves at once all the
 *			same
 *	distance	a late frame leaves right after the one that comes in 1 + (half * depth >> 32) frames later,
 *			dropped or not; of those that leave there, the one that came first goes first
 *
 * Then all frames wait for `delay`, in this order.  Frames whose turn has not come at the end are lost.
 *
 * What cannot be done as planned, because too many frames are late at once or no buffer is left for a copy, is not done
 * and counted: `unplanned` must be 0 for the plan to hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "function.h"

enum {
	DEPTH_MOST = 1 << 26,
	DELAY_MOST = 1000000, /* µs */
	LATE_MOST = 4096,     /* late frames at once, of each side */
	QUEUE_SIZE = 8192,    /* frames that wait for their delay; a power of two */
	QUEUE_FULL = QUEUE_SIZE - LATE_MOST - 128,
};

#define CHANCES (UINT64_C(1) << 32)

struct late {
	uint64_t release; /* leaves after the frame of this number */
	uint64_t number;
	struct rte_mbuf *mbuf;
};

struct queued {
	uint64_t due; /* TSC */
	struct rte_mbuf *mbuf;
};

static struct plan {
	uint64_t seed;
	uint64_t drop, duplicate, reorder; /* frames of CHANCES */
	uint32_t depth;
	uint64_t delay_us;
} plan = {.depth = 1};

static struct side {
	uint64_t next;		     /* number of the frame that comes in next */
	struct late late[LATE_MOST]; /* a heap: the first to leave is the first */
	uint32_t nb_late;
	struct queued queue[QUEUE_SIZE];
	uint32_t head, tail; /* positions modulo QUEUE_SIZE */
	_Atomic uint64_t dropped, copied, reordered, unplanned, frames, kept;
} sides[2];

static struct rte_mempool *copies;
static uint64_t delay; /* cycles */

/* ------- the plan ------- */

static uint64_t splitmix(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* ------- late frames ------- */

static bool leaves_before(const struct late *one, const struct late *other)
{
	return one->release != other->release ? one->release < other->release : one->number < other->number;
}

static void late_add(struct side *side, struct late frame)
{
	uint32_t at = side->nb_late++;

	for (; at > 0 && leaves_before(&frame, &side->late[(at - 1) / 2]); at = (at - 1) / 2)
		side->late[at] = side->late[(at - 1) / 2];
	side->late[at] = frame;
}

static struct rte_mbuf *late_take(struct side *side)
{
	struct rte_mbuf *first = side->late[0].mbuf;
	struct late last = side->late[--side->nb_late];
	uint32_t at = 0, child;

	while ((child = 2 * at + 1) < side->nb_late) {
		if (child + 1 < side->nb_late && leaves_before(&side->late[child + 1], &side->late[child]))
			child++;
		if (!leaves_before(&side->late[child], &last))
			break;
		side->late[at] = side->late[child];
		at = child;
	}
	side->late[at] = last;
	return first;
}

/* ------- frames on their way out ------- */

/* There is room: full() leaves some for a burst, its copies, and all late frames. */
static void put(struct side *side, struct rte_mbuf *mbuf, uint64_t due)
{
	side->queue[side->tail++ % QUEUE_SIZE] = (struct queued){due, mbuf};
}

static void put_copy(struct side *side, const struct rte_mbuf *mbuf, uint64_t due)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(mbuf, copies, 0, UINT32_MAX);

	if (copy == NULL) {
		function_count(&side->unplanned, 1);
		return;
	}
	function_count(&side->copied, 1);
	put(side, copy, due);
}

static void arrive(struct side *side, struct rte_mbuf *mbuf, uint64_t seed, uint64_t due)
{
	uint64_t number = side->next++, first = splitmix(seed, 2 * number), second = splitmix(seed, 2 * number + 1);

	if ((uint32_t)first < plan.drop) {
		rte_pktmbuf_free(mbuf);
		function_count(&side->dropped, 1);
	} else {
		bool late = (uint32_t)second < plan.reorder;

		if (first >> 32 < plan.duplicate)
			put_copy(side, mbuf, due);
		if (late && side->nb_late == LATE_MOST) {
			function_count(&side->unplanned, 1);
			late = false;
		}
		if (late) {
			late_add(side, (struct late){number + 1 + ((second >> 32) * plan.depth >> 32), number, mbuf});
			function_count(&side->reordered, 1);
		} else {
			put(side, mbuf, due);
		}
	}
	while (side->nb_late > 0 && side->late[0].release <= number)
		put(side, late_take(side), due);
}

static uint16_t impair_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	struct side *side = &sides[in];
	uint64_t now = delay > 0 ? rte_rdtsc() : 0;
	uint16_t nb_out = 0;

	for (uint16_t i = 0; i < nb_frames; i++)
		arrive(side, burst[i], in == 0 ? plan.seed : ~plan.seed, now + delay);
	while (nb_out < FUNCTION_ROOM && side->head != side->tail && side->queue[side->head % QUEUE_SIZE].due <= now)
		burst[nb_out++] = side->queue[side->head++ % QUEUE_SIZE].mbuf;
	function_count(&side->frames, nb_frames);
	atomic_store_explicit(&side->kept, side->nb_late + side->tail - side->head, memory_order_relaxed);
	return nb_out;
}

static bool impair_full(uint16_t in)
{
	return sides[in].tail - sides[in].head >= QUEUE_FULL;
}

static bool impair_pending(uint16_t queue)
{
	return sides[0].head != sides[0].tail || sides[1].head != sides[1].tail;
}

/* ------- settings, start and end ------- */

/* Read a whole number up to `most`; returns whether it is one. */
static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number <= most;
}

static const char *impair_set(const char *name, const char *value)
{
	const struct {
		const char *name;
		uint64_t *chances;
	} chances[] = {{"drop", &plan.drop}, {"duplicate", &plan.duplicate}, {"reorder", &plan.reorder}};
	uint64_t number;

	for (size_t i = 0; i < sizeof(chances) / sizeof(chances[0]); i++)
		if (strcmp(name, chances[i].name) == 0) {
			if (!read_number(value, CHANCES, &number))
				return "frames of 4294967296, from 0 to as many";
			*chances[i].chances = number;
			return NULL;
		}
	if (strcmp(name, "seed") == 0)
		return read_number(value, UINT64_MAX, &plan.seed) ? NULL : "a whole number below 2^64";
	if (strcmp(name, "delay-us") == 0)
		return read_number(value, DELAY_MOST, &plan.delay_us) ? NULL : "microseconds, from 0 to 1000000";
	if (strcmp(name, "depth") == 0) {
		if (!read_number(value, DEPTH_MOST, &number) || number == 0)
			return "frames, from 1 to 67108864";
		plan.depth = (uint32_t)number;
		return NULL;
	}
	return "seed, drop, duplicate, reorder, depth or delay-us";
}

static int impair_open(const struct function_start *start)
{
	copies = start->pool;
	delay = plan.delay_us * rte_get_tsc_hz() / 1000000;
	return 0;
}

static void impair_describe(json_t *counters)
{
	json_t *list = json_array();

	for (const struct side *side = sides; side < sides + 2; side++)
		json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "dropped",
						      (json_int_t)side->dropped, "copied", (json_int_t)side->copied,
						      "reordered", (json_int_t)side->reordered, "kept",
						      (json_int_t)side->kept, "unplanned", (json_int_t)side->unplanned,
						      "frames", (json_int_t)side->frames));
	json_object_set_new(counters, "impaired", list);
}

static void impair_close(void)
{
	for (struct side *side = sides; side < sides + 2; side++) {
		while (side->nb_late > 0)
			rte_pktmbuf_free(late_take(side));
		while (side->head != side->tail)
			rte_pktmbuf_free(side->queue[side->head++ % QUEUE_SIZE].mbuf);
	}
}

static const struct function_keeping impair_keeping = {
	.buffers = 2 * (LATE_MOST + QUEUE_FULL),
	.open = impair_open,
	.full = impair_full,
	.pending = impair_pending,
	.describe = impair_describe,
	.close = impair_close,
};

const struct function impair = {
	.name = "impair",
	.help = "drop, repeat, delay and reorder frames as a seed says: seed, drop, duplicate, reorder, depth, "
		"delay-us",
	.process = impair_process,
	.set = impair_set,
	.keeping = &impair_keeping,
};
