/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as another instance may hand them over, to a NAT, which takes all that a firewall takes and more: each
 * becomes a connection or is refused, and what stands beside connections agrees with them.
 */
#include "fuzz/fuzz.h"

#include <rte_cycles.h>

#include "functions/function.h"
#include "functions/nat.h"
#include "functions/nat_handover.h"

enum { CONNECTIONS = 16, LONGEST = 7440 + 120 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(start_dpdk(64) == 0);
	check(nat.set("connections", "16") == NULL && nat.set("pool", "198.51.100.0/31") == NULL);
	check(nat.set("inside", "10.0.0.0/8") == NULL && nat.set("block", "64") == NULL);
	check(nat.set("blocks", "2") == NULL && nat.set("host-connections", "8") == NULL);
	check(nat.set("forwards", "tcp:198.51.100.1:80:10.0.0.3:8080") == NULL);
	check(nat.keeping->open(&(struct function_start){.wake_fd = -1, .nb_queues = 1}) == 0);
	return 0;
}

static void check_tables(void)
{
	const struct nat_table *table = &nats[0].table;
	uint32_t used = 0, references = 0, connections = 0, begun = 0, ports = 0, dynamic = 0;

	for (uint32_t number = 1; number <= nats[0].flows.most; number++) {
		const struct connection *flow = &nats[0].flows.flows[number];

		if (flow->state == CONNECTION_none)
			continue;
		used++;
		begun += flow->port == 0;
		check(nat_mapping_of(&nats[0], flow)->references > 0);
	}
	for (uint32_t number = 1; number <= table->most_mappings; number++) {
		const struct nat_mapping *mapping = &table->mappings[number];

		references += mapping->references - mapping->fixed;
		dynamic += mapping->references > 0 && !mapping->fixed;
		connections += mapping->fixed ? mapping->begun : 0;
	}
	for (uint32_t number = 1; number <= table->nb_hosts; number++)
		connections += table->hosts[number].nb_blocks > 0 ? table->hosts[number].connections : 0;
	for (uint32_t number = 1; number <= table->pool->nb_blocks; number++)
		ports += table->blocks[number].used;
	check(used == nats[0].flows.used && used <= CONNECTIONS && references == used);
	check(connections == begun && ports == dynamic);
}

/* The key of a connection that holds, with what the input says of it: most of what is random is refused early. */
static void shape(struct handover_record *record, const uint8_t *data)
{
	struct headers headers;
	const bool swap = data[2] & 1;
	const uint8_t inside[4] = {10, 0, 0, data[0]}, outside[4] = {192, 0, 2, data[1]};
	uint64_t first = 0, second = 0;

	memcpy(&first, inside, sizeof(inside));
	memcpy(&second, outside, sizeof(outside));
	headers = (struct headers){.ethertype = 0x0800, .family = HEADERS_IPV4, .protocol = data[3] & 1 ? 6 : 17};
	memcpy(headers.source, first < second ? inside : outside, 4);
	memcpy(headers.destination, first < second ? outside : inside, 4);
	headers.source_port = 1000 + (data[4] & 3);
	headers.destination_port = 80;
	headers.has_ports = 1;
	memcpy(record->key, headers.key, sizeof(record->key));
	record->state = data[3] & 1 ? CONNECTION_syn_sent + data[5] % 8 : CONNECTION_one_way + data[5] % 2;
	record->opener = first < second ? swap : !swap;
	record->port = swap;
	record->has_mac = data[6] & 1;
	record->outside = 0xc6336400 + (data[7] & 1);
	record->outside_port = (uint16_t)(1024 + data[8] + 64 * (data[9] & 3));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t now = 1ULL << 40;
	uint32_t tick = connections_tick(now);
	enum { SIZE = sizeof(struct handover_record) };

	for (; size > SIZE; data += SIZE + 1, size -= SIZE + 1) {
		struct handover_record record;

		memcpy(&record, data + 1, SIZE);
		if (data[0] & 1)
			shape(&record, data + 1);
		if (data[0] & 2)
			record.seen = tick - (data[0] >> 2);
		nats[0].tick = tick;
		check(handover_take_one(&nat_handover, &record, tick) < HANDOVER_NB_RESULTS);
		check_tables();
	}
	/* Nothing is left for the next input. */
	now += (uint64_t)LONGEST * 2 * rte_get_tsc_hz();
	tick = connections_tick(now);
	nats[0].tick = tick;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&nats[0].flows, tick + i);
	check(nats[0].flows.used == 0, "a flow does not age");
	check_tables();
	nats[0].tick += nats[0].table.hold + 2;
	for (uint32_t i = 0; i <= nats[0].table.pool->nb_blocks; i++)
		nat_table_sweep(&nats[0].table, nats[0].tick);
	check(nats[0].table.pool->taken == 0, "a block is lost");
	return 0;
}
