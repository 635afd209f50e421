/* SPDX-License-Identifier: Apache-2.0
 *
 * Which address and port of a NAT's pool stand for which end inside: mappings, and the blocks of ports that inside
 * hosts have them from.  A host has all of its blocks at one address (RFC 4787, REQ-2), and a bounded number (RFC 6888,
 * REQ-4).  A block whose last port is free again stays with its host for two minutes (RFC 6888, REQ-8).
 *
 * All memory is taken at once.  A table is a forwarding thread's; where there are several, each inside host has one of
 * them, and they have the pool in common.  Another thread may make tables of it; what it reads while that changes may
 * be of two moments.  Addresses and ports are in the machine's order.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_TABLE_H
#define TAILRACE_FUNCTIONS_NAT_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_common.h>
#include <rte_prefetch.h>
#include <rte_spinlock.h>

#include "connections.h"

enum {
	NAT_PREFIXES = 16,
	NAT_ADDRESSES = 1024, /* of the pool, at most */
	NAT_FORWARDS = 64,
	NAT_FORWARD_PLACES = 256,
	NAT_HOST_BLOCKS = 16, /* at most */
	NAT_FIRST_PORT = 1024,
	NAT_EVENTS = 1024, /* what became of blocks: as many as there are blocks, and so many more, are known */
	NAT_HOLD_SECONDS = 120,
};

struct nat_prefix {
	uint32_t address, mask;
	uint32_t first; /* the number of its first address */
};

struct nat_prefixes {
	unsigned nb;
	uint32_t addresses;
	struct nat_prefix list[NAT_PREFIXES];
};

/* An address and port, and in which network: protocol and VLAN tags. */
struct nat_end {
	uint32_t address;
	uint16_t port; /* of ICMP: the identifier */
	uint8_t protocol;
	uint32_t tags; /* the outer one in the upper half */
};

struct nat_forward {
	uint8_t protocol;
	uint16_t port, inside_port;
	uint32_t address, inside;
};

struct nat_settings {
	struct nat_prefixes pool, inside;
	uint32_t block;	 /* ports in a block: a power of two, from 64 */
	uint32_t blocks; /* the most of a host */
	uint32_t host_connections;
	bool filters; /* address-and-port-dependent (RFC 4787, 5); otherwise endpoint-independent */
	unsigned nb_forwards;
	struct nat_forward forwards[NAT_FORWARDS];
};

struct nat_mapping {
	struct nat_end inside;
	uint32_t outside; /* its address */
	uint16_t outside_port;
	uint8_t mac[6];			    /* of the station that has sent for the inside end last */
	bool has_mac, fixed;		    /* fixed: a forward, which no connection keeps */
	uint32_t references;		    /* connections; 0: free */
	uint32_t host, block;		    /* 0: none */
	uint32_t next_inside, next_outside; /* in the same chain; or free */
	uint32_t flow;	/* of its connections the one that began, or was answered, last; it may have ended since */
	uint32_t begun; /* connections that its inside end has begun; fixed: no host counts them */
} __rte_cache_aligned;
static_assert(sizeof(struct nat_mapping) == RTE_CACHE_LINE_SIZE, "a look-up from outside reads one line of it");

struct nat_host {
	uint32_t address, tags;
	uint32_t next; /* in the same chain; or free */
	uint32_t connections;
	uint32_t blocks[NAT_HOST_BLOCKS];
	uint16_t pool_number; /* of the address that its blocks are at */
	uint8_t nb_blocks;    /* 0: free */
};

struct nat_block {
	uint32_t host;		 /* 0: free */
	uint32_t used;		 /* ports, of all protocols */
	uint32_t next, previous; /* of those that are free at an address, or of those that wait to be */
	uint32_t since;		 /* the tick when its last port became free */
};

/* What became of a block; `kept`: its host had it in another instance already, which has handed it over. */
#define NAT_EVENTS_ALL(X) X(assigned) X(kept) X(released)

