/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture_file.h"

enum {
	WINDOW = 1 << 20,
	LONGEST = 1 << 18,	   /* bytes of a frame */
	INTERFACES_MOST = 1 << 16, /* of a section */

	PCAP_HEADER = 24,
	PCAP_RECORD = 16,
	PCAP_RECORD_MODIFIED = 24, /* of a variant with the interface's index and more in each record */

	BLOCK_HEADER = 8, /* type and length */
	BLOCK_LEAST = 12, /* with the length once more at the end */
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_PACKET = 2, /* obsolete */
	BLOCK_SIMPLE = 3,
	BLOCK_ENHANCED = 6,
	SECTION_LEAST = 28,
	INTERFACE_LEAST = 20,
	PACKET_BEFORE = 28, /* bytes before the frame, also of an obsolete packet block */
	SIMPLE_BEFORE = 12,

	OPTION_END = 0,
	OPTION_FLAGS = 2, /* of a packet's block; bits 5 to 8 are the FCS's length in bytes, 0: not known */
	OPTION_FCS = 13,  /* of an interface's */
};

#define MAGIC_MICROSECONDS UINT32_C(0xa1b2c3d4)
#define MAGIC_NANOSECONDS  UINT32_C(0xa1b23c4d)
#define MAGIC_MODIFIED	   UINT32_C(0xa1b2cd34)
#define MAGIC_ORDER	   UINT32_C(0x1a2b3c4d)
#define FCS_PRESENT	   UINT32_C(0x04000000) /* in pcap's link type; then its first 4 bits are 16-bit words of FCS */

static int fail(const struct capture_file *file, char *error, const char *format, ...)
{
	int used = snprintf(error, CAPTURE_ERROR, "%.400s: ", file->path);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error + used, CAPTURE_ERROR - (size_t)used, format, arguments);
	va_end(arguments);
	return -1;
}

static int fail_damaged(const struct capture_file *file, char *error, const char *what)
{
	return fail(file, error,
		    "%s at byte %" PRIu64
		    ": the file is damaged; expected a whole one, or what is good of it (`editcap -r "
		    "%.200s OUT 1-%u`)",
		    what, file->at, file->path, file->frames);
}

static int fail_cut_off(const struct capture_file *file, char *error)
{
	return fail(
		file, error,
		"the file ends within frame %u: it was cut off, or is still being written; expected a whole one, or "
		"what is good of it (`editcap -r %.200s OUT 1-%u`)",
		file->frames + 1, file->path, file->frames);
}

/* So many bytes of the file from `at` on, at most WINDOW; NULL if it has not so many. */
static const uint8_t *look(struct capture_file *file, uint64_t at, size_t length)
{
	if (at > file->size || length > file->size - at || length > WINDOW)
		return NULL;
	if (at < file->window_at || at + length > file->window_at + file->window_size) {
		size_t got = 0;

		while (got < WINDOW) {
			ssize_t rc = pread(file->descriptor, file->window + got, WINDOW - got, (off_t)(at + got));

			if (rc <= 0)
				break;
			got += (size_t)rc;
		}
		file->window_at = at;
		file->window_size = got;
		if (got < length) /* another has made it shorter meanwhile */
			return NULL;
	}
	return file->window + (at - file->window_at);
}

static uint32_t number32(const struct capture_file *file, const uint8_t *at)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	return file->swapped ? __builtin_bswap32(number) : number;
}

static uint16_t number16(const struct capture_file *file, const uint8_t *at)
{
	uint16_t number;

	memcpy(&number, at, sizeof(number));
	return file->swapped ? __builtin_bswap16(number) : number;
}

/* Whether the number at `at` is this one, in either byte order, which is then the file's. */
static bool is_magic(struct capture_file *file, const uint8_t *at, uint32_t magic)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	if (number != magic && number != __builtin_bswap32(magic))
		return false;
	file->swapped = number != magic;
	return true;
}

/* Adds an interface.  Returns 0 or -1. */
static int add_interface(struct capture_file *file, struct capture_interface interface, char *error)
{
	if (file->nb_interfaces == file->room) {
		uint32_t wanted = file->room ? file->room * 2 : 4;
		void *bigger = wanted <= INTERFACES_MOST
				       ? realloc(file->interfaces, wanted * sizeof(file->interfaces[0]))
				       : NULL;

		if (bigger == NULL)
			return fail(file, error, "no memory for more than %u interfaces", file->room);
		file->interfaces = bigger;
		file->room = wanted;
	}
	file->interfaces[file->nb_interfaces++] = interface;
	return 0;
}

/* An Ethernet frame's FCS has 4 bytes.  Returns 0, or -1 if this is said to be of another length. */
static int check_fcs(const struct capture_file *file, uint32_t fcs, char *error)
{
	if (fcs == 0 || fcs == 4)
		return 0;
	return fail(file, error,
		    "frames with a frame check sequence of %u bytes; expected Ethernet's of 4 bytes, or none", fcs);
}

