/* SPDX-License-Identifier: Apache-2.0
 *
 * What is counted for each queue pair of a port.  One list gives the struct, the names on the counter page and
 * the documentation, so that they cannot drift apart.  A drop is counted at the port that caused it.
 * "Received" is what the switch took from the port, dropped frames included, "sent" what it gave to it.
 */
#ifndef TAILRACE_VRING_COUNTERS_H
#define TAILRACE_VRING_COUNTERS_H

#include <stdint.h>

#define QUEUE_COUNTERS(X)                                                                              \
	X(received_packets, "frames taken from the port")                                              \
	X(received_bytes, "bytes of those that went on to a port, without the FCS")                    \
	X(sent_packets, "frames given to the port")                                                    \
	X(sent_bytes, "their bytes, without the FCS")                                                  \
	X(notifications, "times the guest was woken")                                                  \
	X(blocked_polls, "polls that left frames with their sender because this port was full")        \
	X(drop_receiver_down, "frames for this port while nobody was attached")                        \
	X(drop_receiver_full, "frames for this port after it stayed full for the back-pressure limit") \
	X(drop_receiver_too_small, "frames longer than the buffers this port offered")                 \
	X(drop_frame_too_short, "frames from this port shorter than an Ethernet header")               \
	X(drop_frame_too_long, "frames from this port longer than the switch carries")                 \
	X(drop_frame_fragmented, "frames from this port in more pieces than the switch carries")       \
	X(drop_no_buffer, "frames from this port lost because the switch had no packet buffer")        \
	X(drop_no_chain, "frames from this port while it was in no chain")                             \
	X(quarantines, "times a ring of this port was stopped because it was malformed")

struct queue_counters {
#define QUEUE_COUNTER_FIELD(name, text) uint64_t name;
	QUEUE_COUNTERS(QUEUE_COUNTER_FIELD)
#undef QUEUE_COUNTER_FIELD
};

#endif
