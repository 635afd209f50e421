/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-firewall-cost [CONNECTIONS]: what the firewall costs beside the skeleton, over ports in memory: a frame is
 * copied into a packet buffer, processed, and copied out of it, a burst at a time.  Frames of 64 bytes, of connections
 * in random order, of which there are more than any cache holds; with one rule and with many.  And what two ways to
 * look up many rules cost, which only the first frame of a connection pays: tuple space search, which the firewall has,
 * and DPDK's rte_acl.  Each figure is the least of several rounds.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_acl.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/firewall.h"
#include "functions/function.h"
#include "test/frame_builder.h"

enum {
	DEFAULT_CONNECTIONS = 1000000,
	RULES = FIREWALL_RULES_MOST,
	PASSES = 512, /* bursts in a round */
	ROUNDS = 100,
	LARGE_PAGE = 2 << 20,
	LENGTH = 60, /* and the check sequence */
	SERVERS = 0x0a000000,
	CLIENTS = 0xc0000000,
};

void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align);

/* As a function's tables lie where there are huge pages; otherwise page walks are most of what they cost. */
void *__wrap_rte_zmalloc(const char *type, size_t size, unsigned align)
{
	const size_t whole = RTE_ALIGN_CEIL(size, LARGE_PAGE);
	void *memory = aligned_alloc(LARGE_PAGE, whole);

	if (memory == NULL || madvise(memory, whole, MADV_HUGEPAGE) != 0)
		return NULL;
	return memset(memory, 0, whole);
}

static struct rte_mempool *pool;
static struct frame *sent; /* a burst */
static uint8_t received[FIREWALL_BURST][64];

/* ------- rules ------- */

/* Rules as a firewall in front of servers has them: a server or a subnet, a protocol and a port or a range of them. */
static void rule_of(unsigned number, struct match *match)
{
	const uint32_t address = htonl(SERVERS + (number << 8));
	uint64_t seed = number;

	*match = (struct match){
		.fields = MATCH_DESTINATION | MATCH_PROTOCOL | MATCH_DESTINATION_PORT,
		.destination = {.family = HEADERS_IPV4, .length = 24 + random64(&seed) % 9},
		.protocol = random64(&seed) % 4 == 0 ? 17 : 6,
		.destination_port = {443, 443},
	};
	memcpy(match->destination.address, &address, sizeof(address));
	if (number % 16 == 0)
		match->destination_port = (struct match_range){8000, 8099};
}

/* The last rule allows what the connections are. */
static json_t *make_rules(unsigned rules)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < rules - 1; i++) {
		char prefix[INET_ADDRSTRLEN + 4], name[16];
		struct match match;

		rule_of(i, &match);
		inet_ntop(AF_INET, match.destination.address, prefix, sizeof(prefix));
		sprintf(prefix + strlen(prefix), "/%u", match.destination.length);
		snprintf(name, sizeof(name), "%u", i);
		json_array_append_new(list, json_pack("{s:s, s:s, s:[{s:s, s:i, s:[i, i]}]}", "name", name, "action",
						      "allow", "match", "destination", prefix, "protocol",
						      match.protocol, "destination_port", match.destination_port.first,
						      match.destination_port.last));
	}
	json_array_append_new(
		list, json_pack("{s:s, s:s, s:[{s:i}]}", "name", "last", "action", "allow", "match", "protocol", 17));
	return json_pack("{s:o}", "rules", list);
}

