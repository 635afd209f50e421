/* SPDX-License-Identifier: Apache-2.0
 *
 * The NAT, by crafted frames and a clock that the test moves: with which addresses and ports frames leave, that their
 * checksums hold, and for which reason others do not leave.
 */
#include "test/segments.h"

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "functions/function.h"
#include "functions/nat.h"
#include "functions/nat_handover.h"
#include "test/handed_over.h"
#include "test/start_dpdk.h"
#include "test/translated.h"

#define CONNECTIONS 64
enum { FRAMES = 512, HOST = 0x0a000002, OTHER = 0x0a000003, SERVER = 0xc0000201, STRANGER = 0xc0000202 };
enum { POOL = 0xc6336400, FORWARDED = POOL + 1 };

static struct rte_mempool *pool;
static uint64_t now; /* TSC */

static int begin(const char *filtering)
{
	static bool told;

	now = rte_get_tsc_hz();
	if (!told) {
		assert_null(nat.set("connections", RTE_STR(CONNECTIONS)));
		assert_null(nat.set("pool", "198.51.100.0/31"));
		assert_null(nat.set("inside", "10.0.0.0/8"));
		assert_null(nat.set("block", "64"));
		assert_null(nat.set("blocks", "2"));
		assert_null(nat.set("host-connections", "40"));
		assert_null(nat.set("forwards", "tcp:198.51.100.1:80:10.0.0.3:8080,udp:198.51.100.1:1024:10.0.0.3:53"));
		told = true;
	}
	assert_null(nat.set("filtering", filtering));
	return nat.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1});
}

static int start(void **state)
{
	return begin("endpoint-independent");
}

static int start_filtering(void **state)
{
	return begin("address-and-port-dependent");
}

static int end(void **state)
{
	nat.keeping->close();
	return rte_mempool_in_use_count(pool) != 0;
}

static void wait_seconds(unsigned seconds)
{
	now += seconds * rte_get_tsc_hz();
}

/* ------- frames ------- */

/* Let a frame in at a port; what leaves takes its place.  Returns VERDICT_PASS, or the reason why it was dropped. */
static enum verdict pass(struct frame *frame, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf_of(frame, pool)};
	struct nat_counters before = nats[0].counters[in];
	uint16_t nb_out;

	nb_out = nat_translate(&nats[0], burst, 1, in, now);
	if (nb_out == 0 && nat.keeping->pending(0)) {
		assert_int_equal(in, 0);
		nb_out = nat_translate(&nats[0], burst, 0, 1, now);
	}
	if (nb_out == 1) {
		take_back(frame, burst[0]);
		return VERDICT_PASS;
	}
	for (unsigned why = 0; why < VERDICTS; why++)
		if (nats[0].counters[in].drops[why] != before.drops[why])
			return why;
	fail();
	return VERDICT_PASS;
}

static bool passes(struct frame *frame, uint16_t in)
{
	return pass(frame, in) == VERDICT_PASS;
}

