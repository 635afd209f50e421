/* SPDX-License-Identifier: Apache-2.0
 *
 * What the back end of one guest port knows beside what workers see of it (guest.h).  Everything here belongs to
 * the thread that speaks the protocol (guest_socket.h), except where a field says otherwise.
 */
#ifndef TAILRACE_PORT_GUEST_BACKEND_H
#define TAILRACE_PORT_GUEST_BACKEND_H

#include <pthread.h>

#include "common/log.h"
#include "port/guest.h"
#include "port/guest_announce.h"
#include "port/guest_closer.h"
#include "port/guest_memory.h"
#include "port/guest_message.h"
#include "port/guest_pages.h"

/* One ring as the front end describes it. */
struct guest_ring {
	uint64_t desc, avail, used; /* in the front end's own address space */
	uint64_t log;		    /* guest-physical address of the used ring, for the dirty log */
	uint32_t size;
	uint16_t base; /* where it stands; bit 15 of a packed ring's is the wrap counter */
	bool addressed, logged;
	bool started; /* between SET_VRING_KICK and GET_VRING_BASE */
	bool enabled;
	int kick_fd, call_fd;		 /* eventfds; -1: none */
	bool kick_refused, call_refused; /* what was sent is no eventfd, and has been closed */
	bool barred;			 /* set up while its guest was kept stopped */
	uint64_t idle_since;	/* milliseconds; started and not enabled, as was first seen then; 0: it is not */
	struct virtqueue *idle; /* by which what is sent there is thrown away; NULL: not yet */
};

struct guest_backend {
	struct guest *guest;
	struct guest_backend *_Atomic next;
	char name[64];
	struct queue_counters *counters[GUEST_PAIRS];

	struct guest_mappings memory;
	struct account account; /* also of workers, and where a fault is caught */
	uint64_t offered, features;
	uint64_t protocol_features;
	uint8_t status;
	struct guest_ring rings[GUEST_VRINGS];

	bool announces; /* a frame in the guest's name is still to be sent */
	struct rte_ether_addr announced;
	struct guest_announcement *announcement; /* before the ring of the first queue; NULL: none */

	int listener;	   /* -1 in client mode */
	bool deaf;	   /* nobody is accepted there, until what was sent before is closed */
	int connection;	   /* -1: no front end */
	bool spoke;	   /* it has sent a whole message */
	int64_t since;	   /* when it sent the first, in seconds since 1970; 0: it has not */
	uint64_t deadline; /* milliseconds; the message that has begun must be whole by then; 0: none has */
	unsigned have;	   /* bytes of `message` */
	struct guest_message message;
	struct guest_closer *closer;

	uint64_t barred_until; /* milliseconds; its rings stay stopped, because it has blocked a worker */
	uint64_t bar;	       /* for so many milliseconds, the last time */
	enum vring_fault barred_for;
	struct log_budget log;			 /* for all that the front end can cause to be logged */
	enum vring_fault reported[GUEST_VRINGS]; /* quarantines that stand in the log */

	pthread_mutex_t facts_lock;
	struct guest_facts facts; /* for the control thread */
};

/* Since when the thread that speaks the protocol is waking a guest, in milliseconds; 0: it is not. */
extern atomic_ulong guest_notifying;

/* All ports, for the signal handler too. */
extern struct guest_backend *_Atomic guest_backends;

enum { GUEST_ALL_RINGS = -1, GUEST_RING_MOST = 32768 };

/* Take these rings (a bit each) from the workers; afterwards nothing of them is in use. */
void guest_withdraw(struct guest_backend *backend, uint32_t rings);

/* Give the workers what may be served now and is not. */
void guest_publish(struct guest_backend *backend);

/* The time is over for which the guest's rings were kept stopped: those that it has set up meanwhile are served. */
void guest_end_bar(struct guest_backend *backend);

/* A front end that knows nothing of the protocol's features has no message to enable a ring. */
static inline bool guest_ring_enabled(const struct guest_backend *backend, unsigned ring)
{
	return backend->rings[ring].enabled || !(backend->features & 1ULL << GUEST_F_PROTOCOL_FEATURES);
}

/* A snapshot of one ring as the front end has set it up, or NULL while it is not whole. */
struct virtqueue *guest_ring_snapshot(struct guest_backend *backend, unsigned ring);

/* The ring's position is reported to the front end: what the ring says of it itself holds no more. */
void guest_ring_forget_position(struct guest_backend *backend, unsigned ring);

/*
 * Now and then: throw away what the guest has sent by rings that it has started and not enabled, as the specification
 * wants it ("Ring states").  Returns whether there may soon be more of it.
 */
bool guest_discard(struct guest_backend *backend, uint64_t now);

/* Send a frame in the guest's name as soon as its first queue is served, or again if one is still to be sent. */
void guest_announce(struct guest_backend *backend, const struct rte_ether_addr *mac);

/* A worker may have sent what was announced: then the guest's own ring is in its place again. */
void guest_announced(struct guest_backend *backend);

/* Stop a ring: it is as if the front end had never started it, but for its size, place and position. */
void guest_ring_stop(struct guest_backend *backend, unsigned ring);

/* Stop a ring and return its base, to be reported to the front end: from now on what that says of it is right. */
uint16_t guest_ring_report(struct guest_backend *backend, unsigned ring);

/* Note what the front end has said, for guest_facts(). */
void guest_note_facts(struct guest_backend *backend);

/* The front end has gone: nothing of what it said holds any more. */
void guest_forget(struct guest_backend *backend);

/* An eventfd, made one that never blocks us; or -1.  Other descriptors could: a pipe, a file on a dead server. */
int guest_eventfd(int fd);

/* Count a front end that was turned away, cut off, or left without a word. */
static inline void guest_count_refused(struct guest_backend *backend)
{
	__atomic_fetch_add(&backend->counters[0]->connections_refused, 1, __ATOMIC_RELAXED);
}

/* Log what a front end can cause: port, and what is the matter. */
#define guest_log(backend, level, format, ...) \
	log_within(&(backend)->log, level, "port %s: " format, (backend)->name, ##__VA_ARGS__)
#define guest_complain(backend, ...) guest_log(backend, LOG_LEVEL_WARNING, __VA_ARGS__)

uint64_t guest_now(void); /* milliseconds */

/* An eventfd by which a worker calls the thread that speaks the protocol. */
int guest_socket_wake_fd(void);

#endif