static void load(unsigned rules)
{
	json_t *params = make_rules(rules);
	struct control_error error;
	uint64_t began = rte_rdtsc();

	if (firewall.keeping->configure(params, &error) != 0) {
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
	if (rules > 1)
		printf("%-44s %6.3f s for %u\n", "read and build rules",
		       (double)(rte_rdtsc() - began) / rte_get_tsc_hz(), rules);
	json_decref(params);
}

/* ------- frames ------- */

static void address(struct frame *frame, uint32_t connection)
{
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(frame->bytes + 14);

	header->src_addr = htonl(CLIENTS + connection);
	header->hdr_checksum = 0;
	header->hdr_checksum = rte_ipv4_cksum(header);
}

/* A burst through a function; returns the cycles, or ends the program if a frame is lost. */
static uint64_t forward(const struct function *function)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	const uint64_t began = rte_rdtsc();
	uint16_t nb_out;

	if (rte_pktmbuf_alloc_bulk(pool, burst, FIREWALL_BURST) != 0)
		exit(1);
	for (unsigned i = 0; i < FIREWALL_BURST; i++)
		memcpy(rte_pktmbuf_append(burst[i], LENGTH), sent[i].bytes, LENGTH);
	nb_out = function->process(burst, FIREWALL_BURST, 0, 0);
	for (unsigned i = 0; i < nb_out; i++)
		memcpy(received[i], rte_pktmbuf_mtod(burst[i], void *), LENGTH);
	rte_pktmbuf_free_bulk(burst, nb_out);
	if (nb_out != FIREWALL_BURST) {
		fprintf(stderr, "only %u of %u frames left\n", nb_out, FIREWALL_BURST);
		exit(1);
	}
	return rte_rdtsc() - began;
}

static double report(const char *what, double cycles)
{
	printf("%-44s %6.1f cycles a frame\n", what, cycles);
	return cycles;
}

static double established(const struct function *function, uint32_t connections)
{
	static uint64_t seed = 2;
	double best = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t cycles = 0;

		for (unsigned pass = 0; pass < PASSES; pass++) {
			for (unsigned i = 0; i < FIREWALL_BURST; i++)
				address(&sent[i], random64(&seed) % connections);
			cycles += forward(function);
		}
		if (best == 0 || cycles < best)
			best = cycles;
	}
	return best / PASSES / FIREWALL_BURST;
}

/* Begin so many, in order. */
static double begin(uint32_t first, uint32_t connections)
{
	uint64_t cycles = 0;

	for (uint32_t at = 0; at < connections; at += FIREWALL_BURST) {
		for (unsigned i = 0; i < FIREWALL_BURST; i++)
			address(&sent[i], first + at + i);
		cycles += forward(&firewall);
	}
	return (double)cycles / connections;
}

/* ------- two ways to look up rules ------- */

enum { LOOKUPS = 1 << 14 };

static double by_tuples(const struct headers *headers)
{
	double best = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t began = rte_rdtsc();
		uint32_t found[FIREWALL_BURST];
		double cycles;

		for (unsigned i = 0; i < LOOKUPS; i += FIREWALL_BURST)
			firewall_rules_find(the_firewall.rules, 0, headers + i, FIREWALL_BURST, found);
		cycles = (double)(rte_rdtsc() - began) / LOOKUPS;
		best = best == 0 || cycles < best ? cycles : best;
	}
	return best;
}

struct acl_key {
	uint8_t protocol;
	uint32_t source, destination;
	uint16_t ports[2];
} __attribute__((packed));

RTE_ACL_RULE_DEF(acl_rule, 5);

static struct rte_acl_ctx *build_acl(void)
{
	static const struct rte_acl_field_def fields[5] = {
		{RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, offsetof(struct acl_key, protocol)},
		{RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, offsetof(struct acl_key, source)},
		{RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, offsetof(struct acl_key, destination)},
		{RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, offsetof(struct acl_key, ports[0])},
		{RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, offsetof(struct acl_key, ports[1])},
	};
	struct rte_acl_param param = {
		.name = "rules", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(5), .max_rule_num = RULES};
	struct rte_acl_config config = {.num_categories = 1, .num_fields = 5};
	struct rte_acl_ctx *acl = rte_acl_create(&param);
	const uint64_t began = rte_rdtsc();

	memcpy(config.defs, fields, sizeof(fields));
	for (unsigned i = 0; i < RULES; i++) {
		struct acl_rule rule = {.data = {.category_mask = 1, .priority = (int)(RULES - i), .userdata = i + 1}};
		struct match match = {.protocol = 17, .destination_port = {0, UINT16_MAX}};
		uint32_t prefix;

		if (i < RULES - 1)
			rule_of(i, &match);
		memcpy(&prefix, match.destination.address, sizeof(prefix));
		rule.field[0] = (struct rte_acl_field){.value.u8 = match.protocol, .mask_range.u8 = 0xff};
		rule.field[2] = (struct rte_acl_field){.value.u32 = ntohl(prefix),
						       .mask_range.u32 = match.destination.length};
		rule.field[3].mask_range.u16 = UINT16_MAX;
		rule.field[4] = (struct rte_acl_field){.value.u16 = match.destination_port.first,
						       .mask_range.u16 = match.destination_port.last};
		if (acl == NULL || rte_acl_add_rules(acl, (struct rte_acl_rule *)&rule, 1) != 0)
			return NULL;
	}
	if (rte_acl_build(acl, &config) != 0)
		return NULL;
	printf("%-44s %6.3f s for %u\n", "  rte_acl: build", (double)(rte_rdtsc() - began) / rte_get_tsc_hz(), RULES);
	return acl;
}