enum nat_event_kind {
#define X(name) NAT_EVENT_##name,
	NAT_EVENTS_ALL(X)
#undef X
};

struct nat_event {
	uint64_t number; /* from 1 */
	uint64_t time;	 /* seconds since 1970 */
	uint32_t inside, tags, outside;
	uint16_t first;
	uint8_t kind; /* enum nat_event_kind */
};
static_assert(sizeof(struct nat_event) == 32, "a spec's memory counts on it (tailrace/spec/nat.py)");

/*
 * The blocks of all tables: a host's table takes one that is free, and then it, its ports and its place in a list are
 * that table's until it gives it back.  Blocks are taken and given back under the lock: a host has some at most, each
 * for hundreds of ports.
 */
struct nat_pool {
	const struct nat_settings *settings;
	struct nat_block *blocks; /* behind them, for each table, who holds its list of those that wait */
	uint64_t *bits;		  /* the ports of each block that are taken: TCP's, UDP's, ICMP's */
	_Atomic uint8_t *owners;  /* of each block 1 and the number of the table; 0: it is free */
	uint32_t *free_blocks;	  /* by address: the first; 0: none */
	uint32_t nb_blocks, blocks_each;
	unsigned nb_tables;
	rte_spinlock_t lock;
	_Atomic uint32_t left, taken; /* left: free blocks */
	_Atomic uint64_t nb_events;
	struct nat_event *events; /* the last of them: number N at N modulo most_events */
	uint32_t most_events;
	uint8_t forwards[NAT_FORWARD_PLACES]; /* by hash of the outside end: 1 and the number of the forward */
};

/* Of the inside hosts that belong to one queue. */
struct nat_table {
	const struct nat_settings *settings;
	struct nat_pool *pool;
	unsigned number;
	struct nat_mapping *mappings; /* 0 is none's */
	struct nat_host *hosts;
	struct nat_block *blocks;		    /* the pool's */
	uint32_t waiting;			    /* the number that holds the list of those that wait */
	uint32_t *by_inside, *by_outside, *by_host; /* chains, by hash */
	uint32_t mapping_mask, host_mask;
	uint32_t most_mappings, nb_hosts;
	uint32_t host_connections; /* the most of a host */
	uint32_t free_mapping, free_host;
	uint64_t secret[2], random;
	uint32_t hold;	  /* ticks */
	uint64_t changes; /* mappings made and ended */
	_Atomic uint32_t mapped;
	_Atomic uint64_t made;
};

/* Those of a function: a table for each of its queues. */
struct nat_tables {
	const struct nat_table *tables[FUNCTION_QUEUES];
	unsigned nb;
};

/* The number of an address of these; -1: it is none of them. */
static inline int64_t nat_prefixes_find(const struct nat_prefixes *prefixes, uint32_t address)
{
	for (unsigned i = 0; i < prefixes->nb; i++)
		if ((address & prefixes->list[i].mask) == prefixes->list[i].address)
			return (int64_t)prefixes->list[i].first + (address & ~prefixes->list[i].mask);
	return -1;
}

/* Of an end, or with port 0 of a host. */
static inline uint32_t nat_hash(const struct nat_table *table, const struct nat_end *end)
{
	const uint64_t hash = hash_mix(((uint64_t)end->tags << 32 | end->address) ^ table->secret[0],
				       ((uint64_t)end->port << 8 | end->protocol) ^ table->secret[1]);

	return (uint32_t)(hash_mix(hash, HASH_3) >> 32);
}

/* Which of so many tables an inside host has. */
static inline unsigned nat_table_home(uint32_t address, unsigned nb_tables)
{
	return (unsigned)((hash_mix(address ^ HASH_0, HASH_1) >> 32) * nb_tables >> 32);
}

/*
 * The most connections of a host, where connections are shared out among so many tables: one host has all of its own in
 * one table, of which it is to have no larger a part than it may have of all, or an eighth.
 */
