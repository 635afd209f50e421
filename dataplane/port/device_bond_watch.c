/* SPDX-License-Identifier: Apache-2.0 */
#define ALLOW_EXPERIMENTAL_API /* rte_eth_bond_active_members_get() in DPDK 23.11 */
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "port/device_bond_internal.h"

enum {
	TICKS_TO_RETRY = 10, /* calls of bond_watch(), after which a member that is missing is looked for again */
	CARRIES = 0x30,	     /* of LACP's state: collecting and distributing (IEEE 802.1AX, 6.4.2.3) */
	UNUSED_BURST = 64,
	UNUSED_BURSTS = 64, /* more than a member's ring holds */
};

static bool may_be_back(const struct bond_member *member)
{
	return strncmp(member->uri, "if:", 3) != 0 || if_nametoindex(member->uri + 3) != 0;
}

/* Have what is gone closed, and what is back opened. */
static void look_for(struct bond_member *member)
{
	if (atomic_load(&member->open) && !device_exists(&member->device)) {
		if (member->joined)
			bond_leave(member);
		bond_close_member(member);
		snprintf(member->problem.text, sizeof(member->problem.text), "it is not there any more");
		member->ticks = 0;
	}
	if (!atomic_load(&member->open) && ++member->ticks >= TICKS_TO_RETRY && may_be_back(member)) {
		member->ticks = 0;
		bond_open_member(member);
	}
}

bool bond_lacp_state(const struct bond_member *member, struct rte_eth_bond_8023ad_member_info *info)
{
	return member->joined && rte_eth_bond_8023ad_member_info(member->bond->port, member->shim, info) == 0;
}

/* Whether frames are sent by the member now. */
static bool is_active(const struct bond_member *member)
{
	const struct bond *bond = member->bond;
	struct rte_eth_bond_8023ad_member_info info;
	uint16_t active[RTE_MAX_ETHPORTS];
	int count;

	if (bond->mode == BOND_LACP)
		return bond_lacp_state(member, &info) && (info.actor_state & CARRIES) == CARRIES &&
		       !atomic_load(&member->aside);
	if (!member->joined || rte_eth_bond_primary_get(bond->port) != member->shim)
		return false;
	/* Which is named also if it has no link. */
	count = rte_eth_bond_active_members_get(bond->port, active, RTE_DIM(active));
	while (count > 0 && active[count - 1] != member->shim)
		count--;
	return count > 0;
}

bool bond_link_up(const struct bond *bond)
{
	for (unsigned i = 0; i < bond->count; i++)
		if (is_active(&bond->members[i]))
			return true;
	return false;
}

/* Why the member cannot carry frames.  Returns false: it can. */
static bool why_not(const struct bond_member *member, char *why, size_t size)
{
	struct rte_eth_bond_8023ad_member_info info;

	if (!atomic_load(&member->open))
		snprintf(why, size, "%s", member->problem.text);
	else if (!member->joined && member->ticks > 0 && member->bond->mode == BOND_LACP &&
		 !bond_has_slow_memory(member))
		snprintf(why, size, "no memory is left for LACP's frames; start the switch with more (--memory)");
	else if (!member->joined && member->ticks > 0)
		snprintf(why, size, "DPDK's bonding driver has not taken it");
	else if (!member->joined)
		device_why_down(&member->device, false, why, size);
	else if (atomic_load(&member->aside))
		snprintf(why, size, "its other end is not that of the members that carry frames");
	else if (member->bond->mode == BOND_LACP && bond_lacp_state(member, &info) &&
		 (info.actor_state & CARRIES) != CARRIES)
		snprintf(why, size, "%s",
			 atomic_load(&member->looped)
				 ? "the bond's own LACP comes back there; lead its members to a switch with "
				   "LACP, not to each other"
			 : (info.actor_state & LACP_ALONE) != 0 ? "nobody answers LACP there"
								: "LACP has not agreed on it with the other end");
	else
		return false;
	return true;
}

bool bond_why(const struct bond *bond, char *why, size_t size)
{
	char one[sizeof(((struct device_error *)0)->text)];
	size_t length = 0;

	why[0] = '\0';
	for (unsigned i = 0; i < bond->count && length < size; i++)
		if (why_not(&bond->members[i], one, sizeof(one)))
			length += snprintf(why + length, size - length, "%smember %s: %s", length > 0 ? "; " : "",
					   bond->members[i].uri, one);
	return length > 0;
}

/*
 * The driver receives from the active member alone, and only bond_leave() has it go on to another one while one is
 * active. What comes to the others is nobody's, and must not be found there when they are active one day.
 */
static void empty(struct bond_member *member)
{
	struct rte_mbuf *mbufs[UNUSED_BURST];

	for (uint16_t queue = 0; queue < member->bond->queues; queue++)
		for (unsigned i = 0; i < UNUSED_BURSTS; i++) {
			const uint16_t count = device_receive(&member->device, queue, mbufs, UNUSED_BURST);

			rte_pktmbuf_free_bulk(mbufs, count);
			member->bond->unused += count;
			if (count == 0)
				break;
		}
}

static bool could_join(const struct bond_member *member)
{
	return !member->joined && atomic_load(&member->open) && device_link_up(&member->device);
}

