/* SPDX-License-Identifier: Apache-2.0
 *
 * What DPDK's driver for AF_PACKET does otherwise than a port has to (seen with DPDK 22.11).
 *
 * It has the kernel join IPv4 fragments: what does not fit its slots then is lost, and a switch that keeps the
 * fragments of a datagram together never sees one.  And it takes every VLAN tag that the kernel has cut off for a
 * C-TAG, though the kernel says which it was, so that a service tag would lead into another VLAN.
 *
 * Both are mended from outside.  The driver's setsockopt() and mmap64() are ours, which do without the joining and note
 * where its receive rings lie, which the kernel and whoever reads share by a layout that is Linux's interface
 * (linux/if_packet.h).  Before the driver reads frames, those with a tag of another kind get it back where they lie.
 */
#ifndef TAILRACE_COMMON_DEVICE_PACKET_H
#define TAILRACE_COMMON_DEVICE_PACKET_H

#include <stdint.h>

struct rte_mbuf;

/* A receive ring; `next` is the polling thread's. */
struct packet_ring {
	uint8_t *frames;
	uint32_t frame_size;
	uint32_t nb_frames;
	uint32_t next; /* the frame that the driver reads next */
	int fd;	       /* of the socket */
	uint64_t lost; /* frames that found the ring full; of whoever calls packet_lost() */
};

/* Note the rings of the packet sockets that this thread opens from now on, at most `most`; NULL: no more. */
void packet_note_rings(struct packet_ring *rings, unsigned most);

/* How many were noted since. */
unsigned packet_noted(void);

/* rte_eth_rx_burst() of a port's queue that has this ring. */
uint16_t packet_receive(struct packet_ring *ring, uint16_t port, uint16_t queue, struct rte_mbuf **mbufs,
			uint16_t limit);

/* How many frames the kernel has lost because the ring was full, since it was made.  One thread at a time may ask. */
uint64_t packet_lost(struct packet_ring *ring);

/*
 * Give the frames that are ready from `next` on the tags back that the driver would not.  Returns how many are ready,
 * at most `limit`.
 */
uint16_t packet_mend(const struct packet_ring *ring, uint16_t limit);

#endif
