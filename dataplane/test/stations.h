/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated guests at the ports of a program that steers, and what a test says about the frames between them.  Include
 * cmocka's headers first.
 */
#ifndef TAILRACE_TEST_STATIONS_H
#define TAILRACE_TEST_STATIONS_H

#include <stdlib.h>

#include "steer/steer.h"
#include "test/frame_builder.h"
#include "test/simulated_guest.h"

enum { STATIONS = 4, HEADER = 12, BUFFER = 0x400 };
#define FRAMES	(GUEST_BASE + 0x4000)
#define BUFFERS (GUEST_BASE + 0x10000)

struct station {
	struct port port;
	struct simulated_guest sends, receives;
	struct queue_counters counters;
	uint16_t seen; /* frames taken from what it received */
};

struct setting {
	struct station stations[STATIONS];
	struct round round;
};

static inline void start_station(struct station *station)
{
	guest_start(&station->sends, false, true);
	guest_start(&station->receives, false, true);
	station->sends.ring.counters = &station->counters;
	station->receives.ring.counters = &station->counters;
	station->port.kind = PORT_GUEST;
	station->port.nb_queues = 1;
	station->port.queues[0].counters = &station->counters;
	atomic_store(&station->port.guest.live[GUEST_SENDS], &station->sends.ring);
	atomic_store(&station->port.guest.live[GUEST_RECEIVES], &station->receives.ring);
}

static inline int start(void **state)
{
	struct setting *setting = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct setting), 64));

	memset(setting, 0, sizeof(*setting));
	for (unsigned i = 0; i < STATIONS; i++)
		start_station(&setting->stations[i]);
	setting->round.now = UINT64_C(1000) << 32;
	*state = setting;
	return 0;
}

static inline int end(void **state)
{
	struct setting *setting = *state;

	for (unsigned i = 0; i < STATIONS; i++) {
		guest_end(&setting->stations[i].sends);
		guest_end(&setting->stations[i].receives);
	}
	free(setting);
	return 0;
}

/* ------- what the guests do ------- */

static inline void offer_buffers(struct station *station, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct simulated_guest *guest = &station->receives;

		guest_offer(guest,
			    guest_desc(guest, BUFFERS + guest->next_desc % RING * BUFFER, BUFFER, VRING_DESC_F_WRITE));
	}
}

static inline void send_frame(struct station *station, const struct frame *frame)
{
	struct simulated_guest *guest = &station->sends;
	const uint64_t address = FRAMES + guest->next_desc % RING * BUFFER;

	memset(guest_at(guest, address), 0, HEADER);
	memcpy(guest_at(guest, address) + HEADER, frame->bytes, frame->length);
	guest_offer(guest, guest_desc(guest, address, HEADER + frame->length, 0));
}

/* The next frame that the station received.  Returns false if there is none. */
static inline bool next_frame(struct station *station, struct frame *frame)
{
	struct simulated_guest *guest = &station->receives;
	struct vring_used_elem element;

	if (guest->ring.used->idx == station->seen)
		return false;
	element = guest->ring.used->ring[station->seen++ % RING];
	frame->length = element.len - HEADER;
	memcpy(frame->bytes, guest_at(guest, guest->ring.desc[element.id].addr) + HEADER, frame->length);
	return true;
}

static inline void expect_frame(struct station *station, const struct frame *expected)
{
	struct frame frame;

	assert_true(next_frame(station, &frame));
	assert_int_equal(frame.length, expected->length);
	assert_memory_equal(frame.bytes, expected->bytes, expected->length);
}

static inline void expect_nothing(struct station *station)
{
	struct frame frame;

	assert_false(next_frame(station, &frame));
}

/* ------- programs ------- */

static inline struct egress egress_to(struct setting *setting, unsigned station, struct hop_counters *hop)
{
	return (struct egress){.port = &setting->stations[station].port, .hop = hop};
}

static inline struct source source_of(struct setting *setting, unsigned station, const struct steering_config *config)
{
	struct steering *steering = steering_new(config);

	assert_non_null(steering);
	return (struct source){.from = &setting->stations[station].port, .kind = SOURCE_STEERED, .steering = steering};
}

static inline struct classifier *classifier_of(const struct rule *rules, unsigned count)
{
	struct classifier *classifier;
	unsigned culprit;

	assert_int_equal(classifier_build(&classifier, rules, count, STEERING_DROP, &culprit), 0);
	return classifier;
}

static inline struct rule to_port(uint16_t first, uint16_t last, uint32_t action)
{
	return (struct rule){{.fields = MATCH_DESTINATION_PORT, .destination_port = {first, last}}, action};
}

#endif
