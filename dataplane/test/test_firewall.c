/* SPDX-License-Identifier: Apache-2.0
 *
 * The firewall, by crafted frames and a clock that the test moves: which frames pass in which state of a flow, and for
 * which reason the others do not.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

#include <netinet/in.h>
#include <pthread.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#include "common/grace.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "functions/handover.h"

#define CONNECTIONS 64
enum { FRAMES = 512, CLIENT = 0x0a000002, SERVER = 0x0a000102, OTHER = 0x0a000103 };
enum { SYN = 2, ACK = 16, FIN = 1, RST = 4 };

static struct rte_mempool *pool;
static uint64_t now; /* TSC */

/* The client's side is port 0; it may reach the server's port 80, echo, and port 53. */
static const char rules[] =
	"{\"rules\": ["
	"{\"name\": \"no-other\", \"action\": \"deny\", \"match\": [{\"destination\": \"10.0.1.3/32\"}]},"
	"{\"name\": \"web\", \"action\": \"allow\", \"port\": 0, \"match\": ["
	"  {\"destination\": \"10.0.1.0/24\", \"protocol\": 6, \"destination_port\": [80, 89]},"
	"  {\"destination\": \"2001:db8::/32\", \"protocol\": 6, \"destination_port\": 80}]},"
	"{\"name\": \"names\", \"action\": \"allow\", \"port\": 0, \"match\": ["
	"  {\"protocol\": 17, \"destination_port\": 53}]},"
	"{\"name\": \"echo\", \"action\": \"allow\", \"port\": 0, \"match\": [{\"protocol\": 1}, {\"protocol\": 58}]},"
	"{\"name\": \"tunnel\", \"action\": \"allow\", \"match\": [{\"protocol\": 47}]}]}";

/* Tell it other rules; returns what is wrong with them, or NULL. */
static const char *tell(const char *text)
{
	static struct control_error error;
	json_t *params = json_loads(text, 0, NULL);
	int rc = firewall.keeping->configure(params, &error);

	assert_non_null(params);
	json_decref(params);
	return rc == 0 ? NULL : error.message;
}

static int start(void **state)
{
	now = rte_get_tsc_hz();
	assert_null(firewall.set("connections", RTE_STR(CONNECTIONS)));
	return firewall.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) != 0 ||
	       tell(rules) != NULL;
}

static int end(void **state)
{
	firewall.keeping->close();
	return rte_mempool_in_use_count(pool) != 0;
}

static void wait_seconds(unsigned seconds)
{
	now += seconds * rte_get_tsc_hz();
}

/* ------- frames ------- */

static void finish4(struct frame *frame)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + 14);

	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

static void add_tcp(struct frame *frame, uint16_t source, uint16_t destination, uint8_t flags)
{
	frame_add16(frame, source);
	frame_add16(frame, destination);
	frame_add32(frame, 1);
	frame_add32(frame, 1);
	frame_add8(frame, 0x50);
	frame_add8(frame, flags);
	frame_add16(frame, 1000);
	frame_add32(frame, 0);
}

static struct frame tcp4(uint32_t source, uint32_t destination, uint16_t from, uint16_t to, uint8_t flags)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_TCP, 20, 0, 0);
	add_tcp(&frame, from, to, flags);
	finish4(&frame);
	return frame;
}

static struct frame udp4(uint32_t source, uint32_t destination, uint16_t from, uint16_t to)
{
	struct frame frame;

	frame_udp4(&frame, source, destination, from, to);
	finish4(&frame);
	return frame;
}

static void add_icmp(struct frame *frame, uint8_t type, uint16_t identifier)
{
	frame_add8(frame, type);
	frame_add8(frame, 0);
	frame_add16(frame, 0);
	frame_add16(frame, identifier);
	frame_add16(frame, 1);
}

static struct frame icmp4(uint32_t source, uint32_t destination, uint8_t type, uint16_t identifier)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8, 0, 0);
	add_icmp(&frame, type, identifier);
	finish4(&frame);
	return frame;
}

/* An error that quotes a frame, which begins behind its Ethernet header. */
static struct frame error4(uint32_t source, uint32_t destination, uint8_t type, const struct frame *quoted)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, source, destination, IPPROTO_ICMP, 8 + 28, 0, 0);
	add_icmp(&frame, type, 0);
	frame_add(&frame, quoted->bytes + 14, 28);
	finish4(&frame);
	return frame;
}

/* Let a frame in at a port.  Returns VERDICT_PASS, or the reason why it was dropped. */
static enum verdict pass(const struct frame *frame, uint16_t in)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)};
	struct firewall_counters before = firewalls[0].counters[in];

	assert_non_null(burst[0]);
	memcpy(rte_pktmbuf_append(burst[0], frame->length), frame->bytes, frame->length);
	if (firewall_filter(&firewalls[0], burst, 1, in, now) == 1) {
		assert_memory_equal(rte_pktmbuf_mtod(burst[0], void *), frame->bytes, frame->length);
		rte_pktmbuf_free(burst[0]);
		return VERDICT_PASS;
	}
	for (unsigned why = 0; why < VERDICTS; why++)
		if (firewalls[0].counters[in].drops[why] != before.drops[why])
			return why;
	fail();
	return VERDICT_PASS;
}

