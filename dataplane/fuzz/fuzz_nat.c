/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a NAT.  Each passes as it came, or leaves with a header whose checksum holds
 * and no inside address as its source, or is dropped by a name; mappings, ports and connections agree about who there
 * is.
 */
#include "fuzz/fuzz.h"

#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "functions/function.h"
#include "functions/nat.h"

enum { FRAMES = 128, ROOM = 2048, CONNECTIONS = 8, LONGEST = 7440, FORWARDS = 1 };

static struct rte_mempool *pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	start_dpdk("64");
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL && nat.set("connections", "8") == NULL && nat.set("pool", "198.51.100.0/31") == NULL);
	check(nat.set("inside", "10.0.0.0/8") == NULL && nat.set("block", "64") == NULL);
	check(nat.set("forwards", "tcp:198.51.100.1:80:10.0.0.3:8080") == NULL);
	check(nat.keeping->open(pool, -1) == 0);
	return 0;
}

/* Each connection has a mapping, and each mapping that is no forward a port of a block of its host. */
static void check_table(void)
{
	const struct nat_table *table = &the_nat.table;
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
	for (uint32_t number = 1; number <= table->nb_blocks; number++) {
		taken += table->blocks[number].host != 0;
		ports += table->blocks[number].host != 0 ? table->blocks[number].used : 0;
	}
	for (uint32_t word = 0; word < table->nb_blocks * 3; word++)
		bits += (unsigned)__builtin_popcountll(table->bits[word]);
	check(references == the_nat.flows.used && references <= CONNECTIONS);
	check(mapped == table->mapped && ports == mapped - FORWARDS && bits == ports);
	check(taken == table->taken && taken + table->left == table->nb_blocks);
}

static void check_sent(struct rte_mbuf *mbuf, const uint8_t *before, size_t length)
{
	struct inspected frame;
	uint8_t head[PARSE_BYTES];
	uint32_t size = inspect_copy(mbuf, head);

	check(rte_pktmbuf_pkt_len(mbuf) == length);
	if (memcmp(head, before, size) == 0)
		return;
	parse_frame(head, size, &frame.headers);
	check(frame.headers.family == HEADERS_IPV4);
	check(rte_raw_cksum(head + frame.headers.network, (head[frame.headers.network] & 15u) * 4) == 0xffff);
}

/* A frame behind two bytes: at which port, in how many pieces, and how much later. */
static size_t take(const uint8_t *data, size_t size, uint64_t *now)
{
	const uint16_t in = data[0] & 1;
	const size_t length = RTE_MIN(size - 3, (size_t)data[1] * 8);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)}, *first = burst[0];
	const uint8_t *frame = data + 3;
	const size_t head = data[0] & 2 ? length / 2 : length;
	uint16_t nb_out;

	check(first != NULL);
	*now += data[2] * (rte_get_tsc_hz() >> 2);
	memcpy(rte_pktmbuf_append(first, head), frame, head);
	if (head < length) {
		struct rte_mbuf *second = rte_pktmbuf_alloc(pool);

		memcpy(rte_pktmbuf_append(second, length - head), frame + head, length - head);
		check(rte_pktmbuf_chain(first, second) == 0);
	}
	nb_out = nat_translate(&the_nat, burst, 1, in, *now);
	if (nat.keeping->pending(0)) {
		check(nb_out == 0 && in == 0);
		nb_out = nat_translate(&the_nat, burst, 0, 1, *now);
	}
	if (nb_out == 1) {
		check_sent(burst[0], frame, length);
		rte_pktmbuf_free(burst[0]);
	}
	return 3 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t now;

	while (size > 3) {
		size_t taken = take(data, size, &now);

		data += taken;
		size -= taken;
	}
	check_table();
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	/* Nothing is left for the next input. */
	now += (LONGEST + 60) * rte_get_tsc_hz();
	the_nat.tick = connections_tick(now);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&the_nat.flows, the_nat.tick + i);
	check(the_nat.flows.used == 0, "a connection does not age");
	now += (NAT_HOLD_SECONDS + 1) * rte_get_tsc_hz();
	for (unsigned i = 0; i < CONNECTIONS * 4; i++)
		nat_table_sweep(&the_nat.table, connections_tick(now));
	check(the_nat.table.taken == 0, "a block is not given back");
	return 0;
}
