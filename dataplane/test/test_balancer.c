/* SPDX-License-Identifier: Apache-2.0
 *
 * The balancer, by crafted frames, back ends that answer its probes, and clocks that the test moves.
 */
#include "test/segments.h"

#include <rte_arp.h>
#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/balancer.h"
#include "functions/balancer_handover.h"
#include "functions/function.h"
#include "steer/pin.h"
#include "test/handed_over.h"
#include "test/start_dpdk.h"

#define CONNECTIONS 256
enum {
	FRAMES = 1024,
	CLIENT = 0x0a000002,
	OWN = 0xc6120109,     /* 198.18.1.9 */
	VIRTUAL = 0xc0000201, /* 192.0.2.1 */
	FIRST = 0xc6120100,   /* back end n is at 198.18.1.n */
	ENDS = 4,
	SIX = 0x100, /* likewise 2001:db8::n, the virtual address 2001:db8::1:0, and the balancer's own 2001:db8::9 */
	VIRTUAL6 = 0x10000,
	STATION = 0x20, /* the last byte of back end n's MAC address is this and n */
};

static struct rte_mempool *pool;
static uint64_t now;	 /* TSC */
static uint64_t ms;	 /* of the health thread */
static unsigned deaf;	 /* bits: back ends that answer nothing */
static unsigned refuses; /* bits: that answer a SYN by a reset */
static bool routed;	 /* back ends are behind a gateway */
static unsigned nb_queues = 1;

/* ------- settings ------- */

/* Tell it another set; returns what is wrong with it, or NULL. */
static const char *tell(const char *text)
{
	static struct control_error error;
	json_t *params = json_loads(text, 0, NULL);
	int rc;

	assert_non_null(params);
	rc = balancer.keeping->configure(params, &error);
	json_decref(params);
	return rc == 0 ? NULL : error.message;
}

#define OWN_ADDRESSES "\"source\": [\"198.18.1.9\", \"2001:db8::9\"], \"secret\": \"s\""
#define END(n, more)  "{\"name\": \"" #n "\", \"address\": \"198.18.1." #n "\", \"port\": 8080" more "}"
#define SET(...)      "{" OWN_ADDRESSES ", \"services\": [" __VA_ARGS__ "]}"
#define WEB(ends)     "{\"name\": \"web\", \"address\": \"192.0.2.1\", \"port\": 80, \"back_ends\": [" ends "]}"
#define NAMES                                                                                                     \
	"{\"name\": \"names\", \"address\": \"192.0.2.1\", \"port\": 53, \"protocol\": \"udp\", \"back_ends\": [" \
	"{\"name\": \"n1\", \"address\": \"198.18.1.1\", \"port\": 53}, "                                         \
	"{\"name\": \"n2\", \"address\": \"198.18.1.2\", \"port\": 53}]}"
#define WEB6                                                                                  \
	"{\"name\": \"web6\", \"address\": \"2001:db8::1:0\", \"port\": 80, \"back_ends\": [" \
	"{\"name\": \"s1\", \"address\": \"2001:db8::1\", \"port\": 8080}, "                  \
	"{\"name\": \"s2\", \"address\": \"2001:db8::2\", \"port\": 8080}]}"
#define DIRECT                                                                                                     \
	"{\"name\": \"direct\", \"address\": \"192.0.2.2\", \"port\": 80, \"mode\": \"direct\", \"health\": "      \
	"{\"by\": \"neighbour\"}, \"back_ends\": [{\"name\": \"d1\", \"address\": \"198.18.1.1\", \"port\": 80}, " \
	"{\"name\": \"d2\", \"address\": \"198.18.1.2\", \"port\": 80}]}"
#define ALL_ENDS END(1, "") ", " END(2, "") ", " END(3, "") ", " END(4, "")

/* ------- back ends ------- */

static void let_in(const struct frame *frame, uint16_t in);

static void answer_arp(const struct frame *asked, uint8_t station)
{
	struct frame frame = {0};
	struct rte_arp_hdr arp;
	const uint8_t mac[6] = {2, 0, 0, 0, 0, station};

	memcpy(&arp, asked->bytes + 14, sizeof(arp));
	frame_add(&frame, asked->bytes + 6, 6);
	frame_add(&frame, mac, 6);
	frame_add16(&frame, RTE_ETHER_TYPE_ARP);
	arp.arp_opcode = htons(RTE_ARP_OP_REPLY);
	arp.arp_data.arp_tha = arp.arp_data.arp_sha;
	memcpy(&arp.arp_data.arp_sha, mac, 6);
	RTE_SWAP(arp.arp_data.arp_sip, arp.arp_data.arp_tip);
	frame_add(&frame, &arp, sizeof(arp));
	let_in(&frame, 1);
}

static void answer_solicitation(const struct frame *asked, uint8_t station)
{
	struct frame frame;
	const uint8_t mac[6] = {2, 0, 0, 0, 0, station};

	frame_macs(&frame, 9, station);
	frame_ipv6(&frame, station - STATION, 9, IPPROTO_ICMPV6, 32);
	ip6_of(&frame)->hop_limits = 255;
	frame_add32(&frame, 136u << 24);
	frame_add32(&frame, 0x60000000);
	frame_add(&frame, asked->bytes + 14 + 40 + 8, 16);
	frame_add16(&frame, 2 << 8 | 1);
	frame_add(&frame, mac, 6);
	finish(&frame);
	let_in(&frame, 1);
}

static uint32_t sequence_of(struct frame *frame)
{
	uint32_t sequence;

	memcpy(&sequence, payload_of(frame) + 4, 4);
	return ntohl(sequence);
}

static void swap(uint8_t *bytes, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		RTE_SWAP(bytes[i], bytes[size + i]);
}

/* A SYN or an echo request comes back as its answer. */
static void answer_probe(struct frame probe, uint8_t station)
{
	check_sums(&probe);
	assert_true(probe.bytes[5] == station || routed);
	swap(probe.bytes, 6);
	if (is_six(&probe))
		swap(probe.bytes + 14 + 8, 16);
	else
		swap(probe.bytes + 14 + 12, 4);
	if (protocol_of(&probe) == IPPROTO_TCP) {
		struct rte_tcp_hdr *header = (struct rte_tcp_hdr *)payload_of(&probe);

		if (header->tcp_flags == RST)
			return;
		assert_int_equal(header->tcp_flags, SYN);
		header->recv_ack = htonl(sequence_of(&probe) + 1);
		header->tcp_flags = refuses & 1u << (station - STATION) ? RST | ACK : SYN | ACK;
		RTE_SWAP(header->src_port, header->dst_port);
	} else {
		payload_of(&probe)[0] = is_six(&probe) ? 129 : 0;
	}
	finish(&probe);
	let_in(&probe, 1);
}

/* What the balancer sends of its own at port 1 is answered by those that hear. */
static void answer(struct frame *frame)
{
	const uint16_t type = (uint16_t)(frame->bytes[12] << 8 | frame->bytes[13]);
	uint8_t end;

	if (type == RTE_ETHER_TYPE_ARP)
		end = frame->bytes[14 + 27];
	else if (is_six(frame))
		end = protocol_of(frame) == IPPROTO_ICMPV6 && payload_of(frame)[0] == 135 ? payload_of(frame)[23]
											  : frame->bytes[14 + 39];
	else
		end = frame->bytes[14 + 19];
	if (deaf & 1u << end)
		return;
	if (type == RTE_ETHER_TYPE_ARP)
		answer_arp(frame, STATION + end);
	else if (is_six(frame) && payload_of(frame)[0] == 135 && protocol_of(frame) == IPPROTO_ICMPV6)
		answer_solicitation(frame, STATION + end);
	else
		answer_probe(*frame, STATION + end);
}

/* ------- frames ------- */

static void copy_out(struct frame *frame, struct rte_mbuf *mbuf)
{
	frame->length = rte_pktmbuf_pkt_len(mbuf);
	memcpy(frame->bytes, rte_pktmbuf_mtod(mbuf, void *), frame->length);
	rte_pktmbuf_free(mbuf);
}

/* Of all queues together, of the frames that came in at a port. */
static struct balancer_counters counted(uint16_t in)
{
	struct balancer_counters sum = {.passed = 0};

	for (unsigned i = 0; i < the_balancer.nb_lanes; i++) {
		const struct balancer_counters *counters = &the_balancer.lanes[i].counters[in];

		sum.untouched += counters->untouched;
		sum.unkept += counters->unkept;
		sum.taken += counters->taken;
		for (unsigned why = 0; why < VERDICTS; why++)
			sum.drops[why] += counters->drops[why];
	}
	return sum;
}

