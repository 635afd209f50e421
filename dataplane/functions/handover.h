/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that one instance of a function gives to the one that replaces it.  The node reads them from the old one
 * and writes them to the new one, a page at a time: before frames are led to the new one, and once more after that,
 * what the old one has seen since.  Likewise it keeps a standby in step with the active one, again and again.
 *
 * What is handed over is hostile input: each record is checked as if it had been made up.  The control thread reads a
 * page into a batch, which the forwarding thread takes, some records a round: the table stays its own.  Where there
 * are several, each takes what is for its table, all at the same time.
 */
#ifndef TAILRACE_FUNCTIONS_HANDOVER_H
#define TAILRACE_FUNCTIONS_HANDOVER_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <rte_branch_prediction.h>
#include <rte_common.h>

#include "common/control.h"
#include "connections.h"

enum {
	HANDOVER_PAGE = 4096,	 /* records, at most */
	HANDOVER_ROUND = 32,	 /* taken in a round */
	HANDOVER_TOLD = 1 << 16, /* bytes of what else is told, at most */
};

/* What becomes of a record, each with a counter of this name. */
#define HANDOVER_RESULTS(X)                                                          \
	X(taken)   /* it is known now */                                             \
	X(updated) /* it was, and the other instance has seen it later */            \
	X(known)   /* it was, and this instance has seen it later */                 \
	X(aged)	   /* it was not seen for longer than this instance keeps it */      \
	X(no_room) /* the table is full of connections in use, or a limit reached */ \
	X(unfit)   /* by these settings it cannot be: its address, port or block */  \
	X(malformed)

enum handover_result {
#define X(name) HANDOVER_##name,
	HANDOVER_RESULTS(X)
#undef X
		HANDOVER_NB_RESULTS
};

/* As it is sent, as bytes in hexadecimal: both instances are on one host, and of one program. */
struct handover_record {
	uint64_t key[CONNECTION_KEY_WORDS];
	uint32_t seen; /* the tick: one host has one TSC */
	uint8_t state, opener, port;
	/* A NAT's: what inside has outside. */
	uint8_t has_mac;
	uint8_t mac[6];
	uint16_t outside_port;
	uint32_t outside;
	/* A balancer's: who has it (and `mac`: that this one is up). */
	uint16_t end_port;
	uint16_t end_number; /* as the new instance has it, which fills it in */
	uint8_t end[16];
};
static_assert(sizeof(struct handover_record) % sizeof(uint64_t) == 0, "nothing stands between two records");

/* Of a batch: what is for one table. */
struct handover_part {
	_Atomic bool offered; /* it is the table's forwarding thread's, until that has taken it */
	uint32_t next, until; /* of `order`: those that it is to take */
} __rte_cache_aligned;

struct handover {
	struct connection_tables tables;
	/* Of several tables: the one that a record that holds is for.  From any thread. */
	unsigned (*home)(const struct handover *handover, const struct handover_record *record);
	bool one_sided; /* of a TCP connection, only one direction may have been seen */
	/* Of who keeps something beside a flow.  Any thread: write it to the record. */
	void (*fill)(const struct connections *flows, const struct connection *flow, struct handover_record *record);
	/* The control thread: look at so many records of the batch before they are offered. */
	void (*prepare)(struct handover *handover, uint32_t count);
	/* The forwarding thread: have what stands beside a flow that is to be added, and then keep it or let it go
	 * (`flow` is NULL: it was not added). */
	enum handover_result (*begin)(struct connections *flows, const struct handover_record *record);
	void (*end)(struct connections *flows, const struct handover_record *record, struct connection *flow);
	/* Likewise, of a flow that is known and that the other instance has seen later: take what has changed beside
	 * it.  Returns false if it has something else there: it began anew, and is to be taken in its place. */
	bool (*follow)(struct connections *flows, struct connection *flow, const struct handover_record *record);

	/* Of who knows more than connections.  The control thread: write what the other instance is to know, so many
	 * bytes at most; and hear what it knows, whatever that is.  It comes with the first page. */
	uint32_t (*tell)(struct handover *handover, uint8_t *told, uint32_t most);
	void (*hear)(struct handover *handover, const uint8_t *told, uint32_t length);

	struct function_start start;
	int done_fd;
	struct handover_part parts[FUNCTION_QUEUES];
	uint16_t order[HANDOVER_PAGE]; /* records of the batch, those for one table after the other */
	_Atomic uint64_t counts[HANDOVER_NB_RESULTS];
	_Atomic uint64_t given;
	struct handover_record batch[HANDOVER_PAGE];
	uint8_t told[HANDOVER_TOLD]; /* the control thread's */
};

/* The tables and what each function has of its own are set.  Returns 0, or -errno after logging. */
int handover_open(struct handover *handover, const struct function_start *start);
void handover_close(struct handover *handover);

/* ------- the forwarding thread ------- */

/* For the table of this queue. */
static inline bool handover_waits(const struct handover *handover, unsigned queue)
{
	return atomic_load_explicit(&handover->parts[queue].offered, memory_order_acquire);
}

/* Take some of what is for the table of this queue. */
void handover_take(struct handover *handover, unsigned queue, uint32_t tick);

/* Whether a record is one that such tables can have.  From any thread. */
bool handover_holds(const struct handover *handover, const struct handover_record *record);

/* What becomes of one record: it is taken, or why not. */
enum handover_result handover_take_one(struct handover *handover, const struct handover_record *record, uint32_t tick);

/* ------- the control thread ------- */

/*
 * The records from the entry `from` on: {"connections": HEX, "next": N, "tick": N}; next is 0 at the end.  From 1 on
 * there may be "told": HEX, too.  With `since`, a tick, only flows seen since; with `changed`, only those that began
 * or changed their state since.  What is not in a page will have its tick, or a later one.
 */
json_t *handover_give(struct handover *handover, json_t *params, struct control_error *error);

/*
 * Take {"connections": HEX, "told": HEX}; returns what became of the connections, when that is known.  With nothing in
 * either, when each forwarding thread has passed, which forgets some of what has aged.  NULL with the error filled in:
 * some have not in time, and what the others took is kept.
 */
json_t *handover_receive(struct handover *handover, json_t *params, struct control_error *error);

/* What was handed over since the start. */
json_t *handover_describe(const struct handover *handover);

#endif
