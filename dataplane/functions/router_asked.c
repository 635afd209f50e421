/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "router_asked.h"
#include "router_hops.h"

/* The whole IP header is in the first piece: otherwise the frame was dropped, or is of another class. */
static bool read_destination(const struct rte_mbuf *mbuf, struct router_asked_for *wanted)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint32_t network = sizeof(struct rte_ether_hdr), size = mbuf->data_len;
	rte_be16_t type;

	if (size < network + sizeof(struct rte_vlan_hdr))
		return false;
	memcpy(&type, frame + network - sizeof(type), sizeof(type));
	if (type == RTE_BE16(RTE_ETHER_TYPE_VLAN)) {
		network += sizeof(struct rte_vlan_hdr);
		memcpy(&type, frame + network - sizeof(type), sizeof(type));
	}
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4) && size >= network + sizeof(struct rte_ipv4_hdr)) {
		memcpy(wanted->address.bytes, frame + network + offsetof(struct rte_ipv4_hdr, dst_addr), 4);
		wanted->family = ROUTER_4;
		return true;
	}
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && size >= network + sizeof(struct rte_ipv6_hdr)) {
		memcpy(wanted->address.bytes, frame + network + offsetof(struct rte_ipv6_hdr, dst_addr), 16);
		wanted->family = ROUTER_6;
		return true;
	}
	return false;
}

/* Returns whether the destination is itself the neighbour, and not behind one: gateways are as many as routes name. */
static bool find_link(struct router_asked_for *wanted)
{
	struct router_address address = wanted->address;
	const struct router_way *way;
	uint64_t found;

	if (wanted->family == ROUTER_4) {
		uint32_t word;

		memcpy(&word, address.bytes, sizeof(word));
		word = rte_be_to_cpu_32(word);
		router_lookup4(&word, &found, 1);
	} else {
		router_lookup6(&address, &found, 1);
	}
	if (found < ROUTE_FIRST_HOP)
		return false;
	way = router_table.ways[found].ways;
	wanted->link = way->link;
	return way->neighbour == ROUTER_CONNECTED;
}

static bool is_known(const struct router_asked_for *wanted)
{
	const uint32_t number = router_find_neighbour(wanted->link, wanted->family, &wanted->address);

	return number != ROUTER_CONNECTED && (atomic_load(&router_table.stations[number]) & ROUTER_STATION_USABLE);
}

static struct router_asked_for *sweep(struct router_asked *asked, uint64_t now)
{
	struct router_asked_for *free = NULL;

	if (asked->swept == now)
		return NULL;
	asked->swept = now;
	for (unsigned i = 0; i < ROUTER_ASKED; i++)
		if (is_known(&asked->places[i])) {
			free = &asked->places[i];
			free->until = 0;
		}
	return free;
}

bool router_asked_may(struct router_asked *asked, const struct rte_mbuf *mbuf, uint64_t now)
{
	struct router_asked_for wanted = {.until = now + ROUTER_ASKED_MS}, *free = NULL;

	/* Where the table has no more room, those that the kernel knows are not known here. */
	if (!read_destination(mbuf, &wanted) || !find_link(&wanted) || is_known(&wanted) || router_neighbours_full())
		return true;
	for (unsigned i = 0; i < ROUTER_ASKED; i++) {
		struct router_asked_for *place = &asked->places[i];

		if (place->until <= now) {
			free = place;
		} else if (place->link == wanted.link && place->family == wanted.family &&
			   memcmp(&place->address, &wanted.address, sizeof(wanted.address)) == 0) {
			return true;
		}
	}
	if (free == NULL)
		free = sweep(asked, now);
	if (free != NULL)
		*free = wanted;
	return free != NULL;
}
