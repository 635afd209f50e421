/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker does for each receive queue.  The control side compiles the configuration to programs; a worker
 * runs one, and changes nothing in it but what its sources' queues own (port/port.h).
 */
#ifndef TAILRACE_STEER_SOURCE_H
#define TAILRACE_STEER_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_pause.h>
#include <rte_spinlock.h>

#include "port/port.h"
#include "steer/egress.h"

struct gap_log;	 /* common/gaps.h */
struct steering; /* steer.h */
struct watch;	 /* watch.h */

enum source_kind {
	SOURCE_DIRECT,	/* one egress for every frame; no header is read */
	SOURCE_WATCHED, /* the same, limited or looked at on the way */
	SOURCE_STEERED, /* rules, replicas, a bridge, a mirror, ...: whatever has to look */
};

/* A receive queue, and what becomes of its frames. */
struct source {
	struct port *from;
	uint16_t queue;
	enum source_kind kind;
	bool orphan;		   /* nobody gives frames to this queue; its guest may still have to be notified */
	struct egress egress;	   /* direct */
	struct steering *steering; /* steered */
	struct watch *watch;	   /* of a source that is watched, direct or steered; else NULL */
};

/* What every source of a worker is polled with. */
struct round {
	uint64_t now;	      /* TSC */
	uint64_t patience;    /* TSC cycles that frames wait for a full receiver */
	unsigned worker;      /* its number: for what each worker has of its own */
	struct gap_log *gaps; /* where waits are noted; NULL: nowhere */
};

struct program {
	uint64_t number;  /* no other has it */
	bool looks_ahead; /* to the next source while one is polled */
	unsigned nb_sources;
	struct source sources[];
};

/* The queue of the port that frames come from. */
static inline struct port_queue *source_entry(const struct source *source)
{
	return &source->from->queues[source->queue];
}

/*
 * For who cannot leave frames where they are: take a lock that another worker has for an instant only.  Returns false
 * when it has had it for a microsecond or so.
 */
static inline bool lock_shortly(rte_spinlock_t *lock)
{
	enum { PAUSES = 64 };

	for (unsigned i = 0; i < PAUSES; i++) {
		if (rte_spinlock_trylock(lock))
			return true;
		rte_pause();
	}
	return false;
}

/*
 * Take the queue that the source's frames leave by.  Where another worker has it, that is noted: whoever has not looked
 * must not go to sleep (source_owes()).
 */
static inline bool source_take(const struct source *source)
{
	bool taken;

	if (likely(!source->egress.locked))
		return true;
	taken = egress_take(&source->egress);
	source_entry(source)->kept_off = !taken;
	return taken;
}

/* Is the only receiver one that frames wait for until it is there? */
static inline bool source_awaits(const struct source *source)
{
	const struct port *to = source->egress.port;

	return to != NULL && to->kind == PORT_GUEST && atomic_load_explicit(&to->guest.awaited, memory_order_relaxed) &&
	       port_receiver(to, source->egress.queue) == NULL;
}

/*
 * The receiver took nothing.  Has it been full, or gone, for longer than frames are kept waiting?  For one that is
 * awaited that time begins when it is there: it may have no buffers yet.
 */
static inline bool source_patience_ended(struct source *source, const struct round *round)
{
	struct port_queue *queue = source_entry(source);

	egress_counters(&source->egress)->blocked_polls++;
	if (queue->blocked_since == 0)
		queue->blocked_since = round->now;
	if (source_awaits(source))
		queue->patient_since = 0;
	else if (queue->patient_since == 0)
		queue->patient_since = round->now;
	return queue->patient_since != 0 && round->now - queue->patient_since > round->patience;
}

/* Note that frames have waited for the receiver until now. */
void source_waited(struct source *source, const struct round *round);

/* The receiver has taken frames, or none are there for it. */
static inline void source_unblocked(struct source *source, const struct round *round)
{
	if (unlikely(source_entry(source)->blocked_since != 0))
		source_waited(source, round);
}

/*
 * Move one burst of a source.  Returns how many frames left their sender, whether they arrived or were dropped
 * (and counted).
 */
unsigned source_poll(struct source *source, const struct round *round);

/* Ask for what source_poll() will look at first, while another source is polled. */
static inline void source_look_ahead(const struct source *source)
{
	const struct virtqueue *from = NULL, *to = NULL;

	if (source->from->kind == PORT_GUEST)
		from = port_sender(source->from, source->queue);
	if (source->egress.port != NULL && source->egress.port->kind == PORT_GUEST)
		to = port_receiver(source->egress.port, source->egress.queue);
	if (from != NULL)
		vring_look_ahead(from);
	if (to != NULL)
		vring_look_ahead(to);
}

/*
 * The worker has a new program.  Guests may still have to be notified of what the one before gave them last, and
 * devices may still hold frames (egress_flush()).
 */
void source_begin(struct source *source);

/* Has the source still to come back to what it gave away, when it moves nothing? */
bool source_owes(const struct source *source);

/* Note on the counter page how many frames wait at the source. */
void source_sample(const struct source *source);

#endif
