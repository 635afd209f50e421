/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "switch/apply.h"
#include "switch/generation.h"
#include "switch/parking.h"
#include "switch/switch.h"

enum {
	TAKE_BYTES = 1 << 20,  /* of one answer's frames, or a little more */
	GIVE_FRAMES = 1 << 15, /* of one request */
	FRAME_LEAST = 14,      /* an Ethernet header */
	HEADER = 10,	       /* of a struct virtio_net_hdr, which stands in front of each frame */
	ENCODED_LEAST = HEADER + FRAME_LEAST,
};

_Static_assert(sizeof(struct virtio_net_hdr) == HEADER, "as virtio 1.1, section 5.1.6 has it without num_buffers");

struct parking {
	struct park park;    /* what workers see */
	struct shaper taken; /* out of it, and not yet told */
	unsigned id;
	unsigned nb_ports;
	char ports[PARKING_PORTS][PORT_NAME];
	uint64_t asked_at; /* TSC */
};

/* The slot of what names this port, or PARKINGS. */
static unsigned slot_of(const struct observation *observation, const char *port)
{
	for (unsigned slot = 0; slot < PARKINGS; slot++) {
		const struct parking *parking = observation->parkings[slot];

		for (unsigned i = 0; parking != NULL && i < parking->nb_ports; i++)
			if (strcmp(parking->ports[i], port) == 0)
				return slot;
	}
	return PARKINGS;
}

struct park *parking_of(const struct observation *observation, const char *port)
{
	const unsigned slot = slot_of(observation, port);

	return slot < PARKINGS ? &observation->parkings[slot]->park : NULL;
}

/* ------- frames in text ------- */

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

static json_t *text_of(const struct packet *packet)
{
	static uint8_t bytes[HEADER + VRING_FRAME_MAX];
	static char letters[(sizeof(bytes) + 2) / 3 * 4];
	uint8_t *at = bytes;

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

/* ------- sessions ------- */

static json_t *describe(const struct parking *parking)
{
	const struct park_counts *counts = &parking->park.counts;

	return json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "park", (int)parking->id, "waiting",
			 (int)park_waiting(&parking->park), "parked", (json_int_t)counts->parked, "given",
			 (json_int_t)counts->given, "delivered", (json_int_t)counts->delivered, "taken",
			 (json_int_t)counts->taken, "forgotten", (json_int_t)counts->forgotten, "dropped",
			 (json_int_t)counts->dropped);
}

static void close_parking(struct parking *parking)
{
	park_close(&parking->park);
	shaper_close(&parking->taken);
	free(parking);
}

static struct parking *open_parking(unsigned id, bool slides)
{
	struct parking *parking = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*parking), 64));

	if (parking == NULL)
		return NULL;
	memset(parking, 0, sizeof(*parking));
	if (!park_open(&parking->park, slides) || !shaper_open(&parking->taken)) {
		close_parking(parking);
		return NULL;
	}
	parking->id = id;
	parking->asked_at = rte_rdtsc();
	return parking;
}

/* What it has left counts as lost by the port that its guest was to be reached by. */
static void count_left(struct switch_state *state, struct parking *parking)
{
	const uint32_t left = park_waiting(&parking->park) + parking->taken.packets;

	parking->park.counts.dropped += left;
	for (unsigned i = parking->nb_ports; left > 0 && i > 0; i--) {
		struct switch_port *port = generation_port(state->generation, parking->ports[i - 1]);

		if (port == NULL)
			continue;
		port->port.queues[0].counters->drop_parked += left;
		return;
	}
}

/* Returns what it came to, or NULL with the error filled in. */
static json_t *end(struct switch_state *state, unsigned slot, struct control_error *error)
{
	struct parking *parking = state->observation.parkings[slot];
	json_t *answer;

	state->observation.parkings[slot] = NULL;
	if (reconcile(state, error) != 0) {
		state->observation.parkings[slot] = parking;
		return NULL;
	}
	count_left(state, parking);
	answer = describe(parking);
	close_parking(parking);
	return answer;
}

