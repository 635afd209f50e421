/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "switch/parcel.h"

enum {
	FRAME_LEAST = 14, /* an Ethernet header */
	HEADER = 10,	  /* of a struct virtio_net_hdr, which stands in front of each frame */
	ENCODED_LEAST = HEADER + FRAME_LEAST,
	ENCODED_MOST = HEADER + PARCEL_LONGEST,
};

_Static_assert(sizeof(struct virtio_net_hdr) == HEADER, "as virtio 1.1, section 5.1.6 has it without num_buffers");

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* In base64 (RFC 4648, section 4) to `to`, which has room for 4 letters of each 3 bytes.  Returns how many letters. */
static size_t encode(char *to, const uint8_t *from, size_t length)
{
	char *at = to;

	for (size_t i = 0; i < length; i += 3) {
		const uint32_t left = (uint32_t)RTE_MIN(length - i, (size_t)3);
		const uint32_t word = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
				      (left > 2 ? from[i + 2] : 0);

		*at++ = digits[word >> 18];
		*at++ = digits[word >> 12 & 63];
		*at++ = left > 1 ? digits[word >> 6 & 63] : '=';
		*at++ = left > 2 ? digits[word & 63] : '=';
	}
	return (size_t)(at - to);
}

static int digit(char letter)
{
	const char *found = letter != '\0' ? strchr(digits, letter) : NULL;

	return found != NULL ? (int)(found - digits) : -1;
}

/* The bytes of a text, into `to`, which has room for `most`.  Returns how many; 0: it is none, or too long. */
static size_t decode(uint8_t *to, size_t most, const char *from, size_t letters)
{
	size_t length = 0;

	if (letters % 4 != 0 || letters / 4 * 3 > most + 2)
		return 0;
	while (letters > 0 && from[letters - 1] == '=' && letters % 4 != 2)
		letters--;
	for (size_t i = 0; i < letters; i += 4) {
		const size_t left = RTE_MIN(letters - i, (size_t)4);
		uint32_t word = 0;

		if (left == 1)
			return 0;
		for (size_t j = 0; j < 4; j++) {
			const int value = j < left ? digit(from[i + j]) : 0;

			if (value < 0)
				return 0;
			word = word << 6 | (uint32_t)value;
		}
		for (size_t j = 0; j + 1 < left; j++) {
			if (length == most)
				return 0;
			to[length++] = (uint8_t)(word >> (16 - 8 * j));
		}
	}
	return length;
}

json_t *parcel_text(const struct packet *packet)
{
	static uint8_t bytes[ENCODED_MOST];
	static char letters[(sizeof(bytes) + 2) / 3 * 4];
	uint8_t *at = bytes;

	if (packet->length > PARCEL_LONGEST)
		return NULL;
	memcpy(at, &packet->offload, HEADER);
	at += HEADER;
	memcpy(at, packet->head, packet->head_length);
	at += packet->head_length;
	for (unsigned i = 1; i < packet->nb_pieces; i++) {
		memcpy(at, packet->pieces[i].at, packet->pieces[i].length);
		at += packet->pieces[i].length;
	}
	return json_stringn(letters, encode(letters, bytes, (size_t)(at - bytes)));
}

/* ------- what the other switch had ------- */

void parcel_free(struct parcel *parcel)
{
	free(parcel->packets);
	free(parcel->pieces);
	free(parcel->bytes);
}

static void parcel_add(struct parcel *parcel, uint8_t *at, size_t length)
{
	struct packet *packet = &parcel->packets[parcel->count];
	const uint32_t frame = (uint32_t)(length - HEADER), head = RTE_MIN(frame, (uint32_t)UINT16_MAX);

	memset(packet, 0, sizeof(*packet));
	memcpy(&packet->offload, at, HEADER);
	/* What was read there may have been edited since: then it is no header that a guest could have sent. */
	if (!offload_check(&packet->offload, OFFLOAD_CHECKSUM | OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_ECN, at + HEADER,
			   RTE_MIN(frame, (uint32_t)OFFLOAD_HEADERS), frame)) {
		parcel->refused++;
		return;
	}
	packet->head = at + HEADER;
	packet->head_length = (uint16_t)head;
	packet->length = packet->received = frame;
	packet->pieces = &parcel->pieces[2 * (size_t)parcel->count];
	packet->pieces[1] = (struct vring_piece){packet->head + head, frame - head};
	packet->nb_pieces = frame > head ? 2 : 1;
	parcel->count++;
}

bool parcel_read(struct parcel *parcel, json_t *frames, struct control_error *error)
{
	const size_t count = json_array_size(frames);
	size_t size = 1, at = 0, i;
	json_t *text;

	*parcel = (struct parcel){0};
	if (!json_is_array(frames) || count > PARCEL_FRAMES) {
		control_fail(error, CONTROL_INVALID_PARAMS, "frames: expected a list of up to %d", PARCEL_FRAMES);
		return false;
	}
	json_array_foreach (frames, i, text)
		size += json_string_length(text) / 4 * 3;
	/* Blocks of their own, so that a sanitizer sees where one is overstepped. */
	parcel->packets = aligned_alloc(64, RTE_ALIGN_CEIL((count + 1) * sizeof(parcel->packets[0]), 64));
	parcel->pieces = malloc((2 * count + 1) * sizeof(parcel->pieces[0]));
	parcel->bytes = malloc(size);
	if (parcel->packets == NULL || parcel->pieces == NULL || parcel->bytes == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return false;
	}
	json_array_foreach (frames, i, text) {
		const size_t most = RTE_MIN(size - at, (size_t)ENCODED_MOST);
		size_t length = 0;

		if (json_is_string(text))
			length = decode(parcel->bytes + at, most, json_string_value(text), json_string_length(text));
		if (length < ENCODED_LEAST) {
			control_fail(error, CONTROL_INVALID_PARAMS,
				     "frames[%zu]: expected a virtio network header and a frame, in base64", i);
			return false;
		}
		parcel_add(parcel, parcel->bytes + at, length);
		at += length;
	}
	return true;
}
