/* SPDX-License-Identifier: Apache-2.0
 *
 * The router's fast path, by bursts in memory: by which port a frame leaves, to whom and how it was changed, or for
 * which reason it does not.  The kernel is played: what it would get is kept, and what it tells are netlink messages.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>

#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/function.h"
#include "functions/router_hops.h"
#include "functions/router_kernel.h"
#include "functions/router_tap.h"

enum { MTU = 1500, INTERFACE = 7, FRAMES = 512, KEPT = 64 };

static struct rte_mempool *pool;
static struct router_tap *the_tap;
static struct router_kernel kernel;
static struct {
	enum router_class class;
	uint16_t in;
	uint32_t length;
} kept[KEPT];
static unsigned nb_kept;
static bool kernel_full;
static unsigned nb_prompts;
static uint32_t object; /* that the next routes lead by; 0: none */

/* ------- the kernel ------- */

int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *mempool, int forward_fd);
bool __wrap_router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class);
bool __wrap_router_tap_prompt(struct router_tap *tap, uint32_t neighbour);

int __wrap_router_tap_open(struct router_tap *tap, struct rte_mempool *mempool, int forward_fd)
{
	*tap = (struct router_tap){0};
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		tap->from_kernel[port] = rte_ring_create(port == 0 ? "from0" : "from1", 256, SOCKET_ID_ANY, 0);
		assert_non_null(tap->from_kernel[port]);
	}
	the_tap = tap;
	return 0;
}

bool __wrap_router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class)
{
	if (kernel_full)
		return false;
	kept[nb_kept].class = class;
	kept[nb_kept].length = rte_pktmbuf_pkt_len(mbuf);
	kept[nb_kept++].in = mbuf->port;
	rte_pktmbuf_free(mbuf);
	return true;
}

bool __wrap_router_tap_prompt(struct router_tap *tap, uint32_t neighbour)
{
	struct router_neighbour found;

	if (kernel_full)
		return false;
	assert_true(router_neighbour_get(neighbour, &found));
	assert_int_equal(found.family, ROUTER_4);
	assert_int_equal(found.link, 1);
	assert_memory_equal(found.address.bytes, ((uint8_t[]){10, 0, 1, 2}), 4);
	nb_prompts++;
	return true;
}

struct message {
	char bytes[512] __attribute__((aligned(MNL_ALIGNTO)));
};

static struct nlmsghdr *begin(struct message *message, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *header;

	memset(message, 0, sizeof(*message));
	header = mnl_nlmsg_put_header(message->bytes);
	header->nlmsg_type = type;
	header->nlmsg_flags = flags;
	return header;
}

