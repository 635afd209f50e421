/* SPDX-License-Identifier: Apache-2.0
 *
 * Following a few frames through the switch, step by step, for a person who asks why.  A frame is picked where it
 * enters by a port, if it matches and the port has not had its number of them; every step it takes from there to the
 * ports it leaves by is a line of text.  A frame that comes back from a function is picked anew at that port; `mark`
 * shows that it is the same one.
 *
 * Steps go through a ring for each worker to the control thread.  Bounded: frames for each port, steps for each worker.
 */
#ifndef TAILRACE_STEER_FOLLOW_H
#define TAILRACE_STEER_FOLLOW_H

#include <stdatomic.h>
#include <stdint.h>

#include "steer/classify.h"
#include "vring/packet.h"

enum {
	FOLLOW_WORKERS = 64,
	FOLLOW_PORTS = 1024,
	FOLLOW_FRAMES = 1000, /* the most that may be asked for */
	FOLLOW_NOTES = 4096,  /* that a worker may be ahead of the reader; a power of two */
	FOLLOW_TEXT = 104,
};

struct note {
	uint64_t time;	   /* TSC */
	uint64_t sighting; /* the frame at one port: worker and number */
	uint32_t mark;	   /* the same for a frame at every port, but for what functions change in it */
	uint32_t length;   /* 0: unknown, for it was not read */
	char text[FOLLOW_TEXT];
};

struct note_ring {
	_Alignas(64) _Atomic uint64_t head; /* the worker's */
	uint64_t sightings;
	_Atomic uint64_t lost;		    /* steps that found no room */
	_Alignas(64) _Atomic uint64_t tail; /* the control thread's */
	struct note notes[FOLLOW_NOTES];
};

struct follow {
	struct classifier *match;      /* action 1 is wanted */
	atomic_int left[FOLLOW_PORTS]; /* frames still to be picked, by number of port */
	unsigned nb_workers;
	struct note_ring *rings[FOLLOW_WORKERS];
};

/* Which packets of the burst under way are followed. */
struct followed {
	struct follow *follow;
	unsigned worker;
	unsigned unshown; /* notes that the reader does not see yet */
	uint64_t packets; /* a bit each */
	uint64_t sightings[VRING_BURST];
	uint32_t marks[VRING_BURST];
};

/* Pick frames of a burst that has been read from the port. */
void follow_pick(struct followed *followed, const struct burst *burst, const char *port, unsigned number);

/*
 * Pick frames of the burst that were dropped when they were to be read, for this reason.  Nothing is known of them, so
 * they match what asks for nothing.
 */
void follow_unread(struct followed *followed, unsigned count, const char *port, unsigned number, const char *reason);

/* The packets from this one on stay with the sender, and will be read again: none of this has been. */
void follow_take_back(struct followed *followed, const struct burst *burst, unsigned first, unsigned number);

/* The steps of the burst hold: let them be read. */
void follow_show(struct followed *followed);

/* Add a step of the packet, which is followed. */
__attribute__((format(printf, 4, 5))) void follow_say(struct followed *followed, const struct burst *burst,
						      unsigned packet, const char *format, ...);

/*
 * What `mark` is made of: what functions leave alone.  Of IP: addresses, protocol, identification or flow label, ports,
 * TCP's positions, and the first and last bytes of what is carried; no MAC address, tag, priority, hop limit, checksum
 * or padding.  Of others: the type, and the first and last bytes behind it.
 */
uint32_t follow_mark(const struct packet *packet);

#endif
