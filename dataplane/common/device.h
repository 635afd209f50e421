/* SPDX-License-Identifier: Apache-2.0
 *
 * A port named by a URI, opened as a DPDK ethdev:
 *
 *	vhost:PATH		connect to the vhost-user back end that listens at PATH
 *	vhost-server:PATH	listen at PATH for a vhost-user back end, and wait for it
 *	if:NAME			a Linux network interface (AF_PACKET)
 *	xdp:NAME		the same past the kernel's stack (AF_XDP)
 *	tap:NAME		a TAP interface, made here for Linux's stack
 *	memif:PATH[,role=server][,id=N]
 *				shared memory with another process; connects to PATH unless it is the server
 *	pcap:[IN][,OUT]		frames of a capture file; what is sent goes to another
 *	pci:ADDRESS		a NIC or virtual function that is bound to a driver of DPDK's
 *	vdev:ARGUMENTS		any other device of DPDK's, in DPDK's words
 *
 * Needs eal_start() first.  The control thread opens and closes; the polling thread uses the ethdev's id.
 */
#ifndef TAILRACE_COMMON_DEVICE_H
#define TAILRACE_COMMON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>

#include "common/device_packet.h"

enum {
	DEVICE_DESCRIPTORS = 1024,
	DEVICE_QUEUES = 16, /* at most, of one device */

	/* Bytes of a buffer that an `if:` device needs for frames of more than DEVICE_PLAIN_MTU. */
	DEVICE_JUMBO_ROOM = 16384 + RTE_PKTMBUF_HEADROOM,
	DEVICE_PLAIN_MTU = 1900,
};

enum device_kind {
	DEVICE_VHOST,
	DEVICE_VHOST_SERVER,
	DEVICE_INTERFACE,
	DEVICE_XDP,
	DEVICE_TAP,
	DEVICE_MEMIF,
	DEVICE_PCAP,
	DEVICE_PCI,
	DEVICE_VDEV,
};

struct device_options {
	struct rte_mempool *pool; /* of receive buffers: at least `descriptors` a queue, and what is under way */
	uint16_t queues;	  /* receive and transmit queues, each; 0: one */
	uint16_t descriptors;	  /* of each ring; 0: DEVICE_DESCRIPTORS, or as many as the device has */
	bool interrupts;	  /* receive interrupts, for rte_eth_dev_rx_intr_ctl_q() */
	bool jumbo;		  /* frames up to 9018 bytes, if the device can chain receive buffers */
	bool offloads;		  /* checksums and segmentation by the device, as far as it has them */
	bool quiet;		  /* DPDK says nothing: it is tried again and again */
};

struct device {
	uint16_t port; /* ethdev id */
	enum device_kind kind;
	uint16_t queues;
	uint16_t descriptors;	      /* of a transmit ring */
	uint16_t longest;	      /* bytes of the longest frame, without FCS */
	uint16_t buffer;	      /* bytes that one of its packet buffers holds */
	uint64_t receives, transmits; /* RTE_ETH_RX_OFFLOAD_..., RTE_ETH_TX_OFFLOAD_... that are on */
	unsigned interface;	      /* index of the Linux interface that it is or has; 0: none */
	bool link_events;	      /* the driver reports a change of its link */
	bool virtual_function;	      /* of a NIC: its physical function can reset it, and is then to be asked anew */
	bool needs_physical;	      /* and it shows a link, whatever its physical function does */
	struct packet_queue *packets; /* of an `if:` device: what its queues receive by; NULL: any other */
	unsigned nb_packets;
	bool started; /* a client of memif is not before its peer is there: not to be polled */
	char name[RTE_ETH_NAME_MAX_LEN];
	const char *target; /* the URI without its scheme; points into the caller's URI */
};

/* A MAC address as Linux writes it; its bytes come from RTE_ETHER_ADDR_BYTES(). */
#define DEVICE_MAC_FORMAT "%02x:%02x:%02x:%02x:%02x:%02x"

struct device_error {
	char text[320]; /* what is wrong; what to do */
};

/* Whether a URI is well-formed and allowed.  Returns 0, or -EINVAL with the error filled in.  Opens nothing. */
int device_check(const char *uri, struct device_error *error);

/* The address of a URI's PCI device, for eal_want_device(); NULL: it is none. */
const char *device_pci_address(const char *uri);

/* Capabilities (bits of linux/capability.h) that a well-formed URI's device needs to be opened, and while it is open.
 */
uint64_t device_capabilities_to_open(const char *uri);
uint64_t device_capabilities_to_keep(const char *uri);

/*
 * Open, configure and start.  The URI must outlive the device.
 * vhost-server waits for its back end without limit; SIGINT and SIGTERM, even if blocked, end the program there
 * (status 0, socket files removed).
 * Returns 0; -EINVAL: the URI is wrong; -EBUSY: in use; -EPERM: a capability is missing; another -errno: it could not
 * be opened; error filled in.
 */
int device_open(struct device *device, const char *uri, const struct device_options *options,
		struct device_error *error);

/*
 * Whether frames can pass; false once a vhost-user back end has gone away.  Costs a system call.
 * A vhost-server that is down takes the next connection by itself, in DPDK's interrupt thread: another back end goes on
 * with the rings as they stand, and who polls the port need not stop.
 */
bool device_link_up(const struct device *device);

/* Why no frames can pass, when device_link_up() says so.  card_was_reset: it had a link before that, and none since. */
void device_why_down(const struct device *device, bool card_was_reset, char *why, size_t size);

/*
 * What a reset of its card has done to a virtual function, of which its driver does not hear.  While it lasts the
 * function does not answer; after it, it is not allowed to write to memory any more, as DPDK had it be when it opened
 * it (bus master), and moves no frame until it is opened anew.
 */
enum device_reset { DEVICE_NOT_RESET, DEVICE_IN_RESET, DEVICE_WAS_RESET };

enum device_reset device_reset_of(const struct device *device);

/* The interface's MTU may have been changed: keep `longest` up with it. */
void device_follow_mtu(struct device *device);

/* The MTU of a Linux interface, or 0: there is none of that name. */
unsigned device_mtu(const char *interface);

/* Whether the device is still there: a Linux interface can be deleted, a PCI device be unplugged. */
bool device_exists(const struct device *device);

/* Stop and start again, as a client of memif must to find its peer.  Returns whether it is started. */
bool device_restart(struct device *device);

/* Receive from one of its queues, as rte_eth_rx_burst() does, which is not to be called by itself: of an `if:` device
 * DPDK's driver receives nothing (device_packet.h). */
static inline uint16_t device_receive(const struct device *device, uint16_t queue, struct rte_mbuf **mbufs,
				      uint16_t limit)
{
	if (device->packets != NULL)
		return packet_receive(&device->packets[queue], mbufs, limit);
	return rte_eth_rx_burst(device->port, queue, mbufs, limit);
}

/* Stop, close, and remove a socket file of ours.  Buffers in the rings go back to their pools. */
void device_close(struct device *device);

#endif