static double by_acl(struct rte_acl_ctx *acl, const struct headers *headers)
{
	static struct acl_key keys[LOOKUPS];
	double best = 0;

	for (unsigned i = 0; i < LOOKUPS; i++) {
		keys[i].protocol = headers[i].protocol;
		memcpy(&keys[i].source, headers[i].source, 4);
		memcpy(&keys[i].destination, headers[i].destination, 4);
		keys[i].ports[0] = htons(headers[i].source_port);
		keys[i].ports[1] = htons(headers[i].destination_port);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t began = rte_rdtsc();
		double cycles;

		for (unsigned i = 0; i < LOOKUPS; i += FIREWALL_BURST) {
			const uint8_t *data[FIREWALL_BURST];
			uint32_t found[FIREWALL_BURST];

			for (unsigned j = 0; j < FIREWALL_BURST; j++)
				data[j] = (const uint8_t *)&keys[i + j];
			rte_acl_classify(acl, data, found, FIREWALL_BURST, 1);
		}
		cycles = (double)(rte_rdtsc() - began) / LOOKUPS;
		best = best == 0 || cycles < best ? cycles : best;
	}
	return best;
}

static void compare_lookups(void)
{
	static struct headers headers[LOOKUPS];
	struct rte_acl_ctx *acl;
	uint64_t seed = 3;

	for (unsigned i = 0; i < LOOKUPS; i++) {
		struct frame frame;

		frame_udp4(&frame, random64(&seed), SERVERS + (random64(&seed) % (RULES << 8)), 1024,
			   random64(&seed) % 2 ? 443 : 8080);
		parse_frame(frame.bytes, frame.length, &headers[i]);
	}
	report("  tuple space search: look up", by_tuples(headers));
	acl = build_acl();
	if (acl == NULL)
		printf("  rte_acl: not enough memory\n");
	else
		report("  rte_acl: look up", by_acl(acl, headers));
}

int main(int argc, char **argv)
{
	char *arguments[] = {argv[0],	    "--no-huge", "--no-pci", "--no-telemetry",
			     "--no-shconf", "-m",	 "1024",     "--log-level=error"};
	const uint32_t connections = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : DEFAULT_CONNECTIONS;
	char text[16];
	double nothing, few, many, cycles;

	snprintf(text, sizeof(text), "%" PRIu32, 2 * connections + 2 * FIREWALL_BURST);
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || grace_open() != 0 ||
	    firewall.set("connections", text) != NULL)
		return 1;
	pool = rte_pktmbuf_pool_create("frames", 1023, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	sent = calloc(FIREWALL_BURST, sizeof(*sent));
	if (pool == NULL || sent == NULL || firewall.keeping->open(pool, -1) != 0)
		return 1;
	for (unsigned i = 0; i < FIREWALL_BURST; i++)
		frame_udp4(&sent[i], 0, SERVERS - 1, 1024, 9);
	load(1);
	nothing = report("skeleton", established(&skeleton, connections));
	cycles = report("begin connections, 1 rule", begin(0, connections));
	few = report("known connections, 1 rule", established(&firewall, connections));
	load(RULES);
	many = report("known connections, 10000 rules", established(&firewall, connections));
	cycles = report("begin connections, 10000 rules", begin(connections, connections));
	printf("%-44s %6.0f\n", "  new connections a second", (double)rte_get_tsc_hz() / cycles);
	printf("%-44s %6.2f\n", "  known connections, of the skeleton's rate", nothing / few);
	printf("%-44s %6.1f %%\n", "  what 10000 rules cost them", (many / few - 1) * 100);
	compare_lookups();
	return 0;
}
