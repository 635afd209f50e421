/* SPDX-License-Identifier: Apache-2.0
 *
 * A capture file (pcap or pcapng) as traffic: every frame, in order, held in memory as it is sent.
 */
#ifndef TAILRACE_TESTER_CAPTURE_H
#define TAILRACE_TESTER_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "capture_file.h"
#include "capture_frame.h"

enum {
	CAPTURE_BYTES = 1 << 30, /* the most that is read */
	CAPTURE_LONGEST = UINT16_MAX - CAPTURE_GROWTH,
};

struct capture {
	uint8_t *bytes; /* the frames, one after the other */
	struct capture_frame *frames;
	uint32_t nb_frames; /* at least 1 */
	uint16_t longest;   /* bytes, without FCS */

	/* How many frames are not as they were captured. */
	uint32_t padded, grown, cut;
	/* The frame with the longest payload, from 1, its bytes, and those behind the Ethernet header and a VLAN tag.
	 */
	uint32_t most_number;
	uint16_t most_length, most_payload;
};

/*
 * Read a capture of Ethernet frames that take at most `longest` bytes (without FCS) when they are sent.  Returns NULL
 * after writing what is wrong and what to do to `error`, which has CAPTURE_ERROR bytes.
 */
struct capture *capture_open(const char *path, uint16_t longest, char *error);
void capture_close(struct capture *capture);

/*
 * For who wants to know what would be sent: frames, bytes (with FCS) of all, padded, grown, cut, and of the frame with
 * the longest payload `number`, `length` and `payload`.  A new reference.
 */
json_t *capture_describe(const struct capture *capture);

#endif
