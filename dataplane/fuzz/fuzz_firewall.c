/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a firewall that lets begin what comes in at the first.  Each passes unchanged
 * or is dropped by a name; the table holds what it says that it holds, and what passes at the second port has been
 * asked for.
 */
#include "fuzz/fuzz.h"

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/firewall.h"
#include "functions/function.h"

enum { FRAMES = 64, ROOM = 2048, CONNECTIONS = 8, LONGEST = 7440 };

static const char rules[] = "{\"rules\": [{\"name\": \"out\", \"action\": \"allow\", \"port\": 0}]}";
static struct rte_mempool *pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	json_t *params = json_loads(rules, 0, NULL);
	struct control_error error;

	start_dpdk("64");
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL && grace_open() == 0);
	check(firewall.set("connections", "8") == NULL);
	check(firewall.keeping->open(pool, -1) == 0 && firewall.keeping->configure(params, &error) == 0);
	json_decref(params);
	return 0;
}

/* The sanitizer sees a byte too far. */
static enum verdict check_exact(const uint8_t *bytes, uint32_t size, uint32_t length)
{
	struct inspected frame, quoted;
	uint8_t *copy = malloc(size);
	enum verdict verdict;

	memcpy(copy, bytes, size);
	verdict = inspect(copy, size, length, &frame);
	if (verdict == VERDICT_ERROR)
		inspect_quoted(copy, size, &frame, &quoted);
	check(verdict != VERDICT_FLOW || frame.event < EVENTS);
	free(copy);
	return verdict;
}

static void check_table(void)
{
	const struct connections *flows = &the_firewall.flows;
	unsigned used = 0, indexed = 0;

	for (uint32_t number = 1; number <= flows->most; number++)
		used += flows->flows[number].state != CONNECTION_none;
	for (uint32_t bucket = 0; bucket <= flows->bucket_mask; bucket++)
		for (unsigned slot = 0; slot < CONNECTION_SLOTS; slot++)
			indexed += flows->buckets[bucket].flows[slot] != 0;
	check(used == flows->used && indexed == used && used <= CONNECTIONS);
}

/* A frame behind two bytes: at which port, in how many pieces, and how much later. */
static size_t take(const uint8_t *data, size_t size, uint64_t *now)
{
	const uint16_t in = data[0] & 1;
	const size_t length = RTE_MIN(size - 3, (size_t)data[1] * 8);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)}, *first = burst[0];
	const uint8_t *frame = data + 3;
	const size_t head = data[0] & 2 ? length / 2 : length;
	enum verdict verdict = check_exact(frame, RTE_MIN(length, (size_t)PARSE_BYTES), length);

	check(first != NULL);
	*now += data[2] * (rte_get_tsc_hz() >> 2);
	memcpy(rte_pktmbuf_append(first, head), frame, head);
	if (head < length) {
		struct rte_mbuf *second = rte_pktmbuf_alloc(pool);

		memcpy(rte_pktmbuf_append(second, length - head), frame + head, length - head);
		check(rte_pktmbuf_chain(first, second) == 0);
	}
	if (firewall_filter(&the_firewall, burst, 1, in, *now) == 1) {
		check(verdict <= VERDICT_LATER && burst[0] == first && first->pkt_len == length);
		rte_pktmbuf_free(first);
	}
	check_table();
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
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	/* Nothing is left for the next input. */
	now += (LONGEST + 60) * rte_get_tsc_hz();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&the_firewall.flows, connections_tick(now) + i);
	check(the_firewall.flows.used == 0, "a flow does not age");
	return 0;
}
