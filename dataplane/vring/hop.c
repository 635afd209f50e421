/* SPDX-License-Identifier: Apache-2.0
 *
 * The one-copy hop.  No packet buffer, no second copy, and not one byte of the frame's headers is looked at.
 * The sender's network header is not read either: the switch offers no offload to a sender, so it is all
 * zeros by the specification (5.1.6.2), and not touching its cache line saves a miss for each frame.
 */
#include "vring/hop.h"
#include "vring/burst.h"

/* Move plain frames.  Returns how many; the next frame or buffer, if any, is not plain. */
static unsigned move_run(struct virtqueue *from, uint16_t from_ahead, struct virtqueue *to, uint16_t to_ahead,
			 unsigned count, uint64_t *bytes)
{
	struct vring_buffer sources[VRING_BURST], targets[VRING_BURST];
	unsigned i;

	count = vring_gather_frames(from, from_ahead, count, sources);
	count = vring_gather_buffers(to, to_ahead, count, targets);
	/* While the frames are on their way: what the last burst stored has long left this core. */
	vring_settle(from, to);
	for (i = 0; i < count; i++) {
		uint32_t length = sources[i].length - from->header;

		if (unlikely(targets[i].length < to->header + length))
			break;
		vring_write_header(targets[i].at, to->header, 1);
		copy_frame(targets[i].at + to->header, sources[i].at + from->header, length);
		vring_complete(to, to_ahead + i, targets[i].head, to->header + length);
		vring_complete_sent(from, from_ahead + i, sources[i].head);
		*bytes += length;
	}
	return i;
}

/* Move one frame of any shape. */
static enum vring_step move_one(struct virtqueue *from, uint16_t from_ahead, struct virtqueue *to, uint16_t *to_ahead,
				uint16_t room, uint64_t *bytes)
{
	struct vring_frame frame;
	enum vring_step step;
	uint16_t head;

	step = vring_take_frame(from, from_ahead, &head, &frame);
	if (step == VRING_STEP_MOVED) {
		uint32_t length = frame.length - from->header;

		step = vring_give_frame(to, to_ahead, room, &frame, from->header, length);
		if (step == VRING_STEP_MOVED)
			*bytes += length;
	}
	if (step == VRING_STEP_MOVED || step == VRING_STEP_DROPPED)
		vring_complete_sent(from, from_ahead, head);
	return step;
}

unsigned vring_hop(struct virtqueue *from, struct virtqueue *to)
{
	uint16_t ready = vring_available(from, VRING_BURST), room;
	uint16_t taken = 0, used = 0, moved = 0;
	uint64_t bytes = 0;

	if (ready == 0) {
		vring_settle(from, to);
		return 0;
	}
	if (ready > VRING_BURST)
		ready = VRING_BURST;
	room = vring_available(to, ready);
	vring_prefetch(from, ready, from->in_order ? 1 : ready);
	vring_prefetch(to, RTE_MIN(ready, room), RTE_MIN(ready, room));
	while (taken < ready && used < room) {
		unsigned run = move_run(from, taken, to, used, RTE_MIN(ready - taken, room - used), &bytes);
		enum vring_step step;

		taken += run;
		used += run;
		moved += run;
		if (taken == ready || used == room)
			break;
		step = move_one(from, taken, to, &used, room, &bytes);
		if (step == VRING_STEP_BLOCKED && vring_available(to, to->size) > room) {
			room = vring_available(to, 0);
			continue;
		}
		if (step == VRING_STEP_BLOCKED || step == VRING_STEP_FAULT)
			break;
		taken++;
		moved += step == VRING_STEP_MOVED;
	}
	vring_settle(from, to);
	to->counters->sent_packets += moved;
	to->counters->sent_bytes += bytes;
	to->pending = used;
	vring_publish(to);
	from->counters->received_packets += taken;
	from->counters->received_bytes += bytes;
	from->pending = taken;
	vring_publish(from);
	return taken;
}
