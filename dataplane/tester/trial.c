/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/resident.h"
#include "trial.h"

struct trial *trial_make(uint16_t nb_streams)
{
	struct trial *trial = calloc(1, sizeof(*trial));

	if (trial == NULL)
		return NULL;
	trial->streams = resident_zeros(nb_streams * sizeof(*trial->streams));
	if (trial->streams == NULL)
		goto fail;
	trial->nb_streams = nb_streams;
	trial->samples.frames = resident_zeros(SAMPLES * sizeof(*trial->samples.frames));
	if (trial->samples.frames == NULL)
		goto fail;
	for (uint16_t i = 0; i < nb_streams; i++) {
		struct stream *stream = &trial->streams[i];

		histogram_clear(&stream->latency);
		stream->counting = &stream->latency;
		stream->intervals = resident_zeros(TRIAL_INTERVALS * sizeof(*stream->intervals));
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
		resident_free(stream->intervals, TRIAL_INTERVALS * sizeof(*stream->intervals));
	}
	trial_close_records(trial);
	resident_free(trial->samples.frames, SAMPLES * sizeof(*trial->samples.frames));
	resident_free(trial->streams, trial->nb_streams * sizeof(*trial->streams));
	free(trial);
}

void trial_pretend_age(struct trial *trial, const struct clock_rate *rate)
{
	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct stream *stream = &trial->streams[i];
		uint64_t nb_frames = pace_due(&stream->pace, clock_cycles(rate, trial->age));
		uint64_t bytes = nb_frames * (stream->frames.kinds[0].length + RTE_ETHER_CRC_LEN);

		if (stream->pace.step == 0)
			continue;
		stream->last_received = trial_now(trial);
		stream->first_sent = stream->first_received = stream->last_received - clock_cycles(rate, trial->age);
		stream->pace.sent = nb_frames;
		stream->next += nb_frames;
		stream->sent_bytes = stream->received_bytes = bytes;
		stream->received = nb_frames;
		histogram_count(&stream->latency, 1000, nb_frames);
		tally_add(&stream->latency.tally, 1000, nb_frames);
		sequence_skip(&stream->sequence, nb_frames);
	}
}

/* Frames that were none of ours are reported once, with the first stream that ends at their port. */
static uint64_t foreign_of(const struct trial *trial, uint16_t number)
{
	const struct stream *stream = &trial->streams[number];

	for (uint16_t i = 0; i < number; i++)
		if (trial->streams[i].to == stream->to)
			return 0;
	return trial->foreign[stream->to];
}

struct trial_counts trial_counts(const struct trial *trial, uint16_t number)
{
	const struct stream *stream = &trial->streams[number];
	const struct sequence *sequence = &stream->sequence;

	return (struct trial_counts){
		.offered = stream->pace.sent + stream->pace.unsent,
		.sent = stream->pace.sent,
		.refused = stream->refused,
		.held = stream->held,
		.received = stream->received - sequence->before_first,
		.lost = stream->pace.sent - sequence->unique,
		.duplicate = sequence->duplicate,
		.out_of_sequence = sequence->out_of_sequence,
		.beyond_window = sequence->beyond_window,
		.foreign = foreign_of(trial, number) + sequence->before_first,
		.latest = sequence->latest,
		.sent_bytes = stream->sent_bytes,
		.received_bytes = stream->received_bytes,
	};
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
