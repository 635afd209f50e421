/* SPDX-License-Identifier: Apache-2.0
 *
 * A balancer's services and their back ends, and the table by which frames find them.
 *
 * Services and back ends have numbers, under which they stay while the set around them changes: that of a back end is
 * what a connection keeps.  One that was removed gives its number to another only when no connection has it.  The table
 * is made anew for each change, and published: forwarding threads see the old one or the new one.
 *
 * What is written by whom is said at each member.  All but the forwarding thread hold `lock`.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_SET_H
#define TAILRACE_FUNCTIONS_BALANCER_SET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_branch_prediction.h>

#include "common/control.h"
#include "function.h"
#include "maglev.h"
#include "neighbours.h"
#include "steer/hash.h"
#include "steer/parse.h"

enum {
	BALANCER_SERVICES = 64,		/* in a set */
	BALANCER_ENDS = 1024,		/* of all services */
	BALANCER_SERVICE_NUMBERS = 129, /* from 1; twice as many, because the old set has theirs still */
	BALANCER_END_NUMBERS = 4096,	/* from 1; others may have connections still */
	BALANCER_NAME = 64,
	BALANCER_INDEX = 4096,
	BALANCER_MASK = BALANCER_INDEX - 1,
	BALANCER_ENDPOINT_END = 0x8000, /* beside the number of an end */
};
static_assert((int)BALANCER_END_NUMBERS <= (int)BALANCER_ENDPOINT_END, "an end's number and that bit");

enum balancer_probe_kind { BALANCER_TCP, BALANCER_ECHO, BALANCER_NEIGHBOUR };

struct balancer_service {
	/* What it is; never another while a table has it. */
	struct ip_address address;
	uint16_t port;
	uint8_t protocol;
	bool direct; /* only the MAC address is changed */

	char name[BALANCER_NAME];
	uint8_t probe;		    /* enum balancer_probe_kind */
	uint32_t interval, timeout; /* ms */
	uint8_t rise, fall;	    /* answers, and answers that lack, until it is up, and down */
	bool used;
};

enum balancer_state { BALANCER_FREE, BALANCER_REMOVED, BALANCER_DOWN, BALANCER_UP };

struct balancer_end {
	/* What it is; never another while a table or a connection has it. */
	struct ip_address address;
	uint16_t port;
	uint16_t service;

	_Atomic uint8_t state; /* enum balancer_state */
	_Atomic uint64_t mac;  /* where frames for it go, in the low 48 bits as they lie in memory; 0: not known */

	/* Of those who hold the lock. */
	char name[BALANCER_NAME];
	uint16_t weight;
	bool drain;
	uint16_t leader; /* the first end with the same next hop, which asks for its MAC address */
	struct {
		uint64_t due, sent, asked; /* ms; sent: 0 if nothing is waited for */
		uint32_t nonce;
		uint8_t good, bad; /* in a row */
		bool waits;	   /* it has asked, and nobody has answered since */
		bool known;	   /* it has had a result */
		bool answered;	   /* it was up by an answer of its own */
		bool vouched;	   /* it is up by the word of the instance before */
	} health;
} __rte_cache_aligned;

/* Of an end, by what came in by a queue; its forwarding thread's. */
struct balancer_end_counts {
	_Atomic uint64_t begun, frames;
	_Atomic uint32_t connections;
	_Atomic uint32_t unkept; /* the tick of the last frame that it got without an entry; 0: none */
};

struct balancer_end_sum {
	uint64_t begun, frames;
	uint32_t connections;
};

enum balancer_kind { BALANCER_NOBODY, BALANCER_VIRTUAL, BALANCER_OWN, BALANCER_END };

/* Of the balancer itself. */
struct balancer_own {
	struct station station;
	struct ip_address gateways[2]; /* IPv4's, IPv6's */
	uint64_t secret[2];
};

/* Never changes. */
struct balancer_table {
	struct balancer_own own;
	uint16_t *places[BALANCER_SERVICE_NUMBERS]; /* by service; the numbers of ends, 0: nobody */
	uint64_t digests[BALANCER_SERVICE_NUMBERS]; /* of who shares them */
	uint16_t endpoints[BALANCER_INDEX];	    /* by hash: a service's number, or an end's and ENDPOINT_END */
	uint16_t addresses[BALANCER_INDEX];	    /* by hash: a place in the list, from 1 */
	unsigned nb_addresses;
	struct {
		struct ip_address address;
		uint8_t kind; /* enum balancer_kind */
		bool direct;  /* virtual: a back end may answer from there */
	} list[2 + BALANCER_SERVICES + BALANCER_ENDS + 1];
};

