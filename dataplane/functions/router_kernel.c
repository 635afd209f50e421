/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "router_kernel.h"
#include "router_links.h"

enum {
	ROOM = 4 << 20, /* asked for; the kernel gives what it allows (net.core.rmem_max) */
	PAUSE_MS = 100, /* between two times that everything is asked for */
	USABLE = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE,
};

/* What is asked for, in this order: neighbours before the routes that lead to them. */
static const struct {
	uint16_t type;
	uint8_t family;
} questions[] = {
	{RTM_GETLINK, AF_UNSPEC},
	{RTM_GETNEIGH, AF_UNSPEC},
	{RTM_GETROUTE, AF_INET},
	{RTM_GETROUTE, AF_INET6},
};
enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static unsigned address_size(uint8_t family)
{
	return family == ROUTER_4 ? 4 : 16;
}

/* Read an address of the family.  Returns whether it is one. */
static bool read_address(const struct nlattr *attribute, uint8_t family, struct router_address *address)
{
	unsigned size = address_size(family);

	memset(address, 0, sizeof(*address));
	if (mnl_attr_get_payload_len(attribute) != size)
		return false;
	memcpy(address->bytes, mnl_attr_get_payload(attribute), size);
	return true;
}

/* ------- neighbours ------- */

static bool family_of(uint8_t of_kernel, uint8_t *family)
{
	*family = of_kernel == AF_INET ? ROUTER_4 : ROUTER_6;
	return of_kernel == AF_INET || of_kernel == AF_INET6;
}

static void take_neighbour(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	const struct ndmsg *neighbour = mnl_nlmsg_get_payload(message);
	const struct nlattr *attribute;
	struct router_address address;
	bool has_address = false;
	uint64_t station = 0;
	uint8_t family;
	unsigned link;

	if (mnl_nlmsg_get_payload_len(message) < sizeof(*neighbour) || !family_of(neighbour->ndm_family, &family))
		return;
	link = router_link_of(kernel, (unsigned)neighbour->ndm_ifindex);
	if (link == ROUTER_LINKS || (neighbour->ndm_flags & NTF_PROXY) || neighbour->ndm_type != RTN_UNICAST)
		return;
	mnl_attr_for_each(attribute, message, sizeof(*neighbour))
	{
		uint16_t type = mnl_attr_get_type(attribute);

		if (type == NDA_DST)
			has_address = read_address(attribute, family, &address);
		else if (type == NDA_LLADDR && mnl_attr_get_payload_len(attribute) == RTE_ETHER_ADDR_LEN)
			station = router_mac(mnl_attr_get_payload(attribute)) | ROUTER_STATION_USABLE;
	}
	if (message->nlmsg_type == RTM_DELNEIGH || !(neighbour->ndm_state & USABLE))
		station = 0;
	else if (station != 0 && (neighbour->ndm_state & NUD_STALE))
		station |= ROUTER_STATION_STALE;
	if (has_address)
		router_neighbour_set((uint8_t)link, family, &address, station);
}

/* ------- routes ------- */

/* A route as it is put together from a message. */
struct told {
	struct router_prefix prefix;
	struct router_hop hop;
	uint32_t weights[ROUTER_PATHS];
	uint32_t table, metric, object;
	bool strange; /* it has something that the fast path does not do */
};

/* Add a path.  What is no path of a link's makes the route the kernel's. */
static void add_path(const struct router_kernel *kernel, struct told *told, unsigned interface,
		     const struct nlattr *gateway, uint32_t weight)
{
	unsigned link = router_link_of(kernel, interface);
	struct router_path *path;

	if (link == ROUTER_LINKS || told->hop.nb_paths == ROUTER_PATHS) {
		told->strange = true;
		return;
	}
	told->weights[told->hop.nb_paths] = weight;
	path = &told->hop.paths[told->hop.nb_paths++];
	path->link = (uint8_t)link;
	path->family = told->prefix.family;
	path->connected = gateway == NULL;
	if (gateway != NULL && !read_address(gateway, told->prefix.family, &path->gateway))
		told->strange = true;
}

