/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as they fall at either port of a tunnel's end, of VXLAN or Geneve over IPv4 or IPv6, in one piece or two.  An
 * input is one frame after the other, each behind three bytes: at which port, in how many pieces and which tunnel; how
 * long in units of 8 bytes; and how many quarters of a second later.  A frame is dropped by one name, is ARP or
 * neighbour discovery, or leaves: from the tunnel as a part of what came, into it with headers that the other end
 * reads.
 */
#include "fuzz/fuzz.h"

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "functions/inspect.h"
#include "functions/tunnel.h"

enum { PREFIX = 3, ROOM = 2304, KINDS = 8, BURST_FRAMES = 64 };

static struct rte_mempool *pool;
static struct tunnel ends[KINDS], others[KINDS];

static struct ip_address address(bool six, uint8_t last)
{
	struct ip_address address = {.bytes = {192, 0, 2, last}, .family = HEADERS_IPV4};

	if (six)
		address = (struct ip_address){.bytes = {0x20, 1, 0xd, 0xb8, [15] = last}, .family = HEADERS_IPV6};
	return address;
}

/* By bits: Geneve, IPv6, and whether tags may be there and the next hop is asked for. */
static void begin(unsigned kind)
{
	struct tunnel_settings settings = {
		.ends = {.protocol = kind & 1 ? TUNNEL_GENEVE : TUNNEL_VXLAN,
			 .vni = 1,
			 .local = address((kind & 2) != 0, 1),
			 .remote = address((kind & 2) != 0, 2),
			 .mac = {2, 0, 0, 0, 0, 1},
			 .port = kind & 1 ? TUNNEL_GENEVE_PORT : TUNNEL_VXLAN_PORT,
			 .mtu = 1500,
			 .checksum = (kind & 2) != 0,
			 .tagged = (kind & 4) != 0},
		.neighbour = kind & 4 ? 0 : 0x020000000002,
		.liveness = {.interval = kind & 4 ? 100 * 1000 : 0, .multiplier = 3},
	};
	struct tunnel_settings other = settings;

	tunnel_begin(&ends[kind], &settings, pool);
	other.ends.local = settings.ends.remote;
	other.ends.remote = settings.ends.local;
	tunnel_begin(&others[kind], &other, pool);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(start_dpdk(64) == 0);
	pool = rte_pktmbuf_pool_create("frames", 127, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL);
	for (unsigned kind = 0; kind < KINDS; kind++)
		begin(kind);
	return 0;
}

static struct rte_mbuf *mbuf_of(const uint8_t *bytes, size_t length, bool two)
{
	const size_t head = two ? length / 2 : length;
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	check(mbuf != NULL);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)head), bytes, head);
	if (two) {
		struct rte_mbuf *second = rte_pktmbuf_alloc(pool);

		check(second != NULL);
		memcpy(rte_pktmbuf_append(second, (uint16_t)(length - head)), bytes + head, length - head);
		check(rte_pktmbuf_chain(mbuf, second) == 0);
	}
	return mbuf;
}

/* What is read at a glance is what is read one header after the other. */
static void check_most(const struct tunnel *tunnel, const struct rte_mbuf *mbuf)
{
	struct tunnel_read most, read;
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);

	if (!tunnel_read_most(&tunnel->headers, mbuf, &most))
		return;
	check(tunnel_read(&tunnel->headers, head, size, mbuf->pkt_len, &read) == TUNNEL_PASS);
	check(most.inner == read.inner && most.end == read.end && most.checksum == read.checksum &&
	      most.udp == read.udp && most.ecn == read.ecn);
}

/* Whatever is in it, the session goes on. */
static void take_packet(const uint8_t *packet, uint32_t size)
{
	static uint64_t now = 1;
	static struct bfd session;
	uint8_t sent[BFD_PACKET];
	uint64_t next;

	if (session.own == 0)
		bfd_begin(&session, &(struct bfd_settings){100 * 1000, 3}, 1, now);
	bfd_take(&session, packet, size, now);
	for (unsigned i = 0; bfd_step(&session, sent, now, &next); i++)
		check(i < 2); /* an acknowledgement, and one that is due */
	check(next > now);
	now += 50 * 1000;
}