static uint32_t known(void)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < the_balancer.nb_lanes; i++)
		sum += the_balancer.lanes[i].flows.used;
	return sum;
}

/* Of the connections of all queues. */
static json_int_t counted_of(const char *name)
{
	json_t *counters = connections_describe(&balancer_handover.tables);
	const json_int_t count = json_integer_value(json_object_get(counters, name));

	json_decref(counters);
	return count;
}

static uint32_t all_records(struct handover_record *records)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < the_balancer.nb_lanes; i++)
		count += handed_over(&balancer_handover, &the_balancer.lanes[i].flows, records + count);
	return count;
}

/* Where a frame belongs that comes in by some queue, of its own addresses. */
static unsigned home_of(struct rte_mbuf *mbuf, uint16_t in)
{
	uint8_t home;

	if (the_balancer.nb_lanes == 1)
		return 0;
	balancer.homes(&mbuf, 1, in, (uint16_t)(the_balancer.nb_lanes / 2), &home);
	assert_in_range(home, 0, the_balancer.nb_lanes - 1);
	return home;
}

static uint16_t process(const struct frame *frame, struct rte_mbuf **burst, uint16_t in)
{
	if (frame == NULL)
		return balancer_balance(&the_balancer.lanes[0], burst, 0, in, now);
	burst[0] = rte_pktmbuf_alloc(pool);
	assert_non_null(burst[0]);
	memcpy(rte_pktmbuf_append(burst[0], (uint16_t)frame->length), frame->bytes, frame->length);
	return balancer_balance(&the_balancer.lanes[home_of(burst[0], in)], burst, 1, in, now);
}

/* Of a back end: the balancer takes it. */
static void let_in(const struct frame *frame, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	const uint64_t taken = counted(in).taken;

	assert_int_equal(process(frame, burst, in), 0);
	assert_int_equal(counted(in).taken, taken + 1);
}

/* What the balancer has to send of its own, and what back ends answer, until it has nothing more. */
static void talk(void)
{
	for (bool any = true; any;) {
		struct rte_mbuf *burst[FUNCTION_ROOM];
		uint16_t nb;

		balancer_health_step(&the_balancer, ms);
		nb = process(NULL, burst, 0);
		any = nb > 0;
		for (uint16_t i = 0; i < nb; i++) {
			struct frame frame;

			copy_out(&frame, burst[i]);
			answer(&frame);
		}
	}
}

/* Time in which probes are sent and answered. */
static void wait_ms(unsigned time)
{
	for (const uint64_t until = ms + time; ms < until; ms += 100)
		talk();
}

static void wait_seconds(unsigned seconds)
{
	now += seconds * rte_get_tsc_hz();
}

/* Let a frame in at a port; what leaves takes its place.  Returns VERDICT_PASS, or the reason why it was dropped. */
static enum verdict pass(struct frame *frame, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	const struct balancer_counters before = counted(in);
	const uint16_t nb_out = process(frame, burst, in);

	if (nb_out == 1) {
		copy_out(frame, burst[0]);
		return VERDICT_PASS;
	}
	for (unsigned why = 0; why < VERDICTS; why++)
		if (counted(in).drops[why] != before.drops[why])
			return why;
	fail();
	return VERDICT_PASS;
}

#define expect(verdict, in, ...)                                           \
	do {                                                               \
		struct frame expected_ = __VA_ARGS__;                      \
		assert_int_equal(pass(&expected_, in), VERDICT_##verdict); \
	} while (0)

/* The back end that a client's frame is for, by its address. */
static unsigned end_of(struct frame frame)
{
	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	check_sums(&frame);
	return is_six(&frame) ? frame.bytes[14 + 39] : frame.bytes[14 + 19];
}

#define CLIENT_SENDS(port, flags)   tcp(CLIENT, port, VIRTUAL, 80, flags)
#define END_SENDS(end, port, flags) tcp(FIRST + (end), 8080, CLIENT, port, flags)

static unsigned connect_from(uint16_t port)
{
	const unsigned end = end_of(CLIENT_SENDS(port, SYN));

	expect(PASS, 1, END_SENDS(end, port, SYN | ACK));
	assert_int_equal(end_of(CLIENT_SENDS(port, ACK)), end);
	return end;
}

static int open_with(const char *settings)
{
	now = rte_get_tsc_hz();
	ms = 1000;
	deaf = refuses = 0;
	routed = false;
	assert_null(balancer.set("connections", RTE_STR(CONNECTIONS)));
	if (balancer.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = nb_queues}) != 0)
		return -1;
	assert_null(tell(settings));
	wait_ms(100);
	return 0;
}

static int start(void **state)
{
	return open_with(SET(WEB(ALL_ENDS) ", " NAMES ", " WEB6 ", " DIRECT));
}

static int start_several(void **state)
{
	nb_queues = 4;
	return start(state);
}

static int end(void **state)
{
	balancer.keeping->close();
	nb_queues = 1;
	return rte_mempool_in_use_count(pool) != 0;
}

/* ------- connections ------- */

static void a_connection_stays_with_one_end(void **state)
{
	unsigned seen = 0;

	for (uint16_t port = 1000; port < 1064; port++) {
		const unsigned to = connect_from(port);

		assert_in_range(to, 1, ENDS);
		seen |= 1u << to;
	}
	assert_int_equal(seen, 0x1e);
	assert_int_equal(known(), 64);
}

static void frames_go_to_the_ends_station_and_answers_come_from_the_virtual_address(void **state)
{
	struct frame frame = CLIENT_SENDS(1000, SYN), back;
	const struct rte_tcp_hdr *header = (const struct rte_tcp_hdr *)payload_of(&frame);
	unsigned to;

	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	check_sums(&frame);
	to = frame.bytes[14 + 19];
	assert_int_equal(ntohl(ip_of(&frame)->dst_addr), FIRST + to);
	assert_int_equal(ntohl(ip_of(&frame)->src_addr), CLIENT);
	assert_int_equal(ntohs(header->dst_port), 8080);
	assert_int_equal(frame.bytes[5], STATION + to);
	back = END_SENDS(to, 1000, SYN | ACK);
	assert_int_equal(pass(&back, 1), VERDICT_PASS);
	check_sums(&back);
	assert_int_equal(ntohl(ip_of(&back)->src_addr), VIRTUAL);
	assert_int_equal(ntohs(((const struct rte_tcp_hdr *)payload_of(&back))->src_port), 80);
	assert_int_equal(back.bytes[5], 1); /* the frame's own */
}

static void of_ipv6_too(void **state)
{
	struct frame frame = tcp6(77, 1000, VIRTUAL6, 80, SYN), back;
	unsigned to;

	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	check_sums(&frame);
	to = frame.bytes[14 + 39];
	assert_in_range(to, 1, 2);
	assert_int_equal(frame.bytes[5], STATION + to);
	back = tcp6(to, 8080, 77, 1000, SYN | ACK);
	assert_int_equal(pass(&back, 1), VERDICT_PASS);
	check_sums(&back);
	assert_int_equal(back.bytes[14 + 8 + 13], 1); /* 2001:db8::1:0 */
	assert_int_equal(back.bytes[14 + 8 + 15], 0);
}

static void datagrams_have_connections(void **state)
{
	const unsigned to = end_of(udp(CLIENT, 1000, VIRTUAL, 53));
	struct frame back = udp(FIRST + to, 53, CLIENT, 1000), own = udp(FIRST + to, 53, 0x08080808, 53), copy = own;

	assert_int_equal(pass(&back, 1), VERDICT_PASS);
	check_sums(&back);
	assert_int_equal(ntohl(ip_of(&back)->src_addr), VIRTUAL);
	/* What it asks others is its own. */
	assert_int_equal(pass(&own, 1), VERDICT_PASS);
	assert_memory_equal(own.bytes, copy.bytes, copy.length);
	assert_int_equal(counted(1).untouched, 1);
}

/* ------- other sets ------- */

static void connections_go_on_when_ends_come_and_are_drained(void **state)
{
	unsigned to[32];

	assert_null(tell(SET(WEB(END(1, "") ", " END(2, "")))));
	for (uint16_t i = 0; i < 32; i++)
		to[i] = connect_from(1000 + i);
	assert_null(tell(SET(WEB(END(1, "") ", " END(2, ", \"drain\": true") ", " END(3, "") ", " END(4, "")))));
	wait_ms(100);
	for (uint16_t i = 0; i < 32; i++)
		assert_int_equal(end_of(CLIENT_SENDS(1000 + i, ACK)), to[i]);
	for (uint16_t port = 2000; port < 2064; port++)
		assert_int_not_equal(connect_from(port), 2);
}

