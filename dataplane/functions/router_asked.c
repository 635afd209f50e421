/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/icmp6.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "router_asked.h"
#include "router_hops.h"
#include "steer/hash.h"

/* Ethernet's, a tag, IPv6's, and the type of ICMPv6. */
enum { HEADERS = sizeof(struct rte_ether_hdr) + sizeof(struct rte_vlan_hdr) + sizeof(struct rte_ipv6_hdr) + 1 };

/* What this looks at of a frame. */
struct ends {
	struct router_address source, destination;
	uint8_t family;
	uint8_t link; /* where it came in */
	bool free;    /* never held back: multicast, and neighbour discovery, by which neighbours are found */
};

/* RFC 4861. */
static bool is_discovery(const uint8_t *header, uint32_t size)
{
	const uint8_t type = size > sizeof(struct rte_ipv6_hdr) ? header[sizeof(struct rte_ipv6_hdr)] : 0;

	/* With another hop limit the kernel takes it for none. */
	return header[offsetof(struct rte_ipv6_hdr, proto)] == IPPROTO_ICMPV6 &&
	       header[offsetof(struct rte_ipv6_hdr, hop_limits)] == 255 && type >= ND_ROUTER_SOLICIT &&
	       type <= ND_REDIRECT;
}

/* Returns whether it is IP. */
static bool read_ends(const struct rte_mbuf *mbuf, struct ends *ends)
{
	uint8_t room[HEADERS];
	uint32_t network = sizeof(struct rte_ether_hdr), size = RTE_MIN(mbuf->pkt_len, (uint32_t)HEADERS);
	const uint8_t *frame = rte_pktmbuf_read(mbuf, 0, size, room);
	rte_be16_t type, tag;
	uint8_t vlan;

	*ends = (struct ends){.link = (uint8_t)mbuf->port};
	if (frame == NULL || size < network + sizeof(struct rte_vlan_hdr))
		return false;
	memcpy(&type, frame + network - sizeof(type), sizeof(type));
	if (type == RTE_BE16(RTE_ETHER_TYPE_VLAN)) {
		memcpy(&tag, frame + network, sizeof(tag));
		network += sizeof(struct rte_vlan_hdr);
		memcpy(&type, frame + network - sizeof(type), sizeof(type));
		vlan = atomic_load(&router_table.vlans[mbuf->port][rte_be_to_cpu_16(tag) % ROUTER_VLANS]);
		if (vlan != 0)
			ends->link = vlan;
	}
	frame += network;
	size -= network;
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4) && size >= sizeof(struct rte_ipv4_hdr)) {
		ends->family = ROUTER_4;
		memcpy(ends->source.bytes, frame + offsetof(struct rte_ipv4_hdr, src_addr), 4);
		memcpy(ends->destination.bytes, frame + offsetof(struct rte_ipv4_hdr, dst_addr), 4);
		ends->free = IN_MULTICAST((uint32_t)ends->destination.bytes[0] << 24);
		return true;
	}
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && size >= sizeof(struct rte_ipv6_hdr)) {
		ends->family = ROUTER_6;
		memcpy(ends->source.bytes, frame + offsetof(struct rte_ipv6_hdr, src_addr), 16);
		memcpy(ends->destination.bytes, frame + offsetof(struct rte_ipv6_hdr, dst_addr), 16);
		ends->free = ends->destination.bytes[0] == 0xff || is_discovery(frame, size);
		return true;
	}
	return false;
}

/* Whom the kernel would need to know.  Returns false if that is no neighbour, or one behind which the destination is:
 * gateways are as many as routes name. */
static bool find_wanted(const struct ends *ends, struct router_asked_for *wanted)
{
	uint64_t found = router_lookup_held(ends->family, &ends->destination);
	const struct router_way *way;

	wanted->family = ends->family;
	wanted->address = found == ROUTE_ITSELF ? ends->source : ends->destination;
	/* Each link has the same network of such addresses, so a route does not say which one is meant. */
	if (ends->family == ROUTER_6 && router_link_local(wanted->address.bytes)) {
		wanted->link = ends->link;
		return true;
	}
	if (found == ROUTE_ITSELF)
		found = router_lookup_held(ends->family, &wanted->address);
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

/* Free the places of those that were found, wherever they are. */
static void sweep(struct router_asked *asked, uint64_t now)
{
	if (asked->swept == now)
		return;
	asked->swept = now;
	for (unsigned i = 0; i < ROUTER_ASKED; i++)
		if (is_known(&asked->places[i]))
			asked->places[i].until = 0;
}

static bool is_asked_for(const struct router_asked *asked, const struct router_asked_for *wanted, uint64_t now)
{
	const struct router_asked_for *places = asked->places;

	for (unsigned i = 0; i < ROUTER_ASKED; i++)
		if (places[i].until > now && places[i].link == wanted->link && places[i].family == wanted->family &&
		    memcmp(&places[i].address, &wanted->address, sizeof(wanted->address)) == 0)
			return true;
	return false;
}

/* The part for the network that a sender is in: of IPv4 24 bits, of IPv6 64. */
static struct router_asked_for *part_of(struct router_asked *asked, const struct ends *ends, uint16_t port)
{
	uint64_t prefix = 0, hash;

	memcpy(&prefix, ends->source.bytes, ends->family == ROUTER_4 ? 3 : 8);
	hash = hash_mix(prefix ^ asked->secret[0], ends->family ^ asked->secret[1] ^ HASH_1);
	return &asked->places[(port * ROUTER_ASKED_PARTS + hash % ROUTER_ASKED_PARTS) * ROUTER_ASKED_PART];
}

static struct router_asked_for *free_place(struct router_asked_for *part, uint64_t now)
{
	for (unsigned i = 0; i < ROUTER_ASKED_PART; i++)
		if (part[i].until <= now)
			return &part[i];
	return NULL;
}

bool router_asked_may(struct router_asked *asked, const struct rte_mbuf *mbuf, uint64_t now)
{
	struct router_asked_for wanted = {.until = now + ROUTER_ASKED_MS}, *part, *place;
	struct ends ends;

	/* Neighbours that the table has no more room for are not known here, and have to take a place. */
	if (!read_ends(mbuf, &ends) || ends.free || !find_wanted(&ends, &wanted) || is_known(&wanted) ||
	    is_asked_for(asked, &wanted, now))
		return true;
	part = part_of(asked, &ends, mbuf->port);
	place = free_place(part, now);
	if (place == NULL) {
		sweep(asked, now);
		place = free_place(part, now);
	}
	if (place != NULL)
		*place = wanted;
	return place != NULL;
}

void router_asked_open(struct router_asked *asked)
{
	*asked = (struct router_asked){0};
	if (getrandom(asked->secret, sizeof(asked->secret), GRND_NONBLOCK) != sizeof(asked->secret))
		asked->secret[0] = rte_rdtsc();
}
