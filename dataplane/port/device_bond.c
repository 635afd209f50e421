/* SPDX-License-Identifier: Apache-2.0 */
#define ALLOW_EXPERIMENTAL_API /* rte_eth_bond_member_add() in DPDK 23.11 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "port/device_bond_internal.h"

enum {
	LACP_SILENCE_MS = 3001, /* the driver wants it longer than its short one */
	LINK_MS = 10,		/* the driver looks so often whether a member that was given to it has its link */
};

/* ------- frames, in the threads of workers ------- */

static uint16_t receive(uint16_t shim, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count, uint16_t limit,
			void *argument)
{
	struct bond_member *member = argument;

	if (count >= limit || !atomic_load_explicit(&member->open, memory_order_acquire))
		return count;
	limit = device_receive(&member->device, queue, mbufs + count, limit - count);
	if (member->bond->mode == BOND_LACP)
		limit = bond_take_slow(member, mbufs + count, limit);
	return count + limit;
}

static void refer(struct rte_mbuf **mbufs, unsigned count, int16_t more)
{
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_refcnt_update(mbufs[i], more);
}

/*
 * Before the shim sends: what the member's device takes is all that the shim gets.  Both free the buffers when they
 * have sent them.
 */
static uint16_t transmit(uint16_t shim, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count, void *argument)
{
	struct bond_member *member = argument;
	uint16_t sent;

	if (count == 0 || !atomic_load_explicit(&member->open, memory_order_acquire))
		return 0;
	if (member->bond->mode == BOND_LACP && bond_send_slow(member, mbufs, &count))
		return 1;
	if (unlikely(atomic_load_explicit(&member->aside, memory_order_relaxed))) {
		count = RTE_MAX(count, 1); /* a slow one at the front is refused, too: or it would stay there */
		atomic_fetch_add_explicit(&member->refused, count, memory_order_relaxed);
		return count;
	}
	sent = count > 0 ? rte_eth_tx_prepare(member->device.port, queue, mbufs, count) : 0;
	if (likely(sent > 0)) {
		refer(mbufs, count, 1);
		sent = rte_eth_tx_burst(member->device.port, queue, mbufs, sent);
		refer(mbufs + sent, count - sent, -1);
	} else {
		atomic_fetch_add_explicit(&member->refused, 1, memory_order_relaxed);
		sent = 1;
	}
	return sent;
}

/* ------- members ------- */

/* A member that is taken from the driver runs, and ethdev says that it should not. */
static void hush(bool quiet)
{
	rte_log_set_level_pattern("lib.ethdev", quiet ? RTE_LOG_CRIT : RTE_LOG_ERR);
}

int bond_open_member(struct bond_member *member)
{
	int rc = device_open(&member->device, member->uri, &member->bond->options, &member->problem);

	if (rc != 0)
		return rc;
	if (member->bond->mode == BOND_LACP)
		rc = bond_open_slow(member);
	if (rc != 0) {
		bond_close_slow(member);
		device_close(&member->device);
		return rc;
	}
	member->problem.text[0] = '\0';
	member->read = false;
	atomic_store(&member->open, true);
	return 0;
}

void bond_leave(struct bond_member *member)
{
	hush(true);
	rte_eth_bond_member_remove(member->bond->port, member->shim);
	hush(false);
	member->joined = false;
	grace_wait();
	atomic_store(&member->looped, false);
}

int bond_join(struct bond_member *member)
{
	int rc;

	if (member->bond->mode == BOND_LACP && !bond_has_slow_memory(member))
		return -ENOMEM;
	hush(true);
	rc = rte_eth_bond_member_add(member->bond->port, member->shim);
	hush(false);
	member->joined = rc == 0;
	return rc == 0 ? 0 : -EIO;
}

void bond_close_member(struct bond_member *member)
{
	if (!atomic_load(&member->open))
		return;
	atomic_store(&member->open, false);
	grace_wait();
	bond_close_slow(member);
	device_close(&member->device);
}

/* ------- opening and closing ------- */

static unsigned nb_made; /* so that each device made here has a name of its own */

/* What the driver gets of the member.  Its queues have callbacks, which stay when the driver configures it again. */
static int make_shim(struct bond_member *member)
{
	const struct bond *bond = member->bond;
	const struct rte_eth_conf config = {0};
	int rc;

	snprintf(member->shim_name, sizeof(member->shim_name), "net_null_member%u", nb_made++);
	rc = rte_vdev_init(member->shim_name, "no-rx=1");
	if (rc != 0) {
		member->shim_name[0] = '\0';
		return rc;
	}
	rc = rte_eth_dev_get_port_by_name(member->shim_name, &member->shim);
	if (rc == 0)
		rc = rte_eth_dev_configure(member->shim, bond->queues, bond->queues, &config);
	for (uint16_t i = 0; i < bond->queues && rc == 0; i++) {
		member->received_by[i] = rte_eth_add_rx_callback(member->shim, i, receive, member);
		member->sent_by[i] = rte_eth_add_tx_callback(member->shim, i, transmit, member);
		rc = member->received_by[i] != NULL && member->sent_by[i] != NULL ? 0 : -rte_errno;
	}
	return rc;
}

