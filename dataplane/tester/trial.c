/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/mman.h>

#include "trial.h"

static void *map_resident(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

struct trial *trial_make(uint16_t nb_streams)
{
	struct trial *trial = calloc(1, sizeof(*trial));

	if (trial == NULL)
		return NULL;
	trial->streams = map_resident(nb_streams * sizeof(*trial->streams));
	if (trial->streams == NULL)
		goto fail;
	trial->nb_streams = nb_streams;
	trial->samples.frames = map_resident(SAMPLES * sizeof(*trial->samples.frames));
	if (trial->samples.frames == NULL)
		goto fail;
	for (uint16_t i = 0; i < nb_streams; i++) {
		struct stream *stream = &trial->streams[i];

		histogram_clear(&stream->latency);
		stream->intervals = map_resident(TRIAL_INTERVALS * sizeof(*stream->intervals));
		if (stream->intervals == NULL)
			goto fail;
	}
	return trial;
fail:
	trial_free(trial);
	return NULL;
}

void trial_free(struct trial *trial)
{
	if (trial == NULL)
		return;
	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct stream *stream = &trial->streams[i];

		frames_close(&stream->frames);
		sequence_close(&stream->sequence);
		if (stream->intervals != NULL)
			munmap(stream->intervals, TRIAL_INTERVALS * sizeof(*stream->intervals));
	}
	if (trial->samples.frames != NULL)
		munmap(trial->samples.frames, SAMPLES * sizeof(*trial->samples.frames));
	if (trial->streams != NULL)
		munmap(trial->streams, trial->nb_streams * sizeof(*trial->streams));
	free(trial);
}

void trial_begin_intervals(struct trial *trial, const struct clock_rate *rate, uint64_t now)
{
	trial->interval_cycles = clock_cycles(rate, trial->interval);
	trial->interval_end = now + trial->interval_cycles;
	trial->nb_intervals = 1;
	for (uint16_t i = 0; i < trial->nb_streams; i++)
		trial->streams[i].intervals[0] = (struct interval){.latency = TALLY_EMPTY};
}

/* Join each two neighbours: half as many intervals, twice as long. */
static void merge_intervals(struct trial *trial)
{
	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct interval *intervals = trial->streams[i].intervals;

		for (uint32_t k = 0; k < TRIAL_INTERVALS / 2; k++) {
			struct interval merged = intervals[2 * k];

			merged.sent += intervals[2 * k + 1].sent;
			tally_merge(&merged.latency, &intervals[2 * k + 1].latency);
			intervals[k] = merged;
		}
	}
	trial->nb_intervals = TRIAL_INTERVALS / 2;
	trial->interval_cycles *= 2;
}

void trial_next_interval(struct trial *trial, uint64_t now)
{
	while (now >= trial->interval_end) {
		if (trial->nb_intervals == TRIAL_INTERVALS)
			merge_intervals(trial);
		for (uint16_t i = 0; i < trial->nb_streams; i++)
			trial->streams[i].intervals[trial->nb_intervals] = (struct interval){.latency = TALLY_EMPTY};
		trial->nb_intervals++;
		trial->interval_end += trial->interval_cycles;
	}
}