static void add_paths(const struct router_kernel *kernel, struct told *told, const struct nlattr *multipath)
{
	const struct rtnexthop *next = mnl_attr_get_payload(multipath);
	int left = mnl_attr_get_payload_len(multipath);

	for (; left >= (int)sizeof(*next) && RTNH_OK(next, left);
	     left -= (int)RTNH_ALIGN(next->rtnh_len), next = RTNH_NEXT(next)) {
		const struct nlattr *gateway = NULL, *attribute = (const struct nlattr *)RTNH_DATA(next);
		int size = next->rtnh_len - (int)RTNH_LENGTH(0);

		if (next->rtnh_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN))
			continue;
		for (; mnl_attr_ok(attribute, size);
		     size -= (int)MNL_ALIGN(attribute->nla_len), attribute = mnl_attr_next(attribute)) {
			uint16_t type = mnl_attr_get_type(attribute);

			if (type == RTA_GATEWAY)
				gateway = attribute;
			else if (type == RTA_VIA || type == RTA_ENCAP)
				told->strange = true;
		}
		add_path(kernel, told, (unsigned)next->rtnh_ifindex, gateway, next->rtnh_hops + 1U);
	}
}

/* Each path gets flows by its weight: RFC 2992, and as the kernel does. */
static void bound_paths(struct told *told)
{
	uint64_t sum = 0, so_far = 0;

	for (unsigned i = 0; i < told->hop.nb_paths; i++)
		sum += told->weights[i];
	for (unsigned i = 0; i < told->hop.nb_paths; i++) {
		so_far += told->weights[i];
		told->hop.paths[i].bound = (uint32_t)((so_far << 32) / sum - 1);
	}
}

/* Fill in a route.  Returns whether it is one for the table. */
static bool read_route(const struct router_kernel *kernel, const struct nlmsghdr *message, struct told *told)
{
	const struct rtmsg *route = mnl_nlmsg_get_payload(message);
	const struct nlattr *attribute, *gateway = NULL, *multipath = NULL;
	unsigned interface = 0;

	memset(told, 0, sizeof(*told));
	if (mnl_nlmsg_get_payload_len(message) < sizeof(*route) || !family_of(route->rtm_family, &told->prefix.family))
		return false;
	told->prefix.length = route->rtm_dst_len;
	told->table = route->rtm_table;
	mnl_attr_for_each(attribute, message, sizeof(*route))
	{
		switch (mnl_attr_get_type(attribute)) {
		case RTA_DST:
			if (!read_address(attribute, told->prefix.family, &told->prefix.address))
				return false;
			break;
		case RTA_TABLE:
			told->table = router_number(attribute);
			break;
		case RTA_PRIORITY:
			told->metric = router_number(attribute);
			break;
		case RTA_OIF:
			interface = router_number(attribute);
			break;
		case RTA_GATEWAY:
			gateway = attribute;
			break;
		case RTA_MULTIPATH:
			multipath = attribute;
			break;
		case RTA_NH_ID: /* what it stands for is told beside it */
			told->object = router_number(attribute);
			break;
		case RTA_VIA:
		case RTA_ENCAP:
		case RTA_METRICS: /* among them an MTU of its own */
			told->strange = true;
			break;
		}
	}
	if ((told->table != RT_TABLE_MAIN && told->table != RT_TABLE_LOCAL) || (route->rtm_flags & RTM_F_CLONED) ||
	    told->prefix.length > 8 * address_size(told->prefix.family))
		return false;
	/* Only for some of the frames to the prefix. */
	told->strange |= route->rtm_tos != 0 || route->rtm_src_len != 0 ||
			 (route->rtm_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN));
	if (multipath != NULL)
		add_paths(kernel, told, multipath);
	else if (interface != 0)
		add_path(kernel, told, interface, gateway, 1);
	bound_paths(told);
	return true;
}

