/* SPDX-License-Identifier: Apache-2.0
 *
 * A tunnel's end: frames that come in at port 0 leave by port 1 within IP packets to the other end, and what comes from
 * there is taken out of them.  Each queue has one thread at a time, and what is of a queue is that thread's; what all
 * share is atomic.
 */
#ifndef TAILRACE_FUNCTIONS_TUNNEL_H
#define TAILRACE_FUNCTIONS_TUNNEL_H

#include "function.h"
#include "tunnel_headers.h"
#include "tunnel_liveness.h"

enum {
	TUNNEL_OWN = 8, /* frames of its own that a queue has for port 1 at once */
	TUNNEL_BURST = FUNCTION_ROOM - 2 * TUNNEL_OWN,
	TUNNEL_ASK = 1,	    /* s between two questions */
	TUNNEL_ANSWER = 5,  /* s in which an answer is taken */
	TUNNEL_FRESH = 30,  /* s after an answer; then it is asked for again when there is something to send */
	TUNNEL_IGNORED = 3, /* questions in a row, and the neighbour is not known any more */
};

struct tunnel_counters {
	_Atomic uint64_t passed, neighbours, liveness;
	_Atomic uint64_t drops[TUNNEL_VERDICTS];
	_Atomic uint64_t drop_questions; /* more at once than are answered */
};

struct tunnel_settings {
	struct tunnel_ends ends;
	struct ip_address gateway; /* HEADERS_OTHER: the other end is on the link */
	uint64_t neighbour;	   /* its MAC address, if it is given; 0: it is asked for */
	struct bfd_settings liveness;
};

#define TUNNEL_SETTINGS_DEFAULT                                       \
	{                                                             \
		.ends = {.mtu = 1500}, .liveness = {.multiplier = 3 } \
	}

struct tunnel {
	struct tunnel_headers headers;
	struct station own;
	struct ip_address next; /* whom outer frames go to first */
	struct rte_mempool *pool;
	bool fixed;		   /* the next hop's MAC address is given */
	_Atomic uint64_t mac;	   /* the next hop's, in the low 48 bits as they lie in memory; 0: not known */
	_Atomic uint64_t asked;	   /* TSC; 0: never */
	_Atomic bool wanted;	   /* there was a frame for it */
	_Atomic uint64_t heard;	   /* TSC of the last answer */
	_Atomic unsigned unheeded; /* questions since then */
	struct tunnel_liveness liveness;
	struct {
		unsigned nb_own;
		struct rte_mbuf *own[TUNNEL_OWN];
		struct tunnel_counters counters[2];
	} queues[FUNCTION_QUEUES];
};

extern struct tunnel the_tunnel;

/* Take a setting of --set.  Returns NULL, or what was expected. */
const char *tunnel_settings_take(struct tunnel_settings *settings, const char *name, const char *value);

/* What is wrong with all of them; NULL: nothing. */
const char *tunnel_settings_wrong(const struct tunnel_settings *settings);

void tunnel_begin(struct tunnel *tunnel, const struct tunnel_settings *settings, struct rte_mempool *pool);

/* As struct function has process(), at a given time. */
uint16_t tunnel_pass(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue,
		     uint64_t tsc);

#endif