#define expect(verdict, in, ...)                                           \
	do {                                                               \
		struct frame expected_ = __VA_ARGS__;                      \
		assert_int_equal(pass(&expected_, in), VERDICT_##verdict); \
	} while (0)

/* ------- mappings ------- */

static void an_inside_end_has_one_outside_whomever_it_sends_to(void **state)
{
	const struct seen first = sent(udp(HOST, 2000, SERVER, 53), 0), second = sent(udp(HOST, 2000, STRANGER, 99), 0);
	const struct seen other = sent(udp(HOST, 2001, SERVER, 53), 0);

	assert_true(first.source == POOL || first.source == POOL + 1);
	assert_true(first.from >= NAT_FIRST_PORT);
	assert_int_equal(first.source, second.source);
	assert_int_equal(first.from, second.from);
	assert_int_equal(first.destination, SERVER);
	assert_int_equal(first.to, 53);
	assert_int_equal(other.source, first.source); /* paired */
	assert_int_not_equal(other.from, first.from);
	assert_int_equal(first.from % 2, 0);
	assert_int_equal(other.from % 2, 1);
	assert_int_equal(nats[0].table.mapped, 2 + 2); /* and the forwards */
}

static void answers_come_back(void **state)
{
	const struct seen out = sent(tcp(HOST, 2000, SERVER, 80, SYN), 0);
	struct seen in = sent(tcp(SERVER, 80, out.source, out.from, SYN | ACK), 1);

	assert_int_equal(in.destination, HOST);
	assert_int_equal(in.to, 2000);
	assert_int_equal(in.source, SERVER);
	assert_int_equal(sent(tcp(HOST, 2000, SERVER, 80, ACK), 0).from, out.from);
	in = sent(tcp(SERVER, 80, out.source, out.from, FIN | ACK), 1);
	assert_int_equal(in.destination, HOST);
	sent(tcp(HOST, 2000, SERVER, 80, FIN | ACK), 0);
	/* The same ports again, with the same mapping. */
	assert_int_equal(sent(tcp(HOST, 2000, SERVER, 80, SYN), 0).from, out.from);
	expect(DROP_state, 0, tcp(HOST, 2005, SERVER, 80, ACK));
}

static void a_query_is_answered(void **state)
{
	const struct seen out = sent(icmp(HOST, SERVER, 8, 7), 0);
	struct seen in;

	assert_true(out.from >= NAT_FIRST_PORT);
	in = sent(icmp(SERVER, out.source, 0, out.from), 1);
	assert_int_equal(in.destination, HOST);
	assert_int_equal(in.from, 7);
	expect(DROP_unmapped, 1, icmp(SERVER, out.source, 8, out.from));
	expect(DROP_unmapped, 1, icmp(SERVER, out.source, 0, out.from + 1));
}

static void a_checksum_that_is_none_stays_none(void **state)
{
	struct frame frame = udp(HOST, 2000, SERVER, 53);

	((struct rte_udp_hdr *)(ip_of(&frame) + 1))->dgram_cksum = 0;
	through(&frame, 0);
	assert_int_equal(((struct rte_udp_hdr *)(ip_of(&frame) + 1))->dgram_cksum, 0);
}

/* By incremental sums as by whole ones, for what comes to 0 too. */
static void checksums_hold_for_any_ports(void **state)
{
	uint64_t seed = 1;

	for (unsigned i = 0; i < 20000; i++) {
		const uint32_t host = HOST + random64(&seed) % 4;
		const struct seen out = sent(
			udp(host, (uint16_t)random64(&seed) % 8 + 3000, SERVER, (uint16_t)random64(&seed) | 1), 0);

		assert_true(out.from >= NAT_FIRST_PORT);
		wait_seconds(3);
		connections_sweep(&nats[0].flows, connections_tick(now));
		nat_table_sweep(&nats[0].table, connections_tick(now));
	}
}

static void who_is_mapped_may_be_asked_by_others(void **state)
{
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);

	assert_int_equal(sent(udp(STRANGER, 9, out.source, out.from), 1).destination, HOST);
	expect(DROP_unmapped, 1, udp(STRANGER, 9, out.source, out.from ^ 1));
}

static void or_only_by_whom_it_has_asked(void **state)
{
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);

	expect(DROP_filtered, 1, udp(STRANGER, 9, out.source, out.from));
	expect(DROP_filtered, 1, udp(SERVER, 54, out.source, out.from));
	assert_int_equal(sent(udp(SERVER, 53, out.source, out.from), 1).destination, HOST);
	assert_int_equal(sent(tcp(STRANGER, 9, FORWARDED, 80, SYN), 1).destination, OTHER);
}

static void a_forward_leads_inside_and_back(void **state)
{
	struct seen in = sent(tcp(STRANGER, 9, FORWARDED, 80, SYN), 1), out;

	assert_int_equal(in.destination, OTHER);
	assert_int_equal(in.to, 8080);
	out = sent(tcp(OTHER, 8080, STRANGER, 9, SYN | ACK), 0);
	assert_int_equal(out.source, FORWARDED);
	assert_int_equal(out.from, 80);
	wait_seconds(10000);
	expect(PASS, 1, tcp(STRANGER, 9, FORWARDED, 80, SYN));
	expect(DROP_unmapped, 1, udp(STRANGER, 9, FORWARDED, 80));
}

static void a_mapping_ends_with_its_last_connection(void **state)
{
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);

	wait_seconds(119);
	expect(PASS, 1, udp(SERVER, 53, out.source, out.from));
	wait_seconds(299);
	expect(PASS, 0, udp(HOST, 2000, SERVER, 53));
	wait_seconds(301);
	expect(DROP_unmapped, 1, udp(SERVER, 53, out.source, out.from));
	assert_int_equal(nats[0].table.mapped, 2);
	assert_int_equal(nats[0].flows.used, 0);
}

