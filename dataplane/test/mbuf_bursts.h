/* SPDX-License-Identifier: Apache-2.0
 *
 * Bursts between one guest's ring and packet buffers, with nothing of the switch around: what tests and fuzz targets
 * drive the conversions of vring/packet.h with.
 */
#ifndef TAILRACE_TEST_MBUF_BURSTS_H
#define TAILRACE_TEST_MBUF_BURSTS_H

#include <errno.h>

#include <rte_mbuf.h>

#include "vring/burst.h"
#include "vring/frame.h"
#include "vring/hop.h"
#include "vring/packet.h"

/* Copy the frame at `*ahead`.  Returns how many buffers it took, or a negative errno: it was dropped, or is left. */
static inline enum vring_step fill(struct virtqueue *from, uint16_t *ahead, struct rte_mempool *pool,
				   uint64_t transmits, struct rte_mbuf **mbufs, unsigned room, unsigned *filled)
{
	struct vring_piece pieces[PACKET_PIECES];
	struct packet packet = {.pieces = pieces};
	struct vring_frame frame;
	struct vring_chain chain;
	enum vring_step step = vring_take_frame(from, *ahead, &chain, &frame);
	int count = 0;

	if (step == VRING_STEP_FAULT)
		return step;
	if (step == VRING_STEP_MOVED && packet_of_frame(&packet, from, &frame)) {
		count = packet_to_mbufs(&packet, pool, transmits, mbufs, room);
		/* What all of the caller's room is not enough for would stay in front of all others for ever. */
		if (count == -ENOSPC && *filled > 0)
			return VRING_STEP_BLOCKED;
		if (count == -ENOBUFS)
			from->counters->drop_no_buffer++;
		if (count == -EMSGSIZE || count == -ENOSPC)
			from->counters->drop_frame_too_long++;
	}
	if (count > 0) {
		*filled += count;
		from->counters->received_bytes += packet.length;
	}
	vring_complete_sent(from, from->packed, *ahead, chain.id);
	*ahead += chain.slots;
	return VRING_STEP_MOVED;
}

/*
 * Copy frames into packet buffers from `pool` and give the chains back to the guest, until `room` buffers are filled.
 * `transmits` says what the device does itself (RTE_ETH_TX_OFFLOAD_...); a long segment for which all of `room` is too
 * little is dropped.  Returns how many frames left the guest's ring, dropped ones (counted) included; `*filled` buffers
 * are in `mbufs`, for the caller to free.
 */
static inline unsigned vring_to_mbufs(struct virtqueue *from, struct rte_mempool *pool, uint64_t transmits,
				      struct rte_mbuf **mbufs, unsigned room, unsigned *filled)
{
	const unsigned limit = RTE_MIN(room, (unsigned)VRING_BURST);
	const unsigned ready = RTE_MIN(vring_available(from, limit), limit);
	uint16_t ahead = 0;
	unsigned taken = 0;

	*filled = 0;
	vring_prefetch(from, from->packed, ready, from->in_order ? 1 : ready);
	while (ahead < ready && *filled < room) {
		if (fill(from, &ahead, pool, transmits, mbufs + *filled, room - *filled, filled) != VRING_STEP_MOVED)
			break;
		taken++;
	}
	from->counters->received_packets += taken;
	from->pending = ahead;
	vring_publish(from);
	return taken;
}

/*
 * Copy the frames into the guest's receive buffers and notify the guest.  Returns how many of them are dealt with,
 * dropped ones included; the caller keeps and frees all buffers.
 */
static inline unsigned vring_from_mbufs(struct virtqueue *to, struct rte_mbuf **mbufs, unsigned count)
{
	struct vring_piece pieces[BURST_PIECES];
	struct packet packet = {.pieces = pieces};
	struct vring_room room = {0};
	unsigned done, moved = 0;
	uint64_t bytes = 0;

	if (count == 0)
		return 0;
	room.end = vring_available(to, count);
	for (done = 0; done < count && room.used < room.end;) {
		enum vring_step step;

		if (mbufs[done]->nb_segs > BURST_PIECES) {
			to->counters->drop_receiver_too_small++;
			done++;
			continue;
		}
		packet_of_mbuf(&packet, mbufs[done]);
		step = packet_enqueue(to, &room, &packet, &moved, &bytes);
		if (step == VRING_STEP_BLOCKED && vring_more_room(to, &room))
			continue;
		if (step == VRING_STEP_BLOCKED || step == VRING_STEP_FAULT)
			break;
		done++;
	}
	to->counters->sent_packets += moved;
	to->counters->sent_bytes += bytes;
	to->pending = room.used;
	vring_publish(to);
	return done;
}

#endif
