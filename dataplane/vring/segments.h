/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting a long TCP segment into frames, one after the other, with no copy: a header of its own for each, and the
 * payload where it lies.
 *
 *     segments_begin(&cut, packet);
 *     while ((count = segments_next(&cut)) > 0)
 *             ... cut.pieces[0..count) is a frame of cut.length bytes, with every checksum right ...
 */
#ifndef TAILRACE_VRING_SEGMENTS_H
#define TAILRACE_VRING_SEGMENTS_H

#include "vring/frame.h"

struct segments {
	uint32_t count;	 /* of all frames */
	uint32_t length; /* bytes of the frame that was cut last */
	struct vring_piece pieces[SEGMENT_PIECES];

	/* Its own. */
	uint32_t next;
	const struct packet *packet;
	const uint8_t *head;
	struct frame_cursor payload;
	uint8_t room[OFFLOAD_HEADERS + PACKET_ROOM], header[OFFLOAD_HEADERS + PACKET_ROOM];
};

/* The packet's header was checked, and says that it is a long segment.  packet->pieces[0] is the head. */
void segments_begin(struct segments *segments, const struct packet *packet);

/* Cut the next frame.  Returns its pieces; 0 when there is none left. */
unsigned segments_next(struct segments *segments);

#endif
