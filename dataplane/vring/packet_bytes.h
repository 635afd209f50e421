/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a packet that may lie in its private head, in pieces of memory behind it, or in both.
 */
#ifndef TAILRACE_VRING_PACKET_BYTES_H
#define TAILRACE_VRING_PACKET_BYTES_H

#include "common/copy.h"
#include "vring/packet.h"

/* Copy `length` bytes from `offset` on; the packet is so long. */
static inline void packet_copy(const struct packet *packet, uint32_t offset, uint32_t length, uint8_t *to)
{
	const struct vring_piece head = {packet->head, packet->head_length};

	for (unsigned i = 0; length > 0 && i < packet->nb_pieces; i++) {
		const struct vring_piece *piece = i == 0 ? &head : &packet->pieces[i];
		uint32_t part;

		if (offset >= piece->length) {
			offset -= piece->length;
			continue;
		}
		part = RTE_MIN(length, piece->length - offset);
		copy_frame(to, piece->at + offset, part);
		to += part;
		length -= part;
		offset = 0;
	}
}

/* Where they lie, or `room` with a copy of them if they are not in one place that nobody else can change. */
static inline const uint8_t *packet_bytes(const struct packet *packet, uint32_t offset, uint32_t length, uint8_t *room)
{
	if (offset + length <= packet->head_length)
		return packet->head + offset;
	packet_copy(packet, offset, length, room);
	return room;
}

#endif
