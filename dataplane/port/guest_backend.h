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
#include "port/guest_unread.h"

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
	struct guest_unread unread[GUEST_PAIRS]; /* of the ring by which each pair is given frames */

	bool announces; /* a frame in the guest's name is still to be sent */
	struct rte_ether_addr announced;
	struct guest_announcement *announcement; /* before the ring of the first queue; NULL: none */

	int epoll_fd, wake_fd; /* of the thread that serves its sockets; by the latter a worker calls it */
	int listener;	       /* -1 in client mode */
	bool deaf;	       /* nobody is accepted there, until what was sent before is closed */
	int connection;	       /* -1: no front end */
	bool spoke;	       /* it has sent a whole message */
	int64_t since;	       /* when it sent the first, in seconds since 1970; 0: it has not */
	uint64_t deadline;     /* milliseconds; the message that has begun must be whole by then; 0: none has */
	unsigned have;	       /* bytes of `message` */
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

#endif
