/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-rules-cost: what two ways to look up many rules cost, which only the first frame of a connection pays: tuple
 * space search, which the firewall has, and DPDK's rte_acl.  Each figure is the least of several rounds.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_cycles.h>

#include "common/option.h"
#include "functions/firewall_rules.h"
#include "rule_set.h"
#include "test/frame_builder.h"
#include "test/start_dpdk.h"

enum { RULES = FIREWALL_RULES_MOST, ROUNDS = 100, BURST = 32, LOOKUPS = 1 << 14 };

static void report(const char *what, double cycles)
{
	printf("%-44s %6.1f cycles a frame\n", what, cycles);
}

static double by_tuples(const struct firewall_rules *rules, const struct headers *headers)
{
	double best = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t began = rte_rdtsc();
		uint32_t found[BURST];
		double cycles;

		for (unsigned i = 0; i < LOOKUPS; i += BURST)
			firewall_rules_find(rules, 0, headers + i, BURST, found);
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
			rule_set_one(i, &match);
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
	printf("%-44s %6.3f s for %u\n", "rte_acl: build", (double)(rte_rdtsc() - began) / rte_get_tsc_hz(), RULES);
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

		for (unsigned i = 0; i < LOOKUPS; i += BURST) {
			const uint8_t *data[BURST];
			uint32_t found[BURST];

			for (unsigned j = 0; j < BURST; j++)
				data[j] = (const uint8_t *)&keys[i + j];
			rte_acl_classify(acl, data, found, BURST, 1);
		}
		cycles = (double)(rte_rdtsc() - began) / LOOKUPS;
		best = best == 0 || cycles < best ? cycles : best;
	}
	return best;
}

static struct firewall_rules *build_tuples(void)
{
	json_t *params = rule_set_make(RULES);
	const uint64_t began = rte_rdtsc();
	struct control_error error;
	struct firewall_rules *rules = firewall_rules_read(params, 1, &error);

	if (rules == NULL) {
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
	printf("%-44s %6.3f s for %u\n", "tuple space search: read and build",
	       (double)(rte_rdtsc() - began) / rte_get_tsc_hz(), RULES);
	json_decref(params);
	return rules;
}

static void compare_lookups(void)
{
	struct firewall_rules *rules = build_tuples();
	static struct headers headers[LOOKUPS];
	struct rte_acl_ctx *acl;
	uint64_t seed = 3;

	for (unsigned i = 0; i < LOOKUPS; i++) {
		struct frame frame;

		frame_udp4(&frame, random64(&seed), RULE_SET_SERVERS + (random64(&seed) % (RULES << 8)), 1024,
			   random64(&seed) % 2 ? 443 : 8080);
		parse_frame(frame.bytes, frame.length, &headers[i]);
	}
	report("tuple space search: look up", by_tuples(rules, headers));
	acl = build_acl();
	if (acl == NULL)
		printf("rte_acl: not enough memory\n");
	else
		report("rte_acl: look up", by_acl(acl, headers));
}

int main(int argc, char **argv)
{
	option_none(argc, argv, "What two ways to look up many firewall rules cost the first frame of a connection.");
	if (start_dpdk(1024) != 0)
		return 1;
	compare_lookups();
	return 0;
}
