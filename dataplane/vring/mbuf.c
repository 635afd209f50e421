/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a guest's rings and a device's packet buffers.
 */
#include <rte_mbuf.h>

#include "vring/burst.h"
#include "vring/hop.h"

/* Copy the frame at `ahead` into the buffer. */
static enum vring_step fill(struct virtqueue *from, uint16_t ahead, struct rte_mbuf *mbuf)
{
	struct vring_frame frame;
	struct vring_buffer plain;
	enum vring_step step;
	uint32_t length;
	uint16_t head;
	bool is_plain = vring_gather_frames(from, ahead, 1, &plain) == 1;

	if (is_plain) {
		head = plain.head;
		length = plain.length - from->header;
	} else {
		step = vring_take_frame(from, ahead, &head, &frame);
		if (step == VRING_STEP_FAULT)
			return step;
		if (step == VRING_STEP_DROPPED)
			goto complete;
		length = frame.length - from->header;
	}
	if (length > rte_pktmbuf_tailroom(mbuf)) {
		from->counters->drop_frame_too_long++;
		step = VRING_STEP_DROPPED;
		goto complete;
	}
	if (is_plain)
		copy_frame(rte_pktmbuf_mtod(mbuf, uint8_t *), plain.at + from->header, length);
	else
		vring_flatten(rte_pktmbuf_mtod(mbuf, uint8_t *), &frame, from->header);
	mbuf->data_len = length;
	mbuf->pkt_len = length;
	step = VRING_STEP_MOVED;

complete:
	vring_complete_sent(from, ahead, head);
	return step;
}

unsigned vring_to_mbufs(struct virtqueue *from, struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count,
			unsigned *filled)
{
	unsigned ready = RTE_MIN(vring_available(from, count), count), taken;

	*filled = 0;
	if (ready == 0)
		return 0;
	if (rte_pktmbuf_alloc_bulk(pool, mbufs, ready) != 0)
		return vring_discard(from, &from->counters->drop_no_buffer);
	for (taken = 0; taken < ready; taken++) {
		enum vring_step step = fill(from, taken, mbufs[*filled]);

		if (step == VRING_STEP_FAULT)
			break;
		if (step == VRING_STEP_MOVED)
			from->counters->received_bytes += mbufs[(*filled)++]->data_len;
	}
	rte_pktmbuf_free_bulk(mbufs + *filled, ready - *filled);
	from->counters->received_packets += taken;
	from->pending = taken;
	vring_publish(from);
	return taken;
}

/* Describe a packet buffer as pieces.  What a device delivers in more than VRING_PIECES segments is cut. */
static void frame_of_mbuf(struct vring_frame *frame, struct rte_mbuf *mbuf)
{
	vring_frame_clear(frame);
	for (struct rte_mbuf *segment = mbuf; segment != NULL; segment = segment->next) {
		if (segment->data_len == 0 || frame->nb_pieces == VRING_PIECES)
			continue;
		frame->pieces[frame->nb_pieces++] = (struct vring_piece){rte_pktmbuf_mtod(segment, uint8_t *),
									 segment->data_len};
		frame->length += segment->data_len;
	}
}

unsigned vring_from_mbufs(struct virtqueue *to, struct rte_mbuf **mbufs, unsigned count)
{
	unsigned done, moved = 0;
	uint64_t bytes = 0;
	uint16_t room, used = 0;

	if (count == 0)
		return 0;
	/* A frame may take several buffers: all that there are. */
	room = vring_available(to, to->size);
	for (done = 0; done < count && used < room; done++) {
		struct vring_frame frame;
		enum vring_step step;

		frame_of_mbuf(&frame, mbufs[done]);
		step = vring_give_frame(to, &used, room, &frame, 0, frame.length);
		if (step == VRING_STEP_BLOCKED || step == VRING_STEP_FAULT)
			break;
		if (step == VRING_STEP_MOVED) {
			moved++;
			bytes += frame.length;
		}
	}
	to->counters->sent_packets += moved;
	to->counters->sent_bytes += bytes;
	to->pending = used;
	vring_publish(to);
	return done;
}