#define expect(verdict, in, ...)                                          \
	do {                                                              \
		struct frame expected = __VA_ARGS__;                      \
		assert_int_equal(pass(&expected, in), VERDICT_##verdict); \
	} while (0)

#define CLIENT_SENDS(flags) tcp4(CLIENT, SERVER, 1000, 80, flags)
#define SERVER_SENDS(flags) tcp4(SERVER, CLIENT, 80, 1000, flags)

static enum connection_state state_now(void)
{
	struct connection flow;
	unsigned found = 0, state = CONNECTION_none;

	for (uint32_t i = 1; i <= firewalls[0].flows.most; i++)
		if (connections_copy(&firewalls[0].flows, i, &flow)) {
			state = flow.state;
			found++;
		}
	assert_int_equal(found, firewalls[0].flows.used);
	assert_true(found <= 1);
	return state;
}

static void handshake(void)
{
	expect(PASS, 0, CLIENT_SENDS(SYN));
	assert_int_equal(state_now(), CONNECTION_syn_sent);
	expect(PASS, 1, SERVER_SENDS(SYN | ACK));
	assert_int_equal(state_now(), CONNECTION_syn_received);
	expect(PASS, 0, CLIENT_SENDS(ACK));
	assert_int_equal(state_now(), CONNECTION_established);
}

static uint64_t rule_frames(const char *name)
{
	const struct firewall_rules *set = firewalls[0].rules;

	for (uint32_t i = 0; i < set->nb; i++)
		if (strcmp(set->rules[i].name, name) == 0)
			return set->counts[i].frames;
	return set->counts[set->nb].frames;
}

/* ------- TCP ------- */

static void a_connection_is_followed(void **state)
{
	handshake();
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect(PASS, 0, CLIENT_SENDS(FIN | ACK));
	assert_int_equal(state_now(), CONNECTION_closing_opener);
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect(PASS, 1, SERVER_SENDS(FIN | ACK));
	assert_int_equal(state_now(), CONNECTION_time_wait);
	expect(PASS, 0, CLIENT_SENDS(ACK));
	expect(PASS, 0, CLIENT_SENDS(SYN)); /* the same ports again */
	assert_int_equal(state_now(), CONNECTION_syn_sent);
	assert_int_equal(rule_frames("web"), 2);
	assert_int_equal(firewalls[0].flows.begun, 2);
}

static void the_server_may_end_first(void **state)
{
	handshake();
	expect(PASS, 1, SERVER_SENDS(FIN | ACK));
	assert_int_equal(state_now(), CONNECTION_closing_other);
	expect(PASS, 0, CLIENT_SENDS(ACK));
	expect(PASS, 0, CLIENT_SENDS(FIN | ACK));
	assert_int_equal(state_now(), CONNECTION_time_wait);
	expect(DROP_rule, 1, SERVER_SENDS(SYN)); /* a new connection, which no rule allows this way */
	assert_int_equal(state_now(), CONNECTION_none);
}

static void only_a_syn_begins(void **state)
{
	expect(DROP_state, 0, CLIENT_SENDS(ACK));
	expect(DROP_state, 0, CLIENT_SENDS(FIN | ACK));
	expect(DROP_state, 0, CLIENT_SENDS(RST));
	expect(DROP_state, 1, SERVER_SENDS(SYN | ACK));
	expect(DROP_rule, 1, SERVER_SENDS(SYN));
	assert_int_equal(firewalls[0].flows.used, 0);
	assert_int_equal(rule_frames("web"), 0);
}

static void what_does_not_fit_the_handshake_is_dropped(void **state)
{
	expect(PASS, 0, CLIENT_SENDS(SYN));
	expect(DROP_state, 0, CLIENT_SENDS(ACK));
	expect(DROP_state, 0, CLIENT_SENDS(FIN | ACK));
	expect(DROP_state, 0, CLIENT_SENDS(SYN | ACK));
	expect(DROP_state, 1, SERVER_SENDS(FIN | ACK));
	expect(PASS, 1, SERVER_SENDS(ACK)); /* of an older connection: the client then resets that (RFC 9293, 3.5.1) */
	assert_int_equal(state_now(), CONNECTION_syn_sent);
	expect(PASS, 1, SERVER_SENDS(SYN | ACK));
	expect(DROP_state, 1, SERVER_SENDS(SYN));
}

static void both_may_begin_at_once(void **state)
{
	expect(PASS, 0, CLIENT_SENDS(SYN));
	expect(PASS, 1, SERVER_SENDS(SYN));
	assert_int_equal(state_now(), CONNECTION_syn_both);
	expect(PASS, 0, CLIENT_SENDS(SYN | ACK));
	expect(PASS, 1, SERVER_SENDS(SYN | ACK));
	assert_int_equal(state_now(), CONNECTION_established);
}

static void a_reset_ends(void **state)
{
	handshake();
	expect(PASS, 1, SERVER_SENDS(RST | ACK));
	assert_int_equal(state_now(), CONNECTION_reset);
	expect(PASS, 0, CLIENT_SENDS(ACK)); /* if it was forged, the connection goes on */
	expect(DROP_state, 1, SERVER_SENDS(SYN | ACK));
	wait_seconds(11);
	expect(DROP_state, 0, CLIENT_SENDS(ACK));
	assert_int_equal(firewalls[0].flows.used, 0);
}

static void impossible_flags_are_dropped(void **state)
{
	handshake();
	for (uint8_t flags = 0; flags < 32; flags++) {
		uint8_t known = flags & (SYN | ACK | FIN | RST);
		bool possible = known == ACK || known == SYN || known == (SYN | ACK) || known == (FIN | ACK) ||
				known == RST || known == (RST | ACK);

		if (!possible)
			expect(DROP_transport, 0, CLIENT_SENDS(flags));
	}
	assert_int_equal(state_now(), CONNECTION_established);
}

static void connections_age_by_their_state(void **state)
{
	expect(PASS, 0, CLIENT_SENDS(SYN));
	wait_seconds(31);
	expect(DROP_state, 1, SERVER_SENDS(SYN | ACK));
	handshake();
	wait_seconds(7439);
	expect(PASS, 1, SERVER_SENDS(ACK));
	wait_seconds(7441);
	expect(DROP_state, 1, SERVER_SENDS(ACK));
	assert_int_equal(firewalls[0].flows.aged, 2);
	handshake();
	expect(PASS, 0, CLIENT_SENDS(FIN | ACK));
	wait_seconds(239);
	expect(PASS, 1, SERVER_SENDS(ACK));
	wait_seconds(241);
	expect(DROP_state, 1, SERVER_SENDS(ACK));
}

static void a_sweep_forgets_what_nobody_asks_for(void **state)
{
	expect(PASS, 0, CLIENT_SENDS(SYN));
	wait_seconds(60);
	for (unsigned i = 0; i < 100; i++, now += rte_get_tsc_hz() / 5)
		connections_sweep(&firewalls[0].flows, connections_tick(now));
	assert_int_equal(firewalls[0].flows.used, 0);
	assert_int_equal(firewalls[0].flows.aged, 1);
}

static void each_end_stays_at_its_port(void **state)
{
	handshake();
	expect(DROP_wrong_port, 1, CLIENT_SENDS(ACK));
	expect(DROP_wrong_port, 0, SERVER_SENDS(ACK));
}

/* ------- a full table ------- */

static void a_flood_of_syns_takes_no_connection(void **state)
{
	handshake();
	for (unsigned i = 0; i < 10000; i++)
		expect(PASS, 0, tcp4(0x0a010000 + i, SERVER, 5, 80, SYN));
	assert_true(firewalls[0].flows.used <= CONNECTIONS);
	assert_true(firewalls[0].flows.gave_way > 9000);
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect(PASS, 0, tcp4(CLIENT, SERVER, 2000, 80, SYN)); /* and a new one is still begun */
	expect(PASS, 1, tcp4(SERVER, CLIENT, 80, 2000, SYN | ACK));
	expect(PASS, 0, tcp4(CLIENT, SERVER, 2000, 80, ACK));
}

static void without_room_a_flow_is_refused(void **state)
{
	unsigned full = 0;

	for (unsigned i = 0; i < 2 * CONNECTIONS; i++) {
		struct frame frame = tcp4(CLIENT, SERVER, 1000 + i, 80, SYN);
		enum verdict verdict = pass(&frame, 0);

		full += verdict == VERDICT_DROP_table_full;
		if (verdict != VERDICT_PASS)
			continue;
		expect(PASS, 1, tcp4(SERVER, CLIENT, 80, 1000 + i, SYN | ACK));
		expect(PASS, 0, tcp4(CLIENT, SERVER, 1000 + i, 80, ACK));
	}
	assert_true(full >= CONNECTIONS);
	assert_int_equal(firewalls[0].flows.used + full, 2 * CONNECTIONS);
	assert_int_equal(firewalls[0].flows.gave_way, 0);
	wait_seconds(7441); /* those that have aged make room */
	for (unsigned i = 0; i < 100; i++, now += rte_get_tsc_hz() / 5)
		connections_sweep(&firewalls[0].flows, connections_tick(now));
	expect(PASS, 0, CLIENT_SENDS(SYN));
}

/* ------- UDP, ICMP, others ------- */

static void a_datagram_may_be_answered(void **state)
{
	expect(DROP_rule, 1, udp4(SERVER, CLIENT, 53, 1000));
	expect(PASS, 0, udp4(CLIENT, SERVER, 1000, 53));
	assert_int_equal(state_now(), CONNECTION_one_way);
	expect(PASS, 1, udp4(SERVER, CLIENT, 53, 1000));
	assert_int_equal(state_now(), CONNECTION_two_way);
	expect(DROP_rule, 1, udp4(SERVER, CLIENT, 53, 1001));
	wait_seconds(299);
	expect(PASS, 1, udp4(SERVER, CLIENT, 53, 1000));
	wait_seconds(301);
	expect(DROP_rule, 1, udp4(SERVER, CLIENT, 53, 1000));
	assert_int_equal(rule_frames("names"), 1);
	assert_int_equal(rule_frames("default"), 3);
}

static void a_protocol_without_ports_is_a_flow_of_addresses(void **state)
{
	struct frame there, back;

	frame_macs(&there, 1, 2);
	frame_ipv4(&there, CLIENT, SERVER, 47, 8, 0, 0);
	frame_add32(&there, 0);
	frame_add32(&there, 0);
	finish4(&there);
	frame_macs(&back, 2, 1);
	frame_ipv4(&back, SERVER, CLIENT, 47, 8, 0, 0);
	frame_add32(&back, 0);
	frame_add32(&back, 0);
	finish4(&back);
	expect(PASS, 0, there);
	expect(PASS, 1, back);
	assert_int_equal(state_now(), CONNECTION_two_way);
	assert_int_equal(rule_frames("tunnel"), 1);
}

static void an_answer_needs_its_query(void **state)
{
	expect(DROP_state, 1, icmp4(SERVER, CLIENT, 0, 7));
	expect(PASS, 0, icmp4(CLIENT, SERVER, 8, 7));
	expect(DROP_state, 1, icmp4(SERVER, CLIENT, 0, 8));
	expect(DROP_state, 1, icmp4(SERVER, CLIENT, 14, 7)); /* of another kind of query */
	expect(DROP_rule, 1, icmp4(SERVER, CLIENT, 8, 7));   /* another flow */
	expect(PASS, 1, icmp4(SERVER, CLIENT, 0, 7));
	wait_seconds(61);
	expect(DROP_state, 1, icmp4(SERVER, CLIENT, 0, 7));
	expect(DROP_icmp, 0, icmp4(CLIENT, SERVER, 17, 7)); /* an address mask's */
	expect(DROP_icmp, 0, icmp4(CLIENT, SERVER, 4, 0));  /* source quench */
	expect(DROP_icmp, 0, icmp4(CLIENT, SERVER, 5, 0));  /* redirect */
}

static void an_error_is_of_a_flow(void **state)
{
	const struct frame sent = CLIENT_SENDS(ACK), answer = SERVER_SENDS(ACK),
			   other = tcp4(CLIENT, SERVER, 1001, 80, ACK), echo = icmp4(CLIENT, SERVER, 8, 7),
			   reply = icmp4(SERVER, CLIENT, 0, 7), unanswered = icmp4(CLIENT, SERVER, 8, 9);
	struct frame lie;

	expect(DROP_unrelated, 1, error4(OTHER, CLIENT, 3, &sent));
	handshake();
	expect(PASS, 1, error4(OTHER, CLIENT, 3, &sent));
	expect(PASS, 1, error4(SERVER, CLIENT, 11, &sent));
	expect(PASS, 0, error4(CLIENT, SERVER, 3, &answer));
	expect(DROP_unrelated, 0, error4(OTHER, CLIENT, 3, &sent));   /* from where the quoted frame came */
	expect(DROP_unrelated, 1, error4(SERVER, OTHER, 3, &sent));   /* to somebody else */
	expect(DROP_unrelated, 1, error4(OTHER, CLIENT, 3, &other));  /* of no flow */
	expect(DROP_unrelated, 1, error4(OTHER, CLIENT, 3, &answer)); /* of what the client was sent */
	lie = error4(OTHER, CLIENT, 3, &sent);
	lie.bytes[14 + 20 + 8] = 0x41; /* the quoted header is too short */
	expect(DROP_unrelated, 1, lie);
	lie = error4(OTHER, CLIENT, 3, &sent);
	lie.bytes[14 + 20 + 8 + 7] = 1; /* a later fragment, which has no ports */
	expect(DROP_unrelated, 1, lie);
	lie = error4(SERVER, CLIENT, 3, &sent);
	expect(DROP_unrelated, 1, error4(OTHER, SERVER, 3, &lie)); /* an error about an error */
	lie = error4(OTHER, CLIENT, 3, &sent);
	lie.bytes[14 + 3] = 20 + 8; /* what seems to be quoted is padding */
	finish4(&lie);
	expect(DROP_unrelated, 1, lie);
	assert_int_equal(state_now(), CONNECTION_established);

	expect(PASS, 0, echo);
	expect(PASS, 1, reply);
	expect(PASS, 1, error4(OTHER, CLIENT, 11, &echo));
	expect(PASS, 0, icmp4(CLIENT, SERVER, 8, 0));
	lie = error4(OTHER, CLIENT, 11, &echo);
	lie.bytes[14 + 3] -= 4; /* whose identifier is not quoted */
	finish4(&lie);
	expect(DROP_unrelated, 1, lie);
	expect(PASS, 0, error4(CLIENT, SERVER, 3, &reply));
	expect(DROP_unrelated, 1, error4(OTHER, CLIENT, 11, &unanswered));
}

/* ------- rules ------- */

static void the_first_rule_that_matches_counts(void **state)
{
	expect(DROP_rule, 0, tcp4(CLIENT, OTHER, 1000, 80, SYN));
	assert_int_equal(rule_frames("no-other"), 1);
	expect(PASS, 0, tcp4(CLIENT, SERVER, 1000, 89, SYN));
	expect(DROP_rule, 0, tcp4(CLIENT, SERVER, 1000, 90, SYN));
	assert_int_equal(rule_frames("web"), 1);
	assert_int_equal(rule_frames("default"), 1);
}

static void rules_change_and_connections_stay(void **state)
{
	const char *wrong = "{\"rules\": [{\"name\": \"x\", \"action\": \"allwo\"}]}";

	handshake();
	assert_null(tell("{\"default\": \"deny\", \"rules\": []}"));
	expect(PASS, 0, CLIENT_SENDS(ACK));
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect(DROP_rule, 0, tcp4(CLIENT, SERVER, 1001, 80, SYN));
	assert_non_null(strstr(tell(wrong), "rules[0].action"));
	expect(DROP_rule, 0, tcp4(CLIENT, SERVER, 1001, 80, SYN));
	assert_null(tell("{\"default\": \"allow\"}"));
	expect(PASS, 0, tcp4(CLIENT, SERVER, 1001, 80, SYN));
	expect(PASS, 1, udp4(SERVER, CLIENT, 1, 2));
}

static const json_t *cell(const json_t *tables, const char *table, size_t row, const char *column)
{
	const json_t *rows = json_object_get(json_object_get(tables, table), "rows");

	return json_object_get(json_array_get(rows, row), column);
}

static void connections_and_rules_are_shown(void **state)
{
	json_t *tables = json_object();

	handshake();
	firewall.keeping->tables(tables, 3);
	assert_string_equal(json_string_value(cell(tables, "connections", 0, "from")), "10.0.0.2:1000");
	assert_string_equal(json_string_value(cell(tables, "connections", 0, "to")), "10.0.1.2:80");
	assert_string_equal(json_string_value(cell(tables, "connections", 0, "state")), "established");
	assert_string_equal(json_string_value(cell(tables, "rules", 0, "rule")), "default");
	assert_string_equal(json_string_value(cell(tables, "rules", 2, "rule")), "web");
	assert_int_equal(json_integer_value(cell(tables, "rules", 2, "frames")), 1);
	assert_null(cell(tables, "rules", 3, "rule"));
	json_decref(tables);
}

static void a_burst_keeps_its_order_and_begins_a_flow_once(void **state)
{
	struct rte_mbuf *burst[FUNCTION_ROOM], *sent[FIREWALL_BURST];

	for (unsigned i = 0; i < FIREWALL_BURST; i++) {
		struct frame frame = udp4(CLIENT, SERVER, 1000 + i % 4, i % 8 == 7 ? 54 : 53);

		burst[i] = sent[i] = rte_pktmbuf_alloc(pool);
		memcpy(rte_pktmbuf_append(burst[i], frame.length), frame.bytes, frame.length);
	}
	assert_int_equal(firewall_filter(&firewalls[0], burst, FIREWALL_BURST, 0, now), FIREWALL_BURST * 7 / 8);
	for (unsigned i = 0, j = 0; i < FIREWALL_BURST; i++)
		if (i % 8 != 7)
			assert_ptr_equal(burst[j++], sent[i]);
	rte_pktmbuf_free_bulk(burst, FIREWALL_BURST * 7 / 8);
	assert_int_equal(firewalls[0].flows.begun, 4);
	assert_int_equal(rule_frames("names"), 4);
}

/* ------- fragments ------- */

static struct frame fragment4(uint16_t id, uint16_t place, unsigned payload, uint16_t port)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, CLIENT, SERVER, IPPROTO_UDP, payload, id, place);
	frame_ports(&frame, 1000, port);
	frame.bytes[frame.length - 4] = 0; /* the datagram's length */
	frame.bytes[frame.length - 3] = 80;
	while (frame.length < 34 + payload)
		frame_add8(&frame, 0);
	frame.length = 34 + payload;
	finish4(&frame);
	return frame;
}

