/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>

#include "capture.h"

/* Memory that grows as a capture is read. */
struct growing {
	struct capture *capture;
	const char *path;
	char *error;
	size_t used, room;
	uint32_t slots;
};

static int out_of_memory(const struct growing *growing)
{
	snprintf(growing->error, CAPTURE_ERROR, "%.400s: out of memory at frame %u", growing->path,
		 growing->capture->nb_frames + 1);
	return -1;
}

/* Room for one more frame of at most `length` bytes.  Returns 0 or -1. */
static int reserve(struct growing *growing, size_t length)
{
	struct capture *capture = growing->capture;

	if (growing->used + length > growing->room) {
		size_t wanted = growing->room ? growing->room * 2 : 1 << 17;
		uint8_t *bytes = realloc(capture->bytes, wanted);

		if (bytes == NULL)
			return out_of_memory(growing);
		capture->bytes = bytes;
		growing->room = wanted;
	}
	if (capture->nb_frames == growing->slots) {
		uint32_t wanted = growing->slots ? growing->slots * 2 : 1024;
		struct capture_frame *frames = realloc(capture->frames, wanted * sizeof(*frames));

		if (frames == NULL)
			return out_of_memory(growing);
		capture->frames = frames;
		growing->slots = wanted;
	}
	return 0;
}

/* What a link type that is no Ethernet is of, as far as it is met often. */
static const char *link_name(unsigned link)
{
	switch (link) {
	case 101:
		return " (raw IP)";
	case 105:
	case 127:
		return " (IEEE 802.11)";
	case 113:
	case 276:
		return " (Linux cooked, as `tcpdump -i any` has it)";
	default:
		return "";
	}
}

static int refuse(const struct growing *growing, const struct captured *found, uint16_t longest)
{
	const uint32_t number = growing->capture->nb_frames + 1;
	char *error = growing->error;

	if (found->link != CAPTURE_ETHERNET)
		snprintf(error, CAPTURE_ERROR,
			 "%.400s: frame %u is of link type %u%s; expected Ethernet frames alone (link type 1)",
			 growing->path, number, found->link, link_name(found->link));
	else if (found->kept < found->length)
		snprintf(error, CAPTURE_ERROR,
			 "%.400s: frame %u was cut to %u of %u bytes when it was captured; expected whole frames "
			 "(`tcpdump -s 0`)",
			 growing->path, number, found->kept, found->length);
	else
		snprintf(error, CAPTURE_ERROR, "%.400s: frame %u has %u bytes, and the ports take at most %u",
			 growing->path, number, found->kept, longest);
	return -1;
}

/* Bytes behind the Ethernet header and a VLAN tag: what an MTU bounds. */
static uint16_t payload_of(const uint8_t *bytes, uint16_t length)
{
	const uint16_t type = (uint16_t)(bytes[12] << 8 | bytes[13]);

	return length - RTE_ETHER_HDR_LEN - (type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ ? 4 : 0);
}

static void count(struct capture *capture, int changes, const struct capture_frame *frame)
{
	const uint16_t payload = payload_of(capture->bytes + frame->start, frame->length);

	capture->nb_frames++;
	capture->padded += (changes & CAPTURE_PADDED) != 0;
	capture->grown += (changes & CAPTURE_GROWN) != 0;
	capture->cut += (changes & CAPTURE_CUT) != 0;
	if (frame->length > capture->longest)
		capture->longest = frame->length;
	if (payload > capture->most_payload) {
		capture->most_number = capture->nb_frames;
		capture->most_length = frame->length;
		capture->most_payload = payload;
	}
}

/* Takes one frame in.  Returns 0 or -1. */
static int take(struct growing *growing, const struct captured *found, uint16_t longest)
{
	struct capture *capture = growing->capture;
	struct capture_frame frame;
	int changes;

	if (found->link != CAPTURE_ETHERNET || found->kept < found->length || found->kept > longest)
		return refuse(growing, found, longest);
	if (reserve(growing, (found->kept > CAPTURE_SHORTEST ? found->kept : CAPTURE_SHORTEST) + CAPTURE_GROWTH) != 0)
		return -1;
	changes = capture_frame_make(found->bytes, (uint16_t)found->kept, capture->bytes + growing->used, &frame);
	if (changes < 0) {
		snprintf(growing->error, CAPTURE_ERROR,
			 "%.400s: frame %u is a fragment with less than %d bytes, and no place for the tester's "
			 "signature; expected a capture without it (`editcap %.200s OUT %u`)",
			 growing->path, capture->nb_frames + 1, SIGNATURE_SIZE, growing->path, capture->nb_frames + 1);
		return -1;
	}
	if (frame.length > longest)
		return refuse(growing, &(struct captured){.link = CAPTURE_ETHERNET, .kept = frame.length}, longest);
	frame.start = growing->used;
	growing->used += frame.length;
	if (growing->used > CAPTURE_BYTES) {
		snprintf(growing->error, CAPTURE_ERROR,
			 "%.400s: larger than %u MiB; expected a part of it (`editcap -r %.200s OUT 1-%u`)",
			 growing->path, CAPTURE_BYTES >> 20, growing->path, capture->nb_frames);
		return -1;
	}
	capture->frames[capture->nb_frames] = frame;
	count(capture, changes, &frame);
	return 0;
}

struct capture *capture_open(const char *path, uint16_t longest, char *error)
{
	struct growing growing = {.capture = calloc(1, sizeof(*growing.capture)), .path = path, .error = error};
	struct captured found;
	struct capture_file file;
	int rc;

	if (growing.capture == NULL) {
		snprintf(error, CAPTURE_ERROR, "%.400s: out of memory", path);
		return NULL;
	}
	rc = capture_file_open(&file, path, error);
	if (rc == 0) {
		while ((rc = capture_file_next(&file, &found, error)) == 1)
			if (take(&growing, &found, longest) != 0) {
				rc = -1;
				break;
			}
		capture_file_close(&file);
		if (rc == 0 && growing.capture->nb_frames == 0) {
			snprintf(error, CAPTURE_ERROR, "%.400s: there is no frame in it; expected at least one", path);
			rc = -1;
		}
	}
	if (rc == 0)
		return growing.capture;
	capture_close(growing.capture);
	return NULL;
}

void capture_close(struct capture *capture)
{
	if (capture == NULL)
		return;
	free(capture->bytes);
	free(capture->frames);
	free(capture);
}

json_t *capture_describe(const struct capture *capture)
{
	const struct capture_frame *last = &capture->frames[capture->nb_frames - 1];
	const uint64_t bytes = last->start + last->length + (uint64_t)capture->nb_frames * RTE_ETHER_CRC_LEN;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}", "frames", (json_int_t)capture->nb_frames, "bytes",
			 (json_int_t)bytes, "padded", (json_int_t)capture->padded, "grown", (json_int_t)capture->grown,
			 "cut", (json_int_t)capture->cut, "number", (json_int_t)capture->most_number, "length",
			 (int)capture->most_length, "payload", (int)capture->most_payload);
}
