/* SPDX-License-Identifier: Apache-2.0
 *
 * The one-copy hop.  No packet buffer, no second copy, and not one byte of the frame's headers is looked at.
 * A sender that negotiated no offload sends network headers that are all zeros by the specification (5.1.6.2), so
 * its header is not read either: not touching its cache line saves a miss for each frame.
 *
 * There is one text of the hop, and a function for each combination of layouts and of senders with and without
 * offloads is made from it.
 */
#include "vring/hop.h"
#include "vring/burst.h"
#include "vring/frame.h"

enum { LONG_FRAME = 512 };

/* What is known about the rings when the function is compiled. */
struct kind {
	bool from_packed;
	bool to_packed;
	bool offloads; /* the sender's headers are read */
	bool runs;     /* no write has to be logged, so plain frames may be moved many at a time */
};

/*
 * The network header of a plain frame with something left to do, if the receiver takes it as it is: a checksum.
 * Returns false for any other, which takes packet_enqueue().
 */
static bool pass_header(const struct virtqueue *to, const struct virtio_net_hdr *offload, uint32_t length, uint8_t *at)
{
	const struct virtio_net_hdr passed = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.csum_start = offload->csum_start,
		.csum_offset = offload->csum_offset,
	};

	/* Where the sum belongs is between the two guests: nothing was decided by these bytes, and nobody here writes.
	 */
	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE || !(to->offloads & OFFLOAD_CHECKSUM) ||
	    offload->csum_start < VRING_FRAME_MIN ||
	    (uint32_t)offload->csum_start + offload->csum_offset + sizeof(uint16_t) > length)
		return false;
	vring_write_offload(at, to->header, &passed);
	return true;
}

/*
 * Complete the checksum of a frame in the receiver's buffer, by the rules that hold for any frame.  The receiver may
 * change it meanwhile, which harms nobody else.  Returns false, and has done nothing, where they do not hold.
 */
static bool finish_checksum(const struct virtqueue *from, struct virtio_net_hdr offload, uint8_t *at, uint32_t length)
{
	const struct vring_piece whole = {at, length};

	return offload_check(&offload, from->offloads, at, RTE_MIN(length, (uint32_t)OFFLOAD_STEERED), length) &&
	       offload_checksum(&offload, &whole, 1);
}

/*
 * Ask for the rest of a long frame and of the buffer that it goes to (their first lines were asked for when they were
 * gathered) while the frame before it is copied.  Left to itself the core runs into the ring's work between two frames
 * before it reaches the next one's lines, and the misses of one frame do not overlap those of the other.
 */
static __rte_always_inline void prefetch_rest(const struct vring_buffer *source, const struct vring_buffer *target)
{
	const uint32_t length = RTE_MIN(source->length, target->length);

	if (length <= LONG_FRAME)
		return;
#pragma GCC unroll 4
	for (uint32_t at = RTE_CACHE_LINE_SIZE; at < length; at += RTE_CACHE_LINE_SIZE) {
		rte_prefetch0(source->at + at);
		__builtin_prefetch(target->at + at, 1);
	}
}

/* Plain frames of the sender, and plain buffers of the receiver. */
struct runs {
	struct vring_run sources, targets;
};

/* Move plain frames.  Returns how many; the next frame or buffer, if any, is not plain. */
static __rte_always_inline unsigned move_run(struct virtqueue *from, uint16_t from_ahead, struct virtqueue *to,
					     uint16_t to_ahead, unsigned count, const struct kind kind,
					     struct runs *runs, uint64_t *bytes)
{
	const struct vring_buffer *sources, *targets;
	const uint32_t from_header = from->header, to_header = to->header;
	const bool in_order = from->in_order;
	uint64_t copied = 0;
	unsigned i;

