/* SPDX-License-Identifier: Apache-2.0
 *
 * A port named by a URI, opened as a DPDK ethdev with one receive and one transmit queue:
 *
 *	vhost:PATH		connect to the vhost-user back end that listens at PATH
 *	vhost-server:PATH	listen at PATH for a vhost-user back end, and wait for it
 *	if:NAME			a Linux network interface (AF_PACKET)
 *	pci:ADDRESS		a PCI device that is bound to a driver of DPDK's
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

enum { DEVICE_DESCRIPTORS = 1024 };

enum device_kind { DEVICE_VHOST, DEVICE_VHOST_SERVER, DEVICE_INTERFACE, DEVICE_PCI, DEVICE_VDEV };

struct device_options {
	struct rte_mempool *pool; /* of receive buffers: at least `descriptors`, and what is under way */
	uint16_t descriptors;	  /* of each ring; 0: DEVICE_DESCRIPTORS, or as many as the device has */
	bool interrupts;	  /* receive interrupts, for rte_eth_dev_rx_intr_ctl_q() */
	bool jumbo;		  /* frames up to 9018 bytes, if the device can chain receive buffers */
};

struct device {
	uint16_t port; /* ethdev id */
	enum device_kind kind;
	uint16_t descriptors; /* of the transmit ring */
	uint16_t longest;     /* bytes of the longest frame, without FCS */
	char name[RTE_ETH_NAME_MAX_LEN];
	const char *target; /* the URI without its scheme; points into the caller's URI */
};

struct device_error {
	char text[320]; /* what is wrong; what to do */
};

/* Whether a URI is well-formed and allowed.  Returns 0, or -EINVAL with the error filled in.  Opens nothing. */
int device_check(const char *uri, struct device_error *error);

/* Whether this URI needs the PCI bus (eal_options.pci). */
bool device_is_pci(const char *uri);

/*
 * Open, configure and start.  The URI must outlive the device.
 * vhost-server waits for its back end without limit; SIGINT and SIGTERM, even if blocked, end the program there
 * (status 0, socket files removed).
 * Returns 0; -EINVAL: the URI is wrong; -EBUSY: in use; another -errno: it could not be opened; error filled in.
 */
int device_open(struct device *device, const char *uri, const struct device_options *options,
		struct device_error *error);

/*
 * Whether frames can pass; false once a vhost-user back end has gone away.  Costs a system call.
 * For vhost-server: once it is down, the next call takes the back end's new connection and resets the rings,
 * so nothing may poll the port meanwhile.
 */
bool device_link_up(const struct device *device);

/* Stop, close, and remove a socket file of ours.  Buffers in the rings go back to their pools. */
void device_close(struct device *device);

#endif
