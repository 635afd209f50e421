/* SPDX-License-Identifier: Apache-2.0
 *
 * Receiving from a Linux interface by packet sockets (packet(7); networking/packet_mmap in the kernel's documentation).
 *
 * The kernel leaves work to hardware that a virtual interface has not: a checksum is unfinished, or a TCP segment of
 * 64 KiB and more is to be cut.  It says so in a virtio network header in front of each frame (PACKET_VNET_HDR), which
 * goes on beside the frame: see packet_unfinished().  A VLAN tag that the kernel has cut off is put back, with its own
 * type.  Frames that the host's own stack sends by the interface are not received.
 *
 * A frame is copied from a ring that the kernel shares with us, without a system call.  What does not fit a slot of it
 * waits whole at the socket (PACKET_COPY_THRESH), and is read by a system call into a chain of buffers.
 *
 * A header can describe what is to be cut of TCP and, since Linux 6.2, of UDP (UDP_SEGMENT).  A segment of another kind
 * (SCTP, or what older guests have as UFO) is lost, and has the kernel lose whatever comes after it: it takes the slot,
 * and never gives it back (Linux 6.18 and before).  packet_check() notices.  From then on each frame waits at a second
 * socket, whose slots have room for none, and which loses such segments alone.
 */
#ifndef TAILRACE_COMMON_DEVICE_PACKET_H
#define TAILRACE_COMMON_DEVICE_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

/* A socket and its ring. */
struct packet_socket {
	int fd;
	uint8_t *slots; /* NULL: none */
	uint32_t slot_size;
	uint32_t nb_slots;
	uint32_t next; /* the slot that is read next; of the polling thread */
};

struct packet_queue {
	struct packet_socket usual, careful; /* the second is used if the first is stuck */
	unsigned interface;
	struct rte_mempool *pool; /* of its packet buffers, each of which holds what a slot does */
	bool stuck;		  /* the usual socket gets no more frames */
	uint64_t lost;		  /* frames too long for a slot that could not be read; of the polling thread */
	int wait_fd;		  /* readable when one of the sockets has something */

	/* Of the thread that looks after devices. */
	uint64_t dropped; /* frames that the kernel had no room for, or no words */
	bool was_empty;	  /* the usual ring, when last looked at */
};

struct packet_options {
	unsigned interface; /* its index */
	uint32_t slot_size; /* a power of two */
	uint32_t nb_slots;
	struct rte_mempool *pool;
};

/*
 * Open the queues of an interface, among which the kernel divides flows by a symmetric hash if there are several.
 * Returns 0, or -errno: none is open.
 */
int packet_open(struct packet_queue *queues, unsigned count, const struct packet_options *options);

void packet_close(struct packet_queue *queues, unsigned count);

/*
 * Receive frames, as rte_eth_rx_burst() does.  One that is longer than a slot, and one that is to be cut, is the last
 * of those that one call returns.
 */
uint16_t packet_receive(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t limit);

/* Look after an interface's queues, now and then.  Returns whether they have just been found stuck. */
bool packet_check(struct packet_queue *queues, unsigned count);

/* How many frames were lost since the queue was opened; for the thread that looks after devices. */
uint64_t packet_lost(struct packet_queue *queue);

/* Where packet buffers have what packet_unfinished() returns, and the flag that says so.  Known after packet_open(). */
extern int packet_unfinished_offset;
extern uint64_t packet_unfinished_flag;

/* What the kernel has left to do of a received frame, or NULL: nothing.  It is not checked against the frame. */
static inline struct virtio_net_hdr *packet_unfinished(struct rte_mbuf *mbuf)
{
	return unlikely(mbuf->ol_flags & packet_unfinished_flag)
		       ? RTE_MBUF_DYNFIELD(mbuf, packet_unfinished_offset, struct virtio_net_hdr *)
		       : NULL;
}

#endif