static bool has_joined(const struct bond *bond)
{
	for (unsigned i = 0; i < bond->count; i++)
		if (bond->members[i].joined)
			return true;
	return false;
}

bool bond_waits(const struct bond *bond)
{
	for (unsigned i = 0; i < bond->count && !has_joined(bond); i++)
		if (could_join(&bond->members[i]))
			return true;
	return false;
}

static void follow_link(struct bond_member *member, bool alone)
{
	if (atomic_load(&member->open)) {
		packet_check(member->device.packets, member->device.nb_packets);
		device_follow_mtu(&member->device);
	}
	if (member->joined && !device_link_up(&member->device))
		bond_leave(member);
	if (!could_join(member) || (!alone && !has_joined(member->bond)))
		return;
	/* What the driver did not take it is offered seldom. */
	if (member->ticks > 0 && ++member->ticks < TICKS_TO_RETRY)
		return;
	member->ticks = bond_join(member) == 0 ? 0 : 1;
}

/* Whether a member is otherwise than it was last seen. */
static bool has_changed(struct bond_member *member)
{
	const bool active = is_active(member);
	const bool changed = active != member->active || member->joined != member->usable;

	member->active = active;
	member->usable = member->joined;
	return changed;
}

bool bond_watch(struct bond *bond, struct device *device, bool alone)
{
	bool changed = false;

	for (unsigned i = 0; i < bond->count; i++) {
		look_for(&bond->members[i]);
		follow_link(&bond->members[i], alone);
	}
	if (bond->mode == BOND_LACP)
		bond_choose(bond);
	/* One that leaves makes another one active, which may come before it. */
	for (unsigned i = 0; i < bond->count; i++)
		changed |= has_changed(&bond->members[i]);
	if (changed)
		grace_wait(); /* no worker is at one any more that is not active */
	if (bond->mode == BOND_LACP)
		rte_eth_tx_burst(bond->port, 0, NULL, 0); /* has LACP's frames sent: by a socket, so no queue is used */
	for (unsigned i = 0; i < bond->count && bond->mode == BOND_ACTIVE_BACKUP && bond_link_up(bond); i++)
		if (atomic_load(&bond->members[i].open) && !bond->members[i].active)
			empty(&bond->members[i]);
	bond_describe_device(bond, device);
	return changed;
}

void bond_show(const struct bond *bond, char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < bond->count && length < size; i++)
		if (bond->members[i].active)
			length += snprintf(text + length, size - length, "%s%s", length > 0 ? " and " : "",
					   bond->members[i].uri);
	if (length == 0)
		snprintf(text, size, "none");
}

/* The other end's system, as LACP names it. */
static json_t *partner_of(const struct bond_member *member)
{
	struct rte_eth_bond_8023ad_member_info info;
	char text[RTE_ETHER_ADDR_FMT_SIZE];

	if (!bond_lacp_state(member, &info) || (info.actor_state & LACP_ALONE) != 0)
		return json_null();
	rte_ether_format_addr(text, sizeof(text), &info.partner.system);
	return json_string(text);
}

json_t *bond_describe(const struct bond *bond)
{
	char why[sizeof(((struct device_error *)0)->text)];
	json_t *members = json_array();
	uint64_t unused = bond->unused; /* and what came to members that were set aside */

	for (unsigned i = 0; i < bond->count; i++) {
		const struct bond_member *member = &bond->members[i];
		const bool open = atomic_load(&member->open), failed = why_not(member, why, sizeof(why));
		json_t *one = json_pack("{s:s, s:s, s:b, s:o}", "device", member->uri, "state",
					!open		 ? "removed"
					: member->joined ? "up"
							 : "down",
					"active", is_active(member), "reason", failed ? json_string(why) : json_null());

		unused += atomic_load(&member->strays);
		if (bond->mode == BOND_LACP)
			json_object_set_new(one, "partner", partner_of(member));
		json_array_append_new(members, one);
	}
	return json_pack("{s:s, s:o, s:I}", "mode", bond_mode_name(bond->mode), "members", members, "unused",
			 (json_int_t)unused);
}

const struct device *bond_member(const struct bond *bond, unsigned which)
{
	return which < bond->count && atomic_load(&bond->members[which].open) ? &bond->members[which].device : NULL;
}

static void add_since(uint64_t *sum, uint64_t before, uint64_t now)
{
	*sum += now > before ? now - before : 0;
}

void bond_note_losses(struct bond *bond, unsigned which, const struct device_losses *now)
{
	struct bond_member *member = &bond->members[which];

	if (member->read) {
		add_since(&bond->lost.missed, member->before.missed, now->missed);
		add_since(&bond->lost.errors, member->before.errors, now->errors);
		add_since(&bond->lost.no_buffer, member->before.no_buffer, now->no_buffer);
		add_since(&bond->lost.refused, member->before.refused, now->refused);
	}
	member->before = *now;
	member->read = true;
}

struct device_losses bond_losses(const struct bond *bond)
{
	struct device_losses losses = bond->lost;

	for (unsigned i = 0; i < bond->count; i++)
		losses.refused += atomic_load(&bond->members[i].refused);
	return losses;
}