	if (kind.to_packed && count > (unsigned)VRING_DONE - to->nb_done)
		count = VRING_DONE - to->nb_done;
	count = vring_run(from, kind.from_packed, false, &runs->sources, from_ahead, count, &sources);
	if (kind.offloads)
		for (i = 0; i < count; i++)
			rte_prefetch0(sources[i].at);
	count = vring_run(to, kind.to_packed, true, &runs->targets, to_ahead, count, &targets);
	/* While the frames are on their way: what the last burst stored has long left this core. */
	vring_notify(from, to);
	for (i = 0; i < count; i++) {
		const uint32_t length = sources[i].length - from_header;
		struct virtio_net_hdr offload;
		bool finish = false;

		if (unlikely(targets[i].length < to_header + length))
			break;
		if (kind.offloads) {
			offload = vring_read_offload(sources[i].at);
			finish = (offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && !(to->offloads & OFFLOAD_CHECKSUM);
			if (offload.gso_type == VIRTIO_NET_HDR_GSO_NONE &&
			    (finish || !(offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)))
				vring_write_header(targets[i].at, to_header);
			else if (!(from->offloads & OFFLOAD_CHECKSUM) ||
				 !pass_header(to, &offload, length, targets[i].at))
				break;
		} else {
			vring_write_header(targets[i].at, to_header);
		}
		if (i + 1 < count)
			prefetch_rest(&sources[i + 1], &targets[i + 1]);
		copy_frame(targets[i].at + to_header, sources[i].at + from_header, length);
		if (finish && unlikely(!finish_checksum(from, offload, targets[i].at + to_header, length)))
			break;
		copied += length;
	}
	*bytes += copied;
	/* Apart from the copies: what they write might be a ring for all that the compiler knows, to be read again. */
	vring_complete_run(to, kind.to_packed, to_ahead, targets, sources, to_header - from_header, i);
	if (!in_order)
		vring_complete_run(from, kind.from_packed, from_ahead, sources, NULL, 0, i);
	else if (i > 0)
		vring_complete_sent(from, kind.from_packed, from_ahead + i - 1, sources[i - 1].id);
	return i;
}

/* What receivers got. */
struct moved {
	unsigned frames;
	uint64_t bytes;
	uint64_t repeated; /* of those: headers that a long segment had once, and each of its parts has */
};

/* Give a frame with its sender's header, doing what the receiver does not. */
static enum vring_step give_offloaded(struct virtqueue *from, struct virtqueue *to, struct vring_room *room,
				      struct vring_frame *frame, struct moved *moved)
{
	struct vring_piece pieces[PACKET_PIECES];
	struct packet packet = {.pieces = pieces};
	const uint64_t before = moved->bytes;
	enum vring_step step;
	uint32_t length;

	if (!packet_of_frame(&packet, from, frame))
		return VRING_STEP_DROPPED;
	length = packet.length;
	step = packet_enqueue(to, room, &packet, &moved->frames, &moved->bytes);
	if (step == VRING_STEP_MOVED)
		moved->repeated += moved->bytes - before - length;
	return step;
}

/*
 * Move one frame of any shape.  What it cost is added to `*work`, moved or not.
 */
static enum vring_step move_one(struct virtqueue *from, uint16_t *from_ahead, struct virtqueue *to,
				struct vring_room *room, struct moved *moved, uint32_t *work)
{
	static const struct virtio_net_hdr nothing;
	const uint32_t before = from->work + to->work;
	struct vring_frame frame;
	struct vring_chain chain;
	enum vring_step step;