static void connections_of_an_end_that_is_removed_go_elsewhere(void **state)
{
	struct balancer_set *set = &the_balancer.set;
	unsigned to = 0;

	for (uint16_t port = 1000; to != 3; port++)
		to = connect_from(port);
	assert_null(tell(SET(WEB(END(1, "") ", " END(2, "")))));
	for (uint16_t port = 1000; port < 1100; port++)
		assert_int_not_equal(end_of(CLIENT_SENDS(port, SYN)), 3);
	expect(PASS, 1, END_SENDS(3, 1000, ACK)); /* nobody's any more, so it passes as it came */
	assert_int_equal(counted(1).untouched, 1);
	/* Its number is not another's as long as a connection has it. */
	for (uint16_t i = 1; i < BALANCER_END_NUMBERS; i++)
		assert_true(set->ends[i].state != BALANCER_REMOVED || balancer_set_counts(set, i).connections == 0);
}

static void a_number_is_not_given_away_while_connections_have_it(void **state)
{
	unsigned to = 0, removed;
	uint16_t port = 1000;

	for (; to != 1; port++)
		to = connect_from(port);
	for (removed = 1; the_balancer.set.ends[removed].address.bytes[3] != 1 ||
			  the_balancer.set.services[the_balancer.set.ends[removed].service].port != 80 ||
			  the_balancer.set.ends[removed].port != 8080;)
		removed++;
	assert_int_equal(balancer_set_counts(&the_balancer.set, removed).connections, 1);
	assert_null(tell(SET(WEB(END(2, "")))));
	assert_null(tell(SET(WEB(END(2, "") ", " END(3, "") ", " END(4, "")))));
	assert_int_equal(the_balancer.set.ends[removed].state, BALANCER_REMOVED);
	end_of(CLIENT_SENDS(port - 1, SYN));
	assert_int_equal(balancer_set_counts(&the_balancer.set, removed).connections, 0);
	assert_null(tell(SET(WEB(ALL_ENDS))));
	assert_int_equal(the_balancer.set.ends[removed].state, BALANCER_DOWN);
}

static void segments_of_an_unknown_connection_go_where_the_hash_leads(void **state)
{
	unsigned to[32];

	for (uint16_t i = 0; i < 32; i++)
		to[i] = connect_from(1000 + i);
	/* A restart: with the same set and secret. */
	assert_int_equal(end(NULL), 0);
	assert_int_equal(start(NULL), 0);
	for (uint16_t i = 0; i < 32; i++) {
		struct frame back = END_SENDS(to[i], 1000 + i, ACK);

		assert_int_equal(end_of(CLIENT_SENDS(1000 + i, ACK)), to[i]);
		assert_int_equal(pass(&back, 1), VERDICT_PASS);
		assert_int_equal(ntohl(ip_of(&back)->src_addr), VIRTUAL);
	}
	assert_int_equal(known(), 0);
	assert_int_equal(counted(0).unkept, 32);
	/* So do errors about them, while there are such. */
	for (uint16_t i = 0; i < 32; i++) {
		struct frame back = END_SENDS(to[i], 1000 + i, ACK),
			     sent = tcp(CLIENT, 1000 + i, FIRST + to[i], 8080, ACK);
		struct frame about;

		assert_int_equal(pass(&back, 1), VERDICT_PASS);
		about = error(0x0c000001, VIRTUAL, &back, 28);
		assert_int_equal(end_of(about), to[i]);
		about = error(0x0c000001, CLIENT, &sent, 28);
		assert_int_equal(pass(&about, 1), VERDICT_PASS);
		check_sums(&about);
		sent = tcp(CLIENT, 1000 + i, FIRST + to[i] % ENDS + 1, 8080, ACK);
		about = error(0x0c000001, CLIENT, &sent, 28);
		assert_int_equal(pass(&about, 1), VERDICT_DROP_unrelated);
	}
	wait_seconds(121);
	expect(DROP_unrelated, 0, ({
		       struct frame back = tcp(VIRTUAL, 80, CLIENT, 1000, ACK);
		       error(0x0c000001, VIRTUAL, &back, 28);
	       }));
}

static void a_flood_of_beginnings_takes_nothing_from_connections_in_use(void **state)
{
	unsigned to[32];

	for (uint16_t i = 0; i < 32; i++)
		to[i] = connect_from(1000 + i);
	for (unsigned i = 0; i < 4 * CONNECTIONS; i++)
		end_of(tcp(0x0b000000 + i, 1, VIRTUAL, 80, SYN));
	assert_true(known() <= CONNECTIONS && counted_of("gave_way") > 0);
	assert_null(tell(SET(WEB(ALL_ENDS ", " END(5, "")))));
	wait_ms(100);
	for (uint16_t i = 0; i < 32; i++)
		assert_int_equal(end_of(CLIENT_SENDS(1000 + i, ACK)), to[i]);
}

static void a_full_table_costs_memory_of_connections_not_connections(void **state)
{
	for (unsigned i = 0; i < 2 * CONNECTIONS; i++) {
		const uint32_t client = 0x0b000000 + i;
		const unsigned to = end_of(tcp(client, 1, VIRTUAL, 80, SYN));

		expect(PASS, 1, tcp(FIRST + to, 8080, client, 1, SYN | ACK));
		assert_int_equal(end_of(tcp(client, 1, VIRTUAL, 80, ACK)), to);
	}
	assert_true(counted(0).unkept > 0);
}

/* Datagrams in use do not give way: those of clients that have no entry are answered too. */
static void a_full_table_costs_no_datagrams_either(void **state)
{
	struct frame own;

	for (unsigned i = 0; i < 4 * CONNECTIONS; i++) {
		const uint32_t client = 0x0b000000 + i;
		const unsigned to = end_of(udp(client, 1, VIRTUAL, 53));
		struct frame back = udp(FIRST + to, 53, client, 1);

		assert_int_equal(pass(&back, 1), VERDICT_PASS);
		check_sums(&back);
		assert_int_equal(ntohl(ip_of(&back)->src_addr), VIRTUAL);
	}
	assert_true(counted(0).unkept > 0);
	/* Later there is room again, and what ends send unasked is their own. */
	wait_seconds(400);
	for (unsigned i = 1; i <= 2; i++) {
		own = udp(FIRST + i, 53, 0x08080808, 53);
		assert_int_equal(pass(&own, 1), VERDICT_PASS);
		assert_int_equal(ntohl(ip_of(&own)->src_addr), FIRST + i);
	}
}

/* ------- health ------- */

static void without_a_back_end_that_is_up_nothing_begins(void **state)
{
	deaf = 0x1e;
	wait_ms(10000);
	expect(DROP_no_back_end, 0, CLIENT_SENDS(1000, SYN));
	deaf = 0x1a; /* 2 hears again, and is up by two answers */
	wait_ms(5000);
	for (uint16_t port = 1000; port < 1010; port++)
		assert_int_equal(connect_from(port), 2);
}

static void an_end_is_down_by_three_probes_and_up_by_two(void **state)
{
	const uint64_t events = the_balancer.health.nb_events;
	const struct balancer_set *set = &the_balancer.set;
	unsigned to = 0;
	uint16_t port = 1000;

	for (; to != 1; port++)
		to = connect_from(port);
	deaf = 2;
	wait_ms(4000);
	assert_int_equal(end_of(CLIENT_SENDS(port - 1, ACK)), 1);
	assert_int_equal(the_balancer.health.nb_events, events);
	wait_ms(3000);
	assert_true(the_balancer.health.nb_events > events);
	assert_int_not_equal(end_of(CLIENT_SENDS(port - 1, ACK)), 1);
	deaf = 0;
	wait_ms(1500); /* one probe */
	for (unsigned i = 0; i < 64; i++)
		assert_int_not_equal(end_of(CLIENT_SENDS(2000 + i, SYN)), 1);
	wait_ms(2500);
	for (unsigned i = 0; i < set->nb_used; i++)
		assert_true(balancer_end_is_up(&set->ends[set->used[i]]));
}

#define BY_NEIGHBOUR(ends)                                                                                    \
	"{\"name\": \"near\", \"address\": \"192.0.2.3\", \"port\": 80, \"health\": {\"by\": \"neighbour\", " \
	"\"interval\": 100, \"timeout\": 100, \"rise\": 1, \"fall\": 1}, \"back_ends\": [" ends "]}"