/* Which one a mapping with one connection is most likely for, is its own to know; it may be wrong. */
static void an_answer_finds_its_connection_whichever_began_last(void **state)
{
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);
	const uint32_t first = nats[0].flows.used;
	struct nat_mapping *mapping;

	expect(PASS, 1, udp(SERVER, 53, out.source, out.from));
	assert_int_equal(sent(udp(HOST, 2000, STRANGER, 99), 0).from, out.from);
	mapping = nat_table_outside(&nats[0].table, &(struct nat_end){out.source, out.from, IPPROTO_UDP, 0});
	assert_int_equal(mapping->references, 2);
	expect(PASS, 1, udp(SERVER, 53, out.source, out.from)); /* of two, by the index */
	wait_seconds(121);					/* nobody has answered the second one */
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&nats[0].flows, connections_tick(now) + i);
	assert_int_equal(mapping->references, 1);
	for (unsigned i = 0; i < 2; i++) {
		expect(PASS, 1, udp(SERVER, 53, out.source, out.from));
		assert_int_equal(nats[0].flows.used, first); /* it began no other */
	}
	/* Who has not been asked begins one. */
	expect(PASS, 1, udp(STRANGER, 7, out.source, out.from));
	assert_int_equal(nats[0].flows.used, first + 1);
}

/* ------- blocks ------- */

static void a_host_has_as_many_blocks_as_it_may(void **state)
{
	nats[0].table.host_connections = 1000;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		expect(PASS, 0, icmp(HOST, SERVER, 8, i));
	/* The table is full; the oldest gave way, and its port is free again. */
	expect(PASS, 0, icmp(HOST, SERVER, 8, 1000));
	assert_true(nats[0].table.pool->taken <= 2 && nats[0].flows.gave_way == 1);
}

static void a_host_has_as_many_connections_as_it_may(void **state)
{
	for (unsigned i = 0; i < 40; i++)
		expect(PASS, 0, udp(HOST, 2000, SERVER, 100 + i));
	expect(DROP_host_connections, 0, udp(HOST, 2000, SERVER, 99));
	expect(PASS, 0, udp(OTHER, 2000, SERVER, 99));
	wait_seconds(121);
	expect(PASS, 0, udp(HOST, 2000, SERVER, 100));
}

/* Its end has none of its host's ports. */
static void nor_has_who_has_a_forward_more(void **state)
{
	struct handover_record records[CONNECTIONS];

	for (unsigned i = 0; i < 40; i++)
		expect(PASS, 0, udp(OTHER, 53, SERVER, 100 + i));
	expect(DROP_host_connections, 0, udp(OTHER, 53, SERVER, 99));
	/* What others begin does not count, here or in another instance. */
	expect(PASS, 1, udp(STRANGER, 99, FORWARDED, 1024));
	assert_int_equal(handed_over(&nat_handover, &nats[0].flows, records), 41);
	end(state);
	begin("endpoint-independent");
	nats[0].tick = connections_tick(now);
	for (unsigned i = 0; i < 41; i++)
		assert_int_equal(handover_take_one(&nat_handover, &records[i], nats[0].tick), HANDOVER_taken);
	expect(DROP_host_connections, 0, udp(OTHER, 53, SERVER, 99));
	wait_seconds(121);
	expect(PASS, 0, udp(OTHER, 53, SERVER, 100));
}

static void a_block_stays_with_its_host_for_two_minutes(void **state)
{
	const struct seen out = sent(tcp(HOST, 2000, SERVER, 80, SYN), 0);
	const uint64_t events = nats[0].table.pool->nb_events;

	assert_int_equal(nats[0].table.pool->taken, 1);
	assert_int_equal(events, 1);
	expect(PASS, 1, tcp(SERVER, 80, out.source, out.from, RST | ACK));
	wait_seconds(11);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&nats[0].flows, connections_tick(now) + i);
	assert_int_equal(nats[0].flows.used, 0);
	nat_table_sweep(&nats[0].table, connections_tick(now));
	assert_int_equal(nats[0].table.pool->taken, 1);
	wait_seconds(130);
	nat_table_sweep(&nats[0].table, connections_tick(now));
	assert_int_equal(nats[0].table.pool->taken, 0);
	assert_int_equal(nats[0].table.pool->nb_events, 2);
	assert_int_equal(nats[0].table.pool->events[2].inside, HOST);
	assert_int_equal(nats[0].table.pool->events[2].kind, NAT_EVENT_released);
	assert_int_equal(nats[0].table.pool->left, nats[0].table.pool->nb_blocks);
}