static void neighbour4(uint32_t address, unsigned port, uint8_t last, uint16_t states)
{
	const uint8_t mac[6] = {2, 0, 0, 0, 9, last};
	struct message message;
	struct nlmsghdr *header = begin(&message, states == 0 ? RTM_DELNEIGH : RTM_NEWNEIGH, 0);
	struct ndmsg *neighbour = mnl_nlmsg_put_extra_header(header, sizeof(*neighbour));

	neighbour->ndm_family = AF_INET;
	neighbour->ndm_ifindex = INTERFACE + (int)port;
	neighbour->ndm_state = states;
	neighbour->ndm_type = RTN_UNICAST;
	mnl_attr_put_u32(header, NDA_DST, htonl(address));
	mnl_attr_put(header, NDA_LLADDR, sizeof(mac), mac);
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* Tell of 2001:db8::/32 at port 1, and of its neighbour 2001:db8::2. */
static void network6(uint8_t last)
{
	const uint8_t mac[6] = {2, 0, 0, 0, 9, last};
	const uint8_t address[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 2}, prefix[16] = {0x20, 0x01, 0x0d, 0xb8};
	struct message message;
	struct nlmsghdr *header = begin(&message, RTM_NEWROUTE, NLM_F_CREATE);
	struct rtmsg *route = mnl_nlmsg_put_extra_header(header, sizeof(*route));
	struct ndmsg *neighbour;

	route->rtm_family = AF_INET6;
	route->rtm_dst_len = 32;
	route->rtm_table = RT_TABLE_MAIN;
	route->rtm_type = RTN_UNICAST;
	mnl_attr_put(header, RTA_DST, sizeof(prefix), prefix);
	mnl_attr_put_u32(header, RTA_PRIORITY, 256);
	mnl_attr_put_u32(header, RTA_OIF, INTERFACE + 1);
	router_kernel_take(&kernel, header, header->nlmsg_len);
	header = begin(&message, RTM_NEWNEIGH, 0);
	neighbour = mnl_nlmsg_put_extra_header(header, sizeof(*neighbour));
	neighbour->ndm_family = AF_INET6;
	neighbour->ndm_ifindex = INTERFACE + 1;
	neighbour->ndm_state = NUD_REACHABLE;
	neighbour->ndm_type = RTN_UNICAST;
	mnl_attr_put(header, NDA_DST, sizeof(address), address);
	mnl_attr_put(header, NDA_LLADDR, sizeof(mac), mac);
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* Tell of an IPv6 address of the router's own, at port 1. */
static void own6(const uint8_t address[16])
{
	struct message message;
	struct nlmsghdr *header = begin(&message, RTM_NEWROUTE, NLM_F_CREATE);
	struct rtmsg *route = mnl_nlmsg_put_extra_header(header, sizeof(*route));

	route->rtm_family = AF_INET6;
	route->rtm_dst_len = 128;
	route->rtm_table = RT_TABLE_LOCAL;
	route->rtm_type = RTN_LOCAL;
	mnl_attr_put(header, RTA_DST, 16, address);
	mnl_attr_put_u32(header, RTA_OIF, INTERFACE + 1);
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* Tell of a port's own interface. */
static void port_link(unsigned port, unsigned flags)
{
	struct message message;
	struct nlmsghdr *header = begin(&message, RTM_NEWLINK, 0);
	struct ifinfomsg *link = mnl_nlmsg_put_extra_header(header, sizeof(*link));

	link->ifi_index = INTERFACE + (int)port;
	link->ifi_flags = flags;
	mnl_attr_put(header, IFLA_ADDRESS, 6, (const uint8_t[]){2, 0, 0, 0, 0, 1});
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* Tell of a next hop that is an object of its own. */
static void next_hop_object(uint16_t type, uint16_t flags, uint32_t number)
{
	struct message message;
	struct nlmsghdr *header = begin(&message, type, flags);

	mnl_nlmsg_put_extra_header(header, sizeof(struct nhmsg));
	mnl_attr_put_u32(header, NHA_ID, number);
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* The kernel has told all that it was asked for. */
static void told_all(void)
{
	struct message message;
	struct nlmsghdr *header = begin(&message, NLMSG_DONE, NLM_F_MULTI);

	header->nlmsg_seq = kernel.sequence;
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

/* Tell of the VLAN interface INTERFACE + `number` of port 1; `type` RTM_DELLINK: it is gone. */
static void vlan_link(uint16_t type, unsigned number, uint16_t vlan)
{
	struct message message;
	struct nlmsghdr *header = begin(&message, type, 0);
	struct ifinfomsg *link = mnl_nlmsg_put_extra_header(header, sizeof(*link));
	struct nlattr *info, *data;

	link->ifi_index = INTERFACE + (int)number;
	link->ifi_flags = IFF_UP;
	mnl_attr_put(header, IFLA_ADDRESS, 6, (const uint8_t[]){2, 0, 0, 0, 0, 1});
	mnl_attr_put_u32(header, IFLA_MTU, MTU);
	mnl_attr_put_u32(header, IFLA_LINK, INTERFACE + 1);
	info = mnl_attr_nest_start(header, IFLA_LINKINFO);
	mnl_attr_put_strz(header, IFLA_INFO_KIND, "vlan");
	data = mnl_attr_nest_start(header, IFLA_INFO_DATA);
	mnl_attr_put_u16(header, IFLA_VLAN_PROTOCOL, htons(0x8100));
	mnl_attr_put_u16(header, IFLA_VLAN_ID, vlan);
	mnl_attr_nest_end(header, data);
	mnl_attr_nest_end(header, info);
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

struct via {
	uint32_t gateway; /* 0: connected */
	unsigned port;
	uint8_t weight;
};

/* Tell of an IPv4 route. */
static void route4(uint16_t type, uint16_t flags, uint32_t prefix, uint8_t length, uint32_t metric, uint8_t kind,
		   const struct via *vias, unsigned nb_vias)
{
	struct message message;
	struct nlmsghdr *header = begin(&message, type, flags);
	struct rtmsg *route = mnl_nlmsg_put_extra_header(header, sizeof(*route));

	route->rtm_family = AF_INET;
	route->rtm_dst_len = length;
	route->rtm_table = kind == RTN_LOCAL ? RT_TABLE_LOCAL : RT_TABLE_MAIN;
	route->rtm_type = kind;
	if (length > 0)
		mnl_attr_put_u32(header, RTA_DST, htonl(prefix));
	if (metric != 0)
		mnl_attr_put_u32(header, RTA_PRIORITY, metric);
	if (object != 0)
		mnl_attr_put_u32(header, RTA_NH_ID, object);
	if (nb_vias == 1) {
		mnl_attr_put_u32(header, RTA_OIF, INTERFACE + vias[0].port);
		if (vias[0].gateway != 0)
			mnl_attr_put_u32(header, RTA_GATEWAY, htonl(vias[0].gateway));
	} else if (nb_vias > 1) {
		struct nlattr *nest = mnl_attr_nest_start(header, RTA_MULTIPATH);

		for (unsigned i = 0; i < nb_vias; i++) {
			struct rtnexthop *next = mnl_nlmsg_get_payload_tail(header);

			header->nlmsg_len += sizeof(*next);
			*next = (struct rtnexthop){.rtnh_hops = vias[i].weight,
						   .rtnh_ifindex = INTERFACE + (int)vias[i].port};
			mnl_attr_put_u32(header, RTA_GATEWAY, htonl(vias[i].gateway));
			next->rtnh_len = (char *)mnl_nlmsg_get_payload_tail(header) - (char *)next;
		}
		mnl_attr_nest_end(header, nest);
	}
	router_kernel_take(&kernel, header, header->nlmsg_len);
}

static void add4(uint32_t prefix, uint8_t length, uint32_t gateway, unsigned port)
{
	route4(RTM_NEWROUTE, NLM_F_CREATE, prefix, length, 0, RTN_UNICAST, &(struct via){gateway, port, 0}, 1);
}

/* ------- frames ------- */

static struct rte_mbuf *mbuf_of(const struct frame *frame)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	assert_non_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, frame->length), frame->bytes, frame->length);
	return mbuf;
}

static struct rte_mbuf *udp4(uint32_t source, uint32_t destination, uint16_t port, uint8_t ttl)
{
	struct rte_ipv4_hdr *header;
	struct frame frame;

	frame_udp4(&frame, source, destination, port, 2);
	header = (struct rte_ipv4_hdr *)(frame.bytes + 14);
	header->time_to_live = ttl;
	header->hdr_checksum = rte_ipv4_cksum(header);
	return mbuf_of(&frame);
}

static struct rte_mbuf *tagged(uint16_t vlan, struct rte_mbuf *mbuf)
{
	uint8_t *frame;

	assert_non_null(rte_pktmbuf_prepend(mbuf, 4));
	frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	memmove(frame, frame + 4, 12);
	memcpy(frame + 12, ((uint16_t[]){htons(0x8100), htons(vlan)}), 4);
	return mbuf;
}

/* Let one frame in at a port; returns it if it leaves by the other one, for the caller to free. */
static struct rte_mbuf *pass(struct rte_mbuf *mbuf, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf};
	uint16_t nb_out = router.process(burst, 1, in, 0);

	assert_true(nb_out <= 1);
	return nb_out == 1 ? burst[0] : NULL;
}

static void expect_kernel(enum router_class class, uint16_t in)
{
	assert_int_equal(nb_kept, 1);
	assert_int_equal(kept[0].class, class);
	assert_int_equal(kept[0].in, in);
	nb_kept = 0;
}

static void expect_left(struct rte_mbuf *mbuf, uint8_t last, uint8_t ttl)
{
	const struct rte_ipv4_hdr *header;

	assert_non_null(mbuf);
	assert_int_equal(nb_kept, 0);
	assert_memory_equal(rte_pktmbuf_mtod(mbuf, uint8_t *), ((uint8_t[]){2, 0, 0, 0, 9, last}), 6);
	header = rte_pktmbuf_mtod_offset(mbuf, const struct rte_ipv4_hdr *, 14);
	assert_int_equal(header->time_to_live, ttl);
	assert_int_equal(rte_raw_cksum(header, sizeof(*header)), 0xffff);
	rte_pktmbuf_free(mbuf);
}

static uint64_t counter(uint16_t port, const char *name)
{
	json_t *counters = json_object();
	uint64_t value;

	router.keeping->describe(counters);
	value = json_integer_value(json_object_get(json_array_get(json_object_get(counters, "routed"), port), name));
	json_decref(counters);
	return value;
}

/* A row of a table, which stays the table's. */
static const json_t *row(const json_t *tables, const char *table, size_t number)
{
	return json_array_get(json_object_get(json_object_get(tables, table), "rows"), number);
}

static const char *text(const json_t *of, const char *name)
{
	return json_string_value(json_object_get(of, name));
}

static bool may_frame(struct router_asked *asked, struct rte_mbuf *mbuf, uint16_t in, uint64_t now)
{
	bool may;

	mbuf->port = in;
	may = router_asked_may(asked, mbuf, now);
	rte_pktmbuf_free(mbuf);
	return may;
}

static bool may(struct router_asked *asked, uint32_t source, uint32_t destination, uint64_t now)
{
	return may_frame(asked, udp4(source, destination, 1, 64), 0, now);
}

/* Of ICMPv6 from fe80::`source` to fe80::`destination`, in at port 1. */
static bool may_near(struct router_asked *asked, uint16_t source, uint16_t destination, uint8_t type)
{
	const uint8_t near[8] = {0xfe, 0x80};
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, source, destination, 58, 8);
	frame.bytes[21] = 255;
	memcpy(frame.bytes + 22, near, sizeof(near));
	memcpy(frame.bytes + 38, near, sizeof(near));
	frame_add8(&frame, type);
	for (unsigned i = 1; i < 8; i++)
		frame_add8(&frame, 0);
	return may_frame(asked, mbuf_of(&frame), 1, 1);
}

/* ------- the tests ------- */

static int start(void **state)
{
	assert_int_equal(router.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}),
			 0);
	kernel = (struct router_kernel){.interfaces = {INTERFACE, INTERFACE + 1}, .asking = 4};
	for (uint8_t port = 0; port < ROUTER_PORTS; port++) {
		/* Frames are made to station 1. */
		atomic_store(&router_table.links[port].mac, router_mac((const uint8_t[]){2, 0, 0, 0, 0, 1}));
		atomic_store(&router_table.links[port].mtu, MTU);
	}
	nb_kept = 0;
	kernel_full = false;
	nb_prompts = 0;
	object = 0;
	/* 10.0.0.0/24 at port 0, 10.0.1.0/24 at port 1, each with a neighbour .2 */
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		add4(0x0a000000 + (port << 8), 24, 0, port);
		route4(RTM_NEWROUTE, NLM_F_CREATE, 0x0a000001 + (port << 8), 32, 0, RTN_LOCAL,
		       &(struct via){0, port, 0}, 1);
		neighbour4(0x0a000002 + (port << 8), port, (uint8_t)(2 + port), NUD_REACHABLE);
	}
	return 0;
}

