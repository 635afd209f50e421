/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames that a balancer sends of its own, and those that are for it, beside those of neighbours.h: probes by TCP
 * (RFC 9293) and ICMP echo.  Pure; any thread.
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

/* Each writes a frame, and returns its length. */

struct balancer_segment {
	uint16_t from, to;
	uint32_t sequence, acknowledged;
	uint8_t flags;
};

uint32_t balancer_write_tcp(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			    const struct ip_address *to, const struct balancer_segment *segment);

uint32_t balancer_write_echo(uint8_t *frame, const struct balancer_own *own, const uint8_t *mac,
			     const struct ip_address *to, uint16_t identifier, uint32_t nonce);

/* Of an echo's answer, whose headers hold: its number; false: it has none. */
bool balancer_read_echo(const uint8_t *head, uint32_t size, const struct inspected *frame, uint32_t *nonce);

/* Of a TCP segment whose headers hold. */
void balancer_read_tcp(const uint8_t *head, const struct inspected *frame, struct balancer_segment *segment);

#endif