static void fragments_follow_their_first(void **state)
{
	const uint16_t more = 0x2000;

	expect(DROP_fragment, 0, fragment4(1, 5, 40, 53));
	expect(PASS, 0, fragment4(1, more | 0, 40, 53));
	expect(PASS, 0, fragment4(1, 5, 40, 53));
	expect(DROP_fragment, 0, fragment4(2, 5, 40, 53));
	expect(DROP_overlap, 0, fragment4(1, 4, 40, 53));
	expect(DROP_overlap, 0, fragment4(1, more | 1, 40, 53));
	expect(DROP_rule, 0, fragment4(3, more | 0, 40, 54));
	expect(DROP_fragment, 0, fragment4(3, 5, 40, 54));
	expect(DROP_length, 0, fragment4(1, more | 5, 41, 53)); /* what is no end has whole units */
	expect(DROP_length, 0, fragment4(1, 8191, 40, 53));	/* beyond the longest datagram */
	wait_seconds(200);
	expect(DROP_fragment, 0, fragment4(1, 5, 40, 53));
}

static void a_first_fragment_has_the_whole_header(void **state)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, CLIENT, SERVER, IPPROTO_TCP, 16, 1, 0x2000);
	add_tcp(&frame, 1000, 80, SYN);
	frame.length = 14 + 20 + 16;
	finish4(&frame);
	expect(DROP_tiny, 0, frame);
}