struct balancer_set {
	struct balancer_table *_Atomic table;
	struct balancer_service services[BALANCER_SERVICE_NUMBERS];
	struct balancer_end ends[BALANCER_END_NUMBERS];
	uint16_t used[BALANCER_ENDS]; /* the numbers of ends in the set, in order */
	unsigned nb_used;
	uint64_t random[2];				     /* the secret, unless one is told */
	struct balancer_end_counts *counts[FUNCTION_QUEUES]; /* of each queue: by the number of an end */
	unsigned nb_queues;
	pthread_mutex_t lock;
};

/* An empty set.  Returns 0, or -ENOMEM. */
int balancer_set_open(struct balancer_set *set, unsigned nb_queues);

void balancer_set_close(struct balancer_set *set);

/*
 * Take another set: {"source": [...], "gateway": [...], "secret": "...", "services": [{"name": "web", "address":
 * "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "rewrite", "health": {"by": "tcp", "interval": 2000, "timeout":
 * 1000, "rise": 2, "fall": 3}, "back_ends": [{"name": "a", "address": "10.0.0.2", "port": 8080, "weight": 1, "drain":
 * false}]}]}.  Returns 0, or -1 with the error filled in; then the set is as before.
 */
int balancer_set_take(struct balancer_set *set, json_t *params, struct control_error *error);

/* What an end has had by all queues together.  From any thread. */
struct balancer_end_sum balancer_set_counts(const struct balancer_set *set, uint16_t number);

/* Publish what ends are up and in drain now.  Returns 0, or -ENOMEM, and then it is as before. */
int balancer_set_publish(struct balancer_set *set);

/* The end of a service at this address and port; 0: there is none. */
uint16_t balancer_set_end(const struct balancer_set *set, uint16_t service, uint8_t family, const uint8_t *address,
			  uint16_t port);

/* ------- the forwarding thread's ------- */

static inline uint64_t balancer_address_hash(const uint8_t *address, uint8_t family)
{
	uint64_t words[2];

	memcpy(words, address, sizeof(words));
	return hash_mix(words[0] ^ HASH_0, words[1] ^ HASH_1 ^ family);
}

static inline uint64_t balancer_endpoint_hash(const uint8_t *address, uint8_t family, uint16_t port, uint8_t protocol)
{
	return hash_mix(balancer_address_hash(address, family), ((uint64_t)port << 8 | protocol) ^ HASH_2);
}

static inline bool balancer_same_address(const struct ip_address *one, const uint8_t *bytes, uint8_t family)
{
	return one->family == family && memcmp(one->bytes, bytes, sizeof(one->bytes)) == 0;
}

/* The service at an address and port, or the end in mode rewrite; 0: none. */
static inline uint16_t balancer_table_service(const struct balancer_set *set, const struct balancer_table *table,
					      const uint8_t *address, uint8_t family, uint16_t port, uint8_t protocol)
{
	uint64_t at = balancer_endpoint_hash(address, family, port, protocol);
	uint16_t found;

	for (; (found = table->endpoints[at & BALANCER_MASK]) != 0; at++) {
		const struct balancer_service *service = &set->services[found & ~BALANCER_ENDPOINT_END];

		if (!(found & BALANCER_ENDPOINT_END) && service->port == port && service->protocol == protocol &&
		    balancer_same_address(&service->address, address, family))
			return found;
	}
	return 0;
}

static inline uint16_t balancer_table_end(const struct balancer_set *set, const struct balancer_table *table,
					  const uint8_t *address, uint8_t family, uint16_t port, uint8_t protocol)
{
	uint64_t at = balancer_endpoint_hash(address, family, port, protocol);
	uint16_t found;

	for (; (found = table->endpoints[at & BALANCER_MASK]) != 0; at++) {
		const uint16_t number = found & ~BALANCER_ENDPOINT_END;
		const struct balancer_end *end = &set->ends[number];

		if ((found & BALANCER_ENDPOINT_END) && end->port == port &&
		    set->services[end->service].protocol == protocol &&
		    balancer_same_address(&end->address, address, family))
			return number;
	}
	return 0;
}

/* Whose address it is; 0: not one that the table has.  A place in its list. */
static inline unsigned balancer_table_whose(const struct balancer_table *table, const uint8_t *address, uint8_t family)
{
	uint64_t at = balancer_address_hash(address, family);
	uint16_t found;

	for (; unlikely((found = table->addresses[at & BALANCER_MASK]) != 0); at++)
		if (balancer_same_address(&table->list[found].address, address, family))
			return found;
	return 0;
}

static inline bool balancer_end_is_up(const struct balancer_end *end)
{
	return atomic_load_explicit(&end->state, memory_order_acquire) == BALANCER_UP;
}

/* What an end's frames go to first: a gateway, if there is one, but not of mode direct. */
static inline const struct ip_address *balancer_next_hop(const struct balancer_set *set, const struct balancer_own *own,
							 const struct balancer_end *end)
{
	const struct ip_address *gateway = &own->gateways[ip_version(end->address.family)];

	return gateway->family != HEADERS_OTHER && !set->services[end->service].direct ? gateway : &end->address;
}

#endif