/* Each probe is a question, however soon it comes after another one. */
static void who_answers_each_question_for_its_mac_address_stays_up(void **state)
{
	const struct balancer_set *set = &the_balancer.set;
	uint64_t events;

	assert_null(tell(SET(BY_NEIGHBOUR(END(1, "") ", " END(2, "")))));
	wait_ms(1000);
	events = the_balancer.health.nb_events;
	wait_ms(10000);
	assert_int_equal(the_balancer.health.nb_events, events);
	for (unsigned i = 0; i < set->nb_used; i++)
		assert_true(balancer_end_is_up(&set->ends[set->used[i]]));
	deaf = 1 << 1;
	wait_ms(300);
	assert_int_equal(the_balancer.health.nb_events, events + 1);
}

/* More than are probed in a step have their answer by one station. */
static void who_is_behind_a_gateway_is_up_by_its_answer(void **state)
{
	const struct balancer_set *set = &the_balancer.set;
	char ends[100 * 80] = "", text[sizeof(ends) + 400];
	unsigned up = 0;

	for (unsigned i = 1, at = 0; i <= 100; i++)
		at += (unsigned)snprintf(ends + at, sizeof(ends) - at,
					 "%s{\"name\": \"%u\", \"address\": \"203.0.113.%u\", \"port\": 80}",
					 i > 1 ? ", " : "", i, i);
	snprintf(text, sizeof(text), "{\"gateway\": [\"198.18.1.4\"], " OWN_ADDRESSES ", \"services\": [%s%s%s",
		 "{\"name\": \"far\", \"address\": \"192.0.2.4\", \"port\": 80, \"health\": {\"by\": \"neighbour\"}, "
		 "\"back_ends\": [",
		 ends, "]}]}");
	assert_null(tell(text));
	wait_ms(60000);
	for (unsigned i = 0; i < set->nb_used; i++)
		up += balancer_end_is_up(&set->ends[set->used[i]]);
	assert_int_equal(up, 100);
}

/* Where a client's frames go, a moment after it was told other settings. */
static uint8_t station_by(const char *settings)
{
	struct frame frame = CLIENT_SENDS(1000, ACK);

	assert_null(tell(settings));
	wait_ms(100);
	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	return frame.bytes[5];
}

static void another_gateway_is_asked_for_at_once(void **state)
{
	wait_ms(40000);
	routed = true;
	assert_int_equal(
		station_by("{\"gateway\": [\"198.18.1.3\"], " OWN_ADDRESSES ", \"services\": [" WEB(ALL_ENDS) "]}"),
		STATION + 3);
	assert_int_equal(
		station_by("{\"gateway\": [\"198.18.1.4\"], " OWN_ADDRESSES ", \"services\": [" WEB(ALL_ENDS) "]}"),
		STATION + 4);
}

static void an_end_that_refuses_is_down(void **state)
{
	refuses = 1u << 3;
	wait_ms(7000);
	for (uint16_t port = 1000; port < 1064; port++)
		assert_int_not_equal(connect_from(port), 3);
}

/* Frames that say that they are answers. */
static void who_guesses_is_no_back_end(void **state)
{
	const uint64_t answers = the_balancer.health.answers;

	deaf = 0x1e;
	for (unsigned i = 0; i < 100; i++) {
		for (uint16_t number = 0; number < 12; number++) {
			struct frame syn_ack = tcp(FIRST + 1, 8080, OWN, 32768 + number, SYN | ACK);
			struct frame echo = icmp(FIRST + 1, OWN, 0, number);

			let_in(&syn_ack, 1);
			let_in(&echo, 1);
		}
		wait_ms(100);
	}
	assert_true(the_balancer.health.answers > answers);
	expect(DROP_no_back_end, 0, CLIENT_SENDS(1000, SYN));
}

static void an_unasked_for_mac_address_is_not_taken(void **state)
{
	struct frame question;
	const uint8_t own[4] = {198, 18, 1, 9}, first[4] = {198, 18, 1, 1}, nobody[6] = {0};

	assert_null(tell(SET(WEB(ALL_ENDS))));
	wait_ms(20000); /* nobody has asked for five seconds */
	frame_macs(&question, 9, 7);
	frame_add16(&question, RTE_ETHER_TYPE_ARP);
	frame_add32(&question, 0x00010800);
	frame_add32(&question, 0x06040002);
	frame_add(&question, nobody, 6);
	frame_add(&question, own, 4);
	frame_add(&question, nobody, 6);
	frame_add(&question, first, 4);
	answer_arp(&question, 0x66);
	talk();
	for (uint16_t port = 1000; port < 1064; port++) {
		struct frame frame = CLIENT_SENDS(port, SYN);

		assert_int_equal(pass(&frame, 0), VERDICT_PASS);
		assert_int_not_equal(frame.bytes[5], 0x66);
	}
}

/* ------- addresses ------- */

static struct frame who_has(const uint8_t target[4])
{
	const uint8_t source[4] = {10, 0, 0, 2}, mac[6] = {2, 0, 0, 0, 0, 7}, nobody[6] = {0};
	struct frame frame = {0};

	memset(frame.bytes, 0xff, 6);
	frame.length = 6;
	frame_add(&frame, mac, 6);
	frame_add16(&frame, RTE_ETHER_TYPE_ARP);
	frame_add32(&frame, 0x00010800);
	frame_add32(&frame, 0x06040001);
	frame_add(&frame, mac, 6);
	frame_add(&frame, source, 4);
	frame_add(&frame, nobody, 6);
	frame_add(&frame, target, 4);
	return frame;
}

static void it_answers_for_its_addresses_on_their_sides(void **state)
{
	const uint8_t virtual[4] = {192, 0, 2, 1}, own[4] = {198, 18, 1, 9}, other[4] = {198, 18, 1, 8};

	for (uint16_t in = 0; in < 2; in++) {
		struct frame question = who_has(in == 0 ? virtual : own), answered;
		struct rte_mbuf *burst[FUNCTION_ROOM];

		let_in(&question, in);
		balancer_health_step(&the_balancer, ms);
		assert_int_equal(process(NULL, burst, 1 - in), 1);
		copy_out(&answered, burst[0]);
		assert_int_equal(answered.bytes[5], 7);
		assert_int_equal(answered.bytes[14 + 7], RTE_ARP_OP_REPLY);
		assert_memory_equal(answered.bytes + 6, atomic_load(&the_balancer.set.table)->own.station.mac, 6);
		assert_memory_equal(answered.bytes + 14 + 14, in == 0 ? virtual : own, 4);
		expect(PASS, 1 - in, question); /* from the other side it is not for the balancer */
	}
	expect(PASS, 0, who_has(other));
}

/* More than it has room for is dropped at once, and connections go on meanwhile. */
static void a_storm_of_questions_is_bounded(void **state)
{
	const struct frame question = who_has((const uint8_t[]){192, 0, 2, 1});
	const uint64_t lost = counted(0).drops[VERDICT_DROP_itself], taken = counted(0).taken;
	struct rte_mbuf *burst[FUNCTION_ROOM];
	uint64_t answers = 0, taken_now;
	uint16_t nb;

	for (unsigned i = 0; i < 10 * BALANCER_QUEUE; i++)
		assert_int_equal(process(&question, burst, 0), 0);
	taken_now = counted(0).taken - taken;
	assert_in_range(taken_now, BALANCER_QUEUE - 1, BALANCER_QUEUE);
	assert_int_equal(counted(0).drops[VERDICT_DROP_itself] - lost, 10 * BALANCER_QUEUE - taken_now);
	assert_int_equal(rte_mempool_in_use_count(pool), taken_now);
	connect_from(1000);
	balancer_health_step(&the_balancer, ms);
	while ((nb = process(NULL, burst, 1)) > 0) {
		rte_pktmbuf_free_bulk(burst, nb);
		answers += nb;
	}
	assert_int_equal(answers, taken_now);
}

/* A host asks for its address in IPv6, without an option; the checksum is still to come. */
static struct frame solicitation(void)
{
	struct frame question;

	frame_macs(&question, 0x66, 7);
	frame_ipv6(&question, 77, VIRTUAL6, IPPROTO_ICMPV6, 24);
	ip6_of(&question)->hop_limits = 255;
	frame_add32(&question, 135u << 24);
	frame_add32(&question, 0);
	frame_add(&question, question.bytes + 14 + 24, 16);
	return question;
}

