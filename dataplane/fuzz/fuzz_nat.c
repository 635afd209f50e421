/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a NAT.  Each passes as it came, or leaves with a header whose checksum holds
 * and no inside address as its source, or is dropped by a name; mappings, ports and connections agree about who there
 * is.  There are two queues: a frame comes in by either, and goes on where it belongs.
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

	nb_queues = QUEUES;
	start_function(&nat, 128, settings);
	return 0;
}

/* Each connection has a mapping.  Returns how many there are. */
static unsigned check_mappings(const struct nat *of)
{
	const struct nat_table *table = &of->table;
	unsigned references = 0, mapped = 0;

	for (uint32_t number = 1; number <= table->most_mappings; number++) {
		const struct nat_mapping *mapping = &table->mappings[number];

		if (mapping->references == 0)
			continue;
		mapped++;
		references += mapping->references - mapping->fixed;
		check(nat_table_inside(table, &mapping->inside) == mapping);
		check(mapping->fixed || table->hosts[mapping->host].address == mapping->inside.address);
		check(nat_table_home(mapping->inside.address, QUEUES) == of->number);
		check(mapping->fixed || table->pool->owners[mapping->block] == of->number + 1);
	}
	check(references == of->flows.used && references <= CONNECTIONS && mapped == table->mapped);
	return mapped;
}

/* Each mapping that is no forward has a port of a block of its host. */
static void check_tables(void)
{
	const struct nat_pool *all = nats[0].table.pool;
	unsigned ports = 0, mapped = 0, taken = 0, bits = 0;

	for (unsigned i = 0; i < QUEUES; i++)
		mapped += check_mappings(&nats[i]);
	for (uint32_t number = 1; number <= all->nb_blocks; number++) {
		check((all->owners[number] != 0) == (all->blocks[number].host != 0));
		taken += all->blocks[number].host != 0;
		ports += all->blocks[number].host != 0 ? all->blocks[number].used : 0;
	}
	for (uint32_t word = 0; word < all->nb_blocks * 3; word++)
		bits += (unsigned)__builtin_popcountll(all->bits[word]);
	check(ports == mapped - FORWARDS && bits == ports);
	check(taken == all->taken && taken + all->left == all->nb_blocks);
}

/* What leaves by the port where it came in, of either queue; returns how many. */
static uint16_t leave_back(struct rte_mbuf **burst, uint64_t now)
{
	uint16_t nb_out = 0;

	for (unsigned i = 0; i < QUEUES; i++) {
		if (!nat.keeping->pending((uint16_t)i))
			continue;
		nat_turn_back(&nats[i], now);
		nb_out += nat_translate(&nats[i], burst + nb_out, 0, 1, now);
		check(!nat.keeping->pending((uint16_t)i), "a frame is left");
	}
	return nb_out;
}

static size_t take(const uint8_t *data, size_t size, uint64_t *now)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	struct fallen fallen;
	const size_t taken = frame_fall(data, size, &fallen);
	uint16_t nb_out, nb_back;

	*now += fallen.quarters * (rte_get_tsc_hz() >> 2);
	burst[0] = fallen.mbuf;
	nb_out = nat_translate(&nats[frame_home(&nat, &fallen)], burst, 1, fallen.in, *now);
	nb_back = leave_back(burst + nb_out, *now);
	check(nb_out + nb_back <= 1 && (nb_back == 0 || fallen.in == 0));
	nb_out += nb_back;
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
	check_tables();
	for (unsigned i = 0; i < QUEUES; i++) {
		nats[i].tick = connections_tick(now + (LONGEST + 60) * rte_get_tsc_hz());
		age(&nats[i].flows, &now);
	}
	now += (NAT_HOLD_SECONDS + 1) * rte_get_tsc_hz();
	for (unsigned i = 0; i < QUEUES * CONNECTIONS * 4; i++)
		nat_table_sweep(&nats[i % QUEUES].table, connections_tick(now));
	check(nats[0].table.pool->taken == 0, "a block is not given back");
	return 0;
}