static void a_pool_that_is_used_up_is_said(void **state)
{
	unsigned passed = 0;

	assert_int_equal(nats[0].table.pool->nb_blocks, 2 * 1008);
	nats[0].table.pool->left = 3;
	for (unsigned i = 0; i < 4; i++) {
		struct frame frame = udp(HOST + i, 2000, SERVER, 53);
		const enum verdict verdict = pass(&frame, 0);

		assert_true(verdict == VERDICT_PASS || verdict == VERDICT_DROP_no_ports);
		passed += verdict == VERDICT_PASS;
	}
	assert_int_equal(passed, 3);
}

/* ------- hairpins, errors, fragments ------- */

static void inside_reaches_inside_by_the_pool(void **state)
{
	const struct seen out = sent(udp(OTHER, 53, SERVER, 9), 0); /* by its forward */
	struct frame frame = udp(HOST, 2000, FORWARDED, 1024);
	struct seen there = through(&frame, 0), back;

	assert_int_equal(out.from, 1024);
	assert_int_equal(there.destination, OTHER);
	assert_int_equal(there.to, 53);
	assert_true(there.source == POOL || there.source == POOL + 1); /* RFC 4787, REQ-9: not its inside address */
	assert_int_equal(frame.bytes[5], 2);			       /* to the station that OTHER sent from */
	assert_int_equal(frame.bytes[11], 1);
	back = sent(udp(OTHER, 53, there.source, there.from), 0);
	assert_int_equal(back.destination, HOST);
	assert_int_equal(back.to, 2000);
	assert_int_equal(back.source, FORWARDED);
	assert_int_equal(back.from, 1024);
	assert_int_equal(nats[0].counters[0].hairpinned, 2);
	expect(DROP_unmapped, 0, udp(HOST, 2000, FORWARDED, 1025));
}

static void errors_are_about_what_inside_sent(void **state)
{
	for (unsigned quoted = 28; quoted <= 40; quoted += 12) {
		struct frame about = tcp(HOST, 2000, SERVER, 80, SYN), frame;
		const uint16_t sum_before = about.length > 0 ? ip_of(&about)->hdr_checksum : 0;
		struct frame original = about;
		const struct seen out = through(&about, 0);
		struct seen in;

		frame = error(STRANGER, out.source, &about, quoted); /* of a router on the way */
		in = through(&frame, 1);
		assert_int_equal(in.destination, HOST);
		assert_int_equal(in.source, STRANGER);
		assert_memory_equal(quoted_in(&frame), ip_of(&original), quoted);
		assert_int_equal(quoted_in(&frame)->hdr_checksum, sum_before);
		expect(DROP_unrelated, 1, error(STRANGER, out.source ^ 1, &about, quoted));
	}
	expect(DROP_unrelated, 1, ({
		       struct frame nothing = udp(POOL, 5000, SERVER, 53);
		       error(SERVER, POOL, &nothing, 28);
	       }));
}

/* Whatever an error quotes wrongly, the connection that it seems to be about goes on. */
static void an_error_that_lies_changes_nothing(void **state)
{
	enum { QUOTED = 14 + 20 + 8 };
	const struct {
		unsigned at;
		uint8_t value;
	} lies[] = {
		{QUOTED, 0x41},	    /* a header that is too short */
		{QUOTED, 0x4f},	    /* one that goes on behind the end */
		{QUOTED, 0x65},	    /* of another version */
		{QUOTED + 7, 1},    /* a later fragment, which has no ports */
		{QUOTED + 9, 6},    /* another protocol */
		{QUOTED + 15, 9},   /* somebody who has sent nothing */
		{QUOTED + 19, 9},   /* to somebody who was sent nothing */
		{QUOTED + 20, 255}, /* from a port that nobody has */
	};
	struct frame about = udp(HOST, 2000, SERVER, 53), itself;
	const struct seen out = through(&about, 0);

	for (unsigned i = 0; i < RTE_DIM(lies); i++) {
		struct frame lie = error(STRANGER, out.source, &about, 28);

		assert_int_not_equal(lie.bytes[lies[i].at], lies[i].value);
		lie.bytes[lies[i].at] = lies[i].value;
		finish(&lie);
		expect(DROP_unrelated, 1, lie);
	}
	itself = error(out.source, SERVER, &about, 28);
	expect(DROP_unrelated, 1, error(SERVER, out.source, &itself, 36)); /* an error about an error */
	assert_int_equal(nats[0].flows.used, 1);
	assert_int_equal(sent(udp(SERVER, 53, out.source, out.from), 1).destination, HOST);
}