/* Of TCP over IPv6: so many bytes of a segment, behind a fragment header with this place in units of 8 bytes. */
static struct frame fragment6(uint32_t id, uint16_t place, bool more, unsigned payload)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, IPPROTO_FRAGMENT, 8 + payload);
	frame_add8(&frame, IPPROTO_TCP);
	frame_add8(&frame, 0);
	frame_add16(&frame, (uint16_t)(place << 3 | more));
	frame_add32(&frame, id);
	add_tcp(&frame, 1000, 80, SYN);
	frame_add32(&frame, 0);
	frame.length = 14 + 40 + 8 + payload;
	return frame;
}

static void of_ipv6_too(void **state)
{
	expect(DROP_fragment, 0, fragment6(1, 3, false, 8));
	expect(DROP_tiny, 0, fragment6(1, 0, true, 16));
	expect(DROP_fragment, 0, fragment6(1, 3, false, 8));
	expect(PASS, 0, fragment6(1, 0, true, 24));
	expect(PASS, 0, fragment6(1, 3, false, 8));
	expect(DROP_overlap, 0, fragment6(1, 2, true, 16));
	expect(DROP_overlap, 0, fragment6(1, 1, false, 8));
	expect(DROP_fragment, 0, fragment6(2, 3, false, 8));
}

