/* SPDX-License-Identifier: Apache-2.0
 *
 * What is counted for each hop of a chain: between two neighbours, both ways.  A drop is counted here by its reason as
 * well as at the port that caused it.  Each direction has a cache line of its own, because it may have a worker of
 * its own.
 */
#ifndef TAILRACE_STEER_COUNTERS_H
#define TAILRACE_STEER_COUNTERS_H

#include <stdint.h>

#define HOP_COUNTERS(X)                                                                 \
	X(packets, "frames given to the next port")                                     \
	X(bytes, "their bytes, without the FCS")                                        \
	X(drop_receiver_down, "frames while nobody was attached to the next port")      \
	X(drop_receiver_full, "frames while the next port was full")                    \
	X(drop_receiver_too_small, "frames longer than the buffers the next port gave") \
	X(drop_rate, "frames above the next port's rate, or the sender's share of it")  \
	X(drop_frame, "frames that the switch does not carry; the sender's port says why")

struct hop_counters {
#define HOP_COUNTER_FIELD(name, text) uint64_t name;
	HOP_COUNTERS(HOP_COUNTER_FIELD)
#undef HOP_COUNTER_FIELD
} __attribute__((aligned(64)));

/* As it lies on the counter page, named CHAIN/NUMBER. */
struct hop {
	struct hop_counters forward; /* from the chain's `from` to its `to` */
	struct hop_counters back;
};

#endif
