/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of any shape, one at a time: chained and indirect descriptors, buffers that cross memory regions,
 * frames that take several receive buffers.
 */
#include "vring/burst.h"

enum vring_step vring_take_frame(struct virtqueue *from, uint16_t ahead, uint16_t *head, struct vring_frame *frame)
{
	vring_frame_clear(frame);
	*head = vring_head(from, ahead);
	if (*head >= from->size) {
		vring_quarantine(from, VRING_FAULT_head_index);
		return VRING_STEP_FAULT;
	}
	switch (vring_walk(from, *head, false, frame)) {
	case VRING_WALK_FAULT:
		return VRING_STEP_FAULT;
	case VRING_WALK_FRAGMENTED:
		from->counters->drop_frame_fragmented++;
		return VRING_STEP_DROPPED;
	case VRING_WALK_DONE:
		break;
	}
	if (frame->length < from->header) {
		vring_quarantine(from, VRING_FAULT_no_header);
		return VRING_STEP_FAULT;
	}
	if (frame->length - from->header < VRING_FRAME_MIN) {
		from->counters->drop_frame_too_short++;
		return VRING_STEP_DROPPED;
	}
	if (frame->length - from->header > VRING_FRAME_MAX) {
		from->counters->drop_frame_too_long++;
		return VRING_STEP_DROPPED;
	}
	return VRING_STEP_MOVED;
}

/* Where the next byte is read or written. */
struct cursor {
	const struct vring_piece *piece;
	uint32_t offset;
};

static void cursor_skip(struct cursor *cursor, uint32_t bytes)
{
	while (bytes > 0) {
		uint32_t step = RTE_MIN(bytes, cursor->piece->length - cursor->offset);

		bytes -= step;
		cursor->offset += step;
		if (cursor->offset == cursor->piece->length)
			*cursor = (struct cursor){cursor->piece + 1, 0};
	}
}

static void cursor_copy(struct cursor *to, struct cursor *from, uint32_t bytes)
{
	while (bytes > 0) {
		uint32_t step = RTE_MIN(bytes,
					RTE_MIN(to->piece->length - to->offset, from->piece->length - from->offset));

		copy_frame(to->piece->at + to->offset, from->piece->at + from->offset, step);
		bytes -= step;
		cursor_skip(to, step);
		cursor_skip(from, step);
	}
}

void vring_flatten(uint8_t *to, const struct vring_frame *frame, uint32_t skip)
{
	const struct vring_piece whole = {to, frame->length};
	struct cursor source = {frame->pieces, 0}, target = {&whole, 0};

	cursor_skip(&source, skip);
	cursor_copy(&target, &source, frame->length - skip);
}

enum vring_step vring_give_frame(struct virtqueue *to, uint16_t *ahead, uint16_t room, const struct vring_frame *frame,
				 uint32_t skip, uint32_t length)
{
	const uint32_t need = to->header + length;
	struct vring_frame target;
	uint16_t heads[VRING_PIECES];
	uint32_t capacity[VRING_PIECES];
	unsigned count = 0;

	vring_frame_clear(&target);
	while (target.length < need) {
		uint32_t before = target.length;
		uint16_t head;

		if (count > 0 && !to->mergeable)
			goto too_small;
		if (count == VRING_PIECES || count == to->size)
			goto too_small;
		if (*ahead + count >= room)
			return VRING_STEP_BLOCKED;
		head = vring_head(to, *ahead + count);
		if (head >= to->size) {
			vring_quarantine(to, VRING_FAULT_head_index);
			return VRING_STEP_FAULT;
		}
		switch (vring_walk(to, head, true, &target)) {
		case VRING_WALK_FAULT:
			return VRING_STEP_FAULT;
		case VRING_WALK_FRAGMENTED:
			/* What was found may do: a receiver may offer far more than a frame needs. */
			if (target.length < need)
				goto too_small;
			break;
		case VRING_WALK_DONE:
			break;
		}
		if (target.length == before) {
			vring_quarantine(to, VRING_FAULT_empty_buffer);
			return VRING_STEP_FAULT;
		}
		heads[count] = head;
		capacity[count++] = target.length - before;
	}
	if (capacity[0] < to->header) {
		vring_quarantine(to, VRING_FAULT_no_header);
		return VRING_STEP_FAULT;
	}

	uint8_t header[12];
	struct vring_piece header_piece = {header, to->header};
	struct cursor header_source = {&header_piece, 0}, source = {frame->pieces, 0}, sink = {target.pieces, 0};
	uint32_t left = need;

	vring_write_header(header, to->header, count);
	cursor_copy(&sink, &header_source, to->header);
	cursor_skip(&source, skip);
	cursor_copy(&sink, &source, length);
	for (unsigned i = 0; i < count; i++) {
		uint32_t written = RTE_MIN(left, capacity[i]);

		vring_complete(to, (*ahead)++, heads[i], written);
		left -= written;
	}
	return VRING_STEP_MOVED;

too_small:
	to->counters->drop_receiver_too_small++;
	return VRING_STEP_DROPPED;
}
