/* SPDX-License-Identifier: Apache-2.0
 *
 * Two malicious guests, and everything that takes their frames: the hop, the steered path, packet buffers.  The input
 * is what they negotiated and their memory: rings of either layout, descriptors, tables, headers and frames as it
 * falls, plus writes that happen between two polls.  Guest memory is exactly as large as the table says, so the address
 * sanitizer sees a byte too far; the checks below see what it cannot.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "fuzz/fuzz.h"
#include "test/mbuf_bursts.h"
#include "vring/hop.h"
#include "vring/packet.h"

enum {
	REGION = 4096,
	RING = 8,
	TABLE = RING * sizeof(struct vring_desc), /* written to by what is written to the first region's beginning */
	AVAIL = 0x100,				  /* offsets into the first region */
	USED = 0x200,
	LOG = (0x10000 + VRING_RUN_FRAME + 2 * REGION) / DIRTY_PAGE / 8 + 1,
	BUFFERS = OFFLOAD_SEGMENTS,
	POOL = 511,
};
#define BASE 0x10000ULL

/* Bits of the byte that says what a guest negotiated. */
enum {
	SHORT_HEADER = 1,
	MERGEABLE = 2,
	EVENT_INDEX = 4,
	IN_ORDER = 8,
	PACKED = 16,
	OFFLOADS = 32,
	SLEEPS = 64,
	LOGGED = 128
};

struct guest {
	struct guest_memory memory;
	struct queue_counters counters;
	struct virtqueue ring;
	struct vring_desc *table;
	int report;
	uint8_t options;
	int call_fd;
};

static struct rte_mempool *pool;
static int call_fds[2];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(start_dpdk(32) == 0);
	/* Small buffers, so that frames are chained beyond what a burst has room for, and few, so that they run out. */
	pool = rte_pktmbuf_pool_create("fuzz", POOL, 0, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	check(pool != NULL);
	for (unsigned i = 0; i < 2; i++)
		call_fds[i] = eventfd(0, EFD_NONBLOCK);
	return 0;
}

/* The ring as the switch sees it when the guest has set it up, whatever lies in its memory. */
static void guest_snapshot(struct guest *guest)
{
	const uint8_t options = guest->options;
	const struct dirty_log log = guest->ring.log;

	guest->ring = (struct virtqueue){
		.desc = guest->table,
		.avail = (void *)(guest->memory.regions[0].host + AVAIL),
		.used = (void *)(guest->memory.regions[0].host + USED),
		.memory = &guest->memory,
		.counters = &guest->counters,
		.notifications = &guest->counters.notifications,
		.call_fd = options & SLEEPS ? guest->call_fd : -1,
		.size = RING,
		.header = options & SHORT_HEADER ? 10 : 12,
		.mergeable = options & MERGEABLE,
		.event_index = options & EVENT_INDEX,
		.in_order = options & IN_ORDER,
		.packed = options & PACKED,
		.offloads = options & OFFLOADS ? OFFLOAD_CHECKSUM | OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_ECN : 0,
		.asleep = true,
		.log = log,
		.report = &guest->report,
	};
}

/* It is set up once more, or another switch takes it up: at whatever base the front end says. */
static void guest_resume(struct guest *guest, uint16_t base)
{
	guest->report = VRING_FAULT_NONE;
	guest->counters.quarantines = 0;
	guest_snapshot(guest);
	vring_resume(&guest->ring, base);
	vring_start(&guest->ring);
}

static void guest_start(struct guest *guest, uint8_t options, int call_fd)
{
	memset(guest, 0, sizeof(*guest));
	guest->options = options;
	guest->call_fd = call_fd;
	guest->memory.nb_regions = 2;
	for (unsigned i = 0; i < 2; i++) {
		/* The first has room for every plain frame, so that buffers are looked at four at a time. */
		const uint64_t more = VRING_RUN_FRAME, size = i == 0 ? REGION + more : REGION;

		guest->memory.regions[i] = (struct guest_region){i == 0 ? BASE : BASE + REGION + more, size,
								 aligned_alloc(64, size)};
		memset(guest->memory.regions[i].host, 0, size);
	}
	/* Memory of its own, so that a look past its end is found. */
	guest->table = aligned_alloc(64, TABLE);
	memset(guest->table, 0, TABLE);
	guest_snapshot(guest);
	if (options & LOGGED)
		guest->ring.log = (struct dirty_log){.bits = calloc(1, LOG), .size = LOG, .ring = BASE};
}

static void guest_end(struct guest *guest)
{
	for (unsigned i = 0; i < 2; i++)
		free(guest->memory.regions[i].host);
	free(guest->table);
	free(guest->ring.log.bits);
}

/* A well-formed start that the input then overwrites, so that mutation begins where frames move. */
static void guest_prepare(struct guest *guest, uint16_t flags)
{
	const uint64_t address = BASE + 0x400;

	for (uint16_t i = 0; i < RING && guest->ring.packed; i++)
		guest->ring.packed_desc[i] = (struct vring_packed_desc){address + i * 0x100, 0x100, i,
									flags | VRING_FLAG_AVAILABLE};
	for (uint16_t i = 0; i < RING && !guest->ring.packed; i++) {
		guest->ring.desc[i] = (struct vring_desc){address + i * 0x100, 0x100, flags, (i + 1) % RING};
		guest->ring.avail->ring[i] = i;
	}
	if (!guest->ring.packed)
		guest->ring.avail->idx = RING;
	vring_resume(&guest->ring, 1 << 15);
	vring_start(&guest->ring);
}