/*
 * No worker is at it.  Callbacks that were left would be those of the next device of this number; and once the driver
 * has reset the shim it has no queues to take them from.
 */
static void unhook_shim(struct bond_member *member)
{
	if (member->shim_name[0] == '\0')
		return;
	for (uint16_t i = 0; i < member->bond->queues; i++) {
		if (member->received_by[i] != NULL)
			rte_eth_remove_rx_callback(member->shim, i, member->received_by[i]);
		if (member->sent_by[i] != NULL)
			rte_eth_remove_tx_callback(member->shim, i, member->sent_by[i]);
		rte_free((void *)(uintptr_t)member->received_by[i]);
		rte_free((void *)(uintptr_t)member->sent_by[i]);
	}
}

/* Open those that can be.  Returns 0 and the first, or -errno with the error filled in: one that has to be cannot. */
static int open_members(struct bond *bond, const struct bond_member **first, struct device_error *error)
{
	*first = NULL;
	for (unsigned i = 0; i < bond->count; i++) {
		struct bond_member *member = &bond->members[i];
		const int rc = bond_open_member(member);

		if (rc == 0) {
			*first = *first != NULL ? *first : member;
		} else if (!bond->options.quiet || (*first == NULL && i + 1 == bond->count)) {
			snprintf(error->text, sizeof(error->text), "member %s of a bond: %.250s", member->uri,
				 member->problem.text);
			return rc;
		}
	}
	return 0;
}

