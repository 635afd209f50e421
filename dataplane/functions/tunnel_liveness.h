/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the other end of a tunnel is there: a session of BFD (bfd.h) between the two ends' addresses, on one link
 * (RFC 5881) or over routers (RFC 5883).  A thread of its own sends and takes its packets; the forwarding threads hand
 * these over, and look at one word.
 */
#ifndef TAILRACE_FUNCTIONS_TUNNEL_LIVENESS_H
#define TAILRACE_FUNCTIONS_TUNNEL_LIVENESS_H

#include <jansson.h>

#include "aside.h"
#include "bfd.h"
#include "common/log.h"
#include "tunnel_headers.h"

enum { LIVENESS_QUEUE = 64 }; /* its frames that may wait, each way */

struct tunnel;

struct tunnel_liveness {
	_Atomic bool asks; /* for the MAC address that its packets go to */
	_Atomic bool lost; /* the other end was there, and is not any more */
	struct rte_ring *to_port, *to_session;
	struct aside aside;
	int forward_fd;
	pthread_mutex_t lock; /* the session's; no forwarding thread takes it */
	struct bfd session;
	struct log_budget log; /* likewise */
	uint16_t source;       /* UDP's port */
	_Atomic uint64_t sent, taken, ignored, unsent;
};

/* Begin a session, and its thread.  Returns 0, or -errno after logging. */
int tunnel_liveness_open(struct tunnel *tunnel, const struct bfd_settings *settings, int forward_fd);

/* It may never have been opened. */
void tunnel_liveness_close(struct tunnel *tunnel);

/* From a forwarding thread: a frame whose headers hold (TUNNEL_LIVENESS).  Returns false without room. */
bool tunnel_liveness_give(struct tunnel *tunnel, struct rte_mbuf *mbuf);

/* Of the thread that has queue 0: whether frames of the session's, or a question for a MAC address, wait for it; and
 * the frames, of which there are `most` at most.  Returns how many. */
bool tunnel_liveness_waits(const struct tunnel *tunnel);
uint16_t tunnel_liveness_leave(struct tunnel *tunnel, struct rte_mbuf **burst, uint16_t most);

/* Write a frame around a packet to a MAC address.  Returns its length. */
uint32_t tunnel_liveness_write(const struct tunnel *tunnel, uint8_t *frame, const uint8_t *packet, uint64_t mac);

/* A row about the session. */
json_t *tunnel_liveness_row(struct tunnel *tunnel);

#endif
