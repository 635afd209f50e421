/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest port: a vhost-user back end for one virtual machine or container, with 1 to 16 queue pairs.  One thread
 * of the control side (guest_socket.h) speaks the protocol for all ports; the rings themselves are in vring/.
 *
 * This interface is below all files that serve it, and each of these includes and calls only what is below itself:
 *
 *	guest.c			opens, closes and describes a port
 *	guest_socket		the sockets of all ports, and the thread that reads them
 *	guest_connection	one front end: its messages as they arrive, answers, its end
 *	guest_protocol		what each message does
 *	guest_unread		whether frames wait in the guest's rings
 *	guest_publish		gives rings to the workers and takes them back; guest_discard: what is sent by others
 *	guest_ring		makes a ring from what the front end has said; guest_memory_fault: memory that is gone
 *	guest_backend		what is known of one port
 *	guest_memory		maps what the front end shares
 *	guest_populate		maps the pages of it that are there, in a thread
 *	guest_pages		makes those that are missing
 *
 * and at the bottom guest_message, guest_announce, guest_closer and guest_listen.
 *
 * Workers reach a ring through a pointer that is there while the ring may be served and NULL otherwise.  Before
 * anything that may move or unmap what the ring points at, the pointer is withdrawn and a grace period is waited
 * for; then a new snapshot is published.  Each pointer is whole by itself, so workers never see half a change.
 */
#ifndef TAILRACE_PORT_GUEST_H
#define TAILRACE_PORT_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vring/vring.h"

/* Of each pair n the guest's receive queue is vring 2n and its transmit queue vring 2n + 1 (virtio 1.1, section 5.1.2).
 */
enum { GUEST_RECEIVES, GUEST_SENDS, GUEST_VRINGS_EACH };
enum { GUEST_PAIRS = 16, GUEST_VRINGS = GUEST_PAIRS * GUEST_VRINGS_EACH };

enum guest_state {
	GUEST_WAITING,	   /* no front end, or it has not set up its rings */
	GUEST_UP,	   /* rings are served */
	GUEST_QUARANTINED, /* a ring was malformed and is not served until the guest resets it */
};

struct guest {
	/* What workers read. */
	struct virtqueue *_Atomic live[GUEST_VRINGS];
	atomic_bool paused;	       /* a message is being acted on: rings that are missing come back at once */
	atomic_bool awaited;	       /* frames wait for it while it is not there, however long that is */
	atomic_bool unread;	       /* it is counted how often frames wait in its rings; not read by workers */
	atomic_int kick[GUEST_VRINGS]; /* eventfds by which the guest says that there is work, or -1 */

	/* enum vring_fault; set by a worker or a snapshot, cleared when the guest resets the ring. */
	int fault[GUEST_VRINGS];

	atomic_uint used; /* pairs, as guest_pairs() says */

	atomic_int unreached; /* errno of the last try to connect; 0: somebody is there, or nobody was looked for yet */

	/* Fixed. */
	unsigned pairs; /* that the front end may have */
	bool client;	/* connect to the front end's socket, and again after a loss, instead of listening */
	char path[108];
	struct guest_backend *backend;
};

/*
 * From here on an access to guest memory whose file the guest has cut short (SIGBUS) stops that guest's rings, and
 * nothing else.  Once, before any port.  Returns 0 or -errno.
 */
int guest_survive_cuts(void);

/* How a port is opened. */
struct guest_options {
	const char *name; /* the port's, for the log */
	const char *path;
	bool client;	   /* connect to the front end's socket, and again after a loss, instead of listening */
	bool offloads;	   /* offer checksum and segmentation offload */
	uint64_t memory;   /* bytes that the front end may share, 0: guest_memory_unless_said() */
	unsigned queues;   /* pairs that the front end may have: 1 to GUEST_PAIRS */
	int socket_mode;   /* of a socket that listens; -1: as the process's umask says */
	const char *group; /* that the socket is given to, by name or number, or NULL */
	struct queue_counters *counters[GUEST_PAIRS]; /* of each pair; they outlive the port */
};

/*
 * Listen at, or keep connecting to, the path.  Returns 0, or a negative errno after writing one line, what failed and
 * what to do, into `why`: -EADDRINUSE when somebody listens there, -ENAMETOOLONG, -EINVAL, or what the system says.
 */
int guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size);

/*
 * From the watchdog, every few milliseconds: interrupt the thread that speaks the protocol, by SIGUSR1, where
 * a guest's descriptor blocks it.
 */
void guest_watchdog(void);

/* Disconnect and forget the port; no worker's program may name it any more. */
void guest_close(struct guest *guest);

/*
 * From now on, or no longer, look every GUEST_UNREAD_US at whether frames that the guest was given still lie in its
 * rings, and count it (`looks`, `looks_unread`).
 */
void guest_count_unread(struct guest *guest, bool wanted);

/* The pairs that the front end has enabled and may be served now: pairs 0 to this, less one. */
unsigned guest_pairs(const struct guest *guest);

/*
 * Have `changed` called, in the thread that speaks the protocol, after rings of any port have been published or
 * withdrawn: the number of pairs may be another, and a worker that sleeps on kicks must look again.  Once, before any
 * port.
 */
void guest_on_change(void (*changed)(void));

/* Has it a receive queue that is served and not quarantined?  Then it can be given frames. */
bool guest_takes(const struct guest *guest);

/* What the front end has said so far. */
struct guest_facts {
	int64_t since;		      /* it is there: seconds since 1970; 0: it is not */
	uint64_t features;	      /* that it has taken, a bit each (virtio, vhost-user) */
	uint64_t memory;	      /* bytes that it shares */
	bool logs;		      /* what is written to its memory is noted, as for a migration */
	uint32_t sizes[GUEST_VRINGS]; /* descriptors of each ring; 0: not said */
};

/* As of its last message. */
struct guest_facts guest_facts(const struct guest *guest);

/* Bytes that the front end may share: as guest_options say, or guest_memory_unless_said(). */
uint64_t guest_memory_most(const struct guest *guest);

/*
 * Why a port in client mode has nobody to connect to, and what to do: one line into `why`.  Returns false when there is
 * somebody, or who listens is not for us to find.
 */
bool guest_unreached(const struct guest *guest, char *why, unsigned why_size);

/* How it is.  For a quarantined port `*fault` says what was malformed. */
enum guest_state guest_state(const struct guest *guest, enum vring_fault *fault);

/* ------- for workers ------- */

/* No receiver, but only for the moment, or one that is awaited: frames wait where they are rather than be dropped. */
static inline bool guest_paused(const struct guest *guest)
{
	return atomic_load_explicit(&guest->paused, memory_order_acquire) ||
	       atomic_load_explicit(&guest->awaited, memory_order_relaxed);
}

/*
 * What becomes readable when the guest has put something into the ring by which it sends on this queue, provided that
 * vring_arm() asked for it; -1 when the guest gives no such sign.  An eventfd that the guest may drain, fill or make
 * blocking: wait for its edge, and do not read it.  Good until guest_on_change() reports a change.
 */
static inline int guest_kick_fd(const struct guest *guest, unsigned queue)
{
	return atomic_load_explicit(&guest->kick[GUEST_VRINGS_EACH * queue + GUEST_SENDS], memory_order_relaxed);
}

#endif