/* The slot of what the params name, or PARKINGS with the error filled in. */
static unsigned named(struct switch_state *state, int id, struct control_error *error)
{
	for (unsigned i = 0; i < PARKINGS; i++) {
		struct parking *parking = state->observation.parkings[i];

		if (parking == NULL || parking->id != (unsigned)id)
			continue;
		parking->asked_at = rte_rdtsc();
		return i;
	}
	control_fail(error, CONTROL_UNKNOWN, "no parking %d; one that is not asked after for %d s ends", id,
		     PARKING_LEASE);
	return PARKINGS;
}

static bool add_ports(struct parking *parking, json_t *ports, struct control_error *error)
{
	json_t *name;
	size_t i;

	if (!json_is_array(ports) || json_array_size(ports) < 1 || json_array_size(ports) > PARKING_PORTS) {
		control_fail(error, CONTROL_INVALID_PARAMS, "ports: expected a list of 1 to %d names of ports",
			     PARKING_PORTS);
		return false;
	}
	json_array_foreach (ports, i, name) {
		const char *text = json_string_value(name);

		if (text == NULL || strlen(text) >= PORT_NAME) {
			control_fail(error, CONTROL_INVALID_PARAMS, "ports[%zu]: expected the name of a port", i);
			return false;
		}
		strcpy(parking->ports[parking->nb_ports++], text);
	}
	return true;
}

/* Whoever has begun those that name one of these ports is gone: a guest is moved by one at a time. */
static bool end_former(struct switch_state *state, const struct parking *parking, struct control_error *error)
{
	for (unsigned i = 0; i < parking->nb_ports; i++) {
		const unsigned slot = slot_of(&state->observation, parking->ports[i]);
		json_t *ended;

		if (slot == PARKINGS)
			continue;
		ended = end(state, slot, error);
		if (ended == NULL)
			return false;
		json_decref(ended);
	}
	return true;
}

static bool begin(struct switch_state *state, struct parking *parking, struct control_error *error)
{
	struct observation *observation = &state->observation;
	unsigned slot = 0;

	while (slot < PARKINGS && observation->parkings[slot] != NULL)
		slot++;
	if (slot == PARKINGS) {
		control_fail(error, CONTROL_FAILED, "what is for %d ports is put aside already; wait for one",
			     PARKINGS);
		return false;
	}
	observation->parkings[slot] = parking;
	if (reconcile(state, error) == 0)
		return true;
	observation->parkings[slot] = NULL;
	return false;
}

json_t *parking_start(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct parking *parking;
	json_t *ports;
	int slides = 0;

	if (control_unpack(params, error, "{s:o, s?:b}", "ports", &ports, "slides", &slides) != 0)
		return NULL;
	parking = open_parking(++state->observation.last_parking, slides);
	if (parking == NULL)
		return control_fail(error, CONTROL_FAILED, "out of memory");
	if (add_ports(parking, ports, error) && end_former(state, parking, error) && begin(state, parking, error))
		return describe(parking);
	close_parking(parking);
	return NULL;
}

json_t *parking_status(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	unsigned slot;
	int id;

	if (control_unpack(params, error, "{s:i}", "park", &id) != 0)
		return NULL;
	slot = named(state, id, error);
	return slot < PARKINGS ? describe(state->observation.parkings[slot]) : NULL;
}

json_t *parking_take(void *context, json_t *params, struct control_error *error)
{
	static struct burst burst;
	struct switch_state *state = context;
	struct shaper *taken;
	unsigned slot;
	json_t *frames;
	size_t bytes = 0;
	int id;

	if (control_unpack(params, error, "{s:i}", "park", &id) != 0)
		return NULL;
	slot = named(state, id, error);
	if (slot == PARKINGS)
		return NULL;
	taken = &state->observation.parkings[slot]->taken;
	if (!shaper_waiting(taken))
		park_take(&state->observation.parkings[slot]->park, taken);
	frames = json_array();
	while (shaper_waiting(taken) && bytes < TAKE_BYTES && json_array_size(frames) + VRING_BURST <= GIVE_FRAMES) {
		shaper_read(taken, &burst);
		for (unsigned i = 0; i < burst.count; i++) {
			json_array_append_new(frames, text_of(&burst.packets[i]));
			bytes += burst.packets[i].length;
		}
		shaper_remove(taken, burst.count);
	}
	return json_pack("{s:o}", "frames", frames);
}

/* ------- what the other switch had ------- */

/* Frames that are read from a request: all of them in one piece of memory. */
struct parcel {
	unsigned count;
	struct packet *packets;
	struct vring_piece *pieces; /* two for each */
	uint8_t *bytes;
};