static int end(void **state)
{
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		rte_ring_free(the_tap->from_kernel[port]);
		the_tap->from_kernel[port] = NULL;
	}
	router.keeping->close();
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	return 0;
}

static void forwards_to_a_neighbour(void **state)
{
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	expect_left(pass(udp4(0x0a000102, 0x0a000002, 1, 2), 1), 2, 1);
}

static void expect_tagged(struct rte_mbuf *mbuf, uint16_t vlan, uint8_t last, uint8_t ttl)
{
	uint8_t *frame;

	assert_non_null(mbuf);
	frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	assert_memory_equal(frame + 12, ((uint16_t[]){htons(0x8100), htons(vlan), htons(0x0800)}), 6);
	memmove(frame + 4, frame, 12);
	rte_pktmbuf_adj(mbuf, 4);
	expect_left(mbuf, last, ttl);
}

static void vlans_of_a_port_are_links(void **state)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	uint32_t length;

	for (unsigned vlan = 0; vlan < 2; vlan++) {
		vlan_link(RTM_NEWLINK, 10 + vlan, 100 + vlan);
		add4(0xc0000200 + (vlan << 8), 24, 0, 10 + vlan);
		neighbour4(0xc0000209 + (vlan << 8), 10 + vlan, 50 + vlan, NUD_REACHABLE);
	}
	expect_tagged(pass(udp4(0x0a000002, 0xc0000209, 1, 64), 0), 100, 50, 63);
	burst[0] = tagged(100, udp4(0xc0000209, 0x0a000002, 1, 64));
	length = rte_pktmbuf_pkt_len(burst[0]);
	burst[0] = pass(burst[0], 1);
	assert_int_equal(rte_pktmbuf_pkt_len(burst[0]), length - 4);
	expect_left(burst[0], 2, 63);
	/* From one VLAN to the other of the same port. */
	assert_null(pass(tagged(100, udp4(0xc0000209, 0xc0000309, 1, 64)), 1));
	assert_int_equal(router.process(burst, 0, 0, 0), 1);
	expect_tagged(burst[0], 101, 51, 63);
	/* What the kernel gets is as it came. */
	assert_null(pass(tagged(100, udp4(0xc0000209, 0x0a000002, 1, 1)), 1));
	assert_int_equal(kept[0].length, length);
	expect_kernel(ROUTER_OTHERS, 1);
	assert_null(pass(tagged(102, udp4(0xc0000209, 0x0a000002, 1, 64)), 1));
	expect_kernel(ROUTER_NEIGHBOURS, 1);
	assert_null(pass(tagged(100, udp4(0xc0000209, 0x0a000002, 1, 64)), 0));
	expect_kernel(ROUTER_NEIGHBOURS, 0);
	vlan_link(RTM_DELLINK, 10, 100);
	assert_true(kernel.again);
	assert_null(pass(tagged(100, udp4(0xc0000209, 0x0a000002, 1, 64)), 1));
	expect_kernel(ROUTER_NEIGHBOURS, 1);
	/* It comes again, with another index. */
	vlan_link(RTM_NEWLINK, 12, 100);
	expect_left(pass(tagged(100, udp4(0xc0000209, 0x0a000002, 1, 64)), 1), 2, 63);
}

