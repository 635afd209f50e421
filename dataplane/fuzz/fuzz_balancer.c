/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a balancer, and what its health thread makes of those that it gets.  Each
 * frame passes as it came, or leaves with a header whose checksum holds, or is dropped by a name; what leaves of the
 * balancer's own is sound; back ends and connections agree about who has whom.
 */
#include "fuzz/fuzz.h"

#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "common/grace.h"
#include "functions/balancer.h"
#include "functions/function.h"

enum { FRAMES = 1024, ROOM = 2048, CONNECTIONS = 8, LONGEST = 7440, QUARTER = 250 /* ms */ };

static struct rte_mempool *pool;
static const char settings[] =
	"{\"source\": [\"198.18.1.9\", \"2001:db8::9\"], \"secret\": \"s\", \"services\": ["
	"{\"name\": \"web\", \"address\": \"192.0.2.1\", \"port\": 80, \"back_ends\": ["
	"  {\"name\": \"a\", \"address\": \"198.18.1.1\", \"port\": 8080},"
	"  {\"name\": \"b\", \"address\": \"198.18.1.2\", \"port\": 8080}]},"
	"{\"name\": \"names\", \"address\": \"192.0.2.1\", \"port\": 53, \"protocol\": \"udp\", \"back_ends\": ["
	"  {\"name\": \"c\", \"address\": \"198.18.1.1\", \"port\": 53}]},"
	"{\"name\": \"six\", \"address\": \"2001:db8::1:0\", \"port\": 80, \"back_ends\": ["
	"  {\"name\": \"d\", \"address\": \"2001:db8::1\", \"port\": 8080}]},"
	"{\"name\": \"direct\", \"address\": \"192.0.2.2\", \"port\": 80, \"mode\": \"direct\","
	"  \"health\": {\"by\": \"neighbour\"}, \"back_ends\": ["
	"  {\"name\": \"e\", \"address\": \"198.18.1.1\", \"port\": 80}]}]}";

void __wrap_maglev_fill(uint16_t places[MAGLEV_PLACES], const struct maglev_end *ends, unsigned nb_ends);

/* Sharing out takes longer than all the rest. */
void __wrap_maglev_fill(uint16_t places[MAGLEV_PLACES], const struct maglev_end *ends, unsigned nb_ends)
{
	memset(places, 0, MAGLEV_PLACES * sizeof(places[0]));
	for (unsigned i = 0; i < MAGLEV_PLACES && nb_ends > 0; i++)
		places[i] = ends[i % nb_ends].number;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct control_error error;
	json_t *params = json_loads(settings, 0, NULL);

	start_dpdk("64");
	log_open("fuzz", LOG_LEVEL_ERROR);
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL && grace_open() == 0 && balancer.set("connections", "8") == NULL);
	check(balancer.keeping->open(pool, -1) == 0 && balancer.keeping->configure(params, &error) == 0);
	json_decref(params);
	return 0;
}

/* Whoever answered probes; the first input byte says who is up from the start. */
static void bring_up(uint8_t which)
{
	struct balancer_set *set = &the_balancer.set;

	for (unsigned i = 0; i < set->nb_used; i++) {
		struct balancer_end *end = &set->ends[set->used[i]];

		end->mac = which & 1u << i ? 0x000000000002 + ((uint64_t)i << 40) : 0;
		end->state = which & 1u << i ? BALANCER_UP : BALANCER_DOWN;
		memset(&end->health, 0, sizeof(end->health));
	}
	check(balancer_set_publish(set) == 0);
}

static void check_header(const uint8_t *head, uint32_t size)
{
	struct inspected frame;

	parse_frame(head, size, &frame.headers);
	check(frame.headers.family & HEADERS_IP);
	if (frame.headers.family == HEADERS_IPV4)
		check(rte_raw_cksum(head + frame.headers.network, (head[frame.headers.network] & 15u) * 4) == 0xffff);
}

