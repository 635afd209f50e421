/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-vring-cost: TSC cycles for each small frame that moves to a guest's ring, by the three ways that there are,
 * and by what is left to be done with it.  Both guests are simulated on the same core, so that all is in its cache:
 * what remains is the work.  Each number is the least of several rounds' medians: a burst in which the core was taken
 * away does not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "common/option.h"
#include "test/frame_builder.h"
#include "test/simulated_guest.h"
#include "vring/hop.h"
#include "vring/packet.h"

enum {
	SIZE = 256,   /* descriptors of a ring */
	STRIDE = 512, /* from one frame to the next */
	HEADER = 12,
	LENGTH = 60, /* of a frame, without the FCS */
	BURSTS = 2000,
	ROUNDS = 7,
};
#define FRAMES (GUEST_BASE + 0x4000)

static const struct kind {
	const char *name;
	unsigned every;	 /* one frame of so many has an unfinished checksum; 0: none has */
	uint8_t takes;	 /* of offloads, the receiver */
	uint64_t device; /* what a device says of the frames */
} kinds[] = {
	{"plain", 0, 0, RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN},
	{"checksum passed on", 1, OFFLOAD_CHECKSUM, RTE_MBUF_F_RX_L4_CKSUM_NONE},
	{"checksum completed", 1, 0, RTE_MBUF_F_RX_L4_CKSUM_NONE},
	{"one in 8 completed", 8, 0, RTE_MBUF_F_RX_L4_CKSUM_NONE},
	{"checksum verified", 0, OFFLOAD_CHECKSUM, RTE_MBUF_F_RX_L4_CKSUM_GOOD},
};

static struct simulated_guest *from, *to;
static struct rte_mbuf mbufs[VRING_BURST];
static struct burst burst;
static uint8_t all[VRING_BURST];

static void move_directly(void)
{
	vring_hop(&from->ring, &to->ring);
}

static void move_steered(void)
{
	vring_read(&from->ring, &burst, VRING_BURST);
	vring_write(&to->ring, &burst, all, burst.count);
	vring_read_done(&from->ring, &burst);
}

static void move_from_device(void)
{
	burst_start(&burst);
	for (unsigned i = 0; i < VRING_BURST; i++)
		burst_add_mbuf(&burst, &mbufs[i]);
	vring_write(&to->ring, &burst, all, burst.count);
	burst_show(&burst);
}

static const struct way {
	const char *name;
	void (*move)(void);
	bool device;
} ways[] = {
	{"guest to guest", move_directly, false},
	{"guest to guest, steered", move_steered, false},
	{"device to guest", move_from_device, true},
};

static bool unfinished(const struct kind *kind, unsigned number)
{
	return kind->every != 0 && number % kind->every == 0;
}

static void write_frame(uint8_t *at, uint32_t number)
{
	struct frame frame;

	memset(at, 0, LENGTH);
	frame_udp4(&frame, 0x0a000000 + number, 0xc0a80001, 1024, 80);
	memcpy(at, frame.bytes, RTE_MIN(frame.length, (unsigned)LENGTH));
}

/* Everything that is there before a burst: the guests have had the last one. */
static void prepare(const struct kind *kind, bool device)
{
	static const struct virtio_net_hdr nothing,
		checksum = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 34, .csum_offset = 6};

	for (unsigned i = 0; i < VRING_BURST; i++) {
		const uint64_t at = FRAMES + (uint64_t)i * STRIDE;

		guest_offer(to, guest_desc(to, at, STRIDE, VRING_DESC_F_WRITE));
		if (device) {
			mbufs[i].ol_flags = kind->every == 0 || unfinished(kind, i) ? kind->device : 0;
			continue;
		}
		memcpy(guest_at(from, at), unfinished(kind, i) ? &checksum : &nothing, sizeof(checksum));
		guest_offer(from, guest_desc(from, at, HEADER + LENGTH, 0));
	}
}

static int by_length(const void *one, const void *other)
{
	const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

static double cycles(const struct way *way, const struct kind *kind)
{
	static uint64_t took[BURSTS];
	double best = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		double median;

		for (unsigned i = 0; i < BURSTS; i++) {
			uint64_t start;

			prepare(kind, way->device);
			start = rte_rdtsc();
			way->move();
			took[i] = rte_rdtsc() - start;
			if (guest_taken(to) != VRING_BURST || (!way->device && guest_taken(from) != VRING_BURST)) {
				fprintf(stderr, "%s, %s: not all frames were moved\n", way->name, kind->name);
				exit(1);
			}
			from->nb_used = to->nb_used = 0;
		}
		qsort(took, BURSTS, sizeof(took[0]), by_length);
		median = (double)took[BURSTS / 2] / VRING_BURST;
		if (best == 0 || median < best)
			best = median;
	}
	return best;
}

static void start_guest(struct simulated_guest *guest, bool packed, uint8_t offloads)
{
	guest_prepare(guest, packed, SIZE);
	guest->ring.mergeable = true;
	guest->ring.offloads = offloads;
	vring_start(&guest->ring);
	for (unsigned i = 0; i < VRING_BURST; i++)
		write_frame(guest_at(guest, FRAMES + (uint64_t)i * STRIDE) + HEADER, i);
}

int main(int argc, char **argv)
{
	static uint8_t buffers[VRING_BURST][STRIDE];

	option_none(argc, argv,
		    "TSC cycles for each small frame that moves to a guest's ring, by the three ways that there are.");
	from = aligned_alloc(64, RTE_ALIGN(sizeof(*from), 64));
	to = aligned_alloc(64, RTE_ALIGN(sizeof(*to), 64));
	if (from == NULL || to == NULL)
		return 1;
	for (unsigned i = 0; i < VRING_BURST; i++) {
		all[i] = i;
		write_frame(buffers[i], i);
		mbufs[i] = (struct rte_mbuf){
			.buf_addr = buffers[i], .nb_segs = 1, .data_len = LENGTH, .pkt_len = LENGTH};
	}
	for (unsigned packed = 0; packed < 2; packed++)
		for (unsigned way = 0; way < RTE_DIM(ways); way++)
			for (unsigned kind = 0; kind < RTE_DIM(kinds); kind++) {
				if (!ways[way].device && kinds[kind].device == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
					continue;
				start_guest(from, packed, OFFLOAD_CHECKSUM);
				start_guest(to, packed, kinds[kind].takes);
				printf("%-6s rings, %-24s %-20s %6.1f cycles a frame\n", packed ? "packed" : "split",
				       ways[way].name, kinds[kind].name, cycles(&ways[way], &kinds[kind]));
				guest_end(from);
				guest_end(to);
			}
	free(from);
	free(to);
	return 0;
}
