/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "switch/apply.h"
#include "switch/generation.h"
#include "switch/parcel.h"
#include "switch/parking.h"
#include "switch/switch.h"

enum { TAKE_BYTES = 1 << 20 }; /* of one answer's frames, or a little more */

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

/* What the control side has lost of it, or has left, counts as lost by the port that its guest was to be reached by. */
static void count_left(struct switch_state *state, struct parking *parking)
{
	const uint64_t left = parking->park.lost + park_waiting(&parking->park) + parking->taken.packets;

	parking->park.counts.dropped += left - parking->park.lost;
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
	struct parking *parking;
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
	parking = state->observation.parkings[slot];
	taken = &parking->taken;
	if (!shaper_waiting(taken))
		park_take(&parking->park, taken);
	frames = json_array();
	while (shaper_waiting(taken) && bytes < TAKE_BYTES && json_array_size(frames) + VRING_BURST <= PARCEL_FRAMES) {
		shaper_read(taken, &burst);
		for (unsigned i = 0; i < burst.count; i++) {
			json_t *text = parcel_text(&burst.packets[i]);

			if (text != NULL && json_array_append_new(frames, text) == 0)
				bytes += burst.packets[i].length;
			else
				park_lose(&parking->park, 1);
		}
		shaper_remove(taken, burst.count);
	}
	return json_pack("{s:o, s:b}", "frames", frames, "more", shaper_waiting(taken));
}

json_t *parking_give(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct parking *parking;
	struct parcel parcel;
	json_t *frames, *answer = NULL;
	unsigned slot;
	int id;

	if (control_unpack(params, error, "{s:i, s:o}", "park", &id, "frames", &frames) != 0)
		return NULL;
	slot = named(state, id, error);
	if (slot == PARKINGS)
		return NULL;
	parking = state->observation.parkings[slot];
	if (parcel_read(&parcel, frames, error)) {
		if (park_give(&parking->park, parcel.packets, parcel.count)) {
			park_lose(&parking->park, parcel.refused);
			answer = describe(parking);
		} else {
			control_fail(error, CONTROL_FAILED, "out of memory");
		}
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
