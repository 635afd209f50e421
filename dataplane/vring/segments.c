/* SPDX-License-Identifier: Apache-2.0 */
#include "vring/segments.h"
#include "vring/packet_bytes.h"

void segments_begin(struct segments *segments, const struct packet *packet)
{
	const struct virtio_net_hdr *offload = &packet->offload;

	segments->packet = packet;
	segments->count = offload_segments(offload, packet->length);
	segments->next = 0;
	segments->head = packet_bytes(packet, 0, offload->hdr_len, segments->room);
	segments->payload = (struct frame_cursor){packet->pieces, 0};
	frame_slice(&segments->payload, offload->hdr_len, segments->pieces);
}

unsigned segments_next(struct segments *segments)
{
	const struct packet *packet = segments->packet;
	const struct virtio_net_hdr *offload = &packet->offload;
	uint32_t payload;
	unsigned count;

	if (segments->next == segments->count)
		return 0;
	payload = offload_segment(offload, segments->head, packet->length, segments->next++, segments->header);
	count = 1 + frame_slice(&segments->payload, payload, segments->pieces + 1);
	segments->length = offload->hdr_len + payload;
	segments->pieces[0] = (struct vring_piece){segments->header, offload->hdr_len};
	offload_segment_checksum(offload, packet->length, segments->pieces, count);
	return count;
}
