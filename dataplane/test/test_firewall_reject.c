/* SPDX-License-Identifier: Apache-2.0
 *
 * What a firewall answers to frames that a rule rejects, byte by byte, to whom it answers nothing, and how often.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#include "common/grace.h"
#include "functions/firewall.h"
#include "functions/function.h"

enum { FRAMES = 256, CLIENT = 0x0a000002, SERVER = 0x0a000102, SYN = 2, RST_ACK = 20 };
enum { MACS = 12, IPV4 = 14, IPV6 = 14, TCP4 = IPV4 + 20, TCP6 = IPV6 + 40 };

static struct rte_mempool *pool;
static uint64_t now; /* TSC */

static const char rules[] = "{\"default\": \"reject\", \"rules\": ["
			    "{\"name\": \"quiet\", \"action\": \"deny\", \"match\": [{\"vlan\": 9}]}]}";

static int start(void **state)
{
	struct control_error error;
	json_t *params = json_loads(rules, 0, NULL);
	int rc;

	now = rte_get_tsc_hz();
	assert_null(firewall.set("connections", "64"));
	rc = firewall.keeping->open(&(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = 1}) != 0 ||
	     firewall.keeping->configure(params, &error) != 0;
	json_decref(params);
	return rc;
}

static int end(void **state)
{
	firewall.keeping->close();
	return rte_mempool_in_use_count(pool) != 0;
}

/* ------- frames ------- */

static void finish4(struct frame *frame, unsigned network)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + network);

	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

static void add_syn(struct frame *frame, uint32_t sequence, unsigned payload)
{
	frame_add16(frame, 1000);
	frame_add16(frame, 80);
	frame_add32(frame, sequence);
	frame_add32(frame, 0);
	frame_add8(frame, 0x50);
	frame_add8(frame, SYN);
	frame_add16(frame, 1000);
	frame_add32(frame, 0);
	for (unsigned i = 0; i < payload; i++)
		frame_add8(frame, (uint8_t)i);
}

static struct frame syn4(unsigned tags, uint32_t sequence, unsigned payload)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	for (unsigned i = 0; i < tags; i++)
		frame_tag(&frame, 0x8100, (uint16_t)(7 + i));
	frame_ipv4(&frame, CLIENT, SERVER, IPPROTO_TCP, 20 + payload, 0, 0);
	add_syn(&frame, sequence, payload);
	finish4(&frame, IPV4 + 4 * tags);
	return frame;
}

static struct frame udp4(uint32_t source, uint32_t destination)
{
	struct frame frame;

	frame_udp4(&frame, source, destination, 1000, 53);
	finish4(&frame, IPV4);
	return frame;
}

/* Let a frame in at port 0, and return how many answers leave there; the first is left in `answer`. */
static unsigned answers(const struct frame *frame, struct frame *answer)
{
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)};
	unsigned nb;

	memcpy(rte_pktmbuf_append(burst[0], frame->length), frame->bytes, frame->length);
	assert_int_equal(firewall_filter(&firewalls[0], burst, 1, 0, now), 0);
	nb = firewall_filter(&firewalls[0], burst, 0, 1, now);
	for (unsigned i = 0; i < nb; i++) {
		if (i == 0 && answer != NULL) {
			answer->length = burst[i]->pkt_len;
			assert_true(answer->length <= sizeof(answer->bytes));
			memcpy(answer->bytes, rte_pktmbuf_mtod(burst[i], void *), answer->length);
		}
		rte_pktmbuf_free(burst[i]);
	}
	return nb;
}

static struct frame answer_to(struct frame frame)
{
	struct frame answer;

	assert_int_equal(answers(&frame, &answer), 1);
	assert_memory_equal(answer.bytes, frame.bytes + 6, 6);
	assert_memory_equal(answer.bytes + 6, frame.bytes, 6);
	return answer;
}

static uint32_t number32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Of what IP carries, with its pseudo header. */
static void expect_checksum(const uint8_t *bytes, uint32_t length, uint32_t pseudo)
{
	uint32_t sum = rte_raw_cksum(bytes, length) + pseudo;

	sum = (sum & UINT16_MAX) + (sum >> 16);
	assert_int_equal(sum, 0xffff);
}