static void parcel_free(struct parcel *parcel)
{
	free(parcel->packets);
	free(parcel->pieces);
	free(parcel->bytes);
}

static bool parcel_add(struct parcel *parcel, uint8_t *at, size_t length)
{
	struct packet *packet = &parcel->packets[parcel->count];
	const uint32_t frame = (uint32_t)(length - HEADER), head = RTE_MIN(frame, (uint32_t)UINT16_MAX);

	memset(packet, 0, sizeof(*packet));
	memcpy(&packet->offload, at, HEADER);
	if (!offload_check(&packet->offload, OFFLOAD_CHECKSUM | OFFLOAD_TCP4 | OFFLOAD_TCP6 | OFFLOAD_ECN, at + HEADER,
			   RTE_MIN(frame, (uint32_t)OFFLOAD_HEADERS), frame))
		return false;
	packet->head = at + HEADER;
	packet->head_length = (uint16_t)head;
	packet->length = packet->received = frame;
	packet->pieces = &parcel->pieces[2 * (size_t)parcel->count];
	packet->pieces[1] = (struct vring_piece){packet->head + head, frame - head};
	packet->nb_pieces = frame > head ? 2 : 1;
	parcel->count++;
	return true;
}

/* Read what somebody says to be frames.  Returns whether all are. */
static bool parcel_read(struct parcel *parcel, json_t *frames, struct control_error *error)
{
	const size_t count = json_array_size(frames);
	size_t size = 1, at = 0, i;
	json_t *text;

	*parcel = (struct parcel){0};
	if (!json_is_array(frames) || count > GIVE_FRAMES) {
		control_fail(error, CONTROL_INVALID_PARAMS, "frames: expected a list of up to %d", GIVE_FRAMES);
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
		const size_t most = RTE_MIN(size - at, (size_t)(HEADER + VRING_FRAME_MAX));
		size_t length = 0;

		if (json_is_string(text))
			length = decode(parcel->bytes + at, most, json_string_value(text), json_string_length(text));
		if (length < ENCODED_LEAST || !parcel_add(parcel, parcel->bytes + at, length)) {
			control_fail(error, CONTROL_INVALID_PARAMS,
				     "frames[%zu]: expected a virtio network header and a frame, in base64", i);
			return false;
		}
		at += length;
	}
	return true;
}

json_t *parking_give(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct parcel parcel;
	json_t *frames, *answer = NULL;
	unsigned slot;
	int id;

	if (control_unpack(params, error, "{s:i, s:o}", "park", &id, "frames", &frames) != 0)
		return NULL;
	slot = named(state, id, error);
	if (slot == PARKINGS)
		return NULL;
	if (parcel_read(&parcel, frames, error)) {
		if (park_give(&state->observation.parkings[slot]->park, parcel.packets, parcel.count))
			answer = describe(state->observation.parkings[slot]);
		else
			control_fail(error, CONTROL_FAILED, "out of memory");
	}
	parcel_free(&parcel);
	return answer;
}

json_t *parking_stop(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	unsigned slot;
	int id;

	if (control_unpack(params, error, "{s:i}", "park", &id) != 0)
		return NULL;
	slot = named(state, id, error);
	return slot < PARKINGS ? end(state, slot, error) : NULL;
}

void parking_tick(struct switch_state *state)
{
	struct control_error error;

	for (unsigned slot = 0; slot < PARKINGS; slot++) {
		struct parking *parking = state->observation.parkings[slot];
		char port[PORT_NAME];
		json_t *ended;

		if (parking == NULL || rte_rdtsc() - parking->asked_at <= PARKING_LEASE * rte_get_tsc_hz())
			continue;
		strcpy(port, parking->ports[0]);
		log_warning("port %s: nobody has asked for %d s after what is put aside for it, which ends", port,
			    PARKING_LEASE);
		ended = end(state, slot, &error);
		if (ended == NULL)
			log_warning("port %s: %s", port, error.message);
		json_decref(ended);
	}
}

void parking_close_all(struct observation *observation)
{
	for (unsigned slot = 0; slot < PARKINGS; slot++)
		if (observation->parkings[slot] != NULL)
			close_parking(observation->parkings[slot]);
	memset(observation->parkings, 0, sizeof(observation->parkings));
}
