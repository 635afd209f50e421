/* SPDX-License-Identifier: Apache-2.0
 *
 * A session of Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode, in the active role: whether the
 * other end is there, by packets that each sends to the other at the rate that both can bear.  No echo, no demand mode,
 * no authentication.  Pure: times in us of one clock; who calls has a lock where several threads do.
 */
#ifndef TAILRACE_FUNCTIONS_BFD_H
#define TAILRACE_FUNCTIONS_BFD_H

#include <stdbool.h>
#include <stdint.h>

enum {
	BFD_PACKET = 24,
	BFD_PORT = 3784,	/* UDP's, of the destination, on one link (RFC 5881, 4) */
	BFD_PORT_FAR = 4784,	/* and over routers (RFC 5883, 5) */
	BFD_FIRST_PORT = 49152, /* of the source */
	BFD_TTL = 255,		/* and what comes with less has come over a router (RFC 5881, 5) */
	BFD_SLOW = 1000 * 1000, /* us between packets at least, while the session is not up (RFC 5880, 6.8.3) */
};

enum bfd_state { BFD_ADMIN_DOWN, BFD_DOWN, BFD_INIT, BFD_UP }; /* as in packets (RFC 5880, 4.1) */

enum bfd_diagnostic { BFD_NONE, BFD_EXPIRED, BFD_SIGNALLED = 3 }; /* those of its own */

struct bfd_settings {
	uint32_t interval;  /* us between packets, either way, at least; 0: there is no session */
	uint8_t multiplier; /* packets that the other end misses until it takes this one for lost */
};

struct bfd {
	struct bfd_settings with;
	enum bfd_state state;
	enum bfd_state remote_state; /* down also of one that is not heard; admin down until it says something else */
	uint8_t diagnostic, remote_diagnostic;
	uint8_t why_down; /* the diagnostic of the last change to down, kept when it is up again */
	uint8_t remote_multiplier;
	uint32_t own, remote;		       /* discriminators */
	uint32_t desired;		       /* us between packets that it sends, as it asks for */
	uint32_t remote_desired, remote_least; /* us between packets, as the other end sends and takes them */
	bool polls;			       /* what it asks for has changed, and was not yet acknowledged */
	bool acknowledges;		       /* the other end's, at once */
	uint64_t sent, due;		       /* the last packet, and the next one */
	uint64_t heard;
	uint64_t since; /* it is in this state */
	uint64_t ups, downs;
	uint32_t random;
};

/* A discriminator is not 0, and no other session's. */
void bfd_begin(struct bfd *bfd, const struct bfd_settings *settings, uint32_t discriminator, uint64_t now);

/* Take the payload of a datagram.  Returns whether it is one of this session. */
bool bfd_take(struct bfd *bfd, const uint8_t *packet, uint32_t size, uint64_t now);

/* How long nothing is heard until the other end is lost, in us; 0: that is not known. */
uint64_t bfd_detection(const struct bfd *bfd);

/*
 * Do what is due, and write a packet if it is to be sent now: call it until it returns false.  `*next` is when it is to
 * be called again.
 */
bool bfd_step(struct bfd *bfd, uint8_t packet[BFD_PACKET], uint64_t now, uint64_t *next);

const char *bfd_state_name(enum bfd_state state);

/* RFC 5880, 4.1. */
const char *bfd_diagnostic_name(uint8_t diagnostic);

#endif
