/* SPDX-License-Identifier: Apache-2.0
 *
 * A capture file (pcap or pcapng) as traffic: every frame, in order, held in memory.
 */
#ifndef TAILRACE_TESTER_CAPTURE_H
#define TAILRACE_TESTER_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

enum {
	CAPTURE_BYTES = 1 << 30, /* the most that is read */
};

struct capture {
	uint8_t *bytes;	    /* the frames, one after the other, each padded to 60 bytes */
	size_t *starts;	    /* nb_frames + 1 offsets */
	uint32_t nb_frames; /* at least 1 */
	uint16_t longest;   /* bytes, without FCS */
};

/*
 * Read a capture of Ethernet frames of at most `longest` bytes (without FCS).
 * Returns NULL after writing what is wrong and what to do to `error`.
 */
struct capture *capture_open(const char *path, uint16_t longest, char *error, size_t size);
void capture_close(struct capture *capture);

#endif