/* Only what the first one says is in a datagram counts for who puts it together (RFC 8200, 4.5). */
static void a_later_fragment_is_one_whatever_it_says_it_has(void **state)
{
	static const uint8_t says[] = {IPPROTO_HOPOPTS, IPPROTO_ROUTING, IPPROTO_FRAGMENT, IPPROTO_AH,
				       IPPROTO_DSTOPTS, IPPROTO_NONE,	 IPPROTO_UDP};

	assert_null(tell("{\"default\": \"allow\"}"));
	for (uint32_t i = 0; i < RTE_DIM(says); i++) {
		struct frame later = fragment6(i, 3, false, 8), over = fragment6(i, 1, false, 8), behind;

		later.bytes[14 + 40] = over.bytes[14 + 40] = says[i];
		behind = later;
		behind.length = 14 + 40;
		behind.bytes[14 + 5] += 8;
		behind.bytes[14 + 6] = IPPROTO_DSTOPTS;
		frame_add32(&behind, IPPROTO_FRAGMENT << 24);
		frame_add32(&behind, 0);
		frame_add(&behind, later.bytes + 14 + 40, later.length - 14 - 40);
		expect(DROP_fragment, 0, later);
		expect(DROP_fragment, 0, behind);
		expect(PASS, 0, fragment6(i, 0, true, 24));
		expect(DROP_overlap, 0, over);
		expect(PASS, 0, later);
		expect(PASS, 0, behind);
	}
	assert_int_equal(state_now(), CONNECTION_syn_sent);
}

/* Behind a tag of this VLAN, with a priority. */
static struct frame tagged(uint16_t vlan, const struct frame *frame)
{
	struct frame whole = {0};

	frame_add(&whole, frame->bytes, 12);
	frame_tag(&whole, 0x8100, 0xa000 | vlan);
	frame_add(&whole, frame->bytes + 12, frame->length - 12);
	return whole;
}

static void a_priority_makes_no_vlan(void **state)
{
	const struct frame syn = CLIENT_SENDS(SYN), answer = SERVER_SENDS(SYN | ACK), ack = CLIENT_SENDS(ACK);
	struct frame within = tagged(5, &syn);

	expect(PASS, 0, tagged(0, &syn));
	expect(PASS, 1, answer);
	expect(PASS, 0, tagged(0, &ack));
	assert_int_equal(state_now(), CONNECTION_established);
	expect(DROP_state, 1, tagged(5, &answer)); /* another network */
	expect(PASS, 0, tagged(0, &within));
	expect(PASS, 1, tagged(5, &answer));
	assert_int_equal(firewalls[0].flows.used, 2);
}

/* ------- headers ------- */