/* ------- answers ------- */

static void expect_reset4(const struct frame *answer, unsigned network, uint32_t acknowledged)
{
	const uint8_t *ip = answer->bytes + network, *tcp = ip + 20;

	assert_int_equal(answer->length, network + 40);
	assert_int_equal(ip[0], 0x45);
	assert_int_equal(ip[2] << 8 | ip[3], 40);
	assert_int_equal(ip[9], IPPROTO_TCP);
	assert_int_equal(rte_raw_cksum(ip, 20), 0xffff);
	assert_int_equal(number32(ip + 12), SERVER);
	assert_int_equal(number32(ip + 16), CLIENT);
	assert_int_equal(number32(tcp), 80 << 16 | 1000);
	assert_int_equal(number32(tcp + 4), 0);
	assert_int_equal(number32(tcp + 8), acknowledged);
	assert_int_equal(tcp[12], 0x50);
	assert_int_equal(tcp[13], RST_ACK);
	expect_checksum(tcp, 20, rte_ipv4_phdr_cksum((const struct rte_ipv4_hdr *)ip, 0));
}

static void a_syn_is_reset(void **state)
{
	struct frame answer = answer_to(syn4(0, 41, 0));

	expect_reset4(&answer, IPV4, 42);
	answer = answer_to(syn4(0, 0xfffffff0, 100)); /* what it carries is acknowledged too */
	expect_reset4(&answer, IPV4, 85);
	assert_int_equal(firewalls[0].rejects[0].answered, 2);
	assert_int_equal(firewalls[0].counters[0].drops[VERDICT_DROP_rule], 2);
	assert_int_equal(firewalls[0].flows.used, 0);
}

static void tags_are_kept(void **state)
{
	struct frame asked = syn4(2, 41, 0), answer = answer_to(asked);

	assert_memory_equal(answer.bytes + MACS, asked.bytes + MACS, 10);
	expect_reset4(&answer, IPV4 + 8, 42);
}

static void a_syn_of_ipv6_is_reset(void **state)
{
	struct frame asked, answer;

	frame_macs(&asked, 1, 2);
	frame_ipv6(&asked, 1, 2, IPPROTO_TCP, 23);
	add_syn(&asked, 41, 3);
	answer = answer_to(asked);
	assert_int_equal(answer.length, TCP6 + 20);
	assert_memory_equal(answer.bytes + IPV6 + 8, asked.bytes + IPV6 + 24, 16);
	assert_memory_equal(answer.bytes + IPV6 + 24, asked.bytes + IPV6 + 8, 16);
	assert_int_equal(number32(answer.bytes + TCP6 + 8), 45);
	expect_checksum(answer.bytes + TCP6, 20,
			rte_ipv6_phdr_cksum((const struct rte_ipv6_hdr *)(answer.bytes + IPV6), 0));
}

static void a_datagram_is_prohibited(void **state)
{
	struct frame asked = udp4(CLIENT, SERVER), answer = answer_to(asked);
	const uint8_t *icmp = answer.bytes + IPV4 + 20;

	assert_int_equal(answer.length, IPV4 + 20 + 8 + 28);
	assert_int_equal(answer.bytes[IPV4 + 9], IPPROTO_ICMP);
	assert_int_equal(icmp[0] << 8 | icmp[1], 3 << 8 | 13);
	assert_int_equal(number32(icmp + 4), 0);
	assert_int_equal(rte_raw_cksum(icmp, 8 + 28), 0xffff);
	assert_memory_equal(icmp + 8, asked.bytes + IPV4, 28);
}