static void it_answers_solicitations(void **state)
{
	struct frame question, answered;
	struct rte_mbuf *burst[FUNCTION_ROOM];

	question = solicitation();
	finish(&question);
	let_in(&question, 0);
	balancer_health_step(&the_balancer, ms);
	assert_int_equal(process(NULL, burst, 1), 1);
	copy_out(&answered, burst[0]);
	check_sums(&answered);
	assert_int_equal(answered.bytes[5], 7); /* the frame's sender, because there is no option */
	assert_int_equal(payload_of(&answered)[0], 136);
	assert_memory_equal(payload_of(&answered) + 26, atomic_load(&the_balancer.set.table)->own.station.mac, 6);
}

/* Who tries whether an address is free has none yet (RFC 4862, 5.4; RFC 5227). */
static void who_would_take_its_addresses_is_told(void **state)
{
	struct frame probe = who_has((const uint8_t[]){192, 0, 2, 1}), question, answered;
	struct rte_mbuf *burst[FUNCTION_ROOM];

	memset(probe.bytes + 14 + 14, 0, 4);
	let_in(&probe, 0);
	balancer_health_step(&the_balancer, ms);
	assert_int_equal(process(NULL, burst, 1), 1);
	copy_out(&answered, burst[0]);
	assert_int_equal(answered.bytes[14 + 7], RTE_ARP_OP_REPLY);
	question = solicitation();
	memset(question.bytes + 14 + 8, 0, 16);
	memcpy(question.bytes + 14 + 24, (uint8_t[]){0xff, 2, [11] = 1, [12] = 0xff}, 13);
	finish(&question);
	let_in(&question, 0);
	balancer_health_step(&the_balancer, ms);
	assert_int_equal(process(NULL, burst, 1), 1);
	copy_out(&answered, burst[0]);
	check_sums(&answered);
	assert_memory_equal(answered.bytes, "\x33\x33\0\0\0\1", 6);
	assert_int_equal(payload_of(&answered)[0], 136);
}

static void what_is_of_no_service_passes_as_it_came(void **state)
{
	struct frame frames[] = {udp(CLIENT, 1, 0x08080808, 53), tcp6(5, 1, 6, 80, ACK), {.length = 20}};

	frame_macs(&frames[2], 1, 2);
	frame_tag(&frames[2], 0x8100, 5);
	frame_ipv4(&frames[2], CLIENT, VIRTUAL, IPPROTO_UDP, 8, 0, 0);
	frame_ports(&frames[2], 1, 53);
	for (uint16_t in = 0; in < 2; in++)
		for (unsigned i = 0; i < RTE_DIM(frames); i++) {
			struct frame copy = frames[i];

			assert_int_equal(pass(&copy, in), VERDICT_PASS);
			assert_memory_equal(copy.bytes, frames[i].bytes, copy.length);
		}
	assert_int_equal(counted(0).untouched, RTE_DIM(frames));
}

static void a_priority_makes_no_vlan(void **state)
{
	const struct frame syn = CLIENT_SENDS(1000, SYN);

	for (uint16_t vlan = 0; vlan <= 5; vlan += 5) {
		struct frame tagged = {0};

		frame_add(&tagged, syn.bytes, 12);
		frame_tag(&tagged, 0x8100, 0xa000 | vlan);
		frame_add(&tagged, syn.bytes + 12, syn.length - 12);
		assert_int_equal(pass(&tagged, 0), VERDICT_PASS);
		assert_int_equal(known(), 1);
		assert_int_equal(counted(0).untouched, vlan != 0);
		if (vlan == 0)
			expect(PASS, 1, END_SENDS(tagged.bytes[18 + 19], 1000, SYN | ACK));
	}
	assert_int_equal(counted(1).untouched, 0);
}

static void what_must_not_be_is_dropped(void **state)
{
	struct frame broken = CLIENT_SENDS(1000, SYN);
	unsigned to;

	expect(DROP_spoofed, 0, tcp(VIRTUAL, 1, 0xc0000202, 80, SYN));
	expect(DROP_spoofed, 0, udp(OWN, 1, CLIENT, 2));
	expect(DROP_spoofed, 1, udp(OWN, 1, CLIENT, 2));
	expect(DROP_spoofed, 1, tcp(VIRTUAL, 80, CLIENT, 2, ACK));
	expect(DROP_no_service, 0, tcp(CLIENT, 1, VIRTUAL, 81, SYN));
	expect(DROP_no_service, 0, icmp(CLIENT, VIRTUAL, 8, 1));
	expect(DROP_back_side, 1, tcp(FIRST + 1, 1000, VIRTUAL, 80, SYN));
	expect(DROP_itself, 0, icmp(CLIENT, OWN, 8, 1));
	expect(DROP_icmp, 0, icmp(CLIENT, VIRTUAL, 5, 1)); /* a redirect */
	expect(DROP_martian, 0, tcp(0x7f000001, 1, VIRTUAL, 80, SYN));
	expect(DROP_tiny, 0, tiny(CLIENT, VIRTUAL));
	broken.bytes[14 + 10] ^= 1;
	expect(DROP_checksum, 0, broken);
	to = connect_from(1000);
	expect(DROP_wrong_end, 1, END_SENDS(to % ENDS + 1, 1000, ACK));
}

/* ------- errors and fragments ------- */

static void errors_find_who_they_are_about(void **state)
{
	for (unsigned quoted = 28; quoted <= 40; quoted += 12) {
		struct frame sent = CLIENT_SENDS(1000, SYN), original = sent, back, before, about;
		unsigned to;

		assert_int_equal(pass(&sent, 0), VERDICT_PASS);
		to = sent.bytes[14 + 19];
		/* The back end, or a router on the way, about what the client has sent. */
		about = error(FIRST + to, CLIENT, &sent, quoted);
		assert_int_equal(pass(&about, 1), VERDICT_PASS);
		check_sums(&about);
		assert_int_equal(ntohl(ip_of(&about)->src_addr), VIRTUAL);
		assert_memory_equal(quoted_in(&about), ip_of(&original), quoted);
		about = error(0x0c000001, CLIENT, &sent, quoted);
		assert_int_equal(pass(&about, 1), VERDICT_PASS);
		assert_int_equal(ntohl(ip_of(&about)->src_addr), 0x0c000001);
		/* A router on the way to the client, about what the back end has answered. */
		back = before = END_SENDS(to, 1000, SYN | ACK);
		assert_int_equal(pass(&back, 1), VERDICT_PASS);
		about = error(0x0c000001, VIRTUAL, &back, quoted);
		assert_int_equal(pass(&about, 0), VERDICT_PASS);
		check_sums(&about);
		assert_int_equal(ntohl(ip_of(&about)->dst_addr), FIRST + to);
		assert_int_equal(about.bytes[5], STATION + to);
		assert_memory_equal(quoted_in(&about), ip_of(&before), quoted);
	}
	expect(DROP_unrelated, 0, ({
		       struct frame nothing = tcp(VIRTUAL, 80, CLIENT, 5555, ACK);
		       error(CLIENT, VIRTUAL, &nothing, 28);
	       }));
}

static void of_ipv6_errors_too(void **state)
{
	struct frame sent = tcp6(77, 1000, VIRTUAL6, 80, SYN), original = sent, back, before, about;
	unsigned to;

	assert_int_equal(pass(&sent, 0), VERDICT_PASS);
	to = sent.bytes[14 + 39];
	about = error(to, 77, &sent, 60);
	assert_int_equal(pass(&about, 1), VERDICT_PASS);
	check_sums(&about);
	assert_int_equal(about.bytes[14 + 8 + 13], 1);
	assert_memory_equal(payload_of(&about) + 8, ip6_of(&original), 60);
	back = before = tcp6(to, 8080, 77, 1000, SYN | ACK);
	assert_int_equal(pass(&back, 1), VERDICT_PASS);
	about = error(99, VIRTUAL6, &back, 60);
	assert_int_equal(pass(&about, 0), VERDICT_PASS);
	check_sums(&about);
	assert_int_equal(about.bytes[14 + 39], to);
	assert_memory_equal(payload_of(&about) + 8, ip6_of(&before), 60);
}

static void fragments_go_the_way_of_their_first(void **state)
{
	struct frame first = fragment(CLIENT, VIRTUAL, MORE), later = fragment(CLIENT, VIRTUAL, 2), back;
	unsigned to;

	expect(DROP_fragment, 0, later);
	assert_int_equal(pass(&first, 0), VERDICT_PASS);
	to = first.bytes[14 + 19];
	assert_int_equal(pass(&later, 0), VERDICT_PASS);
	assert_int_equal(later.bytes[14 + 19], to);
	assert_int_equal(later.bytes[5], STATION + to);
	assert_int_equal(rte_raw_cksum(ip_of(&later), 20), 0xffff);
	expect(DROP_overlap, 0, fragment(CLIENT, VIRTUAL, 1));
	/* One from an end is its own, unless its first was an answer. */
	back = fragment(FIRST + to, CLIENT, 2);
	assert_int_equal(pass(&back, 1), VERDICT_PASS);
	assert_int_equal(ntohl(ip_of(&back)->src_addr), FIRST + to);
}

