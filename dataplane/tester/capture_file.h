/* SPDX-License-Identifier: Apache-2.0
 *
 * A capture file, frame by frame: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng) in either byte
 * order, with several sections and interfaces.  Whoever wrote the file is not trusted: every length is checked before
 * use, and memory is bounded.  Not for several threads at once.
 */
#ifndef TAILRACE_TESTER_CAPTURE_FILE_H
#define TAILRACE_TESTER_CAPTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CAPTURE_ETHERNET = 1, /* link type */
	CAPTURE_ERROR = 768,  /* room for what is wrong with a file, its path included */
};

struct capture_interface {
	uint16_t link;
	uint16_t fcs;	  /* bytes of frame check sequence at the end of each frame */
	uint32_t longest; /* bytes that were kept of a frame at most; 0: no limit */
};

struct capture_file {
	const char *path;
	int descriptor;
	uint64_t size, at; /* bytes; the next record or block */
	uint8_t *window;   /* a part of the file */
	uint64_t window_at;
	size_t window_size;
	bool blocks;			      /* pcapng */
	bool swapped;			      /* numbers are in the other byte order */
	uint32_t before;		      /* bytes before a record's frame, of pcap */
	uint32_t frames;		      /* that were read */
	uint32_t nb_interfaces, room;	      /* of the section */
	struct capture_interface *interfaces; /* of pcap: one */
};

struct captured {
	const uint8_t *bytes; /* without the FCS; until the next call */
	uint32_t kept;	      /* bytes that there are */
	uint32_t length;      /* ... and that the frame had */
	uint16_t link;
};

/* Returns 0, or -1 with the reason in `error`, which has CAPTURE_ERROR bytes.  The path must outlive the file. */
int capture_file_open(struct capture_file *file, const char *path, char *error);

/* The next frame.  Returns 1; 0 after the last one; or -1 with the reason in `error`. */
int capture_file_next(struct capture_file *file, struct captured *frame, char *error);

void capture_file_close(struct capture_file *file);

#endif
