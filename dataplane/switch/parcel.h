/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as text, on their way from one switch to another: each a struct virtio_net_hdr and the frame, in base64.
 * What comes from the other switch is as little trusted as what a guest sends.
 */
#ifndef TAILRACE_SWITCH_PARCEL_H
#define TAILRACE_SWITCH_PARCEL_H

#include "common/control.h"
#include "vring/packet.h"

enum {
	PARCEL_FRAMES = 1 << 15, /* of one request */
	PARCEL_LONGEST = (int)VRING_FRAME_MAX +
			 PACKET_ROOM, /* of a frame: the longest that comes, and tags before it */
};

/* The packet as text.  NULL: it is longer than any, or there is no memory. */
json_t *parcel_text(const struct packet *packet);

/* Frames that are read from a request: all of them in one piece of memory. */
struct parcel {
	unsigned count;
	unsigned refused; /* others, whose network header contradicts the frame */
	struct packet *packets;
	struct vring_piece *pieces; /* two for each */
	uint8_t *bytes;
};

/*
 * Read what somebody says to be frames.  Returns whether each has the form of one, or false with the error filled in.
 * parcel_free() must follow, also then.
 */
bool parcel_read(struct parcel *parcel, json_t *frames, struct control_error *error);
void parcel_free(struct parcel *parcel);

#endif