static void errors_from_inside_hide_who_sends_them(void **state)
{
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);
	struct frame answer = udp(SERVER, 53, out.source, out.from), before = answer, frame;
	struct seen seen;

	through(&answer, 1);
	frame = error(OTHER, SERVER, &answer, 28); /* a router inside */
	seen = through(&frame, 0);
	assert_int_equal(seen.source, out.source);
	assert_memory_equal(quoted_in(&frame), ip_of(&before), 28);
}

static void fragments_go_the_way_of_their_first(void **state)
{
	struct frame first = fragment(HOST, SERVER, MORE), later = fragment(HOST, SERVER, 2);

	expect(DROP_fragment, 0, later);
	assert_int_equal(pass(&first, 0), VERDICT_PASS);
	assert_int_equal(pass(&later, 0), VERDICT_PASS);
	assert_int_equal(ip_of(&later)->src_addr, ip_of(&first)->src_addr);
	assert_int_equal(rte_raw_cksum(ip_of(&later), 20), 0xffff);
	expect(DROP_overlap, 0, fragment(HOST, SERVER, 1));
	expect(DROP_fragment, 0, fragment(OTHER, SERVER, 2));
}

/* ------- what is not translated ------- */

static void what_is_of_no_inside_host_stays(void **state)
{
	struct frame between = udp(0xc0a80001, 1, SERVER, 2), six = {0}, copy = between;

	assert_int_equal(pass(&between, 0), VERDICT_PASS);
	assert_memory_equal(between.bytes, copy.bytes, copy.length);
	expect(PASS, 1, udp(SERVER, 2, 0xc0a80001, 1));
	frame_macs(&six, 1, 2);
	frame_ipv6(&six, 1, 2, 99, 0);
	copy = six;
	assert_int_equal(pass(&six, 0), VERDICT_PASS);
	assert_memory_equal(six.bytes, copy.bytes, copy.length);
	assert_int_equal(nats[0].counters[0].untouched, 2);
}

static void what_must_not_be_is_dropped(void **state)
{
	struct frame tunnel;

	expect(DROP_spoofed, 0, udp(POOL, 1, SERVER, 2));
	expect(DROP_spoofed, 1, udp(POOL, 1, SERVER, 2));
	expect(DROP_inside, 1, udp(SERVER, 1, HOST, 2));
	expect(DROP_multicast, 0, udp(HOST, 1, 0xe0000001, 2));
	frame_macs(&tunnel, 1, 2);
	frame_ipv4(&tunnel, HOST, SERVER, 47, 8, 0, 0);
	frame_ports(&tunnel, 0, 0);
	finish(&tunnel);
	expect(DROP_protocol, 0, tunnel);
	expect(DROP_icmp, 1, icmp(SERVER, POOL, 5, 0)); /* a redirect */
	expect(DROP_martian, 0, udp(0x7f000001, 1, SERVER, 2));
	expect(DROP_martian, 1, udp(0xe0000001, 1, POOL, 2));
	expect(DROP_tiny, 0, tiny(HOST, SERVER));
	expect(PASS, 0, udp(HOST, 1, SERVER, 2));
}

static void a_vlan_is_another_network(void **state)
{
	struct frame tagged;
	const struct seen out = sent(udp(HOST, 2000, SERVER, 53), 0);

	frame_macs(&tagged, 1, 2);
	frame_tag(&tagged, 0x8100, 5);
	frame_ipv4(&tagged, SERVER, out.source, IPPROTO_UDP, 8, 0, 0);
	frame_ports(&tagged, 53, out.from);
	((struct rte_ipv4_hdr *)(tagged.bytes + 18))->hdr_checksum = rte_ipv4_cksum(
		(struct rte_ipv4_hdr *)(tagged.bytes + 18));
	expect(DROP_unmapped, 1, tagged);
	tagged.bytes[14] = 0xa0, tagged.bytes[15] = 0; /* a priority, and no VLAN */
	expect(PASS, 1, tagged);
}