static void what_does_not_hold_has_a_name(void **state)
{
	struct frame frame = CLIENT_SENDS(SYN);

	frame.length = 13;
	expect(DROP_short, 0, frame);
	frame.length = 30;
	expect(DROP_short, 0, frame);
	frame = CLIENT_SENDS(SYN);
	frame.bytes[14] = 0x65;
	expect(DROP_version, 0, frame);
	frame = CLIENT_SENDS(SYN);
	frame.bytes[17]++; /* the total length */
	expect(DROP_length, 0, frame);
	frame = CLIENT_SENDS(SYN);
	frame.bytes[24]++;
	expect(DROP_checksum, 0, frame);
	frame = CLIENT_SENDS(SYN);
	frame.bytes[34 + 12] = 0x40; /* data offset */
	expect(DROP_transport, 0, frame);
	frame = udp4(CLIENT, SERVER, 1000, 53);
	frame.bytes[34 + 5] = 9;
	expect(DROP_transport, 0, frame);
	expect(DROP_martian, 0, tcp4(0x7f000001, SERVER, 1000, 80, SYN));
	expect(DROP_martian, 0, tcp4(0xe0000001, SERVER, 1000, 80, SYN));
	expect(DROP_martian, 0, tcp4(SERVER, SERVER, 1000, 80, SYN));
	frame = CLIENT_SENDS(SYN);
	frame.bytes[12] = 0x88; /* an Ethertype that is not known */
	expect(DROP_type, 0, frame);
	assert_int_equal(firewalls[0].flows.used, 0);
}

static void source_routes_are_dropped(void **state)
{
	const uint8_t routes[] = {131, 7, 4, 1, 2, 3, 4, 0}, record[] = {7, 7, 4, 1, 2, 3, 4, 0},
		      broken[] = {7, 9, 4, 0};
	const struct {
		const uint8_t *bytes;
		unsigned length;
		enum verdict verdict;
	} options[] = {{routes, 8, VERDICT_DROP_options}, {record, 8, VERDICT_PASS}, {broken, 4, VERDICT_DROP_options}};

	for (unsigned i = 0; i < RTE_DIM(options); i++) {
		struct frame frame;

		frame_macs(&frame, 1, 2);
		frame_ipv4(&frame, CLIENT, SERVER, IPPROTO_UDP, 8 + options[i].length, 0, 0);
		frame.bytes[14] = 0x45 + options[i].length / 4;
		frame_add(&frame, options[i].bytes, options[i].length);
		frame_ports(&frame, 1000, 53);
		finish4(&frame);
		assert_int_equal(pass(&frame, 0), options[i].verdict);
	}
}

static void neighbours_find_each_other(void **state)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_add16(&frame, 0x0806);
	frame_add32(&frame, 0x00010800);
	expect(PASS, 0, frame);
	expect(PASS, 1, frame);
	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, IPPROTO_ICMPV6, 8);
	add_icmp(&frame, 135, 0);
	expect(DROP_neighbour, 0, frame); /* a hop limit of 64: somebody has forwarded it */
	frame.bytes[14 + 7] = 255;
	expect(PASS, 0, frame);
	memset(frame.bytes + 14 + 8, 0, 16); /* duplicate address detection */
	expect(PASS, 0, frame);
	frame.bytes[14 + 40] = 128;
	expect(DROP_martian, 0, frame);
}

static void ipv4_in_an_address_of_ipv6_is_nobodys(void **state)
{
	for (unsigned at = 14 + 8; at <= 14 + 24; at += 16) {
		struct frame frame;

		frame_macs(&frame, 1, 2);
		frame_ipv6(&frame, 1, 2, IPPROTO_TCP, 20);
		add_tcp(&frame, 1000, 80, SYN);
		memset(frame.bytes + at, 0, 10);
		memset(frame.bytes + at + 10, 0xff, 2);
		expect(DROP_martian, 0, frame);
	}
}

static void ipv6_is_followed_too(void **state)
{
	struct frame frame, back;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, IPPROTO_TCP, 20);
	add_tcp(&frame, 1000, 80, SYN);
	frame_macs(&back, 2, 1);
	frame_ipv6(&back, 2, 1, IPPROTO_TCP, 20);
	add_tcp(&back, 80, 1000, SYN | ACK);
	expect(DROP_state, 1, back);
	expect(PASS, 0, frame);
	expect(PASS, 1, back);
	assert_int_equal(state_now(), CONNECTION_syn_received);
	frame.length -= 1;
	expect(DROP_length, 0, frame);

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, IPPROTO_ICMPV6, 8);
	add_icmp(&frame, 128, 7);
	frame_macs(&back, 2, 1);
	frame_ipv6(&back, 2, 1, IPPROTO_ICMPV6, 8);
	add_icmp(&back, 129, 7);
	expect(DROP_state, 1, back);
	expect(PASS, 0, frame);
	expect(PASS, 1, back);
}

/* An IPv6 datagram to port 80 with these extension headers of eight bytes each. */
static struct frame chain6(const uint8_t *extensions, unsigned nb)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv6(&frame, 1, 2, nb > 0 ? extensions[0] : IPPROTO_TCP, 8 * nb + 20);
	for (unsigned i = 0; i < nb; i++) {
		frame_add8(&frame, i + 1 < nb ? extensions[i + 1] : IPPROTO_TCP);
		frame_add8(&frame, 0);
		frame_add16(&frame, extensions[i] == IPPROTO_ROUTING ? 0x0400 : 0);
		frame_add32(&frame, 0);
	}
	add_tcp(&frame, 1000, 80, SYN);
	return frame;
}

