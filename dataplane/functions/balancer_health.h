/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of a balancer's back ends are up: probes and their answers, and a thread that sends the ones and gets the
 * others.  It also answers who asks for an address of the balancer's.
 *
 * A back end is up after the first answer; then it goes down by so many probes in a row without an answer, and up by so
 * many with one.  Answers are known by a number that nobody else can know.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_HEALTH_H
#define TAILRACE_FUNCTIONS_BALANCER_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "aside.h"
#include "balancer_set.h"
#include "common/log.h"

enum { BALANCER_EVENTS = 1024 }; /* the last so many are known */

struct balancer_event {
	uint64_t time; /* seconds since 1970 */
	bool up;
	char service[BALANCER_NAME], end[BALANCER_NAME];
	const char *why;
};

struct balancer;
struct balancer_end;

struct balancer_health {
	struct rte_mempool *pool;
	uint64_t led;		/* ms: since when frames come in; 0: not yet, and an answer could not either */
	uint64_t frames_before; /* what had come in when it was last known that nothing does */
	uint64_t frames_heard;	/* and when another instance was last heard */
	uint64_t heard;		/* ms: when one was last heard while nothing came in; 0: never */
	bool hears;		/* one was, since the thread has looked */
	uint64_t nb_events;
	struct balancer_event events[BALANCER_EVENTS];
	_Atomic uint64_t probes, answers, unsent;
	struct log_budget budget;
	int forward_fd;
	struct aside aside;
};

/* With `forward_fd` -1 there is no thread: who calls does what it would do.  Returns 0, or -errno after logging. */
int balancer_health_open(struct balancer *balancer, struct rte_mempool *pool, int forward_fd);

void balancer_health_close(struct balancer *balancer);

/* Other back ends: the thread is to look. */
void balancer_health_wake(const struct balancer *balancer);

/* From the forwarding thread: a frame has come for this one.  Returns false without room. */
bool balancer_health_give(struct balancer *balancer, struct rte_mbuf *mbuf);

/*
 * The instance before this one had the end up, at this MAC address, after so many probes without an answer.  That is
 * believed until the end has answered, or has not although frames come in; of one that is believed already, the
 * address is.  The lock is held.  Returns whether the end is up by that.
 */
bool balancer_health_vouch(struct balancer *balancer, struct balancer_end *end, const uint8_t mac[6], uint8_t bad);

/*
 * It had the end down, after so many answers: the end is up after as many more as are lacking.  Returns whether the end
 * is down by that.
 */
bool balancer_health_doubt(struct balancer *balancer, struct balancer_end *end, uint8_t good);

/*
 * Another instance is about to say how ends are.  If nothing has come in since it last did, this one stands by: it goes
 * by the other's word, and sends nothing itself while that comes.  The lock is held.
 */
void balancer_health_hear(struct balancer *balancer);

/* It hands over connections: one that stands by goes on so, however long that takes.  The lock is held. */
void balancer_health_listen(struct balancer *balancer);

/* ------- what the thread does; the set's lock is not held ------- */

/* Take what has come, and send what is due, at a time in ms.  Returns in how many ms something is due next. */
uint32_t balancer_health_step(struct balancer *balancer, uint64_t now);

#endif
