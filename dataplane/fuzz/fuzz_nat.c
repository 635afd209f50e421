/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a NAT.  Each passes as it came, or leaves with a header whose checksum holds
 * and no inside address as its source, or is dropped by a name; mappings, ports and connections agree about who there
 * is.
 */
#include "fuzz/frames.h"

#include "functions/nat.h"

enum { FORWARDS = 1 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const settings[][2] = {
		{"pool", "198.51.100.0/31"},
		{"inside", "10.0.0.0/8"},
		{"block", "64"},
		{"forwards", "tcp:198.51.100.1:80:10.0.0.3:8080"},
		{NULL},
	};

	start_function(&nat, 128, settings);
	return 0;
}

/* Each connection has a mapping, and each mapping that is no forward a port of a block of its host. */
static void check_table(void)
{
	const struct nat_table *table = &nats[0].table;
	unsigned references = 0, ports = 0, mapped = 0, taken = 0, bits = 0;

	for (uint32_t number = 1; number <= table->most_mappings; number++) {
		const struct nat_mapping *mapping = &table->mappings[number];

		if (mapping->references == 0)
			continue;
		mapped++;
		references += mapping->references - mapping->fixed;
		check(nat_table_inside(table, &mapping->inside) == mapping);
		check(mapping->fixed || table->hosts[mapping->host].address == mapping->inside.address);
	}
	for (uint32_t number = 1; number <= table->pool->nb_blocks; number++) {
		taken += table->blocks[number].host != 0;
		ports += table->blocks[number].host != 0 ? table->blocks[number].used : 0;
	}
	for (uint32_t word = 0; word < table->pool->nb_blocks * 3; word++)
		bits += (unsigned)__builtin_popcountll(table->pool->bits[word]);
	check(references == nats[0].flows.used && references <= CONNECTIONS);
	check(mapped == table->mapped && ports == mapped - FORWARDS && bits == ports);
	check(taken == table->pool->taken && taken + table->pool->left == table->pool->nb_blocks);
}

static size_t take(const uint8_t *data, size_t size, uint64_t *now)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	struct fallen fallen;
	const size_t taken = frame_fall(data, size, &fallen);
	uint16_t nb_out;

	*now += fallen.quarters * (rte_get_tsc_hz() >> 2);
	burst[0] = fallen.mbuf;
	nb_out = nat_translate(&nats[0], burst, 1, fallen.in, *now);
	if (nat.keeping->pending(0)) {
		check(nb_out == 0 && fallen.in == 0);
		nb_out = nat_translate(&nats[0], burst, 0, 1, *now);
	}
	if (nb_out == 1)
		check_left(burst[0], &fallen, HEADERS_IPV4);
	return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t now;

	while (size > FRAME_PREFIX) {
		size_t taken = take(data, size, &now);

		data += taken;
		size -= taken;
	}
	check_table();
	nats[0].tick = connections_tick(now + (LONGEST + 60) * rte_get_tsc_hz());
	age(&nats[0].flows, &now);
	now += (NAT_HOLD_SECONDS + 1) * rte_get_tsc_hz();
	for (unsigned i = 0; i < CONNECTIONS * 4; i++)
		nat_table_sweep(&nats[0].table, connections_tick(now));
	check(nats[0].table.pool->taken == 0, "a block is not given back");
	return 0;
}
