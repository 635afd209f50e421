/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports between which functions are measured: in memory, or of vhost-user.  Of these the function has the front
 * end, as ever (DPDK's virtio-user), and DPDK's own back end (vhost) is at the far end, in the same thread: what that
 * takes is not counted.  Owned by one thread.
 */
#ifndef TAILRACE_BENCH_COST_PORTS_H
#define TAILRACE_BENCH_COST_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "functions/function.h"
#include "test/frame_builder.h"

enum { COST_BURST = 32, COST_LENGTH = 60 /* of a frame, without its check sequence */ };

/* Returns 0, or -1 after saying on stderr why not.  `pool` has 8191 buffers or more. */
int cost_ports_open(bool vhost, struct rte_mempool *pool);

void cost_ports_close(void);

/*
 * A burst of frames into a port and out of the other one, or back.  Returns the cycles that it took, from the
 * function's receiving to its sending; over memory both are a copy.  `received` has what left, `*nb_out` frames.
 */
uint64_t cost_ports_pass(const struct function *function, uint16_t in, const struct frame *sent,
			 uint8_t (*received)[64], uint16_t *nb_out);

#endif
