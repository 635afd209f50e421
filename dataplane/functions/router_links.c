/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include "router_links.h"

unsigned router_link_of(const struct router_kernel *kernel, unsigned interface)
{
	unsigned link = 0;

	while (link < ROUTER_LINKS && (kernel->interfaces[link] != interface || interface == 0))
		link++;
	return link;
}

uint32_t router_number(const struct nlattr *attribute)
{
	return mnl_attr_validate(attribute, MNL_TYPE_U32) < 0 ? 0 : mnl_attr_get_u32(attribute);
}

/* What makes a VLAN of a port: see Linux's if_link.h. */
struct vlan {
	unsigned below; /* index of the interface that it is of */
	uint16_t number, protocol;
	bool is;
};

static uint16_t short_number(const struct nlattr *attribute)
{
	return mnl_attr_validate(attribute, MNL_TYPE_U16) < 0 ? 0 : mnl_attr_get_u16(attribute);
}

static void read_vlan(const struct nlattr *info, struct vlan *vlan)
{
	const struct nlattr *attribute, *data;

	mnl_attr_for_each_nested(attribute, info)
	{
		uint16_t type = mnl_attr_get_type(attribute);

		if (type == IFLA_INFO_KIND)
			vlan->is = mnl_attr_get_payload_len(attribute) == sizeof("vlan") &&
				   memcmp(mnl_attr_get_payload(attribute), "vlan", sizeof("vlan")) == 0;
		else if (type == IFLA_INFO_DATA)
			mnl_attr_for_each_nested(data, attribute)
			{
				if (mnl_attr_get_type(data) == IFLA_VLAN_ID)
					vlan->number = short_number(data);
				else if (mnl_attr_get_type(data) == IFLA_VLAN_PROTOCOL)
					vlan->protocol = short_number(data);
			}
	}
}

/* The link for a VLAN of a port, the same for as long as this program runs; ROUTER_LINKS: there is no room. */
static unsigned link_for(uint8_t port, uint16_t vlan)
{
	for (unsigned number = ROUTER_PORTS; number < ROUTER_LINKS; number++) {
		struct router_link *link = &router_table.links[number];

		if (link->vlan == 0) {
			link->port = port;
			link->vlan = vlan;
		}
		if (link->port == port && link->vlan == vlan)
			return number;
	}
	return ROUTER_LINKS;
}

/* The kernel has the interface no more, or it has become another VLAN's. */
static void forget_link(struct router_kernel *kernel, unsigned number)
{
	const struct router_link *link = &router_table.links[number];

	if (number < ROUTER_PORTS || number == ROUTER_LINKS)
		return;
	kernel->interfaces[number] = 0;
	atomic_store(&router_table.vlans[link->port][ntohs(link->vlan)], 0);
}

/* The link that an interface is which is a VLAN of a port's; ROUTER_LINKS: it is none. */
static unsigned make_link(struct router_kernel *kernel, unsigned interface, const struct vlan *vlan, bool up)
{
	unsigned port = router_link_of(kernel, vlan->below), number;

	if (!vlan->is || port >= ROUTER_PORTS || vlan->protocol != RTE_BE16(RTE_ETHER_TYPE_VLAN) || vlan->number == 0 ||
	    vlan->number >= ROUTER_VLANS)
		return ROUTER_LINKS;
	number = link_for((uint8_t)port, htons(vlan->number));
	if (number == ROUTER_LINKS)
		return number;
	kernel->interfaces[number] = interface;
	atomic_store(&router_table.vlans[port][vlan->number], up ? (uint8_t)number : 0);
	return number;
}

void router_link_take(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	const struct ifinfomsg *header = mnl_nlmsg_get_payload(message);
	struct vlan vlan = {.protocol = RTE_BE16(RTE_ETHER_TYPE_VLAN)};
	const struct nlattr *attribute, *mtu = NULL, *mac = NULL;
	unsigned number;
	bool up;

	if (mnl_nlmsg_get_payload_len(message) < sizeof(*header))
		return;
	up = (header->ifi_flags & IFF_UP) != 0;
	kernel->again |= (message->nlmsg_flags & NLM_F_MULTI) == 0; /* nobody has asked, so it has changed */
	number = router_link_of(kernel, (unsigned)header->ifi_index);
	mnl_attr_for_each(attribute, message, sizeof(*header))
	{
		switch (mnl_attr_get_type(attribute)) {
		case IFLA_MTU:
			mtu = attribute;
			break;
		case IFLA_ADDRESS:
			mac = attribute;
			break;
		case IFLA_LINK:
			vlan.below = router_number(attribute);
			break;
		case IFLA_LINKINFO:
			read_vlan(attribute, &vlan);
			break;
		}
	}
	if (number >= ROUTER_PORTS) {
		forget_link(kernel, number);
		if (message->nlmsg_type != RTM_NEWLINK || header->ifi_index <= 0)
			return;
		number = make_link(kernel, (unsigned)header->ifi_index, &vlan, up);
	}
	if (number == ROUTER_LINKS)
		return;
	if (mtu != NULL)
		atomic_store(&router_table.links[number].mtu, router_number(mtu));
	if (mac != NULL && mnl_attr_get_payload_len(mac) == RTE_ETHER_ADDR_LEN)
		atomic_store(&router_table.links[number].mac,
			     router_mac(mnl_attr_get_payload(mac)) | (up ? 0 : ROUTER_MAC_DOWN));
}