static unsigned what_of(const struct rtmsg *route, const struct told *told)
{
	switch (route->rtm_type) {
	case RTN_UNICAST:
		return told->strange || told->hop.nb_paths == 0 ? ROUTE_KERNEL : ROUTE_FIRST_HOP;
	case RTN_LOCAL:
	case RTN_BROADCAST:
	case RTN_ANYCAST:
	case RTN_MULTICAST:
		return ROUTE_ITSELF;
	case RTN_BLACKHOLE:
		return ROUTE_BLACKHOLE;
	default:
		return ROUTE_KERNEL;
	}
}

static void take_route(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	const struct rtmsg *route = mnl_nlmsg_get_payload(message);
	enum router_news news = ROUTER_NEW;
	struct told told;
	uint64_t rank;

	if (!read_route(kernel, message, &told))
		return;
	/* The table of the host's own addresses comes first. */
	rank = told.table == RT_TABLE_LOCAL ? 0 : 1 + (uint64_t)told.metric;
	if (message->nlmsg_type == RTM_DELROUTE) {
		/* Of IPv6 a single path may go, and the others stay. */
		unsigned nb_paths = told.prefix.family == ROUTER_4 ? ROUTER_PATHS : told.hop.nb_paths;

		kernel->again |= !router_route_remove(&told.prefix, rank, nb_paths);
		return;
	}
	if (message->nlmsg_flags & NLM_F_MULTI)
		news = ROUTER_TOLD;
	else if ((message->nlmsg_flags & NLM_F_APPEND) && told.prefix.family == ROUTER_4)
		news = ROUTER_BEHIND; /* in IPv6 it comes with all paths */
	router_route_add(&told.prefix, rank, what_of(route, &told), &told.hop, told.object, news);
}

/* ------- next hops that are objects of their own ------- */

/*
 * What becomes of a route is told when its object is given another content, and of IPv6 when it is gone; not when it is
 * gone in IPv4, and not when a group has lost a member.  Flags are those of who has asked the kernel for it.
 */
static void take_object(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	const struct nlattr *attribute;

	if (mnl_nlmsg_get_payload_len(message) < sizeof(struct nhmsg) ||
	    (message->nlmsg_type == RTM_NEWNEXTHOP && (message->nlmsg_flags & (NLM_F_EXCL | NLM_F_REPLACE))))
		return;
	mnl_attr_for_each(attribute, message, sizeof(struct nhmsg))
	{
		if (mnl_attr_get_type(attribute) == NHA_ID)
			kernel->again |= router_routes_lead_by(router_number(attribute));
	}
}

/* ------- questions and news ------- */

static void ask_next(struct router_kernel *kernel)
{
	char buffer[64] __attribute__((aligned(MNL_ALIGNTO)));
	struct nlmsghdr *message;

	if (kernel->asking == QUESTIONS)
		return;
	memset(buffer, 0, sizeof(buffer));
	message = mnl_nlmsg_put_header(buffer);
	message->nlmsg_type = questions[kernel->asking].type;
	message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	message->nlmsg_seq = ++kernel->sequence;
	/* All headers begin with the family. */
	*(uint8_t *)mnl_nlmsg_put_extra_header(message, sizeof(struct rtmsg)) = questions[kernel->asking].family;
	if (kernel->socket != NULL && mnl_socket_sendto(kernel->socket, message, message->nlmsg_len) < 0)
		log_error("netlink: %s", strerror(errno));
}

/* An answer is whole: ask the next question. */
static void told_all(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	if (message->nlmsg_seq != kernel->sequence || kernel->asking == QUESTIONS)
		return;
	if (++kernel->asking == QUESTIONS && !kernel->again) {
		router_routes_end();
		router_neighbours_end();
	}
	ask_next(kernel);
}