static void chains_of_extension_headers_are_bounded(void **state)
{
	const uint8_t hop = IPPROTO_HOPOPTS, dst = IPPROTO_DSTOPTS, routing = IPPROTO_ROUTING;
	struct frame frame;

	expect(PASS, 0, chain6((uint8_t[]){hop, dst, routing, dst}, 4));
	expect(DROP_extension, 0, chain6((uint8_t[]){dst, hop}, 2));
	expect(DROP_extension, 0, chain6((uint8_t[]){dst, dst, dst}, 3));
	expect(DROP_extension, 0, chain6((uint8_t[]){routing, routing}, 2));
	expect(DROP_extension, 0, chain6((uint8_t[]){139}, 1));
	expect(DROP_extension, 0, chain6((uint8_t[]){hop, dst, dst, dst, dst, dst, dst, dst, dst}, 9));
	frame = chain6((uint8_t[]){routing}, 1);
	frame.bytes[14 + 40 + 2] = 0; /* a type 0 header */
	expect(DROP_extension, 0, frame);
}

/* ------- connections are handed over ------- */

static _Atomic bool forwards;

/* In the place of the forwarding thread, which has no frames. */
static void *forward(void *unused)
{
	while (forwards)
		for (uint16_t in = 0; in < 2; in++)
			firewall.process(NULL, 0, in, 0);
	return NULL;
}

static json_t *given(json_t *params)
{
	struct control_error error;
	json_t *page = handover_give(firewall.keeping->handover, params, &error);

	json_decref(params);
	assert_non_null(page);
	return page;
}

/* What became of records; NULL: they are none. */
static json_t *received(const char *records)
{
	json_t *params = json_pack("{s:s}", "connections", records), *counts;
	struct control_error error;
	pthread_t thread;

	forwards = true;
	assert_int_equal(pthread_create(&thread, NULL, forward, NULL), 0);
	counts = handover_receive(firewall.keeping->handover, params, &error);
	forwards = false;
	pthread_join(thread, NULL);
	now = rte_rdtsc(); /* that thread's clock */
	json_decref(params);
	return counts;
}

static void expect_counted(const char *records, const char *name, unsigned number)
{
	json_t *counts = received(records), *each;
	json_int_t all = 0;
	const char *key;

	assert_non_null(counts);
	json_object_foreach (counts, key, each)
		all += json_integer_value(each);
	assert_int_equal(json_integer_value(json_object_get(counts, name)), number);
	assert_int_equal(all, number);
	json_decref(counts);
}

static void begin_anew(void)
{
	firewall.keeping->close();
	assert_int_equal(firewall.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}),
			 0);
	assert_null(tell(rules));
}

static const char *records_of(const json_t *page)
{
	return json_string_value(json_object_get(page, "connections"));
}

static void connections_go_on_in_another_instance(void **state)
{
	json_t *page, *later;

	now = rte_rdtsc();
	handshake();
	expect(PASS, 0, icmp4(CLIENT, SERVER, 8, 7));
	expect(PASS, 0, udp4(CLIENT, SERVER, 1000, 53));
	expect(PASS, 0, chain6(NULL, 0));
	page = given(json_object());
	assert_int_equal(json_integer_value(json_object_get(page, "next")), 0);
	later = given(json_pack("{s:i}", "from", CONNECTIONS + 1));
	assert_string_equal(records_of(later), "");
	json_decref(later);
	begin_anew();
	expect(DROP_state, 1, SERVER_SENDS(ACK));
	expect_counted(records_of(page), "taken", 4);
	assert_int_equal(firewalls[0].flows.used, 4);
	assert_int_equal(firewalls[0].flows.begun, 0);
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect(PASS, 1, icmp4(SERVER, CLIENT, 0, 7));
	expect(PASS, 1, udp4(SERVER, CLIENT, 53, 1000));
	expect_counted(records_of(page), "known", 4);
	json_decref(page);
}

/* What was copied before the handshake's end, and once more after it. */
static void a_state_of_later_takes_the_place_of_an_earlier_one(void **state)
{
	json_t *before, *after;

	now = rte_rdtsc() - rte_get_tsc_hz();
	expect(PASS, 0, CLIENT_SENDS(SYN));
	before = given(json_object());
	now = rte_rdtsc();
	expect(PASS, 1, SERVER_SENDS(SYN | ACK));
	expect(PASS, 0, CLIENT_SENDS(ACK));
	after = given(json_pack("{s:I}", "since", (json_int_t)connections_tick(now)));
	begin_anew();
	expect_counted(records_of(before), "taken", 1);
	assert_int_equal(state_now(), CONNECTION_syn_sent);
	expect_counted(records_of(after), "updated", 1);
	assert_int_equal(state_now(), CONNECTION_established);
	json_decref(before);
	json_decref(after);
}

static void expect_given(const char *which, uint64_t since, unsigned number)
{
	json_t *page = given(json_pack("{s:I}", which, (json_int_t)connections_tick(since)));

	assert_int_equal(strlen(records_of(page)), number * 2 * sizeof(struct handover_record));
	json_decref(page);
}

static void what_has_changed_is_told_from_what_was_only_seen(void **state)
{
	const uint64_t second = rte_get_tsc_hz(), began = rte_rdtsc() - 10 * second;

	now = began;
	handshake();
	now = began + second;
	expect(PASS, 1, SERVER_SENDS(ACK));
	expect_given("changed", began, 1);
	expect_given("changed", began + second, 0);
	expect_given("since", began + second, 1);
	now = began + 2 * second;
	expect(PASS, 0, udp4(CLIENT, SERVER, 1000, 53));
	expect_given("changed", began + second, 1);
	now = began + 3 * second;
	expect(PASS, 1, SERVER_SENDS(FIN | ACK));
	expect_given("changed", began + second, 2);
	expect_given("changed", began + 3 * second, 1);
	now = rte_rdtsc();
}

/* A handshake may take less than a tick. */
static void two_states_of_one_tick_are_in_order(void **state)
{
	json_t *before, *after;

	now = rte_rdtsc();
	expect(PASS, 0, CLIENT_SENDS(SYN));
	before = given(json_object());
	expect(PASS, 1, SERVER_SENDS(SYN | ACK));
	expect(PASS, 0, CLIENT_SENDS(ACK));
	after = given(json_object());
	begin_anew();
	expect_counted(records_of(before), "taken", 1);
	expect_counted(records_of(after), "updated", 1);
	assert_int_equal(state_now(), CONNECTION_established);
	expect_counted(records_of(before), "known", 1);
	assert_int_equal(state_now(), CONNECTION_established);
	json_decref(before);
	json_decref(after);
}