static void forwards_ipv6(void **state)
{
	for (uint8_t limit = 3; limit > 0; limit--) {
		struct rte_mbuf *mbuf;
		struct frame frame;

		network6(60);
		frame_macs(&frame, 1, 2);
		frame_ipv6(&frame, 1, 2, 17, 8);
		frame_ports(&frame, 1, 2);
		frame.bytes[21] = limit;
		mbuf = pass(mbuf_of(&frame), 0);
		if (limit == 1) {
			assert_null(mbuf);
			expect_kernel(ROUTER_OTHERS, 0);
			break;
		}
		assert_non_null(mbuf);
		assert_memory_equal(rte_pktmbuf_mtod(mbuf, uint8_t *), ((uint8_t[]){2, 0, 0, 0, 9, 60}), 6);
		assert_int_equal(rte_pktmbuf_mtod(mbuf, uint8_t *)[21], limit - 1);
		assert_memory_equal(rte_pktmbuf_mtod(mbuf, uint8_t *) + 22, frame.bytes + 22, frame.length - 22);
		rte_pktmbuf_free(mbuf);
	}
}

static void forwards_by_the_longest_prefix(void **state)
{
	neighbour4(0x0a000103, 1, 30, NUD_REACHABLE);
	add4(0, 0, 0x0a000102, 1);
	add4(0xc0000200, 24, 0x0a000103, 1);
	expect_left(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0), 30, 63);
	expect_left(pass(udp4(0x0a000002, 0xc0000301, 1, 64), 0), 3, 63);
	route4(RTM_DELROUTE, 0, 0xc0000200, 24, 0, RTN_UNICAST, &(struct via){0x0a000103, 1, 0}, 1);
	expect_left(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0), 3, 63);
}

static void what_came_in_goes_back_by_the_same_port(void **state)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];

	neighbour4(0x0a000003, 0, 40, NUD_REACHABLE);
	assert_null(pass(udp4(0x0a000002, 0x0a000003, 1, 64), 0));
	assert_true(router.keeping->pending(0));
	assert_int_equal(router.process(burst, 0, 1, 0), 1);
	expect_left(burst[0], 40, 63);
	assert_false(router.keeping->pending(0));
}

