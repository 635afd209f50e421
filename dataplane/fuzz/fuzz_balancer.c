/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall, at either port of a balancer, and what its health thread makes of those that it gets.  Each
 * frame passes as it came, or leaves with a header whose checksum holds, or is dropped by a name; what leaves of the
 * balancer's own is sound; back ends and connections agree about who has whom.  Before the frames there may be a
 * connection that another instance hands over.  There are two queues: a frame comes in by either, and goes on where it
 * belongs.
 */
#include "fuzz/frames.h"

#include "common/grace.h"
#include "functions/balancer.h"
#include "functions/balancer_handover.h"

enum { QUARTER = 250 /* ms */ };

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
	check(grace_open() == 0);
	nb_queues = QUEUES;
	start_function(&balancer, 1024, NULL);
	log_open("fuzz", LOG_LEVEL_ERROR);
	configure_function(&balancer, settings);
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

/* What it sends of its own is what it would let pass itself. */
static void check_own(struct rte_mbuf *mbuf)
{
	struct inspected frame;
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);
	const enum verdict verdict = inspect(head, size, rte_pktmbuf_pkt_len(mbuf), &frame);

	check(verdict == VERDICT_PASS || verdict == VERDICT_FLOW);
	check(memcmp(head + 6, atomic_load(&the_balancer.set.table)->own.station.mac, 6) == 0);
	rte_pktmbuf_free(mbuf);
}

/* With the frame that came first, if it left at all; NULL: it did not. */
static void check_out(struct rte_mbuf **burst, uint16_t nb_out, const struct fallen *passed)
{
	for (uint16_t i = passed != NULL; i < nb_out; i++)
		check_own(burst[i]);
	if (passed != NULL)
		check_left(burst[0], passed, HEADERS_IPV4 | HEADERS_IPV6);
}

static void check_connections(void)
{
	const struct balancer_set *set = &the_balancer.set;
	unsigned connections = 0, used = 0;

	for (unsigned i = 0; i < BALANCER_END_NUMBERS; i++)
		connections += balancer_set_counts(set, i).connections;
	for (unsigned i = 0; i < QUEUES; i++)
		used += (unsigned)the_balancer.lanes[i].flows.used;
	check(connections == used && connections <= CONNECTIONS);
	for (unsigned i = 0; i < QUEUES; i++) {
		const struct connections *flows = &the_balancer.lanes[i].flows;
		struct connection flow;

		for (uint32_t number = 1; number <= flows->most; number++)
			if (connections_copy(flows, number, &flow))
				check(flow.mark != 0 && balancer_set_counts(set, flow.mark).connections > 0);
	}
}

static size_t take(const uint8_t *data, size_t size, uint64_t *now, uint64_t *ms)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	struct fallen fallen;
	const size_t taken = frame_fall(data, size, &fallen);
	struct balancer_lane *lane = &the_balancer.lanes[frame_home(&balancer, &fallen)];
	uint64_t passed;
	uint16_t nb_out;

	*now += fallen.quarters * (rte_get_tsc_hz() / 1000 * QUARTER);
	*ms += fallen.quarters * QUARTER;
	burst[0] = fallen.mbuf;
	passed = lane->counters[fallen.in].passed;
	nb_out = balancer_balance(lane, burst, 1, fallen.in, *now);
	check_out(burst, nb_out, lane->counters[fallen.in].passed != passed ? &fallen : NULL);
	balancer_health_step(&the_balancer, *ms);
	for (uint16_t port = 0; port < 2; port++) {
		nb_out = balancer_balance(&the_balancer.lanes[0], burst, 0, port, *now);
		check_out(burst, nb_out, NULL);
	}
	return taken;
}

/* Of a client of `web` or of `direct`, at one of their back ends or at none, but for what the input says else. */
static void shape(struct handover_record *record, const uint8_t *data)
{
	const uint8_t client[4] = {10, 0, 0, data[0]}, service[4] = {192, 0, 2, 1 + (data[1] & 1)};
	const uint8_t end[16] = {198, 18, 1, 1 + (data[2] & 3)};
	struct headers headers = {.ethertype = 0x0800,
				  .family = HEADERS_IPV4,
				  .protocol = 6,
				  .source_port = data[3],
				  .destination_port = 80,
				  .has_ports = 1};

	memcpy(headers.source, client, sizeof(client));
	memcpy(headers.destination, service, sizeof(service));
	memcpy(record->key, headers.key, sizeof(record->key));
	record->state = data[4] % CONNECTION_NB_STATES;
	record->opener = data[5] & 1;
	record->port = 0;
	record->has_mac = data[5] >> 1 & 1;
	record->end_port = data[1] & 1 ? 80 : 8080;
	memcpy(record->end, end, sizeof(end));
}

/* What another instance says of a back end: of one that there is, if the input says so. */
static void hear(uint8_t how, const uint8_t *data, uint32_t length)
{
	uint8_t told[sizeof(struct handover_record)];
	const uint8_t which[] = {192, 0, 2, 1}, end[] = {198, 18, 1, 1 + (data[0] & 3)};
	const uint16_t ports[2] = {80, 8080};

	memcpy(told, data, length);
	if (how & 8) {
		memset(told, 0, 32);
		memcpy(told, which, sizeof(which));
		memcpy(told + 16, end, sizeof(end));
		memcpy(told + 32, ports, sizeof(ports));
		told[36] = HEADERS_IPV4;
		told[37] = 6;
		told[44] &= 1;
	}
	balancer_handover.hear(&balancer_handover, told, length);
}

/* Returns how many bytes of the input that has taken. */
static size_t hand_over(const uint8_t *data, size_t size, uint64_t now)
{
	struct handover_record *record = &balancer_handover.batch[0];
	const uint32_t tick = connections_tick(now);

	if (size < 1 + sizeof(*record) || !(data[0] & 0x80))
		return 0;
	if (data[0] & 0x10)
		hear(data[0], data + 1, sizeof(*record));
	memcpy(record, data + 1, sizeof(*record));
	if (data[0] & 0x40)
		shape(record, data + 1);
	if (data[0] & 0x20)
		record->seen = tick;
	balancer_handover.prepare(&balancer_handover, 1);
	check(handover_take_one(&balancer_handover, record, tick) < HANDOVER_NB_RESULTS);
	check_connections();
	return 1 + sizeof(*record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t now, ms = 1;
	size_t handed;

	if (size > 0)
		bring_up(data[0]);
	handed = hand_over(data, size, now);
	data += handed;
	size -= handed;
	while (size > FRAME_PREFIX) {
		size_t taken = take(data, size, &now, &ms);

		data += taken;
		size -= taken;
	}
	check_connections(); /* of all numbers, so not after each frame */
	for (unsigned i = 0; i < QUEUES; i++)
		age(&the_balancer.lanes[i].flows, &now);
	return 0;
}
