/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a firewall that lets begin what comes in at the first.  Each passes unchanged
 * or is dropped by a name; the second port's is rejected with an answer; the tables hold what they say that they hold,
 * and what passes at the second port has been asked for.  There are two queues: a frame comes in by either, and goes on
 * where it belongs.
 */
#include "fuzz/frames.h"

#include "common/grace.h"
#include "functions/firewall.h"

static const char rules[] =
	"{\"default\": \"reject\", \"rules\": [{\"name\": \"out\", \"action\": \"allow\", \"port\": 0}]}";

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(grace_open() == 0);
	nb_queues = QUEUES;
	start_function(&firewall, 64, NULL);
	configure_function(&firewall, rules);
	return 0;
}

static void check_table(const struct connections *flows)
{
	unsigned used = 0, indexed = 0;

	for (uint32_t number = 1; number <= flows->most; number++)
		used += flows->flows[number].state != CONNECTION_none;
	for (uint32_t bucket = 0; bucket <= flows->bucket_mask; bucket++)
		for (unsigned slot = 0; slot < CONNECTION_SLOTS; slot++)
			indexed += flows->buckets[bucket].slots[slot] != 0;
	check(used == flows->used && indexed == used && used <= CONNECTIONS);
}

/* Nothing or a whole frame, which goes back to who is told. */
static void check_answer(struct firewall *of, const struct fallen *fallen, uint64_t now)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	struct inspected answer;
	uint32_t size;

	if (firewall_filter(of, burst, 0, !fallen->in, now) == 0)
		return;
	size = burst[0]->pkt_len;
	check(fallen->in == 1 && fallen->verdict == VERDICT_FLOW);
	switch (inspect_exact(rte_pktmbuf_mtod(burst[0], uint8_t *), RTE_MIN(size, (uint32_t)PARSE_BYTES), size,
			      &answer)) {
	case VERDICT_FLOW:
		check(answer.event == EVENT_RST);
		break;
	case VERDICT_ERROR:
		check(size <= fallen->length + 48);
		break;
	default:
		check(false, "an answer that does not hold");
	}
	check(memcmp(rte_pktmbuf_mtod(burst[0], uint8_t *), fallen->bytes + 6, 6) == 0);
	rte_pktmbuf_free(burst[0]);
}

static size_t take(const uint8_t *data, size_t size, uint64_t *now)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	struct fallen fallen;
	const size_t taken = frame_fall(data, size, &fallen);
	struct firewall *of = &firewalls[frame_home(&firewall, &fallen)];

	*now += fallen.quarters * (rte_get_tsc_hz() >> 2);
	burst[0] = fallen.mbuf;
	if (firewall_filter(of, burst, 1, fallen.in, *now) == 1) {
		check(fallen.verdict <= VERDICT_LATER && burst[0] == fallen.mbuf);
		check_left(burst[0], &fallen, 0);
	} else {
		check_answer(of, &fallen, *now);
	}
	check_table(&of->flows);
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
	for (unsigned i = 0; i < QUEUES; i++)
		age(&firewalls[i].flows, &now);
	return 0;
}