static void take(struct router_kernel *kernel, const struct nlmsghdr *message)
{
	kernel->nb_news++;
	/* It was changed while it was told, so something may be missing. */
	kernel->again |= (message->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
	switch (message->nlmsg_type) {
	case NLMSG_DONE:
	case NLMSG_ERROR:
		told_all(kernel, message);
		break;
	case RTM_NEWLINK:
	case RTM_DELLINK:
		router_link_take(kernel, message);
		break;
	case RTM_DELADDR:
		kernel->again = true;
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		take_neighbour(kernel, message);
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		take_route(kernel, message);
		break;
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		take_object(kernel, message);
		break;
	}
}

void router_kernel_take(struct router_kernel *kernel, const void *messages, size_t size)
{
	const struct nlmsghdr *message = messages;
	int left = (int)size;

	/* libmnl by itself takes a length of more than INT_MAX for one that fits. */
	while (mnl_nlmsg_ok(message, left) && message->nlmsg_len <= (unsigned)left) {
		take(kernel, message);
		message = mnl_nlmsg_next(message, &left);
	}
}

ssize_t router_kernel_receive(const struct router_kernel *kernel, uint8_t buffer[ROUTER_KERNEL_BUFFER])
{
	const ssize_t size = mnl_socket_recvfrom(kernel->socket, buffer, ROUTER_KERNEL_BUFFER);

	if (size >= 0)
		return size;
	return errno == ENOBUFS || errno == ENOSPC ? -1 : 0;
}

void router_kernel_take_received(struct router_kernel *kernel, const uint8_t *buffer, ssize_t size)
{
	if (size >= 0) {
		router_kernel_take(kernel, buffer, (size_t)size);
		return;
	}
	kernel->nb_lost++;
	kernel->again = true;
}

bool router_kernel_read(struct router_kernel *kernel)
{
	static uint8_t buffer[ROUTER_KERNEL_BUFFER] __attribute__((aligned(MNL_ALIGNTO)));
	const ssize_t size = router_kernel_receive(kernel, buffer);

	if (size != 0)
		router_kernel_take_received(kernel, buffer, size);
	return size != 0;
}

int router_kernel_ask(struct router_kernel *kernel)
{
	uint64_t now, due = kernel->asked + (uint64_t)PAUSE_MS * 1000000;

	if (!kernel->again || kernel->asking < QUESTIONS)
		return -1;
	now = now_ns();
	if (kernel->asked != 0 && now < due)
		return (int)((due - now) / 1000000) + 1;
	kernel->again = false;
	kernel->asked = now;
	kernel->nb_asked++;
	kernel->asking = 0;
	router_routes_begin();
	router_neighbours_begin();
	ask_next(kernel);
	return -1;
}

bool router_kernel_complete(const struct router_kernel *kernel)
{
	return kernel->asking == QUESTIONS && kernel->nb_asked > 0;
}

int router_kernel_fd(const struct router_kernel *kernel)
{
	return mnl_socket_get_fd(kernel->socket);
}

int router_kernel_open(struct router_kernel *kernel, const unsigned interfaces[ROUTER_PORTS])
{
	const unsigned groups = RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
				RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
	const int room = ROOM, objects = RTNLGRP_NEXTHOP;

	*kernel = (struct router_kernel){.asking = QUESTIONS, .again = true};
	memcpy(kernel->interfaces, interfaces, ROUTER_PORTS * sizeof(interfaces[0]));
	kernel->socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (kernel->socket == NULL || mnl_socket_bind(kernel->socket, groups, MNL_SOCKET_AUTOPID) != 0) {
		log_error("netlink: %s", strerror(errno));
		return -errno;
	}
	setsockopt(router_kernel_fd(kernel), SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	/* A kernel before 5.3 has none. */
	(void)mnl_socket_setsockopt(kernel->socket, NETLINK_ADD_MEMBERSHIP, (void *)&objects, sizeof(objects));
	return 0;
}

void router_kernel_close(struct router_kernel *kernel)
{
	if (kernel->socket != NULL)
		mnl_socket_close(kernel->socket);
	kernel->socket = NULL;
}
