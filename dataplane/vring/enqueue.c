/* SPDX-License-Identifier: Apache-2.0
 *
 * Enqueue a packet to its receiver: what the sender left to be done is passed on, or done here.
 */
#include "vring/segments.h"

/* Cut a long segment into frames, all of them or none. */
static enum vring_step enqueue_segments(struct virtqueue *to, struct vring_room *room, const struct packet *packet,
					unsigned *frames, uint64_t *bytes)
{
	static const struct virtio_net_hdr nothing;
	const struct vring_room before = *room;
	const uint16_t done_before = to->nb_done;
	struct segments cut;
	uint64_t sum = 0;

	segments_begin(&cut, packet);
	if (cut.count > OFFLOAD_SEGMENTS || cut.count > to->size) {
		to->counters->drop_receiver_too_small++;
		return VRING_STEP_DROPPED;
	}
	if ((uint32_t)(room->end - room->used) < cut.count)
		return VRING_STEP_BLOCKED;
	while (segments_next(&cut) > 0) {
		enum vring_step step = vring_enqueue_frame(to, room, cut.pieces, cut.length, &nothing);

		if (step != VRING_STEP_MOVED) {
			*room = (struct vring_room){.used = before.used, .end = room->end};
			to->nb_done = done_before;
			return step;
		}
		sum += cut.length;
	}
	*frames += cut.count;
	*bytes += sum;
	return VRING_STEP_MOVED;
}

const struct virtio_net_hdr *packet_header(const struct virtqueue *to, struct packet *packet)
{
	static const struct virtio_net_hdr nothing;
	const struct virtio_net_hdr *offload = &packet->offload;

	packet->pieces[0] = (struct vring_piece){packet->head, packet->head_length};
	/* What a device says about a checksum that it has verified is for those who asked for such words. */
	if (!offload_wanted(offload))
		return to->offloads & OFFLOAD_CHECKSUM ? offload : &nothing;
	if (offload_taken(offload, to->offloads))
		return offload;
	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return NULL;
	offload_checksum(offload, packet->pieces, packet->nb_pieces);
	packet->offload = nothing;
	return &nothing;
}

enum vring_step packet_enqueue(struct virtqueue *to, struct vring_room *room, struct packet *packet, unsigned *frames,
			       uint64_t *bytes)
{
	const struct virtio_net_hdr *offload = packet_header(to, packet);
	enum vring_step step;

	if (offload == NULL) {
		step = enqueue_segments(to, room, packet, frames, bytes);
		packet->delivered |= step == VRING_STEP_MOVED;
		return step;
	}
	step = vring_enqueue_frame(to, room, packet->pieces, packet->length, offload);
	if (step == VRING_STEP_MOVED) {
		packet->delivered = true;
		++*frames;
		*bytes += packet->length;
	}
	return step;
}