static void answers_in_fragments_come_from_the_virtual_address(void **state)
{
	const unsigned to = end_of(udp(CLIENT, 53, VIRTUAL, 53));
	struct frame first, later = fragment(FIRST + to, CLIENT, 2);

	frame_macs(&first, 1, 2);
	frame_ipv4(&first, FIRST + to, CLIENT, IPPROTO_UDP, 16, 77, MORE);
	frame_ports(&first, 53, 53);
	frame_ports(&first, 0, 0);
	ip_of(&first)->hdr_checksum = rte_ipv4_cksum(ip_of(&first));
	assert_int_equal(pass(&first, 1), VERDICT_PASS);
	assert_int_equal(ntohl(ip_of(&first)->src_addr), VIRTUAL);
	assert_int_equal(pass(&later, 1), VERDICT_PASS);
	assert_int_equal(ntohl(ip_of(&later)->src_addr), VIRTUAL);
	assert_int_equal(rte_raw_cksum(ip_of(&later), 20), 0xffff);
}

/* ------- mode direct ------- */

static void of_mode_direct_only_the_station_is_changed(void **state)
{
	struct frame frame = tcp(CLIENT, 1000, VIRTUAL + 1, 80, SYN), copy = frame;
	unsigned to;

	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	to = frame.bytes[5] - STATION;
	assert_in_range(to, 1, 2);
	assert_memory_equal(frame.bytes + 6, copy.bytes + 6, copy.length - 6);
	/* Its answers, if they come by, are as they were. */
	frame = copy = tcp(VIRTUAL + 1, 80, CLIENT, 1000, SYN | ACK);
	assert_int_equal(pass(&frame, 1), VERDICT_PASS);
	assert_memory_equal(frame.bytes, copy.bytes, copy.length);
	for (unsigned i = 0; i < 3; i++) {
		static const uint8_t flags[] = {ACK, FIN | ACK, ACK};

		frame = tcp(CLIENT, 1000, VIRTUAL + 1, 80, flags[i]);
		assert_int_equal(pass(&frame, 0), VERDICT_PASS);
		assert_int_equal(frame.bytes[5], STATION + to);
	}
	assert_int_equal(known(), 1);
	wait_seconds(300);
	frame = tcp(CLIENT, 1000, VIRTUAL + 1, 80, SYN);
	assert_int_equal(pass(&frame, 0), VERDICT_PASS);
	assert_int_equal(counted_of("aged"), 1);
}

/* ------- settings ------- */

static void settings_are_checked(void **state)
{
	static const struct {
		const char *settings, *said;
	} cases[] = {
		{"{\"services\": [], \"more\": 1}", "more"},
		{"{\"source\": [\"10.0.0.1\", \"10.0.0.2\"]}", "one address of each IP version"},
		{"{\"source\": [\"10.0.0\"]}", "expected an IPv4 or IPv6 address"},
		{"{\"services\": [" WEB(END(1, "")) "]}", "there is no source"},
		{SET(WEB(END(1, "")) ", " WEB(END(2, ""))), "are those of service 'web'"},
		{SET(WEB(END(1, "") ", " END(1, ""))), "are those of '1' of service 'web'"},
		{SET(WEB(END(1, ", \"weight\": 0"))), "weight"},
		{SET(WEB(END(9, ""))), "the balancer's own"},
		{SET(WEB("{\"name\": \"a\", \"address\": \"192.0.2.1\", \"port\": 9}")), "is that of back end 'a'"},
		{SET(WEB("{\"name\": \"a\", \"address\": \"2001:db8::1\", \"port\": 9}")), "IP version"},
		{SET(WEB("{\"name\": \"a\", \"address\": \"10.0.0.1\"}")), "lacks 'port'"},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		const char *said = tell(cases[i].settings);

		assert_non_null(said);
		if (strstr(said, cases[i].said) == NULL)
			fail_msg("'%s' does not say '%s'", said, cases[i].said);
	}
	connect_from(1000); /* it goes on as before */
	assert_non_null(balancer.set("nothing", "1"));
}

static void tables_show_what_there_is(void **state)
{
	json_t *tables = json_object(), *row;
	const unsigned to = connect_from(1000);
	char name[2] = {(char)('0' + to), '\0'};

	balancer.keeping->tables(tables, 3);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(tables, "back_ends"), "total")), 10);
	assert_int_equal(json_array_size(json_object_get(json_object_get(tables, "back_ends"), "rows")), 3);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(tables, "services"), "total")), 4);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(tables, "events"), "total")), 10);
	row = json_array_get(json_object_get(json_object_get(tables, "connections"), "rows"), 0);
	assert_string_equal(json_string_value(json_object_get(row, "back_end")), name);
	json_decref(tables);
}

/* ------- connections are handed over ------- */

/* What an instance would give; returns how many. */
/* Another instance, which frames do not reach yet. */
static void begin_anew(const char *settings)
{
	balancer.keeping->close();
	assert_int_equal(
		balancer.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = nb_queues}),
		0);
	assert_null(tell(settings));
}

/* Returns how many of the records have this result; the others have been taken. */
static unsigned take_records(const struct handover_record *records, uint32_t count, enum handover_result result)
{
	unsigned nb[HANDOVER_NB_RESULTS] = {0};

	memcpy(balancer_handover.batch, records, count * sizeof(*records));
	balancer_handover.prepare(&balancer_handover, count);
	for (uint32_t i = 0; i < count; i++)
		nb[handover_take_one(&balancer_handover, &balancer_handover.batch[i], connections_tick(now))]++;
	assert_int_equal(nb[HANDOVER_taken] + (result == HANDOVER_taken ? 0 : nb[result]), count);
	return nb[result];
}

static void connections_stay_with_their_ends_in_another_instance(void **state)
{
	struct handover_record records[CONNECTIONS];
	unsigned to[8];
	uint32_t count;

	for (uint16_t i = 0; i < RTE_DIM(to); i++)
		to[i] = connect_from(1000 + i);
	assert_int_equal(end_of(udp(CLIENT, 1000, VIRTUAL, 53)) - 1 < 2, true);
	expect(PASS, 0, tcp(CLIENT, 1, VIRTUAL + 1, 80, SYN));
	expect(PASS, 0, tcp(CLIENT, 1, VIRTUAL + 1, 80, ACK)); /* only this direction is seen */
	count = all_records(records);
	assert_int_equal(count, RTE_DIM(to) + 2);
	/* In another order, so other numbers. */
	begin_anew("{" OWN_ADDRESSES ", \"services\": [" DIRECT ", " NAMES
		   ", " WEB(END(4, "") ", " END(3, "") ", " END(2, "") ", " END(1, "")) "]}");
	assert_int_equal(take_records(records, count, HANDOVER_taken), count);
	assert_int_equal(known(), count);
	for (uint16_t i = 0; i < RTE_DIM(to); i++) {
		assert_int_equal(end_of(CLIENT_SENDS(1000 + i, ACK)), to[i]);
		expect(PASS, 1, END_SENDS(to[i], 1000 + i, ACK));
	}
	assert_int_equal(counted(0).unkept + counted(1).unkept, 0);
	/* What it had is known, and nothing is newer. */
	assert_int_equal(handover_take_one(&balancer_handover, &balancer_handover.batch[0], connections_tick(now)),
			 HANDOVER_known);
}

/* Its end went down there, and it goes to another one since. */
static void a_connection_follows_to_the_end_that_it_went_to_elsewhere(void **state)
{
	struct handover_record records[CONNECTIONS], later;
	const unsigned to = connect_from(1000), other = to % ENDS + 1;

	assert_int_equal(all_records(records), 1);
	begin_anew(SET(WEB(ALL_ENDS)));
	assert_int_equal(take_records(records, 1, HANDOVER_taken), 1);
	wait_seconds(1);
	later = records[0];
	later.end[3] = (uint8_t)other;
	later.seen++;
	later.has_mac = false; /* nobody has it up */
	assert_int_equal(take_records(&later, 1, HANDOVER_updated), 1);
	assert_int_equal(end_of(CLIENT_SENDS(1000, ACK)), to);
	later.seen = connections_tick(now) + 1;
	later.has_mac = true;
	later.mac[5] = (uint8_t)(STATION + other);
	wait_seconds(1);
	assert_int_equal(take_records(&later, 1, HANDOVER_updated), 1);
	assert_int_equal(known(), 1);
	assert_int_equal(end_of(CLIENT_SENDS(1000, ACK)), other);
	expect(PASS, 1, END_SENDS(other, 1000, ACK));
	expect(DROP_wrong_end, 1, END_SENDS(to, 1000, ACK));
	assert_int_equal(balancer_set_counts(&the_balancer.set, balancer_handover.batch[0].end_number).connections, 1);
}