static void the_kernel_gets_what_has_no_neighbour_yet(void **state)
{
	assert_null(pass(udp4(0x0a000002, 0x0a000163, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	neighbour4(0x0a000163, 1, 50, NUD_REACHABLE);
	expect_left(pass(udp4(0x0a000002, 0x0a000163, 1, 64), 0), 50, 63);
	neighbour4(0x0a000163, 1, 51, NUD_REACHABLE); /* it has moved */
	expect_left(pass(udp4(0x0a000002, 0x0a000163, 1, 64), 0), 51, 63);
	neighbour4(0x0a000163, 1, 51, NUD_FAILED);
	assert_null(pass(udp4(0x0a000002, 0x0a000163, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	neighbour4(0x0a000163, 1, 51, 0);
	assert_null(pass(udp4(0x0a000002, 0x0a000163, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
}

/* Whoever answers for more addresses than there is room for takes it from nobody, and keeps it no longer than the
 * kernel does. */
static void neighbours_without_room_are_the_kernels(void **state)
{
	const uint32_t flood = 0x0a000200, last = flood + 2 * ROUTER_NEIGHBOURS_MOST;
	static struct router_asked asked;
	json_t *counters = json_object();
	const json_t *neighbours;

	add4(0x0a000000, 16, 0, 1);
	for (uint32_t address = flood; address < last; address++)
		neighbour4(address, 1, 60, NUD_REACHABLE);
	router.keeping->describe(counters);
	neighbours = json_object_get(counters, "neighbours");
	assert_int_equal(json_integer_value(json_object_get(neighbours, "known")), ROUTER_NEIGHBOURS_MOST);
	assert_in_range(json_integer_value(json_object_get(neighbours, "refused")), ROUTER_NEIGHBOURS_MOST,
			ROUTER_NEIGHBOURS_MOST + 8);
	json_decref(counters);
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	expect_left(pass(udp4(0x0a000002, flood, 1, 64), 0), 60, 63);
	assert_null(pass(udp4(0x0a000002, last - 1, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	/* Those are held to the bound of neighbours that nobody knows. */
	router_asked_open(&asked);
	for (uint32_t i = 1; i <= 64; i++) {
		assert_true(may(&asked, 0x0a000002, flood + i, 1));
		assert_int_equal(may(&asked, 0x0a000002, last - i, 1), i <= ROUTER_ASKED_PART);
	}
	for (uint32_t address = flood; address < last; address++)
		neighbour4(address, 1, 60, 0);
	neighbour4(last - 1, 1, 61, NUD_REACHABLE);
	expect_left(pass(udp4(0x0a000002, last - 1, 1, 64), 0), 61, 63);
}

enum { SENDER = 0x0a000002, AFAR = 0xc0000200, PORTS_PLACES = ROUTER_ASKED / ROUTER_PORTS };

/* So many of `number` frames the kernel may have: from as many networks, each to a neighbour of its own. */
static unsigned scan_from_everywhere(struct router_asked *asked, uint32_t first, unsigned number, uint16_t in)
{
	unsigned given = 0;

	for (unsigned i = 0; i < number; i++)
		given += may_frame(asked, udp4(0x64000001 + (i << 8), first + i, 1, 64), in, 1);
	return given;
}

/* A scan does not fill the kernel's table of neighbours. */
static void the_kernel_looks_for_so_many_neighbours_at_a_time(void **state)
{
	static struct router_asked asked;
	uint64_t now = 1;

	router_asked_open(&asked);
	add4(AFAR, 24, 0x0a000109, 1); /* behind a gateway */
	add4(0x0a010000, 16, 0, 1);
	for (unsigned round = 0; round < 2; round++, now += ROUTER_ASKED_MS) {
		/* Each as often as frames come for it. */
		for (unsigned i = 0; i < 2 * ROUTER_ASKED_PART; i++)
			assert_true(may(&asked, SENDER, 0x0a010000 + i / 2, now + 1));
		assert_false(may(&asked, SENDER, 0x0a010000 + ROUTER_ASKED, now + 2));
		assert_true(may(&asked, SENDER, 0x0a000102, now + 2)); /* known */
		assert_true(may(&asked, SENDER, 0x0a000001, now + 2)); /* the router itself */
		assert_true(may(&asked, SENDER, AFAR + 1, now + 2));
		assert_true(may(&asked, SENDER, 0x7b000001, now + 2)); /* no route */
		assert_true(may(&asked, SENDER, 0xe0000005, now + 2)); /* multicast */
	}
	/* One that is found makes room for another. */
	neighbour4(0x0a010007, 1, 60, NUD_REACHABLE);
	assert_true(may(&asked, SENDER, 0x0a000103, now - 1));
	assert_false(may(&asked, SENDER, 0x0a000104, now - 1));
}

static void a_scan_fills_the_part_of_its_sender_alone(void **state)
{
	static struct router_asked asked;
	unsigned given = 0;

	router_asked_open(&asked);
	add4(0x0a010000, 16, 0, 1);
	for (unsigned i = 0; i < 4096; i++)
		given += may(&asked, SENDER + i % 64, 0x0a010000 + i, 1);
	assert_int_equal(given, ROUTER_ASKED_PART);
	/* Whatever the secret is, most of others have other parts. */
	for (unsigned i = given = 0; i < 16; i++)
		given += may(&asked, 0x64000001 + (i << 8), 0x0a020000 - 1 - i % ROUTER_ASKED_PART, 1);
	assert_int_not_equal(given, 0);
	/* From everywhere at once it fills those of a port, and no more. */
	router_asked_open(&asked);
	assert_int_equal(scan_from_everywhere(&asked, 0x0a010000, 4096, 0), PORTS_PLACES);
	assert_int_equal(scan_from_everywhere(&asked, 0x0a012000, 4096, 1), PORTS_PLACES);
}

/* Who gets an answer of the router's own is a neighbour that the kernel looks for, too. */
static void answers_to_neighbours_that_nobody_knows_are_bounded(void **state)
{
	static struct router_asked asked;
	unsigned given = 0;

	router_asked_open(&asked);
	add4(0x0a010000, 16, 0, 1);
	for (unsigned i = 0; i < 200; i++)
		given += may(&asked, 0x0a010001 + i, 0x0a000001, 1);
	assert_int_equal(given, ROUTER_ASKED_PART);
	assert_true(may(&asked, 0x0a010001, 0x0a000101, 1)); /* asked for already */
	assert_true(may(&asked, 0x0a000002, 0x0a000001, 1)); /* known */
	assert_true(may(&asked, 0x64000001, 0x0a000001, 1)); /* no neighbour */
	for (unsigned i = given = 0; i < 1 << 16; i++)
		given += may(&asked, 0x0a010000 + i, 0x0a000001, 1);
	assert_int_equal(given, PORTS_PLACES);
}

static void link_local_neighbours_that_nobody_knows_are_bounded(void **state)
{
	enum { OWN = 1, SOLICITATION = 135, ADVERTISEMENT, ECHO = 128 };
	static struct router_asked asked;
	unsigned given = 0;

	router_asked_open(&asked);
	own6((const uint8_t[16]){0xfe, 0x80, [15] = OWN});
	for (uint16_t i = 2; i < 1000; i++)
		given += may_near(&asked, 2, i, ECHO);
	assert_int_equal(given, ROUTER_ASKED_PART);
	/* By these they are found. */
	for (uint16_t i = 2000; i < 3000; i++) {
		assert_true(may_near(&asked, i, OWN, SOLICITATION));
		assert_true(may_near(&asked, i, OWN, ADVERTISEMENT));
		assert_false(may_near(&asked, i, OWN, ECHO));
	}
	assert_true(may_near(&asked, 3, OWN, ECHO)); /* asked for already */
}

/* Where the kernel forwards all, the bound is as before. */
static void it_is_bounded_too_while_not_all_routes_fit(void **state)
{
	static struct router_asked asked;

	router_asked_open(&asked);
	for (uint32_t i = 0; i < 3000; i++)
		add4(0x64000000 + (i << 8), 24, 0x0a000102, 1);
	assert_true(atomic_load(&router_table.kernel[ROUTER_4]));
	for (unsigned i = 0; i < 2 * ROUTER_ASKED; i++) {
		assert_true(may(&asked, SENDER, 0x64000001 + i, 1)); /* behind a gateway */
		assert_true(may(&asked, SENDER, 0x7b000001 + i, 1)); /* of which nothing is held */
	}
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(may(&asked, SENDER, 0x0a000103 + i, 1), i < ROUTER_ASKED_PART);
	router_routes_begin(); /* for the tests after this one */
	router_routes_end();
}

/* No frame goes there, where later ones of its flow would overtake it. */
static void the_kernel_hears_that_a_stale_neighbour_is_used(void **state)
{
	neighbour4(0x0a000102, 1, 3, NUD_STALE);
	kernel_full = true;
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	kernel_full = false;
	for (unsigned i = 0; i < 3; i++)
		expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	assert_int_equal(nb_prompts, 1);
}

static void the_kernel_gets_what_is_for_the_router_or_cannot_go_on(void **state)
{
	struct frame frame;

	assert_null(pass(udp4(0x0a000002, 0x0a000001, 1, 1), 0));
	expect_kernel(ROUTER_ITSELF, 0);
	assert_null(pass(udp4(0x0a000102, 0x0a000001, 1, 64), 1));
	expect_kernel(ROUTER_ITSELF, 1);
	for (uint8_t ttl = 0; ttl < 2; ttl++) {
		assert_null(pass(udp4(0x0a000002, 0x0a000102, 1, ttl), 0));
		expect_kernel(ROUTER_OTHERS, 0);
	}
	assert_null(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0)); /* no route */
	expect_kernel(ROUTER_OTHERS, 0);
	atomic_store(&router_table.links[1].mtu, 27);
	assert_null(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	atomic_store(&router_table.links[1].mtu, 28);
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	frame_macs(&frame, 1, 2);
	frame_add16(&frame, 0x0806);
	assert_null(pass(mbuf_of(&frame), 1));
	expect_kernel(ROUTER_NEIGHBOURS, 1);
}

static void routes_that_the_fast_path_does_not_know_are_the_kernels(void **state)
{
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000200, 24, 0, RTN_UNREACHABLE, NULL, 0);
	assert_null(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	add4(0xc0000300, 24, 0x0a000102, 9); /* by an interface that is no port's */
	assert_null(pass(udp4(0x0a000002, 0xc0000301, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
}

static void drops_have_names(void **state)
{
	struct rte_mbuf *mbuf = udp4(0x0a000002, 0x0a000102, 1, 64);
	uint64_t before = counter(0, "drop_checksum"), full = counter(0, "drop_kernel_others"),
		 holes = counter(1, "drop_blackhole");

	*rte_pktmbuf_mtod_offset(mbuf, uint8_t *, 24) ^= 1;
	assert_null(pass(mbuf, 0));
	assert_int_equal(counter(0, "drop_checksum"), before + 1);
	kernel_full = true;
	assert_null(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0));
	assert_int_equal(counter(0, "drop_kernel_others"), full + 1);
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000200, 24, 0, RTN_BLACKHOLE, NULL, 0);
	assert_null(pass(udp4(0x0a000102, 0xc0000201, 1, 64), 1));
	assert_int_equal(counter(1, "drop_blackhole"), holes + 1);
	assert_int_equal(nb_kept, 0);
}

static void flows_share_several_next_hops_by_weight(void **state)
{
	const struct via vias[] = {{0x0a000102, 1, 0}, {0x0a000103, 1, 2}};
	unsigned sent[2] = {0};

	neighbour4(0x0a000103, 1, 30, NUD_REACHABLE);
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000200, 24, 0, RTN_UNICAST, vias, 2);
	for (uint16_t flow = 0; flow < 4000; flow++) {
		struct rte_mbuf *mbuf = pass(udp4(0x0a000002, 0xc0000201, flow, 64), 0);

		sent[rte_pktmbuf_mtod(mbuf, uint8_t *)[5] == 30]++;
		rte_pktmbuf_free(mbuf);
	}
	assert_in_range(sent[0], 800, 1200);
	for (unsigned i = 0; i < 10; i++) { /* a flow stays with one */
		struct rte_mbuf *mbuf = pass(udp4(0x0a000002, 0xc0000201, 77, 64), 0);

		sent[i > 0] = rte_pktmbuf_mtod(mbuf, uint8_t *)[5];
		rte_pktmbuf_free(mbuf);
		assert_true(i == 0 || sent[1] == sent[0]);
	}
}

static void the_lowest_metric_counts(void **state)
{
	const struct via first = {0x0a000102, 1, 0}, second = {0x0a000103, 1, 0};

	neighbour4(0x0a000103, 1, 30, NUD_REACHABLE);
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000200, 24, 200, RTN_UNICAST, &second, 1);
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000200, 24, 100, RTN_UNICAST, &first, 1);
	expect_left(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0), 3, 63);
	assert_false(kernel.again);
	/* The other one comes to light when the kernel is asked; until then the kernel forwards. */
	route4(RTM_DELROUTE, 0, 0xc0000200, 24, 100, RTN_UNICAST, &first, 1);
	assert_true(kernel.again);
	assert_null(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	router_routes_begin();
	route4(RTM_NEWROUTE, NLM_F_MULTI, 0xc0000200, 24, 200, RTN_UNICAST, &second, 1);
	router_routes_end();
	expect_left(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0), 30, 63);
}

static void routes_that_are_told_no_more_are_gone(void **state)
{
	add4(0xc0000200, 24, 0x0a000102, 1);
	add4(0xc0000300, 24, 0x0a000102, 1);
	router_routes_begin();
	for (unsigned twice = 0; twice < 2; twice++) /* the first of several counts */
		route4(RTM_NEWROUTE, NLM_F_MULTI, 0xc0000200, 24, 0, RTN_UNICAST,
		       &(struct via){0x0a000102 + twice, 1, 0}, 1);
	router_routes_end();
	expect_left(pass(udp4(0x0a000002, 0xc0000201, 1, 64), 0), 3, 63);
	assert_null(pass(udp4(0x0a000002, 0xc0000301, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
}

/* The news that they are gone may have been lost. */
static void neighbours_that_are_told_no_more_are_gone(void **state)
{
	kernel.again = true;
	assert_int_equal(router_kernel_ask(&kernel), -1);
	told_all(); /* links */
	neighbour4(0x0a000002, 0, 2, NUD_REACHABLE);
	told_all();
	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		add4(0x0a000000 + (port << 8), 24, 0, port);
	told_all();
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
	told_all();
	assert_true(router_kernel_complete(&kernel));
	expect_left(pass(udp4(0x0a000102, 0x0a000002, 1, 64), 1), 2, 63);
	assert_null(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
}

static void routes_are_asked_for_again_when_their_object_is_gone(void **state)
{
	enum { HOP = 5, GROUP };

	object = HOP;
	add4(0xc0000200, 24, 0x0a000102, 1);
	object = GROUP;
	route4(RTM_NEWROUTE, NLM_F_CREATE, 0xc0000300, 24, 0, RTN_BLACKHOLE, NULL, 0);
	/* Of what is given another content routes are told by themselves, and nobody leads by others. */
	next_hop_object(RTM_NEWNEXTHOP, NLM_F_CREATE | NLM_F_REPLACE, HOP);
	next_hop_object(RTM_DELNEXTHOP, 0, HOP + 2);
	assert_false(kernel.again);
	next_hop_object(RTM_NEWNEXTHOP, 0, GROUP); /* it has lost a member */
	assert_true(kernel.again);
	kernel.again = false;
	next_hop_object(RTM_DELNEXTHOP, 0, HOP);
	assert_true(kernel.again);
	kernel.again = false;
	object = 0;
	add4(0xc0000200, 24, 0x0a000102, 1);
	route4(RTM_DELROUTE, 0, 0xc0000300, 24, 0, RTN_BLACKHOLE, NULL, 0);
	next_hop_object(RTM_DELNEXTHOP, 0, HOP);
	next_hop_object(RTM_DELNEXTHOP, 0, GROUP);
	assert_false(kernel.again);
}

static void a_port_that_is_down_takes_nothing(void **state)
{
	const uint64_t before = counter(0, "drop_down");
	struct frame frame;

	port_link(0, 0);
	assert_true(kernel.again);
	assert_null(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0));
	frame_macs(&frame, 1, 2);
	memset(frame.bytes, 0xff, 6);
	frame_add16(&frame, 0x0806);
	assert_null(pass(mbuf_of(&frame), 0));
	assert_int_equal(nb_kept, 0);
	assert_int_equal(counter(0, "drop_down"), before + 2);
	expect_left(pass(udp4(0x0a000102, 0x0a000002, 1, 64), 1), 2, 63); /* the route to it goes by itself */
	port_link(0, IFF_UP);
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
}

static void what_the_kernel_sends_leaves(void **state)
{
	struct rte_mbuf *burst[FUNCTION_ROOM], *mbuf = udp4(1, 2, 3, 64);

	assert_int_equal(rte_ring_enqueue(the_tap->from_kernel[1], mbuf), 0);
	assert_int_equal(router.process(burst, 0, 1, 0), 0);
	assert_int_equal(router.process(burst, 0, 0, 0), 1);
	assert_ptr_equal(burst[0], mbuf);
	rte_pktmbuf_free(mbuf);
}

static void its_tables_are_shown(void **state)
{
	const json_t *shown, *to;
	json_t *tables = json_object();

	add4(0, 0, 0x0a000102, 1);
	neighbour4(0x0a000003, 0, 40, NUD_STALE);
	router.keeping->tables(tables, 100);
	/* Two networks, the router's own address in each, and the default route. */
	assert_int_equal(json_integer_value(json_object_get(json_object_get(tables, "ipv4_routes"), "total")), 5);
	shown = row(tables, "ipv4_routes", 4);
	to = json_object_get(shown, "to");
	assert_string_equal(text(shown, "prefix"), "0.0.0.0/0");
	assert_string_equal(json_string_value(json_array_get(to, 0)), "10.0.1.2 port1");
	to = json_object_get(row(tables, "ipv4_routes", 1), "to");
	assert_string_equal(json_string_value(json_array_get(to, 0)), "itself");
	shown = row(tables, "neighbours", 2);
	assert_string_equal(text(shown, "address"), "10.0.0.3");
	assert_string_equal(text(shown, "mac"), "02:00:00:00:09:28");
	assert_string_equal(text(shown, "state"), "stale");
	assert_null(row(tables, "ipv6_routes", 0));
	json_decref(tables);

	tables = json_object();
	router.keeping->tables(tables, 1);
	assert_non_null(row(tables, "ipv4_routes", 0));
	assert_null(row(tables, "ipv4_routes", 1));
	json_decref(tables);
}

static void a_whole_burst_leaves_in_order(void **state)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];

	for (uint16_t i = 0; i < ROUTER_BURST; i++)
		burst[i] = udp4(0x0a000002, i % 5 == 4 ? 0x0a000001 : 0x0a000102, i, 64);
	assert_int_equal(router.process(burst, ROUTER_BURST, 0, 0), ROUTER_BURST - ROUTER_BURST / 5);
	assert_int_equal(nb_kept, ROUTER_BURST / 5);
	for (uint16_t i = 0, out = 0; i < ROUTER_BURST; i++)
		if (i % 5 != 4) {
			assert_int_equal(rte_pktmbuf_mtod_offset(burst[out], uint16_t *, 34)[0], htons(i));
			rte_pktmbuf_free(burst[out++]);
		}
}

/* Beside a list that is searched from one end to the other. */
static void finds_what_a_list_finds(void **state)
{
	enum { ROUTES = 500, LOOKS = 20000 };
	struct {
		uint32_t prefix;
		uint8_t length;
		bool there;
	} list[ROUTES];
	uint64_t seed = 5;

	for (unsigned i = 0; i < ROUTES; i++) {
		list[i].length = 8 + random64(&seed) % 25;
		list[i].prefix = (0x64000000 | (random64(&seed) & 0x00ffffff)) & (UINT32_MAX << (32 - list[i].length));
		list[i].there = true;
		add4(list[i].prefix, list[i].length, 0x0a000102, 1);
	}
	for (unsigned i = 0; i < ROUTES; i += 3) {
		route4(RTM_DELROUTE, 0, list[i].prefix, list[i].length, 0, RTN_UNICAST, &(struct via){0x0a000102, 1, 0},
		       1);
		for (unsigned j = 0; j < ROUTES; j++) /* the same one may be there twice */
			if (list[j].prefix == list[i].prefix && list[j].length == list[i].length)
				list[j].there = false;
	}
	for (unsigned look = 0; look < LOOKS; look++) {
		uint32_t address = 0x64000000 | (random64(&seed) & 0x00ffffff);
		uint64_t found;
		bool there = false;

		for (unsigned i = 0; i < ROUTES; i++)
			there |= list[i].there && (address & (UINT32_MAX << (32 - list[i].length))) == list[i].prefix;
		router_lookup4(&address, &found, 1);
		assert_int_equal(found >= ROUTE_FIRST_HOP, there);
	}
}

static void with_too_many_routes_the_kernel_forwards_all(void **state)
{
	for (uint32_t i = 0; i < 3000; i++)
		add4(0x64000000 + (i << 8), 24, 0x0a000102, 1);
	assert_null(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0));
	expect_kernel(ROUTER_OTHERS, 0);
	router_routes_begin();
	add4(0x0a000100, 24, 0, 1);
	router_routes_end();
	expect_left(pass(udp4(0x0a000002, 0x0a000102, 1, 64), 0), 3, 63);
}

static int start_all(void **state)
{
	pool = start_dpdk_with_pool(256, FRAMES);
	return pool == NULL || grace_open() != 0 || router.set("ipv4-routes", "1000") != NULL ||
	       router.set("ipv6-routes", "1000") != NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forwards_to_a_neighbour, start, end),
		cmocka_unit_test_setup_teardown(vlans_of_a_port_are_links, start, end),
		cmocka_unit_test_setup_teardown(a_port_that_is_down_takes_nothing, start, end),
		cmocka_unit_test_setup_teardown(neighbours_that_are_told_no_more_are_gone, start, end),
		cmocka_unit_test_setup_teardown(routes_are_asked_for_again_when_their_object_is_gone, start, end),
		cmocka_unit_test_setup_teardown(forwards_ipv6, start, end),
		cmocka_unit_test_setup_teardown(forwards_by_the_longest_prefix, start, end),
		cmocka_unit_test_setup_teardown(what_came_in_goes_back_by_the_same_port, start, end),
		cmocka_unit_test_setup_teardown(the_kernel_gets_what_has_no_neighbour_yet, start, end),
		cmocka_unit_test_setup_teardown(neighbours_without_room_are_the_kernels, start, end),
		cmocka_unit_test_setup_teardown(the_kernel_looks_for_so_many_neighbours_at_a_time, start, end),
		cmocka_unit_test_setup_teardown(a_scan_fills_the_part_of_its_sender_alone, start, end),
		cmocka_unit_test_setup_teardown(answers_to_neighbours_that_nobody_knows_are_bounded, start, end),
		cmocka_unit_test_setup_teardown(link_local_neighbours_that_nobody_knows_are_bounded, start, end),
		cmocka_unit_test_setup_teardown(it_is_bounded_too_while_not_all_routes_fit, start, end),
		cmocka_unit_test_setup_teardown(the_kernel_hears_that_a_stale_neighbour_is_used, start, end),
		cmocka_unit_test_setup_teardown(the_kernel_gets_what_is_for_the_router_or_cannot_go_on, start, end),
		cmocka_unit_test_setup_teardown(routes_that_the_fast_path_does_not_know_are_the_kernels, start, end),
		cmocka_unit_test_setup_teardown(drops_have_names, start, end),
		cmocka_unit_test_setup_teardown(flows_share_several_next_hops_by_weight, start, end),
		cmocka_unit_test_setup_teardown(the_lowest_metric_counts, start, end),
		cmocka_unit_test_setup_teardown(routes_that_are_told_no_more_are_gone, start, end),
		cmocka_unit_test_setup_teardown(what_the_kernel_sends_leaves, start, end),
		cmocka_unit_test_setup_teardown(its_tables_are_shown, start, end),
		cmocka_unit_test_setup_teardown(a_whole_burst_leaves_in_order, start, end),
		cmocka_unit_test_setup_teardown(finds_what_a_list_finds, start, end),
		cmocka_unit_test_setup_teardown(with_too_many_routes_the_kernel_forwards_all, start, end),
	};

	return cmocka_run_group_tests(tests, start_all, NULL);
}
