/* SPDX-License-Identifier: Apache-2.0
 *
 * The answers of a firewall to frames that a rule rejects: an RST to a TCP connection (RFC 9293, 3.5.2), and to
 * anything else an ICMP error that says that it is prohibited (RFC 1812, 5.2.7.1; RFC 4443, 3.1).  They leave by the
 * port where the frame came in, and their rate is bounded (RFC 1812, 4.3.2.8; RFC 4443, 2.4).  Owned by the forwarding
 * thread.
 */
#ifndef TAILRACE_FUNCTIONS_FIREWALL_REJECT_H
#define TAILRACE_FUNCTIONS_FIREWALL_REJECT_H

#include <stdatomic.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "inspect.h"

enum {
	FIREWALL_REJECTS = 1000,    /* answers a second at each port */
	FIREWALL_REJECTS_ONCE = 32, /* that may leave at once */
	/* Of a frame, as much as an ICMP error quotes of it at most: so it is no longer than an IPv6 network's least
	 * MTU (RFC 4443, 2.4), or than what every IPv4 host takes (RFC 1812, 4.3.2.3). */
	FIREWALL_QUOTE_IPV4 = 576 - 28,
	FIREWALL_QUOTE_IPV6 = 1280 - 48,
};

struct firewall_rejects { /* of the frames that came in at a port */
	struct rte_mempool *pool;
	unsigned nb_queues; /* that share the rate */
	uint64_t credit;    /* TSC cycles, of which an answer costs a part of a second */
	uint64_t before;    /* when it was last added to */
	uint16_t nb;
	struct rte_mbuf *answers[FIREWALL_REJECTS_ONCE];
	_Atomic uint64_t answered;
	_Atomic uint64_t unanswered; /* more than the rate allows, or to somebody whom no error is sent to */
};

/* Answer a frame that inspect() says is of a flow, and that begins it. */
void firewall_reject(struct firewall_rejects *rejects, const struct rte_mbuf *mbuf, const struct inspected *frame,
		     uint64_t tsc);

/* Put the answers at the end of a burst that leaves; returns how many. */
uint16_t firewall_rejects_take(struct firewall_rejects *rejects, struct rte_mbuf **burst);

#endif
