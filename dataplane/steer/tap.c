/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_cycles.h>

#include "steer/give.h"
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

/* Take the port for the rest of the burst.  Returns false when another worker has it. */
static bool hold(struct tap_held *held, const struct exit *exit)
{
	for (unsigned i = 0; i < held->count; i++)
		if (held->exits[i]->port == exit->port && held->exits[i]->queue == exit->queue)
			return true;
	if (held->count == TAP_HELD || !exit_take(exit))
		return false;
	held->exits[held->count++] = exit;
	return true;
}

static void copy_to_port(const struct exit *exit, struct tap_held *held, struct burst *burst, const uint8_t *which,
			 unsigned n)
{
	uint64_t delivered = 0;
	unsigned given;

	if (!hold(held, exit)) {
		EXIT_COUNT(exit, drop_receiver_full, n);
		return;
	}
	/* A copy does not make the original delivered. */
	for (unsigned i = 0; i < n; i++)
		delivered |= (uint64_t)burst->packets[which[i]].delivered << i;
	given = exit_write(exit, burst, which, n);
	if (given < n)
		exit_drop_rest(exit, n - given);
	for (unsigned i = 0; i < n; i++)
		burst->packets[which[i]].delivered = delivered >> i & 1;
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

void tap_release(struct tap_held *held)
{
	for (unsigned i = 0; i < held->count; i++)
		exit_release(held->exits[i]);
	held->count = 0;
}
