/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_cycles.h>

#include "steer/egress.h"
#include "steer/tap.h"

static void copy_to_capture(struct capture *capture, const struct burst *burst, const uint8_t *which, unsigned n,
			    const struct round *round)
{
	struct capture_ring *ring = &capture->rings[round->worker];
	unsigned clock = atomic_load_explicit(&capture->clock, memory_order_acquire);
	uint64_t ns = capture_clock_ns(&capture->clocks[clock], rte_rdtsc());
	uint32_t wanted[VRING_BURST];

	if (capture->match != NULL && n > 0) {
		struct headers headers[VRING_BURST];

		for (unsigned i = 0; i < n; i++) {
			const struct packet *packet = &burst->packets[which[i]];

			parse_frame(packet->head, packet->head_length, &headers[i]);
		}
		classify(capture->match, headers, n, wanted);
	}
	for (unsigned i = 0; i < n; i++)
		if (capture->match == NULL || wanted[i] != 0)
			capture_ring_add(ring, &burst->packets[which[i]], ns);
	capture_ring_show(ring);
}

/* The port's slot among those held, or a new one; NULL when there is none left. */
static struct tap_egress *slot_of(struct tap_held *held, const struct egress *egress)
{
	for (unsigned i = 0; i < held->count; i++)
		if (held->egresses[i].egress.port == egress->port && held->egresses[i].egress.queue == egress->queue)
			return &held->egresses[i];
	if (held->count == TAP_HELD)
		return NULL;
	held->egresses[held->count] = (struct tap_egress){.egress = *egress};
	return &held->egresses[held->count++];
}

/* Take the port for the rest of the burst.  Returns false when another worker has it. */
static bool hold(struct tap_held *held, const struct egress *egress)
{
	struct tap_egress *slot = slot_of(held, egress);

	if (slot == NULL)
		return false;
	slot->taken = slot->taken || egress_take(egress);
	return slot->taken;
}

static void copy_to_port(const struct egress *egress, struct tap_held *held, struct burst *burst, const uint8_t *which,
			 unsigned n)
{
	uint64_t copied; /* which does not make the original delivered */
	unsigned given;

	if (!hold(held, egress)) {
		EGRESS_COUNT(egress, drop_receiver_full, n);
		return;
	}
	given = egress_write_noting(egress, burst, which, n, false, &copied);
	if (given < n)
		egress_drop_rest(egress, n - given);
}

void tap_copy(const struct tap *taps, unsigned nb_taps, struct tap_held *held, struct burst *burst,
	      const uint8_t *which, unsigned n, const struct round *round)
{
	for (const struct tap *tap = taps; tap < taps + nb_taps; tap++)
		if (tap->capture != NULL)
			copy_to_capture(tap->capture, burst, which, n, round);
		else
			copy_to_port(&tap->mirror, held, burst, which, n);
}

void tap_release(struct tap_held *held, const struct round *round)
{
	for (unsigned i = 0; i < held->count;) {
		const struct egress *egress = &held->egresses[i].egress;
		bool flushed = false;

		if (held->egresses[i].taken) {
			held->egresses[i].taken = false;
			egress_send(egress);
			egress_release(egress);
		} else if (egress_take(egress)) {
			flushed = egress_flush(egress, round);
			egress_release(egress);
		}
		if (flushed)
			held->egresses[i] = held->egresses[--held->count];
		else
			i++;
	}
}

void tap_owe(struct tap_held *held, const struct tap *taps, unsigned nb_taps)
{
	for (const struct tap *tap = taps; tap < taps + nb_taps; tap++)
		if (tap->capture == NULL)
			slot_of(held, &tap->mirror);
}