static void a_datagram_of_ipv6_is_prohibited(void **state)
{
	struct frame asked, answer;
	const uint8_t *icmp = answer.bytes + IPV6 + 40;

	frame_macs(&asked, 1, 2);
	frame_ipv6(&asked, 1, 2, IPPROTO_UDP, 8);
	frame_ports(&asked, 1000, 53);
	answer = answer_to(asked);
	assert_int_equal(answer.length, IPV6 + 40 + 8 + 48);
	assert_int_equal(answer.bytes[IPV6 + 6], IPPROTO_ICMPV6);
	assert_int_equal(icmp[0] << 8 | icmp[1], 1 << 8 | 1);
	expect_checksum(icmp, 8 + 48, rte_ipv6_phdr_cksum((const struct rte_ipv6_hdr *)(answer.bytes + IPV6), 0));
	assert_memory_equal(icmp + 8, asked.bytes + IPV6, 48);
}

/* ------- no answers ------- */

static void expect_no_answer(struct frame frame)
{
	const uint64_t before = firewalls[0].rejects[0].unanswered;

	assert_int_equal(answers(&frame, NULL), 0);
	assert_int_equal(firewalls[0].rejects[0].unanswered, before + 1);
}

static void what_is_for_many_or_in_fragments_is_not_answered(void **state)
{
	struct frame frame = udp4(CLIENT, SERVER);

	frame.bytes[0] |= 1; /* a group of stations */
	expect_no_answer(frame);
	expect_no_answer(udp4(CLIENT, 0xe0000005)); /* a group of hosts */
	frame = syn4(0, 41, 4);
	frame.bytes[IPV4 + 6] = 0x20; /* more fragments */
	finish4(&frame, IPV4);
	expect_no_answer(frame);
	assert_int_equal(firewalls[0].rejects[0].answered, 0);
}

static void denied_frames_are_not_answered(void **state)
{
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_tag(&frame, 0x8100, 9);
	frame_ipv4(&frame, CLIENT, SERVER, IPPROTO_TCP, 20, 0, 0);
	add_syn(&frame, 1, 0);
	finish4(&frame, IPV4 + 4);
	assert_int_equal(answers(&frame, NULL), 0);
	assert_int_equal(firewalls[0].rejects[0].unanswered, 0);
}

static void a_flood_is_answered_at_a_bounded_rate(void **state)
{
	struct frame frame = udp4(CLIENT, SERVER);
	unsigned answered = 0;

	for (unsigned i = 0; i < 10 * FIREWALL_REJECTS_ONCE; i++)
		answered += answers(&frame, NULL);
	assert_int_equal(answered, FIREWALL_REJECTS_ONCE);
	for (unsigned i = 0; i < 10000; i++, now += rte_get_tsc_hz() / 10000) /* a second */
		answered += answers(&frame, NULL);
	assert_in_range(answered, FIREWALL_REJECTS - 1, FIREWALL_REJECTS + FIREWALL_REJECTS_ONCE);
	assert_int_equal(firewalls[0].rejects[0].answered, answered);
}

/* Whom nobody sends or receives for keeps no more than that, and gives it back in the end. */
static void answers_that_do_not_leave_are_bounded(void **state)
{
	struct frame frame = udp4(CLIENT, SERVER);

	for (unsigned i = 0; i < 2 * FIREWALL_REJECTS_ONCE; i++, now += rte_get_tsc_hz()) {
		struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)};

		memcpy(rte_pktmbuf_append(burst[0], frame.length), frame.bytes, frame.length);
		assert_int_equal(firewall_filter(&firewalls[0], burst, 1, 0, now), 0);
	}
	assert_int_equal(rte_mempool_in_use_count(pool), FIREWALL_REJECTS_ONCE);
	assert_true(firewall.keeping->pending(0));
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
		TEST(a_syn_is_reset),
		TEST(tags_are_kept),
		TEST(a_syn_of_ipv6_is_reset),
		TEST(a_datagram_is_prohibited),
		TEST(a_datagram_of_ipv6_is_prohibited),
		TEST(what_is_for_many_or_in_fragments_is_not_answered),
		TEST(denied_frames_are_not_answered),
		TEST(a_flood_is_answered_at_a_bounded_rate),
		TEST(answers_that_do_not_leave_are_bounded),
	};
#undef TEST

	return cmocka_run_group_tests(tests, start_all, NULL);
}