static void an_end_is_up_by_the_word_of_the_instance_before(void **state)
{
	struct handover_record records[CONNECTIONS];
	const unsigned to = connect_from(1000);
	const struct balancer_end *end;
	const char *text = SET(WEB(ALL_ENDS));

	assert_int_equal(all_records(records), 1);
	begin_anew(text);
	deaf = ~0u;
	/* Nobody has answered the new one, which no answer would reach. */
	wait_ms(60000);
	assert_int_equal(take_records(records, 1, HANDOVER_taken), 1);
	end = &the_balancer.set.ends[balancer_handover.batch[0].end_number];
	assert_true(balancer_end_is_up(end));
	wait_ms(60000);
	assert_true(balancer_end_is_up(end));
	assert_int_equal(end_of(CLIENT_SENDS(1000, ACK)), to);
	assert_int_equal(end_of(CLIENT_SENDS(1001, SYN)), to); /* others are not known to be up */
	/* Now that frames come in, it is seen that it does not answer. */
	wait_ms(60000);
	assert_false(balancer_end_is_up(end));
	/* From then on it is its answers that count. */
	deaf = 0;
	wait_ms(60000);
	assert_true(balancer_end_is_up(end));
	deaf = ~0u;
	wait_ms(60000);
	assert_int_equal(take_records(records, 1, HANDOVER_known), 1);
	assert_false(balancer_end_is_up(end));
}

/* Which of the web's four ends are up, a bit each. */
static unsigned up_now(void)
{
	const struct balancer_set *set = &the_balancer.set;
	unsigned up = 0;

	for (unsigned i = 0; i < set->nb_used; i++)
		if (balancer_end_is_up(&set->ends[set->used[i]]))
			up |= 1u << set->ends[set->used[i]].address.bytes[3];
	return up;
}

static const struct balancer_end *end_at(unsigned last)
{
	const struct balancer_set *set = &the_balancer.set;

	for (unsigned i = 0; i < set->nb_used; i++)
		if (set->ends[set->used[i]].address.bytes[3] == last)
			return &set->ends[set->used[i]];
	fail();
	return NULL;
}

static void ends_without_a_connection_are_up_and_down_as_before(void **state)
{
	uint8_t told[HANDOVER_TOLD];
	uint32_t length;

	deaf = 1 << 2;
	wait_ms(60000);
	length = balancer_handover.tell(&balancer_handover, told, sizeof(told));
	assert_in_range(length, 1, sizeof(told));
	begin_anew(SET(WEB(END(4, "") ", " END(3, "") ", " END(2, "") ", " END(1, ""))));
	deaf = ~0u; /* whom the new instance asks, answers the old one */
	wait_ms(60000);
	assert_int_equal(up_now(), 0);
	balancer_handover.hear(&balancer_handover, told, length);
	assert_int_equal(up_now(), 0x1a);
	wait_ms(60000); /* no frame comes, so no answer could */
	assert_int_equal(up_now(), 0x1a);
	/* Those that answer stay up.  The one that was down needs as many answers as ever. */
	deaf = 1 << 4;
	for (unsigned i = 0; up_now() != 0x1e; i++) {
		assert_int_equal(up_now(), 0x1a);
		assert_in_range(i, 0, 100);
		wait_ms(100);
	}
	assert_in_range(end_at(2)->health.good, 2, 2);
	wait_ms(60000);
	assert_int_equal(up_now(), 0xe);
	/* By then it knows better. */
	balancer_handover.hear(&balancer_handover, told, length);
	assert_int_equal(up_now(), 0xe);
}

/* What an instance says now. */
static uint32_t says(uint8_t *told)
{
	return balancer_handover.tell(&balancer_handover, told, HANDOVER_TOLD);
}

static void one_that_stands_by_is_silent_and_goes_by_the_active_one_s_word(void **state)
{
	uint8_t before[HANDOVER_TOLD], later[HANDOVER_TOLD];
	uint32_t length_before, length_later;
	uint64_t probes;

	deaf = 1 << 2;
	wait_ms(60000);
	length_before = says(before);
	deaf = 1 << 3;
	wait_ms(60000);
	length_later = says(later);
	begin_anew(SET(WEB(ALL_ENDS)));
	deaf = 0; /* whom it would ask, answers the active one */
	balancer_handover.hear(&balancer_handover, before, length_before);
	probes = the_balancer.health.probes;
	for (unsigned i = 0; i < 600; i++) {
		balancer_handover.hear(&balancer_handover, before, length_before);
		wait_ms(100);
		assert_int_equal(up_now(), 0x1a);
	}
	balancer_handover.hear(&balancer_handover, later, length_later);
	assert_int_equal(up_now(), 0x16);
	assert_int_equal(the_balancer.health.probes, probes);

	/* Connections are word of it too: the first ones may take a while. */
	for (unsigned i = 0; i < 600; i++) {
		balancer_handover.prepare(&balancer_handover, 0);
		wait_ms(100);
	}
	assert_int_equal(up_now(), 0x16);
	assert_int_equal(the_balancer.health.probes, probes);

	/* Once frames are led to it, it finds out itself, at once. */
	connect_from(1000);
	wait_ms(200);
	assert_true(the_balancer.health.probes >= probes + 4);
	deaf = 1 << 4;
	wait_ms(60000);
	assert_int_equal(up_now(), 0xe);
	probes = the_balancer.health.probes;
	balancer_handover.prepare(&balancer_handover, 0);
	wait_ms(10000);
	assert_true(the_balancer.health.probes > probes);
	balancer_handover.hear(&balancer_handover, before, length_before);
	assert_int_equal(up_now(), 0xe);

	/* And by the other one's word again when frames come no more. */
	balancer_handover.hear(&balancer_handover, before, length_before);
	assert_int_equal(up_now(), 0x1a);
	probes = the_balancer.health.probes;
	wait_ms(1000);
	assert_int_equal(the_balancer.health.probes, probes);
	wait_ms(60000); /* nobody says anything any more */
	assert_true(the_balancer.health.probes > probes);
}

static void one_that_stands_by_follows_an_end_to_its_new_station(void **state)
{
	static const uint8_t moved[] = {2, 0, 0, 0, 0, 77}, group[] = {3, 0, 0, 0, 0, 77};
	uint8_t told[HANDOVER_TOLD];
	const uint32_t length = says(told);
	struct balancer_end *end;
	uint64_t station = 0;

	memcpy(&station, moved, sizeof(moved));
	begin_anew(SET(WEB(ALL_ENDS)));
	balancer_handover.hear(&balancer_handover, told, length);
	end = &the_balancer.set.ends[end_at(1) - the_balancer.set.ends];
	assert_true(balancer_end_is_up(end) && end->mac != station);
	assert_false(balancer_health_vouch(&the_balancer, end, moved, 0));
	assert_int_equal(end->mac, station);
	assert_false(balancer_health_vouch(&the_balancer, end, group, 0));
	assert_int_equal(end->mac, station);

	/* And back; once frames are led to it, it asks itself. */
	balancer_handover.hear(&balancer_handover, told, length);
	assert_int_not_equal(end->mac, station);
	connect_from(1000);
	wait_ms(100);
	assert_false(balancer_health_vouch(&the_balancer, end, moved, 0));
	assert_int_not_equal(end->mac, station);
}

static void of_what_is_told_only_what_can_be_is_heard(void **state)
{
	struct balancer_set *set = &the_balancer.set;
	uint8_t told[4800], wrong[sizeof(told)];
	const uint32_t length = balancer_handover.tell(&balancer_handover, told, sizeof(told));

	assert_int_equal(balancer_handover.tell(&balancer_handover, wrong, 100), 96); /* whole ends only */
	begin_anew(SET(WEB(ALL_ENDS)));
	deaf = ~0u;
	for (uint32_t i = 0; i < length; i++) {
		memset(wrong, 0xff, sizeof(wrong));
		memcpy(wrong, told, i); /* cut short, and followed by anything */
		balancer_handover.hear(&balancer_handover, wrong, sizeof(wrong) - 1);
	}
	assert_in_range(set->nb_used, 4, 4);
	for (unsigned i = 0; i < set->nb_used; i++)
		assert_int_equal(set->ends[set->used[i]].mac >> 48, 0);
}