	step = vring_take_frame(from, *from_ahead, &chain, &frame);
	if (step == VRING_STEP_MOVED) {
		vring_spend(from, frame.length);
		if (from->offloads != 0) {
			step = give_offloaded(from, to, room, &frame, moved);
		} else {
			vring_frame_skip(&frame, from->header);
			step = vring_enqueue_frame(to, room, frame.pieces, frame.length, &nothing);
			if (step == VRING_STEP_MOVED) {
				moved->frames++;
				moved->bytes += frame.length;
			}
		}
	}
	if (step == VRING_STEP_MOVED || step == VRING_STEP_DROPPED) {
		vring_complete_sent(from, from->packed, *from_ahead, chain.id);
		*from_ahead += chain.slots;
	}
	*work += from->work + to->work - before;
	return step;
}

static __rte_always_inline unsigned hop(struct virtqueue *from, struct virtqueue *to, const struct kind kind)
{
	uint16_t ready = vring_available_in(from, kind.from_packed, VRING_BURST), ahead = 0;
	struct vring_room room = {0};
	unsigned taken = 0, dropped = 0;
	const uint32_t pages = vring_pages_made;
	struct moved moved = {0};
	struct runs runs;
	uint32_t work = 0;

	runs.sources.end = runs.targets.end = 0;
	if (ready == 0) {
		vring_notify(from, to);
		return 0;
	}
	if (ready > VRING_BURST)
		ready = VRING_BURST;
	/* The sender read it when it sent, and the completion is shown to it before the frame is to the receiver. */
	if (!kind.from_packed && ready < VRING_BURST / 4)
		__builtin_prefetch(&from->used->idx, 1);
	room.end = vring_available_in(to, kind.to_packed, ready);
	vring_prefetch(from, kind.from_packed, ready, from->in_order ? 1 : ready);
	vring_prefetch(to, kind.to_packed, RTE_MIN(ready, room.end), RTE_MIN(ready, room.end));
	while (ahead < ready && room.used < room.end && work + vring_work_of_pages(pages) < VRING_WORK) {
		enum vring_step step;

		if (kind.runs) {
			unsigned run = move_run(from, ahead, to, room.used,
						RTE_MIN(ready - ahead, room.end - room.used), kind, &runs,
						&moved.bytes);

			taken += run;
			moved.frames += run;
			ahead += run;
			room.used += run;
			if (ahead >= ready || room.used >= room.end)
				break;
		}
		step = move_one(from, &ahead, to, &room, &moved, &work);
		if (step == VRING_STEP_BLOCKED && vring_more_room(to, &room))
			continue;
		if (step == VRING_STEP_BLOCKED || step == VRING_STEP_FAULT)
			break;
		taken++;
		dropped += step == VRING_STEP_DROPPED;
	}
	vring_notify(from, to);
	to->counters->sent_packets += moved.frames;
	to->counters->sent_bytes += moved.bytes;
	to->pending = room.used;
	from->counters->received_packets += taken;
	from->counters->received_bytes += moved.bytes - moved.repeated;
	from->pending = ahead;
	from->dropped = dropped;
	if (room.used > 0) {
		to->expected = 0;
		to->last = RTE_MIN(room.used, VRING_BURST);
	}
	/*
	 * The sender's first.  The rings are all that survives a switch that is killed, and the next one goes on where
	 * they stand: killed between the two it has lost the burst.  The other way round the receiver would have seen
	 * frames that are still with the sender, and would get them again.
	 */
	vring_publish(from);
	vring_publish(to);
	return taken;
}

#define HOP(name, ...)                                                                \
	static unsigned hop_##name(struct virtqueue *from, struct virtqueue *to)      \
	{                                                                             \
		return hop(from, to, (const struct kind){.runs = true, __VA_ARGS__}); \
	}

HOP(split_to_packed, .to_packed = true)
HOP(packed_to_split, .from_packed = true)
HOP(packed_to_packed, .from_packed = true, .to_packed = true)
HOP(offloads_split_to_split, .offloads = true)
HOP(offloads_split_to_packed, .to_packed = true, .offloads = true)
HOP(offloads_packed_to_split, .from_packed = true, .offloads = true)
HOP(offloads_packed_to_packed, .from_packed = true, .to_packed = true, .offloads = true)

static unsigned hop_logged(struct virtqueue *from, struct virtqueue *to)
{
	return hop(from, to, (const struct kind){.from_packed = from->packed, .to_packed = to->packed});
}

static unsigned hop_special(struct virtqueue *from, struct virtqueue *to)
{
	const bool to_packed = to->traits & VRING_PACKED;

	if ((from->traits | to->traits) & VRING_LOGGED)
		return hop_logged(from, to);
	switch (from->traits & (VRING_PACKED | VRING_OFFLOADS)) {
	case VRING_PACKED:
		return to_packed ? hop_packed_to_packed(from, to) : hop_packed_to_split(from, to);
	case VRING_OFFLOADS:
		return to_packed ? hop_offloads_split_to_packed(from, to) : hop_offloads_split_to_split(from, to);
	case VRING_PACKED | VRING_OFFLOADS:
		return to_packed ? hop_offloads_packed_to_packed(from, to) : hop_offloads_packed_to_split(from, to);
	default:
		return hop_split_to_packed(from, to);
	}
}

unsigned vring_hop(struct virtqueue *from, struct virtqueue *to)
{
	/* A receiver's own offloads matter only when a sender asks for some. */
	if (unlikely(from->traits != 0 || (to->traits & ~VRING_OFFLOADS) != 0))
		return hop_special(from, to);
	return hop(from, to, (const struct kind){.runs = true});
}

static __rte_always_inline void expect(struct virtqueue *to, const bool packed)
{
	struct vring_buffer buffers[VRING_BURST];
	const unsigned count = RTE_MIN(vring_available_in(to, packed, to->last), to->last);

	if (count == 0)
		return;
	if (to->expected++ > 0) {
		vring_gather(to, packed, true, 0, count, buffers);
	} else if (packed) {
		/* The descriptors have just been read, and each will be written to. */
		for (unsigned i = 0; i < count; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_packed_desc)) {
			bool wrap;

			__builtin_prefetch(vring_packed_slot(to, i, &wrap), 1);
		}
	} else {
		vring_prefetch(to, false, count, count);
	}
}

void vring_expect_now(struct virtqueue *to)
{
	if (to->packed)
		expect(to, true);
	else
		expect(to, false);
}
