/* SPDX-License-Identifier: Apache-2.0
 *
 * A network function: what becomes of a burst of frames that came in at one of its two ports.
 * Each is one file, listed in function.c; the loop around it (forward.h) is the same for all.
 */
#ifndef TAILRACE_FUNCTIONS_FUNCTION_H
#define TAILRACE_FUNCTIONS_FUNCTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_mbuf.h>

#include "common/control.h"

enum {
	FUNCTION_ROOM = 128,  /* frames that may leave at once */
	FUNCTION_QUEUES = 16, /* of each port, at most */
};

struct handover;

struct function {
	const char *name;
	const char *help; /* one line */

	/*
	 * Handle frames that came in at port `in` (0 or 1) by one of its queues.  Leave those that are to go out at the
	 * other port at the front of the burst, in order, and free the others.  Returns how many go out.
	 */
	uint16_t (*process)(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue);

	/* Several threads may call process(), each with queues of its own: what it keeps and counts is of a queue, or
	 * shared safely.  One with false has one queue. */
	bool several;

	/*
	 * Of a function that keeps something for each queue, where both directions of a flow have to meet: the queue
	 * that each frame belongs to, whichever it came by.  It is called where there are several, before process(),
	 * by who has the queue where they came in.  NULL: each belongs where it came in.
	 */
	void (*homes)(struct rte_mbuf *const *burst, uint16_t nb_frames, uint16_t in, uint16_t queue, uint8_t *homes);

	/* Of a function with settings: take one.  Returns NULL, or what was expected. */
	const char *(*set)(const char *name, const char *value);

	/* Of a function that keeps frames for later, or makes some; NULL for others. */
	const struct function_keeping *keeping;
};

/* What a function finds when it starts. */
struct function_start {
	struct rte_mempool *pool; /* for copies, and for what it makes */
	int wake_fd;		  /* an eventfd, which ends a sleep of who has queue 0 */
	unsigned nb_queues;
	void (*wake)(void *loop, unsigned queue); /* ends a sleep of who has that queue; NULL: there is queue 0 alone */
	void *loop;
};

/* From any thread. */
void function_wake(const struct function_start *start, unsigned queue);

/*
 * process() is then called in every round, with no frames too, and may give more frames than came, up to
 * FUNCTION_ROOM; it counts what it drops itself.
 */
struct function_keeping {
	uint32_t buffers; /* the most that it keeps or makes; of one with homes(): for each queue */

	/* Returns 0, or -errno after logging. */
	int (*open)(const struct function_start *start);
	bool (*full)(uint16_t in);	 /* takes no more frames at this port for now */
	bool (*pending)(uint16_t queue); /* has more to do without another frame to come: such as those that it keeps */
	bool ages;			 /* forgets what is not seen: process() is called once a second at least */
	void (*describe)(json_t *counters); /* add its own counters; another thread may ask at any time */

	/* Likewise of a function with tables: add each by its name, as {"total": N, "rows": [{...}, ...]} with so many
	 * rows at most, the columns of a row in their order.  NULL: it has none. */
	void (*tables)(json_t *tables, unsigned most);

	/* Of a function that can be told otherwise while it runs, by another thread: returns 0, or -1 with the error
	 * filled in, and then it goes on as before.  NULL: it cannot. */
	int (*configure)(json_t *params, struct control_error *error);

	/* Of a function whose connections another instance may go on with (handover.h); NULL: it has none. */
	struct handover *handover;

	/* Of a function that says something in its log: the main thread calls it about twice a second, or oftener, and
	 * once more when no frames are forwarded any more (`ends`).  NULL: it says nothing. */
	void (*say)(bool ends);
	void (*close)(void); /* free what is kept; open() may have failed, or not been called */
};

/* Add to a counter that one thread writes and others may read: so it is a plain sum. */
static inline void function_count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

/* A counter by its name, and where the first of those queues has it whose sum it is. */
struct function_counter {
	const char *name;
	const _Atomic uint64_t *first;
};

/* Counters of all queues together, as an object; those of a queue lie `stride` bytes behind those of the one before. */
json_t *function_counters(const struct function_counter *counters, size_t nb_counters, size_t stride,
			  unsigned nb_queues);

/* Of set(): a number from 1 to `most`.  Returns NULL, or `expected`. */
const char *function_number(const char *value, uint32_t most, const char *expected, uint32_t *number);

extern const struct function *const functions[];
extern const size_t nb_functions;

extern const struct function skeleton;
extern const struct function impair;
extern const struct function router;
extern const struct function firewall;
extern const struct function nat;
extern const struct function balancer;
extern const struct function tunnel;

/* The function of this name, or NULL. */
const struct function *function_find(const char *name);

#endif