/* ------- connections are handed over ------- */

static enum handover_result take(const struct handover_record *record)
{
	nats[0].tick = connections_tick(now);
	return handover_take_one(&nat_handover, record, nats[0].tick);
}

static void a_connection_keeps_its_address_in_another_instance(void **state)
{
	struct handover_record records[CONNECTIONS];
	const struct seen out = sent(tcp(HOST, 2000, SERVER, 99, 2), 0), beside = sent(udp(HOST, 3000, SERVER, 53), 0);
	const struct seen in = sent(tcp(SERVER, 5000, FORWARDED, 80, 2), 1);
	struct seen other;

	assert_int_equal(in.destination, OTHER);
	assert_int_equal(handed_over(&nat_handover, &nats[0].flows, records), 3);
	end(state);
	begin("endpoint-independent");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(take(&records[i]), HANDOVER_taken);
	assert_int_equal(take(&records[0]), HANDOVER_known);
	assert_int_equal(nats[0].flows.used, 3);
	assert_int_equal(sent(tcp(SERVER, 99, out.source, out.from, 18), 1).to, 2000);
	other = sent(udp(HOST, 3000, STRANGER, 54), 0);
	assert_int_equal(other.source, beside.source);
	assert_int_equal(other.from, beside.from);
	/* Its block and ports are taken: another host gets others. */
	other = sent(udp(OTHER, 3000, SERVER, 53), 0);
	assert_true(other.source != beside.source || other.from != beside.from);
	wait_seconds(7440 + 300);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&nats[0].flows, connections_tick(now) + i);
	assert_int_equal(nats[0].table.mapped, 2); /* the forwards */
}

/* It ended there, and began once more with another port outside, or from another station. */
static void what_began_anew_elsewhere_takes_the_place_of_what_was_before(void **state)
{
	static const uint8_t moved[] = {2, 0, 0, 0, 0, 77};
	struct handover_record records[CONNECTIONS], anew;
	struct frame answer;

	sent(tcp(HOST, 2000, SERVER, 99, 2), 0);
	assert_int_equal(handed_over(&nat_handover, &nats[0].flows, records), 1);
	end(state);
	begin("endpoint-independent");
	assert_int_equal(take(&records[0]), HANDOVER_taken);
	wait_seconds(2);
	anew = records[0];
	anew.outside_port ^= 2;
	assert_int_equal(take(&anew), HANDOVER_known); /* of the same tick */
	anew.seen++;
	assert_int_equal(take(&anew), HANDOVER_updated);
	assert_int_equal(nats[0].flows.used, 1);
	assert_int_equal(nats[0].table.mapped, 2 + 1);
	assert_int_equal(sent(tcp(HOST, 2000, SERVER, 99, 2), 0).from, anew.outside_port);
	wait_seconds(1);
	anew.seen = connections_tick(now);
	anew.has_mac = true;
	memcpy(anew.mac, moved, sizeof(moved));
	assert_int_equal(take(&anew), HANDOVER_updated);
	answer = tcp(SERVER, 99, anew.outside, anew.outside_port, 18);
	assert_true(passes(&answer, 1));
	assert_memory_equal(answer.bytes, moved, sizeof(moved));
	/* With a port that is another host's it cannot be here. */
	sent(tcp(OTHER, 2000, SERVER, 99, 2), 0);
	wait_seconds(1);
	assert_int_equal(handed_over(&nat_handover, &nats[0].flows, records), 2);
	for (unsigned i = 0; i < 2; i++)
		if (records[i].outside_port != anew.outside_port || records[i].outside != anew.outside) {
			anew.outside = records[i].outside;
			anew.outside_port = records[i].outside_port;
			break;
		}
	anew.seen = connections_tick(now);
	assert_int_equal(take(&anew), HANDOVER_unfit);
	assert_int_equal(nats[0].flows.used, 1);
}

