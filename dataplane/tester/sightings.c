/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/signature.h"
#include "sightings.h"

static bool together(const struct sighting *one, const struct sighting *other)
{
	return one->way == other->way && one->sent <= other->received && other->sent <= one->received;
}

/* The slot of a frame that was under way at the same time, or `count`. */
static uint32_t find_together(const struct worst *worst, const struct sighting *frame)
{
	uint32_t slot = worst->last[frame->way % WORST_WAYS];

	/* Mostly it is the one before: many are held up by one thing, and each of them comes here. */
	if (slot < worst->count && together(&worst->frames[slot], frame))
		return slot;
	for (slot = 0; slot < worst->count; slot++)
		if (together(&worst->frames[slot], frame))
			break;
	return slot;
}

static uint32_t find_fastest(const struct worst *worst)
{
	uint32_t fastest = 0;

	for (uint32_t i = 1; i < worst->count; i++)
		if (sighting_delay(&worst->frames[i]) < sighting_delay(&worst->frames[fastest]))
			fastest = i;
	return fastest;
}

void worst_add(struct worst *worst, const struct sighting *frame)
{
	uint32_t version = atomic_load_explicit(&worst->version, memory_order_relaxed);
	uint32_t slot = find_together(worst, frame);

	if (slot < worst->count && sighting_delay(frame) <= sighting_delay(&worst->frames[slot]))
		return;
	if (slot == WORST)
		slot = find_fastest(worst);
	atomic_store_explicit(&worst->version, version + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	worst->frames[slot] = *frame;
	worst->count += slot == worst->count;
	atomic_store_explicit(&worst->version, version + 2, memory_order_release);
	worst->last[frame->way % WORST_WAYS] = slot;
	if (worst->count == WORST)
		worst->least = sighting_delay(&worst->frames[find_fastest(worst)]);
}

static int slower_first(const void *a, const void *b)
{
	uint64_t first = sighting_delay(a), second = sighting_delay(b);

	return (first < second) - (first > second);
}

uint32_t worst_read(const struct worst *worst, struct sighting *frames)
{
	uint32_t before, count;

	do {
		before = atomic_load_explicit(&worst->version, memory_order_acquire);
		count = worst->count < WORST ? worst->count : WORST;
		memcpy(frames, worst->frames, count * sizeof(*frames));
		atomic_thread_fence(memory_order_acquire);
	} while (before % 2 != 0 || before != atomic_load_explicit(&worst->version, memory_order_relaxed));
	qsort(frames, count, sizeof(*frames), slower_first);
	return count;
}

/* Give up those that a sample half as dense would not have. */
static void thin_out(struct samples *samples)
{
	uint32_t left = 0;

	samples->every *= 2;
	for (uint32_t i = 0; i < samples->count; i++)
		if ((samples->frames[i].sequence & (samples->every - 1)) == 0)
			samples->frames[left++] = samples->frames[i];
	samples->count = left;
}

void samples_add(struct samples *samples, const struct sighting *frame, uint32_t count)
{
	for (uint64_t sequence = samples_next(samples, frame->sequence); sequence < frame->sequence + count;
	     sequence = samples_next(samples, sequence + 1)) {
		/* One stream may have only odd multiples left: then it takes more than one time. */
		while (samples->count == SAMPLES)
			thin_out(samples);
		if ((sequence & (samples->every - 1)) != 0)
			continue;
		samples->frames[samples->count] = *frame;
		samples->frames[samples->count++].sequence = sequence & SIGNATURE_MASK; /* it may wrap in the run */
	}
}
