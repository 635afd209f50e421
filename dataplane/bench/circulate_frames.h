/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames of tailrace-circulate: each follows from where it begins, where it goes and its number, so that one that
 * has arrived can be held against what was made.  Pure functions; any thread.
 */
#ifndef TAILRACE_BENCH_CIRCULATE_FRAMES_H
#define TAILRACE_BENCH_CIRCULATE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_ip.h>

enum {
	FRAME_FCS = 4,
	FRAME_LEAST = 64,
	FRAME_MOST = 1518,
	FRAME_HEADERS = sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr),
};

struct frames {
	unsigned length;     /* bytes, with the FCS; 0: IMIX */
	unsigned count;	     /* that begin at each guest */
	unsigned flows;	     /* UDP flows that they are of, in turn */
	unsigned unfinished; /* one in so many leaves its checksum to others; 0: none */
};

/* Bytes of the frame of this number, without the FCS. */
unsigned frame_length(const struct frames *frames, unsigned number);

bool frame_is_unfinished(const struct frames *frames, unsigned number);

/*
 * The frame of this number from one guest to another.  Two guests that send to each other have the same flows, of which
 * the later guest's frames are the answers.
 */
void frame_make(const struct frames *frames, unsigned from, unsigned to, unsigned number, uint8_t *frame);

/* Where a frame of FRAME_HEADERS or more says that it began, and its number. */
void frame_read(const uint8_t *frame, unsigned *from, unsigned *number);

/* Whether it is, byte for byte, the one of this number from one guest to another. */
bool frame_is(const struct frames *frames, unsigned from, unsigned to, unsigned number, const uint8_t *frame,
	      unsigned length);

#endif