static int read_pcap_header(struct capture_file *file, const uint8_t *header, char *error)
{
	const uint32_t link = number32(file, header + 20);
	const uint32_t fcs = link & FCS_PRESENT ? (link >> 28) * 2 : 0;

	if (number16(file, header + 4) != 2)
		return fail(file, error, "pcap of version %u.%u; expected version 2", number16(file, header + 4),
			    number16(file, header + 6));
	if ((link & 0xffff) == CAPTURE_ETHERNET && check_fcs(file, fcs, error) != 0)
		return -1;
	file->at = PCAP_HEADER;
	return add_interface(file, (struct capture_interface){.link = (uint16_t)link, .fcs = (uint16_t)fcs}, error);
}

int capture_file_open(struct capture_file *file, const char *path, char *error)
{
	struct stat facts;
	const uint8_t *header;

	*file = (struct capture_file){.path = path, .descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	if (file->descriptor < 0 || fstat(file->descriptor, &facts) != 0) {
		fail(file, error, "%s; expected a capture file (pcap or pcapng)", strerror(errno));
		goto refuse;
	}
	if (!S_ISREG(facts.st_mode)) {
		fail(file, error, "this is no file; expected a capture file (pcap or pcapng)");
		goto refuse;
	}
	file->size = (uint64_t)facts.st_size;
	file->window = malloc(WINDOW);
	if (file->window == NULL) {
		fail(file, error, "out of memory");
		goto refuse;
	}
	header = look(file, 0, PCAP_HEADER);
	file->before = PCAP_RECORD;
	if (header != NULL && is_magic(file, header, BLOCK_SECTION) && is_magic(file, header + 8, MAGIC_ORDER)) {
		file->blocks = true;
		return 0;
	}
	if (header != NULL && is_magic(file, header, MAGIC_MODIFIED))
		file->before = PCAP_RECORD_MODIFIED;
	else if (header == NULL ||
		 (!is_magic(file, header, MAGIC_MICROSECONDS) && !is_magic(file, header, MAGIC_NANOSECONDS))) {
		fail(file, error, "this is no capture file; expected a pcap or pcapng file, as `tcpdump -w` writes it");
		goto refuse;
	}
	if (read_pcap_header(file, header, error) == 0)
		return 0;
refuse:
	capture_file_close(file);
	return -1;
}

void capture_file_close(struct capture_file *file)
{
	if (file->descriptor >= 0)
		close(file->descriptor);
	free(file->window);
	free(file->interfaces);
	*file = (struct capture_file){.descriptor = -1};
}

/* What is asked for among the options from `at` to `end`, if it has at least `length` bytes; else NULL. */
static const uint8_t *find_option(struct capture_file *file, uint64_t at, uint64_t end, uint16_t code, uint16_t length)
{
	while (at + 4 <= end) {
		const uint8_t *option = look(file, at, 4);
		uint16_t this_code, this_length;

		if (option == NULL)
			break;
		this_code = number16(file, option);
		this_length = number16(file, option + 2);
		at += 4;
		if (this_code == OPTION_END || this_length > end - at)
			break;
		if (this_code == code)
			return this_length >= length ? look(file, at, length) : NULL;
		at += (this_length + 3u) & ~3u;
	}
	return NULL;
}

static int read_section(struct capture_file *file, const uint8_t *block, uint32_t length, char *error)
{
	uint16_t version;

	if (length < SECTION_LEAST)
		return fail_damaged(file, error, "a section that is too short");
	version = number16(file, block + 12);
	if (version != 1)
		return fail(file, error, "pcapng of version %u.%u; expected version 1", version,
			    number16(file, block + 14));
	file->nb_interfaces = 0; /* they are numbered anew */
	return 0;
}

static int read_interface(struct capture_file *file, const uint8_t *block, uint32_t length, char *error)
{
	struct capture_interface interface;
	const uint8_t *fcs;

	if (length < INTERFACE_LEAST)
		return fail_damaged(file, error, "an interface that is too short");
	interface = (struct capture_interface){.link = number16(file, block + 8),
					       .longest = number32(file, block + 12)};
	fcs = find_option(file, file->at + 16, file->at + length - 4, OPTION_FCS, 1);
	/* The drafts say bits, and bytes in their example. */
	if (fcs != NULL)
		interface.fcs = *fcs % 8 == 0 ? *fcs / 8 : *fcs;
	if (interface.link == CAPTURE_ETHERNET && check_fcs(file, interface.fcs, error) != 0)
		return -1;
	return add_interface(file, interface, error);
}

/* Returns 1 with the frame, without the FCS that it ends with, or -1. */
static int found(struct capture_file *file, const struct capture_interface *interface, uint64_t at, uint32_t fcs,
		 struct captured *frame, char *error)
{
	const uint32_t missing = frame->length > frame->kept ? frame->length - frame->kept : 0;

	frame->link = interface->link;
	frame->bytes = look(file, at, frame->kept);
	if (frame->bytes == NULL)
		return fail_cut_off(file, error);
	file->frames++;
	if (fcs > 0 && frame->kept < fcs)
		return fail(file, error, "frame %u has %u bytes and no room for its frame check sequence", file->frames,
			    frame->kept);
	if (missing == 0)
		frame->kept -= fcs;
	frame->length = frame->kept + missing;
	return 1;
}

/* A packet's block of any kind. */
static int read_packet(struct capture_file *file, const uint8_t *block, uint32_t type, uint32_t length,
		       struct captured *frame, char *error)
{
	const bool simple = type == BLOCK_SIMPLE;
	const uint32_t before = simple ? SIMPLE_BEFORE : PACKET_BEFORE;
	const struct capture_interface *interface;
	const uint8_t *flags;
	uint32_t number, fcs, room;

	if (length < before + 4)
		return fail_damaged(file, error, "a packet that is too short");
	room = length - before - 4;
	number = simple ? 0 : type == BLOCK_PACKET ? number16(file, block + 8) : number32(file, block + 8);
	if (number >= file->nb_interfaces)
		return fail_damaged(file, error, "a frame of an interface that the file does not have,");
	interface = &file->interfaces[number];
	fcs = interface->fcs;
	if (simple) {
		frame->length = frame->kept = number32(file, block + 8);
		if (interface->longest != 0 && frame->kept > interface->longest)
			frame->kept = interface->longest;
		if (frame->kept > room)
			frame->kept = room;
	} else {
		frame->kept = number32(file, block + 20);
		frame->length = number32(file, block + 24);
		if (frame->kept > room)
			return fail_damaged(file, error, "a frame that is longer than its block");
		flags = find_option(file, file->at + before + ((frame->kept + 3ull) & ~3ull), file->at + length - 4,
				    OPTION_FLAGS, 4);
		if (flags != NULL && (number32(file, flags) >> 5 & 15) != 0)
			fcs = number32(file, flags) >> 5 & 15;
		if (interface->link == CAPTURE_ETHERNET && check_fcs(file, fcs, error) != 0)
			return -1;
	}
	if (frame->kept > LONGEST)
		return fail_damaged(file, error, "a frame that is longer than any");
	return found(file, interface, file->at + before, fcs, frame, error);
}

/* Takes a block.  Returns 1 if it was a frame's, 0 if not, or -1. */
static int read_block(struct capture_file *file, struct captured *frame, char *error)
{
	const uint64_t left = file->size - file->at;
	const uint8_t *block = look(file, file->at, left < PACKET_BEFORE ? left : PACKET_BEFORE), *end;
	uint32_t type, length;
	int rc = 0;

	if (block == NULL || left < BLOCK_LEAST)
		return fail_cut_off(file, error);
	type = number32(file, block);
	/* Each section has a byte order of its own, which its length is written in, too. */
	if (type == BLOCK_SECTION && !is_magic(file, block + 8, MAGIC_ORDER))
		return fail_damaged(file, error, "a section without its byte order");
	length = number32(file, block + 4);
	if (length < BLOCK_LEAST || length % 4 != 0)
		return fail_damaged(file, error, "a block whose length cannot be");
	if (length > left)
		return fail_cut_off(file, error);
	end = look(file, file->at + length - 4, 4);
	if (end == NULL)
		return fail_cut_off(file, error);
	if (number32(file, end) != length)
		return fail_damaged(file, error, "a block with two lengths");
	block = look(file, file->at, length < PACKET_BEFORE ? length : PACKET_BEFORE);
	if (block == NULL)
		return fail_cut_off(file, error);
	switch (type) {
	case BLOCK_SECTION:
		rc = read_section(file, block, length, error);
		break;
	case BLOCK_INTERFACE:
		rc = read_interface(file, block, length, error);
		break;
	case BLOCK_PACKET:
	case BLOCK_SIMPLE:
	case BLOCK_ENHANCED:
		rc = read_packet(file, block, type, length, frame, error);
		break;
	default: /* names, statistics, a vendor's own, and what is not known yet */
		break;
	}
	file->at += length;
	return rc;
}

static int read_record(struct capture_file *file, struct captured *frame, char *error)
{
	const uint8_t *record = look(file, file->at, file->before);
	const uint64_t at = file->at + file->before;

	if (record == NULL)
		return fail_cut_off(file, error);
	frame->kept = number32(file, record + 8);
	frame->length = number32(file, record + 12);
	if (frame->kept > LONGEST)
		return fail_damaged(file, error, "a frame that is longer than any");
	file->at = at + frame->kept;
	return found(file, &file->interfaces[0], at, file->interfaces[0].fcs, frame, error);
}

int capture_file_next(struct capture_file *file, struct captured *frame, char *error)
{
	int rc = 0;

	while (rc == 0 && file->at < file->size)
		rc = file->blocks ? read_block(file, frame, error) : read_record(file, frame, error);
	return rc;
}
