/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of device_bond.h: opening, watching, and the frames of LACP.  With the device lock held, but for
 * what workers read or call.
 */
#ifndef TAILRACE_PORT_DEVICE_BOND_INTERNAL_H
#define TAILRACE_PORT_DEVICE_BOND_INTERNAL_H

#include <stdatomic.h>

#include <rte_eth_bond.h>
#include <rte_eth_bond_8023ad.h>

#include "port/device_bond.h"

/* DPDK 23.11 has other words for the same. */
#ifndef BOND_HAS_MEMBERS
#define rte_eth_bond_member_add		rte_eth_bond_slave_add
#define rte_eth_bond_member_remove	rte_eth_bond_slave_remove
#define rte_eth_bond_active_members_get rte_eth_bond_active_slaves_get
#define rte_eth_bond_8023ad_member_info rte_eth_bond_8023ad_slave_info
#endif

struct bond_member {
	struct bond *bond;
	struct device device;
	atomic_bool open;      /* the device is */
	bool joined;	       /* it has a link, and is the driver's to use */
	bool usable, active;   /* as last seen by bond_watch(): joined, and whether it carries frames */
	unsigned ticks;	       /* since it was last looked for, or not taken by the driver; of one that is joined 0 */
	atomic_ullong refused; /* frames that its device did not take as they were */
	uint16_t shim;	       /* ethdev of the driver's member */
	int slow_fd;	       /* of LACP: for its frames; -1: the member is not open */
	_Atomic(struct rte_mempool *) slow_pool; /* where the driver has them from; NULL: not yet looked up */
	char shim_name[32];
	const struct rte_eth_rxtx_callback *received_by[DEVICE_QUEUES], *sent_by[DEVICE_QUEUES]; /* the shim's queues */
	char uri[BOND_MEMBER_LONGEST];
	struct device_error problem; /* why it is not open */
	struct device_losses before; /* as last read */
	bool read;
};

struct bond {
	uint16_t port; /* ethdev id */
	uint16_t queues;
	enum bond_mode mode;
	char name[32];
	unsigned count;
	struct device_options options;
	uint64_t unused; /* frames that came to a member while another one was active */
	struct device_losses lost;
	struct bond_member members[BOND_MEMBERS];
};

/* Open a member's device.  Returns 0, or -errno with its problem filled in. */
int bond_open_member(struct bond_member *member);
void bond_close_member(struct bond_member *member);

/* Give a member to the driver.  Returns 0 or -errno. */
int bond_join(struct bond_member *member);

/* Take a member from the driver.  Afterwards no worker is at it. */
void bond_leave(struct bond_member *member);

/*
 * Whether there is memory for what the driver makes of LACP when a member is in use for the first time; without, it
 * ends the program.  The shims are there.  Of all members: 0, or -ENOMEM with the error filled in.
 */
bool bond_has_slow_memory(const struct bond_member *member);
int bond_check_slow_memory(const struct bond *bond, struct device_error *error);

/* A socket for the driver's own frames.  Returns 0, or -errno with the member's problem filled in. */
int bond_open_slow(struct bond_member *member);
void bond_close_slow(struct bond_member *member);

/*
 * From a worker, with LACP: whether the burst is a frame of the driver's own; then it is sent, and stays the caller's.
 * Others' slow-protocol frames end the burst before them: `*count` is how many may leave.
 */
bool bond_send_slow(struct bond_member *member, struct rte_mbuf **mbufs, uint16_t *count);

/* Note what all of the members can do; workers may be reading it. */
void bond_describe_device(const struct bond *bond, struct device *device);

#endif
