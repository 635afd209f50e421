/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes what becomes of a NAT's blocks of ports to the function's log (RFC 6888, REQ-12; RFC 7422), a line for each:
 *
 *   blocks: 2026-01-31T12:00:00Z assigned 10.0.0.2 198.51.100.7 39936-40447 17
 *
 * The time, in UTC, is that of the event; then what became of the block (nat_table.h), the inside host, the address and
 * ports of the pool, and the number of the event in this instance, from 1.  A host in a VLAN has `vlan 5` behind that,
 * or `vlan 5 7` with two tags.  Other words after the time: `begins` and `ends`, of this instance; `left out 36
 * (18-53)`.
 *
 * Inside hosts cause these lines: so there are NAT_LOG_A_SECOND at most.  What waits is in the pool, which knows as
 * many events as it has blocks and some more.  What is no longer there is counted in a line.
 *
 * Called by one thread, which forwards no frames.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_LOG_H
#define TAILRACE_FUNCTIONS_NAT_LOG_H

#include <stdint.h>
#include <time.h>

#include "nat_table.h"

enum {
	NAT_LOG_A_SECOND = 1000, /* lines */
	NAT_LOG_AT_END = 16384,	 /* an instance that ends is waited for */
};

struct nat_log {
	const struct nat_pool *pool;
	uint64_t next;	      /* the number of the event whose turn it is */
	uint64_t spent_until; /* ms of the clock: lines until then are spent */
	time_t began;	      /* 0: that is written */
};

/* ms of a clock that only goes forward. */
uint64_t nat_log_clock(void);

/* Nothing has become of its blocks yet.  Writes nothing. */
void nat_log_begin(struct nat_log *log, const struct nat_pool *pool, uint64_t now);

/* Write what is new, as much as may be by now. */
void nat_log_write(struct nat_log *log, uint64_t now);

/* Write what is left, up to NAT_LOG_AT_END lines, and that it ends. */
void nat_log_end(struct nat_log *log);

#endif
