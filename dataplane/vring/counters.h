/* SPDX-License-Identifier: Apache-2.0
 *
 * What is counted for each queue pair of a port.  These lists give the struct, the names on the counter page and
 * the documentation, so that they cannot drift apart.  A drop is counted at the port that caused it.
 * "Received" is what the switch took from the port, dropped frames included, "sent" what it gave to it.
 *
 * A counter has one writer at a time.  The worker that takes frames from a port may be another than the one that
 * gives it frames, so their counters lie on different cache lines.
 */
#ifndef TAILRACE_VRING_COUNTERS_H
#define TAILRACE_VRING_COUNTERS_H

#include <stdint.h>

/* Written by the worker that takes frames from the port. */
#define RECEIVE_COUNTERS(X)                                                                                    \
	X(received_packets, "frames taken from the port")                                                      \
	X(received_bytes, "bytes of those that went on to a port, without the FCS")                            \
	X(waiting_packets, "frames that waited in the port when last looked, now and then")                    \
	X(notifications_taken, "times the guest was woken because its frames had been taken")                  \
	X(drop_rate, "frames for this port above its rate, or above their sender's share of it")               \
	X(drop_frame_too_short, "frames from this port shorter than an Ethernet header")                       \
	X(drop_frame_too_long, "frames from this port longer than the switch carries")                         \
	X(drop_frame_fragmented, "frames from this port in more pieces than the switch carries")               \
	X(drop_offload_malformed, "frames from this port whose network header contradicts them")               \
	X(drop_no_buffer, "frames from this port lost because the switch had no packet buffer")                \
	X(drop_queue_disabled, "frames from this port by a queue that its guest has disabled")                 \
	X(drop_no_chain, "frames from this port that lead nowhere, or to a port that is not there")            \
	X(drop_no_match, "frames from this port that no chain's match fits")                                   \
	X(drop_no_replica, "frames from this port for a function without a replica for them")                  \
	X(drop_receiver_busy, "frames from this port whose receiver another worker kept too long")             \
	X(drop_vlan, "frames from this port of a VLAN that it does not carry")                                 \
	X(drop_source_address, "frames from this port whose source is no station's address")                   \
	X(drop_reserved_address, "frames from this port that a bridge does not forward, 01:80:c2:00:00:00-0f") \
	X(drop_same_port, "frames from this port for a station behind it")                                     \
	X(drop_flood_limited, "frames from this port above its limit for frames to all")                       \
	X(address_flaps, "times a station moved to this port that had moved shortly before")

/* Written by whoever gives frames to the port, under the queue's lock if that may be several. */
#define SEND_COUNTERS(X)                                                                                    \
	X(sent_packets, "frames given to the port")                                                         \
	X(sent_bytes, "their bytes, without the FCS")                                                       \
	X(notifications, "times the guest was woken for frames given to it")                                \
	X(blocked_polls, "polls that left frames with their sender because this port was full")             \
	X(drop_receiver_down, "frames for this port while nobody was attached, or its link was down")       \
	X(drop_receiver_full, "frames for this port while it was full, beyond any back pressure")           \
	X(drop_receiver_too_small, "frames longer than the buffers this port offered")                      \
	X(drop_device_refused, "frames that the device's driver took and could not send after all")         \
	X(drop_device_missed, "frames that a device or the kernel had no room for, or could not hand over") \
	X(drop_device_errors, "frames that the device received with an error")                              \
	X(drop_device_no_buffer, "frames that the device's driver had no packet buffer for")                \
	X(drop_chain_removed, "frames that waited for this port's rate when their way to it was removed")   \
	X(parked_packets, "frames for this port that were put aside because its guest is moving")           \
	X(drop_parked, "frames for this port that were to be put aside, or had been, and were lost")        \
	X(quarantines, "times a ring of this port was stopped because it was malformed")                    \
	X(pages_made, "pages of the guest's memory that were missing when the switch touched them")         \
	X(pages_swapped, "pages of the guest's memory that were in swap when the switch touched them")      \
	X(connections_refused, "front ends that were turned away, cut off, or left without a word")         \
	X(looks, "looks at whether frames given to this port still lay in its guest's ring")                \
	X(looks_unread, "of these, those that found some")

#define QUEUE_COUNTERS(X)   \
	RECEIVE_COUNTERS(X) \
	SEND_COUNTERS(X)

struct queue_counters {
#define QUEUE_COUNTER_FIELD(name, text) uint64_t name;
	RECEIVE_COUNTERS(QUEUE_COUNTER_FIELD)
	/* Both begin a cache line: page slots do. */
	struct {
		SEND_COUNTERS(QUEUE_COUNTER_FIELD)
	} __attribute__((aligned(64)));
#undef QUEUE_COUNTER_FIELD
};

#endif