/* Frames from the guest looked at, edited by what they hold, and written to a selection of receivers. */
static unsigned steer(struct guest *from, struct guest *to, uint8_t how)
{
	static struct burst burst;
	uint8_t which[VRING_BURST];
	unsigned n = 0;
	const unsigned taken = vring_read(&from->ring, &burst, 1 + how % VRING_BURST);

	check(burst.count <= burst.taken && burst.nb_pieces <= BURST_PIECES);
	for (unsigned i = 0; i < burst.count; i++) {
		struct packet *packet = &burst.packets[i];

		check(packet->head_length >= VRING_FRAME_MIN && packet->head_length <= packet->length);
		if (packet->head[0] & 2)
			packet_push(packet, packet->head[1] % PACKET_ROOM);
		else if (how & 64 && packet->offload.flags == 0)
			packet_pop(packet, packet->head[1] % VRING_FRAME_MIN);
		which[n++] = i;
	}
	/* As several receivers: the same ring, twice. */
	check(vring_write(&to->ring, &burst, which, n) <= n);
	if (how & 128)
		vring_write(&to->ring, &burst, which, n / 2);
	vring_read_done(&from->ring, &burst);
	return taken;
}

/* The guest's frames for a device, and these for the other guest. */
static unsigned over_device(struct guest *from, struct guest *to, uint8_t how)
{
	static const uint64_t transmits[] = {0, RTE_ETH_TX_OFFLOAD_MULTI_SEGS, UINT64_MAX};
	struct rte_mbuf *mbufs[BUFFERS];
	unsigned filled, given;
	const unsigned taken = vring_to_mbufs(&from->ring, pool, transmits[how % RTE_DIM(transmits)], mbufs, BUFFERS,
					      &filled);

	check(filled <= BUFFERS);
	for (unsigned i = 0; i < filled; i++) {
		check(mbufs[i]->pkt_len >= VRING_FRAME_MIN);
		rte_mbuf_sanity_check(mbufs[i], 1);
		/* What a device could have said of it. */
		mbufs[i]->ol_flags = how & 64 ? RTE_MBUF_F_RX_L4_CKSUM_NONE : RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		if (how & 128) {
			mbufs[i]->ol_flags |= RTE_MBUF_F_RX_LRO;
			mbufs[i]->tso_segsz = how;
		}
	}
	given = vring_from_mbufs(&to->ring, mbufs, filled);
	check(given <= filled);
	rte_pktmbuf_free_bulk(mbufs, filled);
	check(rte_mempool_avail_count(pool) == POOL);
	return taken;
}

static void check_ring(const struct guest *guest)
{
	check(guest->ring.pending == 0 && guest->ring.nb_done == 0);
	check(!guest->ring.packed || guest->ring.index < RING);
	check((guest->report != VRING_FAULT_NONE) == (guest->counters.quarantines == 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct guest from, to;

	if (size < 3)
		return 0;
	guest_start(&from, data[0], call_fds[0]);
	guest_start(&to, data[1], call_fds[1]);
	guest_prepare(&from, 0);
	guest_prepare(&to, VRING_DESC_F_WRITE);
	const uint8_t polls = data[2] % 8 + 1, path = data[2] >> 3;

	data += 3;
	size -= 3;
	for (unsigned poll = 0; poll < polls; poll++) {
		const uint8_t how = size > 0 ? data[0] : 0;
		unsigned taken;

		/* Each write: which guest, where, how much; then its bytes. */
		while (size >= 4) {
			struct guest *guest = data[0] & 1 ? &to : &from;
			uint8_t *region = guest->memory.regions[(data[0] >> 1) & 1].host;
			size_t at = (data[1] | data[2] << 8) % REGION, length = data[3];
			const int last = data[0] & 0x80;

			data += 4;
			size -= 4;
			if (length > size)
				length = size;
			if (length > REGION - at)
				length = REGION - at;
			memcpy(region + at, data, length);
			if (region == guest->memory.regions[0].host && at < TABLE)
				memcpy((uint8_t *)guest->table + at, data, RTE_MIN(length, TABLE - at));
			data += length;
			size -= length;
			if (last)
				break;
		}
		if (path % 3 == 0)
			taken = vring_hop(&from.ring, &to.ring);
		else
			taken = path % 3 == 1 ? steer(&from, &to, how) : over_device(&from, &to, how);
		check(taken <= VRING_BURST);
		check_ring(&from);
		check_ring(&to);
		/* Before the switch sleeps.  Then the guests are notified of what was published, as by the next poll.
		 */
		if (how & 32) {
			vring_arm(&from.ring);
			vring_disarm(&from.ring);
		}
		if (how & 16) {
			const uint16_t base = size >= 2 ? data[0] | data[1] << 8 : 0;

			vring_notify(&from.ring, &to.ring);
			guest_resume(&from, base);
			guest_resume(&to, how & 8 ? base : vring_base(&to.ring));
			check_ring(&from);
			check_ring(&to);
		}
		vring_notify(&from.ring, &to.ring);
		check(from.ring.unnotified == 0 && to.ring.unnotified == 0);
	}
	vring_discard(&from.ring, &from.counters.drop_no_chain);
	check_ring(&from);
	for (unsigned i = 0; i < 2; i++)
		eventfd_read(call_fds[i], &(eventfd_t){0});
	guest_end(&from);
	guest_end(&to);
	return 0;
}