/* The same ends; the other one began there. */
static void who_began_later_elsewhere_is_believed(void **state)
{
	json_t *page;

	now = rte_rdtsc();
	expect(PASS, 0, udp4(CLIENT, SERVER, 1000, 53));
	page = given(json_object());
	begin_anew();
	assert_null(tell("{\"default\": \"allow\"}"));
	now -= rte_get_tsc_hz();
	expect(PASS, 1, udp4(SERVER, CLIENT, 53, 1000));
	expect_counted(records_of(page), "updated", 1);
	assert_int_equal(firewalls[0].flows.used, 1);
	expect(PASS, 0, udp4(CLIENT, SERVER, 1000, 53));
	assert_int_equal(state_now(), CONNECTION_one_way);
	expect(PASS, 1, udp4(SERVER, CLIENT, 53, 1000));
	assert_int_equal(state_now(), CONNECTION_two_way);
	expect_counted(records_of(page), "known", 1);
	json_decref(page);
}

/* A standby that sleeps gets no frame that would have it look. */
static void an_empty_page_has_what_has_aged_forgotten(void **state)
{
	now = rte_rdtsc() - 10000 * rte_get_tsc_hz();
	handshake();
	assert_int_equal(firewalls[0].flows.used, 1);
	/* Each tick has some of the entries looked at, and ten seconds all: here it is the first, and one tick. */
	for (unsigned pages = 0; firewalls[0].flows.used > 0; pages++) {
		assert_in_range(pages, 0, 1000000);
		json_decref(received(""));
	}
}

static void a_table_that_is_full_of_connections_takes_no_more(void **state)
{
	unsigned known = 0;
	json_t *page;

	now = rte_rdtsc();
	handshake();
	page = given(json_object());
	begin_anew();
	for (uint16_t port = 1; known < CONNECTIONS; port++) {
		struct frame out = udp4(CLIENT, SERVER, port, 53), back = udp4(SERVER, CLIENT, 53, port);

		if (pass(&out, 0) == VERDICT_PASS && pass(&back, 1) == VERDICT_PASS)
			known++;
	}
	expect_counted(records_of(page), "no_room", 1);
	json_decref(page);
}

/* Each byte of a record wrong in turn: it is refused, or makes another flow that holds. */
static void what_is_handed_over_is_not_believed(void **state)
{
	struct handover *handover = firewall.keeping->handover;
	unsigned malformed = 0;
	json_t *page;
	char *text;

	now = rte_rdtsc();
	handshake();
	page = given(json_object());
	text = strdup(records_of(page));
	assert_int_equal(strlen(text), 2 * sizeof(struct handover_record));
	begin_anew();
	for (unsigned at = 0; text[at] != '\0'; at++) {
		const char right = text[at];

		text[at] = right == 'f' ? '0' : 'f';
		json_decref(received(text));
		text[at] = right;
	}
	malformed = handover->counts[HANDOVER_malformed];
	assert_true(malformed > sizeof(struct handover_record) / 2);
	assert_int_equal(firewalls[0].flows.used, handover->counts[HANDOVER_taken]);
	text[7] = 'x';
	assert_null(received(text));
	text[7] = '\0';
	assert_null(received(text));
	free(text);
	json_decref(page);
}

static int start_all(void **state)
{
	pool = start_dpdk_with_pool(64, FRAMES);
	return pool == NULL || grace_open() != 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
	const struct CMUnitTest tests[] = {
		TEST(a_connection_is_followed),
		TEST(the_server_may_end_first),
		TEST(only_a_syn_begins),
		TEST(what_does_not_fit_the_handshake_is_dropped),
		TEST(both_may_begin_at_once),
		TEST(a_reset_ends),
		TEST(impossible_flags_are_dropped),
		TEST(connections_age_by_their_state),
		TEST(a_sweep_forgets_what_nobody_asks_for),
		TEST(each_end_stays_at_its_port),
		TEST(a_flood_of_syns_takes_no_connection),
		TEST(without_room_a_flow_is_refused),
		TEST(a_datagram_may_be_answered),
		TEST(a_protocol_without_ports_is_a_flow_of_addresses),
		TEST(an_answer_needs_its_query),
		TEST(an_error_is_of_a_flow),
		TEST(the_first_rule_that_matches_counts),
		TEST(rules_change_and_connections_stay),
		TEST(connections_and_rules_are_shown),
		TEST(a_burst_keeps_its_order_and_begins_a_flow_once),
		TEST(fragments_follow_their_first),
		TEST(a_first_fragment_has_the_whole_header),
		TEST(of_ipv6_too),
		TEST(a_later_fragment_is_one_whatever_it_says_it_has),
		TEST(a_priority_makes_no_vlan),
		TEST(what_does_not_hold_has_a_name),
		TEST(source_routes_are_dropped),
		TEST(neighbours_find_each_other),
		TEST(ipv4_in_an_address_of_ipv6_is_nobodys),
		TEST(ipv6_is_followed_too),
		TEST(chains_of_extension_headers_are_bounded),
		TEST(connections_go_on_in_another_instance),
		TEST(a_state_of_later_takes_the_place_of_an_earlier_one),
		TEST(what_has_changed_is_told_from_what_was_only_seen),
		TEST(two_states_of_one_tick_are_in_order),
		TEST(who_began_later_elsewhere_is_believed),
		TEST(an_empty_page_has_what_has_aged_forgotten),
		TEST(a_table_that_is_full_of_connections_takes_no_more),
		TEST(what_is_handed_over_is_not_believed),
	};
#undef TEST

	return cmocka_run_group_tests(tests, start_all, NULL);
}
