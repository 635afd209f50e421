/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of any shape, one at a time: chained and indirect descriptors, buffers that cross memory regions,
 * frames that take several receive buffers.
 */
#include "vring/frame.h"
#include "common/copy.h"

enum vring_step vring_take_frame(struct virtqueue *from, uint16_t ahead, struct vring_chain *chain,
				 struct vring_frame *frame)
{
	vring_frame_clear(frame);
	switch (vring_walk(from, ahead, false, frame, chain)) {
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

static void cursor_skip(struct frame_cursor *cursor, uint32_t bytes)
{
	while (bytes > 0) {
		uint32_t step = RTE_MIN(bytes, cursor->piece->length - cursor->offset);

		bytes -= step;
		cursor->offset += step;
		if (cursor->offset == cursor->piece->length)
			*cursor = (struct frame_cursor){cursor->piece + 1, 0};
	}
}

static void cursor_copy(struct frame_cursor *to, struct frame_cursor *from, uint32_t bytes)
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

unsigned frame_slice(struct frame_cursor *cursor, uint32_t length, struct vring_piece *pieces)
{
	unsigned count = 0;

	while (length > 0) {
		const uint32_t step = RTE_MIN(length, cursor->piece->length - cursor->offset);

		if (step > 0)
			pieces[count++] = (struct vring_piece){cursor->piece->at + cursor->offset, step};
		length -= step;
		cursor->offset += step;
		if (cursor->offset == cursor->piece->length)
			*cursor = (struct frame_cursor){cursor->piece + 1, 0};
	}
	return count;
}

void vring_peek(uint8_t *to, const struct vring_frame *frame, uint32_t length)
{
	const struct vring_piece whole = {to, length};
	struct frame_cursor source = {frame->pieces, 0}, target = {&whole, 0};

	cursor_copy(&target, &source, length);
}

void vring_frame_skip(struct vring_frame *frame, uint32_t bytes)
{
	unsigned gone = 0;

	frame->length -= bytes;
	while (bytes > 0 && bytes >= frame->pieces[gone].length)
		bytes -= frame->pieces[gone++].length;
	frame->nb_pieces -= gone;
	memmove(frame->pieces, frame->pieces + gone, frame->nb_pieces * sizeof(frame->pieces[0]));
	frame->pieces[0].at += bytes;
	frame->pieces[0].length -= bytes;
}

bool vring_more_room(struct virtqueue *to, struct vring_room *room)
{
	const uint16_t before = room->end;

	room->end = vring_available(to, before + VRING_PIECES);
	return room->end > before;
}

/* A receive buffer that a frame will be written to. */
struct target {
	struct vring_chain chain;
	uint32_t capacity;
};

/* Collect receive buffers for `need` bytes. */
static enum vring_step collect(struct virtqueue *to, const struct vring_room *room, uint32_t need,
			       struct vring_frame *frame, struct target *targets, unsigned *count)
{
	uint16_t ahead = room->used;

	*count = 0;
	vring_frame_clear(frame);
	while (frame->length < need) {
		const uint32_t before = frame->length;
		struct target *target = &targets[*count];

		if (*count > 0 && !to->mergeable)
			goto too_small;
		/* Not even the whole ring would do. */
		if (*count == VRING_PIECES || ahead - room->used == to->size)
			goto too_small;
		/* A packed ring has no more completions to give before it is published. */
		if (ahead >= room->end || to->nb_done + *count >= VRING_DONE)
			return VRING_STEP_BLOCKED;
		switch (vring_walk(to, ahead, true, frame, &target->chain)) {
		case VRING_WALK_FAULT:
			return VRING_STEP_FAULT;
		case VRING_WALK_FRAGMENTED:
			/* What was found may do: a receiver may offer far more than a frame needs. */
			if (frame->length < need)
				goto too_small;
			break;
		case VRING_WALK_DONE:
			break;
		}
		if (frame->length == before) {
			vring_quarantine(to, VRING_FAULT_empty_buffer);
			return VRING_STEP_FAULT;
		}
		target->capacity = frame->length - before;
		if (*count == 0 && target->capacity < to->header) {
			vring_quarantine(to, VRING_FAULT_no_header);
			return VRING_STEP_FAULT;
		}
		ahead += target->chain.slots;
		++*count;
	}
	return VRING_STEP_MOVED;

too_small:
	to->counters->drop_receiver_too_small++;
	return VRING_STEP_DROPPED;
}

/* Note for a migration that the first `length` bytes of the frame's buffers have been written. */
static void note_written(const struct virtqueue *to, const struct vring_frame *frame, uint32_t length)
{
	for (const struct vring_piece *piece = frame->pieces; length > 0; piece++) {
		const uint32_t step = RTE_MIN(length, piece->length);

		dirty_note_at(&to->log, to->memory, piece->at, step);
		length -= step;
	}
}

enum vring_step vring_enqueue_frame(struct virtqueue *to, struct vring_room *room, const struct vring_piece *pieces,
				    uint32_t length, const struct virtio_net_hdr *offload)
{
	const uint32_t need = to->header + length;
	struct target targets[VRING_PIECES];
	struct vring_frame frame;
	unsigned count;
	enum vring_step step = collect(to, room, need, &frame, targets, &count);

	if (step != VRING_STEP_MOVED)
		return step;

	struct virtio_net_hdr_mrg_rxbuf header = {.hdr = *offload, .num_buffers = count};
	struct vring_piece header_piece = {(uint8_t *)&header, to->header};
	struct frame_cursor header_source = {&header_piece, 0}, source = {pieces, 0}, sink = {frame.pieces, 0};
	const unsigned first = to->nb_done;
	uint32_t left = need;

	cursor_copy(&sink, &header_source, to->header);
	cursor_copy(&sink, &source, length);
	if (unlikely(to->log.bits != NULL))
		note_written(to, &frame, need);
	for (unsigned i = 0; i < count; i++) {
		uint32_t written = RTE_MIN(left, targets[i].capacity);

		vring_complete(to, to->packed, room->used, targets[i].chain.id, written);
		room->used += targets[i].chain.slots;
		left -= written;
	}
	if (to->packed)
		to->done[first].more = count - 1;
	return VRING_STEP_MOVED;
}
