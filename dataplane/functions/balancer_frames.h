/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames that a balancer sends of its own, and those that are for it: ARP (RFC 826), neighbour discovery (RFC
 * 4861), and probes by TCP (RFC 9293) and ICMP echo.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_FRAMES_H
#define TAILRACE_FUNCTIONS_BALANCER_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "balancer_set.h"
#include "inspect.h"

enum {
	BALANCER_FRAME = 128,	     /* bytes of which none of these frames has more */
	BALANCER_FIRST_PORT = 32768, /* of probes by TCP; the number of the end is added */
};

/* Whether a frame that does not leave its link asks for an address of the balancer's, or answers it. */
bool balancer_frame_asks(const struct balancer_table *table, const uint8_t *head, uint32_t size, uint16_t in);

/* What ARP or neighbour discovery says. */
struct balancer_neighbour {
	bool answer;			/* or a question */
	struct balancer_address source; /* who asks, or who is known by this to have the MAC address */
	struct balancer_address target; /* who is asked for, or who is answered */
	uint8_t mac[6];			/* the source's */
};

/* Returns false if it says nothing. */
bool balancer_read_neighbour(const uint8_t *head, uint32_t size, struct balancer_neighbour *neighbour);

/* Each writes a frame, and returns its length. */

/* Who has the target? */
uint32_t balancer_write_question(uint8_t *frame, const struct balancer_own *own, const struct balancer_address *target);

/* The balancer has what was asked for. */
uint32_t balancer_write_answer(uint8_t *frame, const struct balancer_own *own,
			       const struct balancer_neighbour *question);

struct balancer_segment {
	uint16_t from, to;
	uint32_t sequence, acknowledged;
	uint8_t flags;
};

uint32_t balancer_write_tcp(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct balancer_address *to, const struct balancer_segment *segment);

uint32_t balancer_write_echo(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			     const struct balancer_address *to, uint16_t identifier, uint32_t nonce);

/* Of an echo's answer, whose headers hold: its number; false: it has none. */
bool balancer_read_echo(const uint8_t *head, uint32_t size, const struct inspected *frame, uint32_t *nonce);

/* Of a TCP segment whose headers hold. */
void balancer_read_tcp(const uint8_t *head, const struct inspected *frame, struct balancer_segment *segment);

#endif