static int set_up(struct bond *bond)
{
	const struct rte_eth_conf config = {0};
	const int socket = (int)rte_socket_id();
	int rc = rte_eth_dev_configure(bond->port, bond->queues, bond->queues, &config);

	for (uint16_t i = 0; i < bond->queues && rc == 0; i++)
		rc = rte_eth_rx_queue_setup(bond->port, i, DEVICE_DESCRIPTORS, socket, NULL, bond->options.pool);
	for (uint16_t i = 0; i < bond->queues && rc == 0; i++)
		rc = rte_eth_tx_queue_setup(bond->port, i, DEVICE_DESCRIPTORS, socket, NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(bond->port);
	/* What others are sent passes too. */
	if (rc == 0)
		rte_eth_promiscuous_enable(bond->port);
	return rc;
}

static int lacp_timeouts(const struct bond *bond)
{
	struct rte_eth_bond_8023ad_conf conf;
	int rc = rte_eth_bond_8023ad_conf_get(bond->port, &conf);

	if (rc != 0)
		return rc;
	conf.long_timeout_ms = LACP_SILENCE_MS;
	return rte_eth_bond_8023ad_setup(bond->port, &conf);
}

/* The driver's device, with the members that are open.  Returns 0 or -errno. */
static int make_bond(struct bond *bond, const struct bond_member *first)
{
	struct rte_ether_addr address;
	int rc;

	snprintf(bond->name, sizeof(bond->name), "net_bonding%u", nb_made++);
	rc = rte_eth_bond_create(bond->name, bond->mode == BOND_LACP ? BONDING_MODE_8023AD : BONDING_MODE_ACTIVE_BACKUP,
				 (uint8_t)rte_socket_id());
	if (rc < 0) {
		bond->name[0] = '\0';
		return rc;
	}
	bond->port = rc;
	rc = rte_eth_macaddr_get(first->device.port, &address);
	if (rc == 0)
		rc = rte_eth_bond_mac_address_set(bond->port, &address);
	if (rc == 0 && bond->mode == BOND_LACP)
		rc = lacp_timeouts(bond);
	if (rc == 0 && bond->mode == BOND_LACP)
		rc = rte_eth_bond_xmit_policy_set(bond->port, BALANCE_XMIT_POLICY_LAYER34);
	if (rc == 0)
		rc = rte_eth_bond_link_monitoring_set(bond->port, LINK_MS);
	for (unsigned i = 0; i < bond->count && rc == 0; i++)
		if (atomic_load(&bond->members[i].open))
			rc = bond_join(&bond->members[i]);
	return rc == 0 ? set_up(bond) : rc;
}

void bond_describe_device(const struct bond *bond, struct device *device)
{
	uint64_t transmits = UINT64_MAX, receives = UINT64_MAX;
	uint16_t longest = UINT16_MAX;
	bool open = false;

	for (unsigned i = 0; i < bond->count; i++) {
		const struct device *member = bond_member(bond, i);

		if (member == NULL)
			continue;
		if (!open)
			device->kind = member->kind;
		open = true;
		transmits &= member->transmits;
		receives &= member->receives;
		longest = RTE_MIN(longest, member->longest);
	}
	if (!open)
		return;
	__atomic_store_n(&device->transmits, transmits, __ATOMIC_RELAXED);
	__atomic_store_n(&device->receives, receives, __ATOMIC_RELAXED);
	__atomic_store_n(&device->longest, longest, __ATOMIC_RELAXED);
}

/* Each member, its shim, and the bond are devices of DPDK's. */
static int check_room(const struct bond *bond, const char *uri, struct device_error *error)
{
	const unsigned needed = 2 * bond->count + 1, taken = rte_eth_dev_count_total();

	if (taken + needed <= RTE_MAX_ETHPORTS)
		return 0;
	snprintf(error->text, sizeof(error->text),
		 "%.150s: a bond of %u members takes %u of DPDK's devices; this version has room for %u, and %u are "
		 "taken",
		 uri, bond->count, needed, RTE_MAX_ETHPORTS, taken);
	return -ENOSPC;
}

int bond_open(struct bond **opened, struct device *device, const char *uri, const struct device_options *options,
	      struct device_error *error)
{
	struct bond *bond = calloc(1, sizeof(*bond));
	const struct bond_member *first;
	struct bond_names names;
	int rc;

	/* It complains that the shims have no modes to be set, at every change. */
	rte_log_set_level_pattern("pmd.net.bond*", RTE_LOG_CRIT);
	*device = (struct device){.port = RTE_MAX_ETHPORTS, .kind = DEVICE_INTERFACE};
	if (bond == NULL) {
		snprintf(error->text, sizeof(error->text), "%.200s: out of memory", uri);
		return -ENOMEM;
	}
	rc = bond_parse(uri, &names, error);
	if (rc != 0)
		goto fail;
	bond->count = RTE_MIN(names.count, (unsigned)BOND_MEMBERS);
	bond->mode = names.mode;
	bond->options = *options;
	bond->options.interrupts = false;
	bond->queues = options->queues > 0 ? options->queues : 1;
	for (unsigned i = 0; i < bond->count; i++) {
		bond->members[i].bond = bond;
		bond->members[i].slow_fd = -1;
		memcpy(bond->members[i].uri, names.members[i], sizeof(names.members[i]));
	}
	rc = check_room(bond, uri, error);
	if (rc != 0)
		goto fail;
	rc = open_members(bond, &first, error);
	if (rc != 0)
		goto fail;
	for (unsigned i = 0; i < bond->count && rc == 0; i++)
		rc = make_shim(&bond->members[i]);
	if (rc == 0 && bond->mode == BOND_LACP && bond_check_slow_memory(bond, error) != 0) {
		rc = -ENOMEM;
		goto fail;
	}
	if (rc == 0)
		rc = make_bond(bond, first);
	if (rc != 0) {
		snprintf(error->text, sizeof(error->text), "%.150s: DPDK's bonding driver could not be set up: %s", uri,
			 strerror(-rc));
		goto fail;
	}
	/* From now on it is tried again and again. */
	bond->options.quiet = true;
	device->queues = bond->queues;
	device->descriptors = DEVICE_DESCRIPTORS;
	device->buffer = first->device.buffer;
	device->port = bond->port;
	device->started = true;
	snprintf(device->name, sizeof(device->name), "%s", bond->name);
	device->target = strchr(uri, ':') + 1;
	for (unsigned i = 0; i < bond->count; i++)
		if (bond->members[i].joined && !device_link_up(&bond->members[i].device))
			bond_leave(&bond->members[i]);
	bond_describe_device(bond, device);
	*opened = bond;
	return 0;
fail:
	bond_close(bond);
	return rc;
}

void bond_close(struct bond *bond)
{
	hush(true);
	for (unsigned i = 0; i < bond->count; i++)
		unhook_shim(&bond->members[i]);
	if (bond->name[0] != '\0') {
		rte_eth_dev_stop(bond->port);
		for (unsigned i = 0; i < bond->count; i++)
			if (bond->members[i].joined)
				rte_eth_bond_member_remove(bond->port, bond->members[i].shim);
		rte_eth_bond_free(bond->name);
	}
	for (unsigned i = 0; i < bond->count; i++) {
		if (bond->members[i].shim_name[0] != '\0')
			rte_vdev_uninit(bond->members[i].shim_name);
		bond_close_member(&bond->members[i]);
	}
	hush(false);
	free(bond);
}
