/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame on its way through a function that follows connections, and the stages that all of these have in common.  A
 * burst goes through one stage before the next begins, so that what a stage asks for (a bucket, an entry) has arrived
 * when the next one reads it:
 *
 *   passing_read()   what the frame says
 *   passing_key()    its key, of what it says by then; asks for the bucket
 *   passing_guess()  the entry that the bucket names; asks for it
 *
 * Nearly all frames are plain (plain.h): of these nothing but a few words is read, and they are changed where they are.
 * Of others the first bytes are copied, checked and changed in the copy.  Owned by the forwarding thread.
 */
#ifndef TAILRACE_FUNCTIONS_PASSING_H
#define TAILRACE_FUNCTIONS_PASSING_H

#include "connections.h"
#include "plain.h"
#include "rewrite.h"

struct passing {
	struct inspected frame; /* of one that has a flow: as the connection has it */
	struct connection_key key;
	uint8_t *plain; /* the bytes of a plain frame, where they are; NULL: `head` has a copy of another one's */
	uint32_t guess;
	uint16_t size;	 /* of the copy */
	uint8_t verdict; /* enum verdict; in the end PASS or why it is dropped */
	uint8_t head[PARSE_BYTES] __rte_cache_aligned;
};

/* Of a frame that is not plain. */
enum verdict passing_inspect(struct passing *passing, const struct rte_mbuf *mbuf);

/* As inspect() has it. */
static inline enum verdict passing_read(struct passing *passing, const struct rte_mbuf *mbuf)
{
	passing->guess = 0;
	if (likely(plain_read(mbuf, &passing->frame))) {
		passing->plain = rte_pktmbuf_mtod(mbuf, uint8_t *);
		return VERDICT_FLOW;
	}
	return passing_inspect(passing, mbuf);
}

static inline enum verdict passing_key(struct passing *passing, const struct connections *flows)
{
	if (likely(passing->plain != NULL)) /* the compiler knows then that these are 0 */
		connection_key_fill(flows, passing->frame.headers.key, (struct connection_tails){0}, 0, false,
				    &passing->key);
	else
		connection_key_make(flows, &passing->frame, &passing->key);
	connections_prefetch(flows, passing->key.hash);
	return VERDICT_FLOW;
}

static inline void passing_guess(struct passing *passing, const struct connections *flows)
{
	if (likely(passing->verdict == VERDICT_FLOW))
		passing->guess = connections_guess(flows, passing->key.hash);
}

/* Of one that is not plain. */
static inline struct rewrite_place passing_place(struct passing *passing)
{
	return rewrite_place(passing->head, passing->size, &passing->frame);
}

/* The frame's bytes, to be changed. */
static inline uint8_t *passing_bytes(struct passing *passing)
{
	return passing->plain != NULL ? passing->plain : passing->head;
}

/* Another address, in network order, and port.  The headers are still those that came. */
static inline void passing_change(struct passing *passing, enum rewrite_side side, const uint8_t *address,
				  uint16_t port)
{
	struct rewrite_place place;

	if (likely(passing->plain != NULL)) {
		uint32_t word;

		memcpy(&word, address, sizeof(word));
		rewrite_plain(passing->plain, passing->frame.headers.protocol, side, word, port);
		return;
	}
	place = passing_place(passing);
	rewrite_end(&place, side, address, port);
}

/* All of its changes are made. */
static inline void passing_put(const struct passing *passing, struct rte_mbuf *mbuf)
{
	if (unlikely(passing->plain == NULL))
		rewrite_put(mbuf, passing->head, passing->size);
}

#endif
