/* SPDX-License-Identifier: Apache-2.0
 *
 * Two malicious guests on one hop.  The input is their memory: rings, descriptors, tables and frames as it falls,
 * plus writes that happen between two polls.  Guest memory is exactly as large as the table says, so the address
 * sanitizer sees a byte too far; the checks below see what it cannot.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "vring/burst.h"
#include "vring/hop.h"

enum {
	REGION = 4096,
	RING = 8,
	DESC = 0, /* offsets into the first region */
	AVAIL = 0x100,
	USED = 0x200,
};
#define BASE 0x10000ULL

struct guest {
	struct guest_memory memory;
	struct queue_counters counters;
	struct virtqueue ring;
	int report;
};

static void check(int holds)
{
	if (!holds)
		abort();
}

static void guest_start(struct guest *guest, uint8_t options)
{
	memset(guest, 0, sizeof(*guest));
	guest->memory.nb_regions = 2;
	for (unsigned i = 0; i < 2; i++)
		guest->memory.regions[i] = (struct guest_region){BASE + i * REGION, REGION, aligned_alloc(64, REGION)};
	guest->ring = (struct virtqueue){
		.desc = (void *)(guest->memory.regions[0].host + DESC),
		.avail = (void *)(guest->memory.regions[0].host + AVAIL),
		.used = (void *)(guest->memory.regions[0].host + USED),
		.memory = &guest->memory,
		.counters = &guest->counters,
		.call_fd = -1,
		.size = RING,
		.header = options & 1 ? 10 : 12,
		.mergeable = options & 2,
		.event_index = options & 4,
		.in_order = options & 8,
		.report = &guest->report,
	};
	for (unsigned i = 0; i < 2; i++)
		memset(guest->memory.regions[i].host, 0, REGION);
}

static void guest_end(struct guest *guest)
{
	for (unsigned i = 0; i < 2; i++)
		free(guest->memory.regions[i].host);
}

/* A well-formed start that the input then overwrites, so that mutation begins where frames move. */
static void guest_prepare(struct guest *guest, uint16_t flags)
{
	for (uint16_t i = 0; i < RING; i++) {
		guest->ring.desc[i] = (struct vring_desc){BASE + 0x400 + i * 0x100, 0x100, flags, (i + 1) % RING};
		guest->ring.avail->ring[i] = i;
	}
	guest->ring.avail->idx = RING;
}

/* A device's frames for the guest, and the guest's frames for a device. */
static void device_side(struct guest *guest, const uint8_t *data, size_t size)
{
	uint8_t bytes[2048] = {0}, flat[VRING_FRAME_MAX + 64];
	struct rte_mbuf mbuf = {.buf_addr = bytes, .data_off = 0, .data_len = 60, .pkt_len = 60, .nb_segs = 1};
	struct rte_mbuf *mbufs[] = {&mbuf};
	struct vring_frame frame;
	uint16_t head;

	if (size > 0) {
		mbuf.data_len = 14 + data[0] * 7;
		mbuf.pkt_len = mbuf.data_len;
	}
	vring_from_mbufs(&guest->ring, mbufs, 1);
	if (vring_available(&guest->ring, 1) > 0 &&
	    vring_take_frame(&guest->ring, 0, &head, &frame) == VRING_STEP_MOVED)
		vring_flatten(flat, &frame, guest->ring.header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct guest from, to;

	if (size < 2)
		return 0;
	guest_start(&from, data[0]);
	guest_start(&to, data[0] >> 4);
	guest_prepare(&from, 0);
	guest_prepare(&to, VRING_DESC_F_WRITE);
	const uint8_t polls = data[1] % 8 + 1;

	data += 2;
	size -= 2;
	for (unsigned poll = 0; poll < polls; poll++) {
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
			data += length;
			size -= length;
			if (last)
				break;
		}
		const uint16_t before_from = from.ring.index, before_to = to.ring.index;
		const unsigned taken = vring_hop(&from.ring, &to.ring);

		check(taken <= RING);
		check((uint16_t)(from.ring.index - before_from) == taken);
		check((uint16_t)(to.ring.index - before_to) <= RING);
		check(from.ring.pending == 0 && to.ring.pending == 0);
		check(from.ring.unsettled == 0 && to.ring.unsettled == 0); /* these guests poll */
		check((from.report != VRING_FAULT_NONE) == (from.counters.quarantines == 1));
		check((to.report != VRING_FAULT_NONE) == (to.counters.quarantines == 1));
		check(to.counters.sent_packets + to.counters.drop_receiver_too_small +
			      from.counters.drop_frame_too_short + from.counters.drop_frame_too_long +
			      from.counters.drop_frame_fragmented ==
		      from.counters.received_packets);
	}
	device_side(&to, data, size);
	device_side(&from, data, size);
	vring_discard(&from.ring, &from.counters.drop_no_chain);
	guest_end(&from);
	guest_end(&to);
	return 0;
}