uint32_t nat_table_host_connections(const struct nat_settings *settings, uint32_t share, unsigned nb_tables);

/* The table that has an end of the pool, or `otherwise` where none has.  From any thread. */
unsigned nat_pool_home(const struct nat_pool *pool, uint32_t address, uint16_t port, uint8_t protocol,
		       unsigned otherwise);

/* Returns 0, or -ENOMEM after logging. */
int nat_pool_open(struct nat_pool *pool, const struct nat_settings *settings, unsigned nb_tables);

void nat_pool_close(struct nat_pool *pool);

/* With room for a mapping of each of so many connections, and the pool, of which it is the table of this number.
 * Returns 0, or -errno after logging. */
int nat_table_open(struct nat_table *table, struct nat_pool *pool, unsigned number, uint32_t connections);

void nat_table_close(struct nat_table *table);

/* The mapping of an inside end, or that of an end of the pool; NULL: there is none. */
struct nat_mapping *nat_table_inside(const struct nat_table *table, const struct nat_end *end);
struct nat_mapping *nat_table_outside(const struct nat_table *table, const struct nat_end *end);

/*
 * That of an end of the pool in steps, so that frames of a burst wait together: where its chain begins, which is asked
 * for; then the first mapping in it is asked for.
 */
static inline uint32_t nat_table_ask(const struct nat_table *table, const struct nat_end *end)
{
	const uint32_t chain = nat_hash(table, end) & table->mapping_mask;

	rte_prefetch0(&table->by_outside[chain]);
	return chain;
}

static inline void nat_table_ask_mapping(const struct nat_table *table, uint32_t chain)
{
	rte_prefetch0(&table->mappings[table->by_outside[chain]]);
}

/* The mapping of an end, in its chain. */
static inline struct nat_mapping *nat_table_outside_in(const struct nat_table *table, uint32_t chain,
						       const struct nat_end *end)
{
	for (uint32_t at = table->by_outside[chain]; at != 0; at = table->mappings[at].next_outside) {
		struct nat_mapping *mapping = &table->mappings[at];

		if (mapping->outside == end->address && mapping->outside_port == end->port &&
		    mapping->inside.protocol == end->protocol && mapping->inside.tags == end->tags)
			return mapping;
	}
	return NULL;
}

/*
 * Another connection of an inside end: its mapping, or a new one, kept until nat_table_release().  NULL: there can be
 * none, for the reason in `why`.
 */
struct nat_mapping *nat_table_hold(struct nat_table *table, const struct nat_end *end, enum verdict *why);

/* Likewise with that very address and port outside, as another instance has given them; `begun`: from inside, which
 * counts against the limit of a host. */
struct nat_mapping *nat_table_hold_this(struct nat_table *table, const struct nat_end *end, uint32_t outside,
					uint16_t outside_port, bool begun, enum verdict *why);

/* A connection has ended. */
void nat_table_release(struct nat_table *table, struct nat_mapping *mapping, uint32_t tick);

/* Give back the blocks that have waited for long enough, one at a time; once a round. */
void nat_table_sweep(struct nat_table *table, uint32_t tick);

/* Whether there is one. */
bool nat_table_sweep_waits(const struct nat_table *table, uint32_t tick);

/*
 * Copy the event of a number, from any thread and without the lock.  Returns false if another one is in its place, or
 * may be soon.
 */
bool nat_pool_event(const struct nat_pool *pool, uint64_t number, struct nat_event *event);

/* The oldest number that nat_pool_event() may still find. */
uint64_t nat_pool_oldest(const struct nat_pool *pool);

const char *nat_event_word(const struct nat_event *event);

/* From any thread: add counters; add tables with so many rows each. */
void nat_tables_describe(const struct nat_tables *nats, json_t *counters);
void nat_tables_show(const struct nat_tables *nats, json_t *tables, unsigned most);

#endif
