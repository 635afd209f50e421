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
#include <rte_spinlock.h>

#include "port/device_bond.h"

/* DPDK 23.11 has other words for the same. */
#ifndef BOND_HAS_MEMBERS
#define rte_eth_bond_member_add		rte_eth_bond_slave_add
#define rte_eth_bond_member_remove	rte_eth_bond_slave_remove
#define rte_eth_bond_active_members_get rte_eth_bond_active_slaves_get
#define rte_eth_bond_8023ad_member_info rte_eth_bond_8023ad_slave_info
#endif

enum { LACP_ALONE = 0xc0 /* of LACP's state: the partner was not heard: defaulted or expired */ };

struct bond_member {
	struct bond *bond;
	struct device device;
	atomic_bool open;      /* the device is */
	bool joined;	       /* it has a link, and is the driver's to use */
	bool usable, active;   /* as last seen by bond_watch(): joined, and whether it carries frames */
	unsigned ticks;	       /* since it was last looked for, or not taken by the driver; of one that is joined 0 */
	atomic_ullong refused; /* frames that its device did not take as they were */
	atomic_bool aside;     /* of LACP: its other end is not the one that was chosen */
	atomic_ullong system;  /* as its own LACP says it, in the low 48 bits; 0: it has said nothing */
	atomic_bool looped;    /* of LACP: what came last was of a member of this bond */
	atomic_ullong strays;  /* frames that came to it while it was set aside, or that LACP does not send so */
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

/*
 * The other end of members that can carry frames together (IEEE 802.1AX, 6.3.14): one system, and one key of its.  A
 * port that says that it is not to be aggregated is an end by itself.
 */
struct bond_end {
	struct rte_ether_addr system; /* zero: there is none */
	rte_be16_t priority, key, port;
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
	rte_spinlock_t choice; /* held for what follows; short, and seldom: LACP's frames are few */
	struct bond_end chosen;
	const struct bond_member *chosen_by; /* whose other end it was */
	uint64_t chosen_at;		     /* TSC */
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

/*
 * From a worker, with LACP: look at what a member has received before the driver does.  Of one that is set aside only
 * LACP's frames are left, and of LACP's none that it does not send so.  Returns how many are left.
 */
uint16_t bond_take_slow(struct bond_member *member, struct rte_mbuf **mbufs, uint16_t count);

/* Let go of an other end that no member has any more, or that does not collect 5 s after it was chosen, and note which
 * members are set aside by what LACP has heard. */
void bond_choose(struct bond *bond);

/* What LACP has come to.  Returns false: the member has no part in it. */
bool bond_lacp_state(const struct bond_member *member, struct rte_eth_bond_8023ad_member_info *info);

/* Note what all of the members can do; workers may be reading it. */
void bond_describe_device(const struct bond *bond, struct device *device);

#endif