static void what_cannot_be_here_is_not_taken(void **state)
{
	struct handover_record records[CONNECTIONS], wrong;
	const struct seen out = sent(udp(HOST, 3000, SERVER, 53), 0);

	assert_int_equal(handed_over(&nat_handover, &nats[0].flows, records), 1);
	end(state);
	begin("endpoint-independent");
	wrong = records[0];
	wrong.outside = POOL + 2; /* not of the pool */
	assert_int_equal(take(&wrong), HANDOVER_unfit);
	wrong = records[0];
	wrong.outside_port = 80; /* nobody's but a forward's */
	assert_int_equal(take(&wrong), HANDOVER_unfit);
	wrong = records[0];
	wrong.outside = FORWARDED, wrong.outside_port = 1024; /* a forward's */
	assert_int_equal(take(&wrong), HANDOVER_unfit);
	wrong = records[0];
	wrong.port = 1; /* the server would be inside */
	assert_int_equal(take(&wrong), HANDOVER_unfit);
	wrong = records[0];
	wrong.seen -= (uint32_t)(rte_get_tsc_hz() * 200 >> CONNECTION_TICK_SHIFT);
	assert_int_equal(take(&wrong), HANDOVER_aged);
	wrong.seen = connections_tick(now) + 100; /* of later */
	assert_int_equal(take(&wrong), HANDOVER_malformed);
	assert_int_equal(nats[0].table.mapped, 2);
	assert_int_equal(nats[0].table.pool->taken, 0);
	/* Another host has the block already. */
	assert_int_equal(take(&records[0]), HANDOVER_taken);
	wrong = records[0];
	((struct headers *)wrong.key)->destination[3] ^= 8; /* another host inside */
	wrong.outside_port ^= 2;			    /* another port of the block */
	assert_int_equal(take(&wrong), HANDOVER_unfit);
	assert_int_equal(nats[0].table.pool->taken, 1);
	assert_int_equal(sent(udp(SERVER, 53, out.source, out.from), 1).to, 3000);
}

static void settings_are_checked(void **state)
{
	assert_non_null(nat.set("pool", "198.51.100.0/31"));
	assert_non_null(nat.set("pool", "198.51.100.9/31"));
	assert_non_null(nat.set("pool", "203.0.113.0/16"));
	assert_non_null(nat.set("block", "100"));
	assert_non_null(nat.set("blocks", "17"));
	assert_non_null(nat.set("forwards", "icmp:198.51.100.1:80:10.0.0.3:8080"));
	assert_non_null(nat.set("forwards", "tcp:198.51.100.1:80:10.0.0.4:8080"));
	assert_non_null(nat.set("filtering", "none"));
	assert_non_null(nat.set("nothing", "1"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(an_inside_end_has_one_outside_whomever_it_sends_to),
		TEST(answers_come_back),
		TEST(a_query_is_answered),
		TEST(a_checksum_that_is_none_stays_none),
		TEST(checksums_hold_for_any_ports),
		TEST(who_is_mapped_may_be_asked_by_others),
		cmocka_unit_test_setup_teardown(or_only_by_whom_it_has_asked, start_filtering, end),
		TEST(a_forward_leads_inside_and_back),
		TEST(a_mapping_ends_with_its_last_connection),
		TEST(an_answer_finds_its_connection_whichever_began_last),
		TEST(a_host_has_as_many_blocks_as_it_may),
		TEST(a_host_has_as_many_connections_as_it_may),
		TEST(nor_has_who_has_a_forward_more),
		TEST(a_block_stays_with_its_host_for_two_minutes),
		TEST(a_pool_that_is_used_up_is_said),
		TEST(inside_reaches_inside_by_the_pool),
		TEST(errors_are_about_what_inside_sent),
		TEST(an_error_that_lies_changes_nothing),
		TEST(errors_from_inside_hide_who_sends_them),
		TEST(fragments_go_the_way_of_their_first),
		TEST(what_is_of_no_inside_host_stays),
		TEST(what_must_not_be_is_dropped),
		TEST(a_vlan_is_another_network),
		TEST(a_connection_keeps_its_address_in_another_instance),
		TEST(what_began_anew_elsewhere_takes_the_place_of_what_was_before),
		TEST(what_cannot_be_here_is_not_taken),
		TEST(settings_are_checked),
	};

	pool = start_dpdk_with_pool(64, FRAMES);
	if (pool == NULL)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
