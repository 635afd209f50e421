/* SPDX-License-Identifier: Apache-2.0
 *
 * Which worker polls which receive queue.  Logic without I/O: it is given what was measured and says what to do.
 *
 * A queue that is new goes where least is done.  One is moved only when its worker is saturated and another is idle
 * enough to take it and have room left, and when the busier of the two is clearly better off than before; one that was
 * just moved stays for a while.  So the placement rests when nothing changes, and a load that flickers moves nothing.
 */
#ifndef TAILRACE_SWITCH_PLACEMENT_H
#define TAILRACE_SWITCH_PLACEMENT_H

#include <stdbool.h>

#define PLACEMENT_SATURATED 0.90 /* busy for more than this part of its time */
#define PLACEMENT_ROOM	    0.75 /* the most that a worker may be busy after it has taken a queue */
#define PLACEMENT_GAIN	    0.10 /* by which the busier of the two must become less busy */
#define PLACEMENT_REST	    10.0 /* seconds that a queue stays where it was moved to */

struct placement_queue {
	unsigned worker;
	bool is_placed;
	bool pinned;   /* an operator says where */
	double load;   /* of a worker: 0 to 1 */
	double rested; /* seconds since it was moved */
};

struct placement_worker {
	double busy; /* 0 to 1 */
};

/* Place the queues that have no worker yet. */
void placement_place(struct placement_queue *queues, unsigned nb_queues, const struct placement_worker *workers,
		     unsigned nb_workers);

struct placement_move {
	unsigned queue, from, to;
};

/* Returns whether a queue should be moved now, and which. */
bool placement_move(const struct placement_queue *queues, unsigned nb_queues, const struct placement_worker *workers,
		    unsigned nb_workers, struct placement_move *move);

/*
 * What each of a worker's queues had of its busy time, which is measured as a whole: in proportion to their frames and
 * bytes, a frame counting as much as so many bytes.
 */
#define PLACEMENT_FRAME_BYTES 360.0

static inline double placement_weight(double packets, double bytes)
{
	return packets * PLACEMENT_FRAME_BYTES + bytes;
}

#endif
