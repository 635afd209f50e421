/* SPDX-License-Identifier: Apache-2.0
 *
 * A captured frame, made ready to be sent with a signature.
 *
 * A device that forwards IP sends the datagram on and nothing else of the frame: padding and whatever lies behind it
 * are gone (RFC 894; RFC 1812, 3.3.2).  So the signature is the last 18 bytes of the datagram, behind the transport
 * header, and a datagram that has less there is made longer.  Checksums hold afterwards, as a firewall may ask for
 * that. A frame of anything else than IP is signed in its last 18 bytes: who forwards it keeps all of it.  Pure.
 */
#ifndef TAILRACE_TESTER_CAPTURE_FRAME_H
#define TAILRACE_TESTER_CAPTURE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/signature.h"

enum {
	CAPTURE_SHORTEST = 60,		 /* bytes without FCS */
	CAPTURE_GROWTH = SIGNATURE_SIZE, /* bytes that a frame may become longer by, beyond the shortest */
};

struct capture_frame {
	uint64_t start;	       /* where its bytes are */
	uint32_t checksum;     /* sum of what the transport checksum is of, with zeros for itself and the signature */
	uint16_t length;       /* bytes without FCS */
	uint16_t signature_at; /* offset of the signature */
	uint16_t checksum_at;  /* offset of the transport checksum; 0: there is none to be kept right */
	bool odd;	       /* the signature begins at the second byte of a word of the sum */
	bool udp;	       /* a checksum of zero would be none */
};

enum capture_change {
	CAPTURE_AS_IT_WAS = 0,
	CAPTURE_PADDED = 1, /* shorter than Ethernet has: zeros follow */
	CAPTURE_GROWN = 2,  /* its datagram is longer, for the signature */
	CAPTURE_CUT = 4,    /* what lay behind its datagram is not sent */
};

/*
 * Write what is to be sent for a frame to `to`, which has room for the larger of CAPTURE_SHORTEST and `length` +
 * CAPTURE_GROWTH bytes.  `length` is at most UINT16_MAX - CAPTURE_GROWTH.  Returns what was changed (bits of enum
 * capture_change), or -1 if the frame has no place for a signature: a fragment in the middle with less than 18 bytes.
 */
int capture_frame_make(const uint8_t *bytes, uint16_t length, uint8_t *to, struct capture_frame *frame);

/*
 * Where the datagram in a frame ends: `length` if it is none of IP, or contradicts itself.  Looks at the first bytes
 * only; a device may have added tags, padding or a trailer.
 */
uint16_t capture_datagram_end(const uint8_t *bytes, uint16_t length);

/* Sign a frame of a capture, and keep its checksum right. */
static inline void capture_frame_sign(const struct capture_frame *frame, uint8_t *bytes, uint32_t key, uint16_t stream,
				      uint64_t sequence, uint64_t time)
{
	uint8_t *at = bytes + frame->signature_at;
	uint32_t sum = 0, all;
	uint16_t checksum;

	signature_write(at, key, stream, sequence, time);
	if (frame->checksum_at == 0)
		return;
	for (int i = 0; i < SIGNATURE_SIZE; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (frame->odd)
		sum = (sum & 0xff) << 8 | sum >> 8;
	all = frame->checksum + sum;
	all = (all & 0xffff) + (all >> 16);
	all = (all & 0xffff) + (all >> 16);
	checksum = (uint16_t)~all;
	if (checksum == 0 && frame->udp)
		checksum = 0xffff;
	bytes[frame->checksum_at] = (uint8_t)(checksum >> 8);
	bytes[frame->checksum_at + 1] = (uint8_t)checksum;
}

#endif