static void what_is_handed_over_is_not_believed(void **state)
{
	struct handover_record records[CONNECTIONS], wrong;

	connect_from(1000);
	assert_int_equal(all_records(records), 1);
#define EXPECT(result, change)                                                                                     \
	do {                                                                                                       \
		begin_anew(SET(WEB(ALL_ENDS)));                                                                    \
		wrong = records[0];                                                                                \
		change;                                                                                            \
		memcpy(balancer_handover.batch, &wrong, sizeof(wrong));                                            \
		balancer_handover.prepare(&balancer_handover, 1);                                                  \
		assert_int_equal(                                                                                  \
			handover_take_one(&balancer_handover, &balancer_handover.batch[0], connections_tick(now)), \
			HANDOVER_##result);                                                                        \
		assert_int_equal(known(), HANDOVER_##result == HANDOVER_taken);                                    \
	} while (0)
	EXPECT(taken, wrong.end_number = 0xffff);
	EXPECT(unfit, wrong.end_port++);
	EXPECT(unfit, wrong.end[3] = 77);
	EXPECT(unfit, wrong.end[15] = 1);
	EXPECT(unfit, wrong.port = 1);
	EXPECT(unfit, wrong.opener ^= 1);
	EXPECT(unfit, wrong.has_mac = 0);
	EXPECT(unfit, wrong.mac[0] |= 1);
	EXPECT(unfit, memset(wrong.mac, 0, sizeof(wrong.mac)));
	EXPECT(unfit, wrong.state = CONNECTION_one_way); /* both directions come through a balancer that rewrites */
	EXPECT(malformed, wrong.has_mac = 2);
	EXPECT(malformed, wrong.state = CONNECTION_two_way);
	EXPECT(malformed, wrong.state = 200);
	EXPECT(malformed, wrong.key[4] ^= 1);
#undef EXPECT
}

/* Clients' frames come in where they belong, and what ends answer belongs there too. */
static void the_switch_has_them_come_in_where_they_belong(void **state)
{
	for (uint16_t port = 1000; port < 1100; port++) {
		struct frame asks = CLIENT_SENDS(port, SYN), answers = END_SENDS(1 + port % ENDS, port, SYN | ACK);
		struct rte_mbuf *asked = rte_pktmbuf_alloc(pool), *answered = rte_pktmbuf_alloc(pool);
		struct headers headers;

		memcpy(rte_pktmbuf_append(asked, (uint16_t)asks.length), asks.bytes, asks.length);
		memcpy(rte_pktmbuf_append(answered, (uint16_t)answers.length), answers.bytes, answers.length);
		parse_frame(asks.bytes, asks.length, &headers);
		assert_int_equal(home_of(asked, 0), pin_spread(&headers, the_balancer.nb_lanes));
		assert_int_equal(home_of(answered, 1), home_of(asked, 0));
		rte_pktmbuf_free(asked);
		rte_pktmbuf_free(answered);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
/* With several queues: whichever queues frames come by, the same becomes of them. */
#define SEVERAL(name)                                                    \
	{                                                                \
		"several queues: " #name, name, start_several, end, NULL \
	}
	const struct CMUnitTest tests[] = {
		TEST(a_connection_stays_with_one_end),
		TEST(frames_go_to_the_ends_station_and_answers_come_from_the_virtual_address),
		TEST(of_ipv6_too),
		TEST(datagrams_have_connections),
		TEST(connections_go_on_when_ends_come_and_are_drained),
		TEST(connections_of_an_end_that_is_removed_go_elsewhere),
		TEST(a_number_is_not_given_away_while_connections_have_it),
		TEST(segments_of_an_unknown_connection_go_where_the_hash_leads),
		TEST(a_flood_of_beginnings_takes_nothing_from_connections_in_use),
		TEST(a_full_table_costs_memory_of_connections_not_connections),
		TEST(a_full_table_costs_no_datagrams_either),
		TEST(without_a_back_end_that_is_up_nothing_begins),
		TEST(an_end_is_down_by_three_probes_and_up_by_two),
		TEST(who_answers_each_question_for_its_mac_address_stays_up),
		TEST(who_is_behind_a_gateway_is_up_by_its_answer),
		TEST(another_gateway_is_asked_for_at_once),
		TEST(an_end_that_refuses_is_down),
		TEST(who_guesses_is_no_back_end),
		TEST(an_unasked_for_mac_address_is_not_taken),
		TEST(it_answers_for_its_addresses_on_their_sides),
		TEST(a_storm_of_questions_is_bounded),
		TEST(it_answers_solicitations),
		TEST(who_would_take_its_addresses_is_told),
		TEST(what_is_of_no_service_passes_as_it_came),
		TEST(a_priority_makes_no_vlan),
		TEST(what_must_not_be_is_dropped),
		TEST(errors_find_who_they_are_about),
		TEST(of_ipv6_errors_too),
		TEST(fragments_go_the_way_of_their_first),
		TEST(answers_in_fragments_come_from_the_virtual_address),
		TEST(of_mode_direct_only_the_station_is_changed),
		TEST(settings_are_checked),
		TEST(tables_show_what_there_is),
		TEST(connections_stay_with_their_ends_in_another_instance),
		TEST(a_connection_follows_to_the_end_that_it_went_to_elsewhere),
		TEST(an_end_is_up_by_the_word_of_the_instance_before),
		TEST(ends_without_a_connection_are_up_and_down_as_before),
		TEST(one_that_stands_by_is_silent_and_goes_by_the_active_one_s_word),
		TEST(one_that_stands_by_follows_an_end_to_its_new_station),
		TEST(of_what_is_told_only_what_can_be_is_heard),
		TEST(what_is_handed_over_is_not_believed),
		SEVERAL(the_switch_has_them_come_in_where_they_belong),
		SEVERAL(a_connection_stays_with_one_end),
		SEVERAL(frames_go_to_the_ends_station_and_answers_come_from_the_virtual_address),
		SEVERAL(of_ipv6_too),
		SEVERAL(datagrams_have_connections),
		SEVERAL(connections_go_on_when_ends_come_and_are_drained),
		SEVERAL(connections_of_an_end_that_is_removed_go_elsewhere),
		SEVERAL(a_number_is_not_given_away_while_connections_have_it),
		SEVERAL(segments_of_an_unknown_connection_go_where_the_hash_leads),
		SEVERAL(a_flood_of_beginnings_takes_nothing_from_connections_in_use),
		SEVERAL(a_full_table_costs_memory_of_connections_not_connections),
		SEVERAL(a_full_table_costs_no_datagrams_either),
		SEVERAL(without_a_back_end_that_is_up_nothing_begins),
		SEVERAL(an_end_is_down_by_three_probes_and_up_by_two),
		SEVERAL(an_end_that_refuses_is_down),
		SEVERAL(who_guesses_is_no_back_end),
		SEVERAL(an_unasked_for_mac_address_is_not_taken),
		SEVERAL(it_answers_for_its_addresses_on_their_sides),
		SEVERAL(a_storm_of_questions_is_bounded),
		SEVERAL(it_answers_solicitations),
		SEVERAL(what_is_of_no_service_passes_as_it_came),
		SEVERAL(a_priority_makes_no_vlan),
		SEVERAL(what_must_not_be_is_dropped),
		SEVERAL(errors_find_who_they_are_about),
		SEVERAL(of_ipv6_errors_too),
		SEVERAL(fragments_go_the_way_of_their_first),
		SEVERAL(answers_in_fragments_come_from_the_virtual_address),
		SEVERAL(of_mode_direct_only_the_station_is_changed),
		SEVERAL(settings_are_checked),
		SEVERAL(tables_show_what_there_is),
		SEVERAL(connections_stay_with_their_ends_in_another_instance),
		SEVERAL(a_connection_follows_to_the_end_that_it_went_to_elsewhere),
		SEVERAL(an_end_is_up_by_the_word_of_the_instance_before),
		SEVERAL(ends_without_a_connection_are_up_and_down_as_before),
		SEVERAL(of_what_is_told_only_what_can_be_is_heard),
		SEVERAL(what_is_handed_over_is_not_believed),
	};

	pool = start_dpdk_with_pool(64, FRAMES);
	if (pool == NULL || grace_open() != 0)
		return 1;
	log_open("test_balancer", LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
