/* SPDX-License-Identifier: Apache-2.0
 *
 * How the kernel notices that a neighbour is in use whose frames it does not see: it is made to send that neighbour a
 * datagram, which is taken from the TAP before it leaves.  With it the kernel asks a neighbour that it has not heard of
 * for a while whether it is still there (RFC 4861, 7.3.3; for ARP Linux does the same).
 *
 * The router's slow thread calls all of this, but router_prompt_want().
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_PROMPT_H
#define TAILRACE_FUNCTIONS_ROUTER_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#include "router_table.h"

enum { ROUTER_MARK = 16 /* bytes */ };

struct router_prompt {
	struct rte_ring *wanted; /* numbers of neighbours, and 1 */
	int fds[ROUTER_FAMILIES];
	const unsigned *interfaces; /* of the links, by number */
	uint8_t mark[ROUTER_MARK];  /* all that is in such a datagram */
};

/* The indexes of the links may change, in the calling thread.  Returns 0, or -errno after logging; then too close. */
int router_prompt_open(struct router_prompt *prompt, const unsigned interfaces[ROUTER_LINKS]);
void router_prompt_close(struct router_prompt *prompt);

/* Of any thread: returns false if too many are wanted already. */
bool router_prompt_want(struct router_prompt *prompt, uint32_t neighbour);

/* Send what is wanted.  The caller has the lock of the table.  Returns whether there was anything. */
bool router_prompt_send(struct router_prompt *prompt);

/* Whether a frame that the kernel sends is such a datagram. */
bool router_prompt_is(const struct router_prompt *prompt, const uint8_t *frame, uint32_t length);

#endif
