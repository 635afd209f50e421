/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams whose first fragment has passed, for a minute: later ones have no ports, and go the way of that one.  A
 * bounded memory of one thread; where a datagram is kept depends on a secret, and the oldest gives way.
 */
#ifndef TAILRACE_FUNCTIONS_FRAGMENTS_H
#define TAILRACE_FUNCTIONS_FRAGMENTS_H

#include <stdint.h>

#include "inspect.h"

struct fragment_bucket;

struct fragments {
	uint64_t secret[2];
	uint64_t kept; /* TSC cycles */
	struct fragment_bucket *buckets;
};

/* What a function that changes frames has done to the first one, and does to the others. */
struct fragment_way {
	uint32_t source, destination; /* the addresses that it left with, in network order */
	uint8_t mac[6];		      /* and where it went */
	bool has_mac, back;	      /* by the port where it came in */
	uint16_t mark;		      /* of who knows more than that */
};

/* Returns 0, or -ENOMEM. */
int fragments_open(struct fragments *fragments);

void fragments_close(struct fragments *fragments);

/* A first fragment has passed; `way` may be NULL. */
void fragments_add(struct fragments *fragments, const struct inspected *frame, uint64_t tsc,
		   const struct fragment_way *way);

/* What becomes of a later one: it passes, or does not for the reason returned.  `way` may be NULL. */
enum verdict fragments_find(const struct fragments *fragments, const struct inspected *frame, uint64_t tsc,
			    struct fragment_way *way);

/* Whether the first one of a later one's datagram is known; then with which mark. */
bool fragments_mark(const struct fragments *fragments, const struct inspected *frame, uint64_t tsc, uint16_t *mark);

#endif
