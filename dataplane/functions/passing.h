/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame on its way through a function that follows connections, and the stages that all of these have in common:
 *
 *   passing_is_plain(), passing_inspect()   what the frame says
 *   passing_key()                           its key, of what it says by then; asks for the bucket
 *   passing_guess()                         the entry that the bucket names; asks for it
 *   passing_find()                          the connection, if it is that one
 *
 * Who knows by something else which connection it is most likely says so in place of the second and third
 * (passing_take_guess()).
 *
 * A burst goes through them so that what a stage asks for has arrived when the next one reads it.  The first two take
 * long, the third one does not: so frame by frame it follows them at a distance (PASSING_LAG), and entries are on their
 * way while later frames are still looked at.  All of that is done when connections are first changed.
 *
 * Nearly all frames are plain (plain.h): of these nothing but a few words is read, and they are changed where they are.
 * Of others the first bytes are copied, checked and changed in the copy.  Owned by the forwarding thread.
 */
#ifndef TAILRACE_FUNCTIONS_PASSING_H
#define TAILRACE_FUNCTIONS_PASSING_H

#include "connections.h"
#include "plain.h"
#include "rewrite.h"

/* Frames; found best of 8, 12, 16 and 20 with tables that no cache holds. */
enum { PASSING_LAG = 12 };

struct passing {
	struct plain words; /* of a plain frame: what it says; of one that has a flow: as the connection has it */
	uint8_t *plain;	    /* the bytes of a plain frame, where they are; NULL: `head` has a copy of another one's */
	uint64_t hash;	    /* of the key */
	uint32_t ends[2], ports; /* of a plain frame's key: in its order */
	uint32_t guess;
	uint16_t size;	 /* of the copy */
	uint8_t verdict; /* enum verdict; in the end PASS or why it is dropped */
	uint8_t source;	 /* which end of the key sent the frame */
	bool filled;

	/* Of a plain frame only after passing_fill(). */
	struct inspected frame; /* of one that has a flow: as the connection has it */
	struct connection_key key;
	uint8_t head[PARSE_BYTES] __rte_cache_aligned;
} __rte_cache_aligned;

/* Of a frame that is not plain. */
enum verdict passing_inspect(struct passing *passing, const struct rte_mbuf *mbuf);

/* What a plain frame says, and its key that is made already, in full; of another one both are there.  Who changes
 * `words` then clears `filled`. */
void passing_fill(struct passing *passing);

/* Returns whether it is plain; if not, passing_inspect() looks at it. */
static inline bool passing_is_plain(struct passing *passing, const struct rte_mbuf *mbuf)
{
	struct plain words;

	passing->guess = 0;
	passing->filled = false;
	if (unlikely(!plain_read(mbuf, &words)))
		return false;
	passing->words = words;
	passing->plain = rte_pktmbuf_mtod(mbuf, uint8_t *);
	return true;
}

/* The key of a plain frame as connection_key_make() has it. */
static inline void passing_make_key_plain(struct passing *passing, const struct connections *flows)
{
	const struct plain words = passing->words;
	const bool swap = words.source > words.destination;
	const uint32_t half = swap * 16, ports = words.ports << half | words.ports >> half;
	const uint32_t first = swap ? words.destination : words.source;
	const uint32_t second = swap ? words.source : words.destination;

	passing->source = swap;
	passing->ends[0] = first;
	passing->ends[1] = second;
	passing->ports = ports;
	passing->hash = connection_hash_words(flows, (uint64_t)second << 32 | first, plain_kind(words.protocol),
					      PLAIN_PORTS | ports);
}

static inline void passing_make_key(struct passing *passing, const struct connections *flows)
{
	if (likely(passing->plain != NULL)) {
		passing_make_key_plain(passing, flows);
		return;
	}
	connection_key_make(flows, &passing->frame, &passing->key);
	passing->source = passing->key.source;
	passing->hash = passing->key.hash;
}

/* And ask for the bucket. */
static inline enum verdict passing_key_plain(struct passing *passing, const struct connections *flows)
{
	passing_make_key_plain(passing, flows);
	connections_prefetch(flows, passing->hash);
	return VERDICT_FLOW;
}

static inline enum verdict passing_key(struct passing *passing, const struct connections *flows)
{
	passing_make_key(passing, flows);
	connections_prefetch(flows, passing->hash);
	return VERDICT_FLOW;
}

/* Most likely it is this one; asks for it. */
static inline void passing_take_guess(struct passing *passing, const struct connections *flows, uint32_t number)
{
	passing->guess = number;
	connections_ask(flows, number);
}

static inline void passing_guess(struct passing *passing, const struct connections *flows)
{
	if (likely(passing->verdict == VERDICT_FLOW))
		passing->guess = connections_guess(flows, passing->hash);
}

/* Of IPv4 the second halves of addresses are 0. */
static inline bool passing_is_of(const struct passing *passing, const struct connection *flow)
{
	return ((flow->key[0] ^ passing->ends[0]) | (flow->key[2] ^ passing->ends[1]) |
		(flow->key[4] ^ plain_kind(passing->words.protocol)) |
		(flow->key[5] ^ (PLAIN_PORTS | passing->ports))) == 0;
}

/* Its flow; NULL: it is not known, or no more, and then the frame is filled. */
static inline struct connection *passing_find(struct passing *passing, struct connections *flows, uint32_t tick)
{
	struct connection *flow = &flows->flows[passing->guess];

	if (unlikely(passing->plain == NULL))
		return connections_find(flows, &passing->key, passing->guess, tick);
	if (likely(passing_is_of(passing, flow) && connection_known(flows, flow, tick)))
		return flow;
	passing_fill(passing);
	return connections_search(flows, &passing->key, tick);
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
		rewrite_plain(passing->plain, passing->words.protocol, side, word, port);
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
