/* SPDX-License-Identifier: Apache-2.0
 *
 * A bond: several devices as one, by DPDK's driver net_bonding.  Its URI is bond:MODE,MEMBER,MEMBER[,...].  With
 * active-backup one member carries all frames, and another one does when its link is lost.  With lacp those carry
 * frames of which LACP (IEEE 802.1AX) has agreed with the other end, each flow by one of them.  Members are `if:`
 * devices: a PCI device that Linux asks for, or that was reset, would have to be given back and opened again here too.
 *
 * Members are opened as the ports that they could be (common/device.h), with all that this module knows of links,
 * unfinished checksums and losses, of which the driver's own members have nothing: DPDK's driver for AF_PACKET reports
 * a link for ever, and would have the interface's address changed.  So the driver gets a shim for each, a net_null
 * device that neither receives nor has anything to set, and callbacks of the shim's queues move the frames.  A member
 * whose link is lost is taken from the bond, and given back to it when the link is back.
 *
 * The driver has LACP's frames sent by whoever sends, so the monitor asks for that too; they leave by a socket of the
 * member's own, as its queues are the workers'.  Others' slow-protocol frames are refused: who is at the bond is not to
 * speak for it.
 *
 * The control thread opens and closes, the monitor watches (both with the device lock held); workers move frames by the
 * bond's ethdev.
 */
#ifndef TAILRACE_PORT_DEVICE_BOND_H
#define TAILRACE_PORT_DEVICE_BOND_H

#include <jansson.h>

#include "port/device.h"

enum {
	BOND_MEMBERS = 8,
	BOND_MEMBER_LONGEST = 32, /* bytes of a member's URI */
};

enum bond_mode { BOND_ACTIVE_BACKUP, BOND_LACP, BOND_MODES };

struct bond;

struct bond_names {
	enum bond_mode mode;
	unsigned count;
	char members[BOND_MEMBERS][BOND_MEMBER_LONGEST];
};

const char *bond_mode_name(enum bond_mode mode);

/* Whether a URI is that of a bond. */
bool bond_is_named(const char *uri);

/* What the URI of a bond says.  Returns 0, or -EINVAL with the error filled in.  Opens nothing. */
int bond_parse(const char *uri, struct bond_names *names, struct device_error *error);

/* Bytes of DPDK's memory that the driver takes for a bond of so many queues, beside the port's packet buffers. */
size_t bond_memory(const char *uri, unsigned queues);

/*
 * Open the members and the bond, and have `device` describe it: it is device_close()d by bond_close() only.  With
 * options->quiet one of the members is enough.  Returns 0, or -errno with the error filled in.
 */
int bond_open(struct bond **bond, struct device *device, const char *uri, const struct device_options *options,
	      struct device_error *error);
void bond_close(struct bond *bond);

/*
 * Look after the members: their links, their return.  `alone`: no worker is at the bond; without that the first member
 * is not given to the driver, which resets it meanwhile, and still has workers receive by the last one that it had.
 * Returns whether other members are usable, or carry frames, than before.
 */
bool bond_watch(struct bond *bond, struct device *device, bool alone);

/* Whether the driver has no member, and could have one. */
bool bond_waits(const struct bond *bond);

/* Whether a member carries frames. */
bool bond_link_up(const struct bond *bond);

/* The members that carry frames, as text. */
void bond_show(const struct bond *bond, char *text, size_t size);

/* Why members cannot carry frames.  Returns false, with an empty text: all can. */
bool bond_why(const struct bond *bond, char *why, size_t size);

/*
 * An object: mode; the members with device, state, reason, whether each is `active`; and how many frames were `unused`,
 * because they came to another member than the active one.  With LACP each member has its `partner`, or null.
 */
json_t *bond_describe(const struct bond *bond);

/* A member's device; NULL: it is not open, or there are not so many. */
const struct device *bond_member(const struct bond *bond, unsigned which);

/* What a member has lost in all; that of before its device was opened is not the bond's. */
void bond_note_losses(struct bond *bond, unsigned which, const struct device_losses *now);

/* What the members have lost. */
struct device_losses bond_losses(const struct bond *bond);

#endif