/* The sanitizer sees a byte too far. */
static void read_exact(const struct tunnel *tunnel, const uint8_t *bytes, size_t length)
{
	const uint32_t size = (uint32_t)RTE_MIN(length, (size_t)PARSE_BYTES);
	uint8_t *copy = malloc(size);
	struct tunnel_read read;

	memcpy(copy, bytes, size);
	switch (tunnel_read(&tunnel->headers, copy, size, (uint32_t)length, &read)) {
	case TUNNEL_PASS:
		check(read.inner < read.end && read.end <= length);
		break;
	case TUNNEL_LIVENESS:
		check(read.inner <= read.end && read.end <= length);
		take_packet(copy + read.inner, RTE_MIN(read.end, size) - read.inner);
		break;
	default:
		break;
	}
	free(copy);
}

/* It went into the tunnel: the other end reads the same. */
static void check_wrapped(unsigned kind, struct rte_mbuf *mbuf, const uint8_t *bytes, size_t length)
{
	uint8_t head[PARSE_BYTES];
	struct tunnel_read read;
	const uint32_t size = inspect_copy(mbuf, head);

	memcpy(head, others[kind].headers.ends.mac, RTE_ETHER_ADDR_LEN);
	check(tunnel_read(&others[kind].headers, head, size, mbuf->pkt_len, &read) == TUNNEL_PASS);
	check(read.end - read.inner == length);
	check(tunnel_unwrap(&others[kind].headers, mbuf, &read) == TUNNEL_PASS && mbuf->pkt_len == length);
	check(memcmp(rte_pktmbuf_mtod(mbuf, void *), bytes, RTE_MIN(length, (size_t)mbuf->data_len)) == 0);
}

/* It came out: a part of what came, but for a mark of congestion. */
static void check_unwrapped(const struct tunnel *tunnel, const struct rte_mbuf *mbuf, size_t length)
{
	check(mbuf->pkt_len + tunnel->headers.size <= length && mbuf->data_len >= RTE_ETHER_HDR_LEN);
	check(tunnel->headers.ends.tagged || !tunnel_has_tag(rte_pktmbuf_mtod(mbuf, const uint8_t *)));
}

static uint64_t counted(const struct tunnel *tunnel, unsigned port)
{
	const struct tunnel_counters *counters = &tunnel->queues[0].counters[port];
	uint64_t all = counters->passed + counters->neighbours;

	for (unsigned i = 0; i < TUNNEL_VERDICTS; i++)
		all += counters->drops[i];
	return all;
}

static void fall(const uint8_t *prefix, const uint8_t *bytes, size_t length, uint64_t tsc)
{
	const uint16_t in = prefix[0] & 1;
	const unsigned kind = prefix[0] >> 2 & (KINDS - 1);
	struct tunnel *tunnel = &ends[kind];
	struct rte_mbuf *burst[FUNCTION_ROOM] = {mbuf_of(bytes, length, (prefix[0] & 2) != 0)};
	const uint64_t before = counted(tunnel, in), passed = tunnel->queues[0].counters[in].passed;
	uint16_t nb_out;

	read_exact(tunnel, bytes, length);
	check_most(tunnel, burst[0]);
	nb_out = tunnel_pass(tunnel, burst, 1, in, 0, tsc);
	check(counted(tunnel, in) == before + 1, "a frame is one thing");
	for (uint16_t i = 0; i < nb_out; i++) {
		const bool it = i == 0 && tunnel->queues[0].counters[in].passed > passed;

		if (it && in == 0)
			check_wrapped(kind, burst[i], bytes, length);
		else if (it)
			check_unwrapped(tunnel, burst[i], length);
		else
			check(in == 0 && memcmp(rte_pktmbuf_mtod_offset(burst[i], uint8_t *, RTE_ETHER_ADDR_LEN),
						tunnel->headers.ends.mac, RTE_ETHER_ADDR_LEN) == 0,
			      "of its own");
		rte_pktmbuf_free(burst[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t tsc = 1ULL << 40;
	struct rte_mbuf *own[FUNCTION_ROOM];

	for (unsigned frames = 0; size > PREFIX && frames < BURST_FRAMES; frames++) {
		const size_t length = RTE_MIN(size - PREFIX, (size_t)data[1] * 8);

		tsc += data[2] * rte_get_tsc_hz() / 4;
		fall(data, data + PREFIX, length, tsc);
		data += PREFIX + length;
		size -= PREFIX + length;
	}
	/* Nothing is left for the next input. */
	for (unsigned kind = 0; kind < KINDS; kind++) {
		rte_pktmbuf_free_bulk(own, tunnel_pass(&ends[kind], own, 0, 0, 0, tsc));
		tsc += (TUNNEL_ANSWER + 1) * rte_get_tsc_hz();
		atomic_store(&ends[kind].mac, kind & 4 ? 0 : 0x020000000002);
	}
	check(rte_mempool_in_use_count(pool) == 0, "a frame is lost");
	return 0;
}