/* What it sends of its own is what it would let pass itself. */
static void check_own(struct rte_mbuf *mbuf)
{
	struct inspected frame;
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);
	const enum verdict verdict = inspect(head, size, rte_pktmbuf_pkt_len(mbuf), &frame);

	check(verdict == VERDICT_PASS || verdict == VERDICT_FLOW);
	check(memcmp(head + 6, atomic_load(&the_balancer.set.table)->own.mac, 6) == 0);
	rte_pktmbuf_free(mbuf);
}

/* With the frame that came first, if it left at all; `passed` says so. */
static void check_out(struct rte_mbuf **burst, uint16_t nb_out, bool passed, const uint8_t *before, size_t length)
{
	for (uint16_t i = passed; i < nb_out; i++)
		check_own(burst[i]);
	if (passed) {
		uint8_t head[PARSE_BYTES];
		const uint32_t size = inspect_copy(burst[0], head);

		check(rte_pktmbuf_pkt_len(burst[0]) == length);
		if (memcmp(head, before, size) != 0)
			check_header(head, size);
		rte_pktmbuf_free(burst[0]);
	}
}

static void check_connections(void)
{
	const struct balancer_set *set = &the_balancer.set;
	unsigned connections = 0;

	for (unsigned i = 0; i < BALANCER_END_NUMBERS; i++)
		connections += set->ends[i].connections;
	check(connections == the_balancer.flows.used && connections <= CONNECTIONS);
	for (uint32_t number = 1; number <= CONNECTIONS; number++) {
		struct connection flow;

		if (connections_copy(&the_balancer.flows, number, &flow))
			check(flow.mark != 0 && set->ends[flow.mark].connections > 0);
	}
}

/* A frame behind three bytes: at which port, in how many pieces, and how much later. */
static size_t take(const uint8_t *data, size_t size, uint64_t *now, uint64_t *ms)
{
	const uint16_t in = data[0] & 1;
	const size_t length = RTE_MIN(size - 3, (size_t)data[1] * 8);
	struct rte_mbuf *burst[FUNCTION_ROOM] = {rte_pktmbuf_alloc(pool)}, *first = burst[0];
	const uint8_t *frame = data + 3;
	const size_t head = data[0] & 2 ? length / 2 : length;
	uint64_t passed;
	uint16_t nb_out;

	check(first != NULL);
	*now += data[2] * (rte_get_tsc_hz() / 1000 * QUARTER);
	*ms += data[2] * QUARTER;
	memcpy(rte_pktmbuf_append(first, head), frame, head);
	if (head < length) {
		struct rte_mbuf *second = rte_pktmbuf_alloc(pool);

		memcpy(rte_pktmbuf_append(second, length - head), frame + head, length - head);
		check(rte_pktmbuf_chain(first, second) == 0);
	}
	passed = the_balancer.counters[in].passed;
	nb_out = balancer_balance(&the_balancer, burst, 1, in, *now);
	check_out(burst, nb_out, the_balancer.counters[in].passed != passed, frame, length);
	balancer_health_step(&the_balancer, *ms);
	for (uint16_t port = 0; port < 2; port++) {
		nb_out = balancer_balance(&the_balancer, burst, 0, port, *now);
		check_out(burst, nb_out, false, NULL, 0);
	}
	return 3 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t now, ms = 1;

	if (size > 0)
		bring_up(data[0]);
	while (size > 3) {
		size_t taken = take(data, size, &now, &ms);

		data += taken;
		size -= taken;
		check_connections();
	}
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	/* Nothing is left for the next input. */
	now += (LONGEST + 60) * rte_get_tsc_hz();
	for (unsigned i = 0; i < CONNECTIONS; i++)
		connections_sweep(&the_balancer.flows, connections_tick(now) + i);
	check(the_balancer.flows.used == 0, "a connection does not age");
	return 0;
}
