/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

#include "capture.h"

enum { SHORTEST = 60 };

/* Room for one more frame of `length` bytes and for its start; grows by doubling.  Returns -1 without memory. */
static int reserve(struct capture *capture, size_t length, size_t *room, uint32_t *slots)
{
	size_t used = capture->nb_frames ? capture->starts[capture->nb_frames] : 0;

	if (used + length > *room) {
		size_t wanted = *room ? *room * 2 : 1 << 16;
		uint8_t *bytes = realloc(capture->bytes, wanted);

		if (bytes == NULL)
			return -1;
		capture->bytes = bytes;
		*room = wanted;
	}
	if (capture->nb_frames + 2 > *slots) {
		uint32_t wanted = *slots ? *slots * 2 : 1024;
		size_t *starts = realloc(capture->starts, wanted * sizeof(*starts));

		if (starts == NULL)
			return -1;
		if (capture->nb_frames == 0)
			starts[0] = 0;
		capture->starts = starts;
		*slots = wanted;
	}
	return 0;
}

static int read_all(struct capture *capture, pcap_t *file, const char *path, uint16_t longest, char *error, size_t size)
{
	struct pcap_pkthdr *header;
	const u_char *data;
	size_t room = 0;
	uint32_t slots = 0;
	int rc;

	while ((rc = pcap_next_ex(file, &header, &data)) == 1) {
		uint32_t length = header->caplen < SHORTEST ? SHORTEST : header->caplen;
		uint32_t number = capture->nb_frames + 1;
		size_t start;

		if (header->caplen < header->len) {
			snprintf(error, size,
				 "%s: frame %u was cut to %u of %u bytes when it was captured; capture whole frames "
				 "(tcpdump -s 0)",
				 path, number, header->caplen, header->len);
			return -1;
		}
		if (length > longest) {
			snprintf(error, size, "%s: frame %u has %u bytes, and the ports take at most %u", path, number,
				 length, longest);
			return -1;
		}
		if (reserve(capture, length, &room, &slots) != 0) {
			snprintf(error, size, "%s: out of memory at frame %u", path, number);
			return -1;
		}
		start = capture->starts[capture->nb_frames];
		if (start + length > CAPTURE_BYTES) {
			snprintf(error, size, "%s: larger than %u MiB; use a part of it (editcap -r)", path,
				 CAPTURE_BYTES >> 20);
			return -1;
		}
		memset(capture->bytes + start, 0, length);
		memcpy(capture->bytes + start, data, header->caplen);
		capture->starts[++capture->nb_frames] = start + length;
		if (length > capture->longest)
			capture->longest = (uint16_t)length;
	}
	if (rc == PCAP_ERROR) {
		snprintf(error, size,
			 "%s: after frame %u: %s; the file is damaged or was cut off: use a whole one, or what is good "
			 "of "
			 "it (editcap -r IN OUT 1-%u)",
			 path, capture->nb_frames, pcap_geterr(file), capture->nb_frames);
		return -1;
	}
	if (capture->nb_frames == 0) {
		snprintf(error, size, "%s: no frame in it", path);
		return -1;
	}
	return 0;
}

struct capture *capture_open(const char *path, uint16_t longest, char *error, size_t size)
{
	char why[PCAP_ERRBUF_SIZE];
	struct capture *capture;
	pcap_t *file = pcap_open_offline(path, why);
	int rc = -1;

	if (file == NULL) {
		/* libpcap names the path itself where it could not open it, and not where the content is wrong. */
		if (strstr(why, path) != NULL)
			snprintf(error, size, "%s", why);
		else
			snprintf(error, size, "%s: %s", path, why);
		return NULL;
	}
	capture = calloc(1, sizeof(*capture));
	if (capture == NULL)
		snprintf(error, size, "%s: out of memory", path);
	else if (pcap_datalink(file) != DLT_EN10MB)
		snprintf(error, size, "%s: link type %s; only captures of Ethernet frames can be sent", path,
			 pcap_datalink_val_to_name(pcap_datalink(file)) ?: "unknown");
	else
		rc = read_all(capture, file, path, longest, error, size);
	pcap_close(file);
	if (rc != 0) {
		capture_close(capture);
		return NULL;
	}
	return capture;
}

void capture_close(struct capture *capture)
{
	if (capture == NULL)
		return;
	free(capture->bytes);
	free(capture->starts);
	free(capture);
}
