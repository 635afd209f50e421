/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/resident.h"
#include "trial.h"

static double seconds_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int trial_open_records(struct trial *trial, const struct clock_rate *rate)
{
	struct records *records = &trial->records;
	uint16_t nb_streams = trial->nb_streams;

	records->cycles = clock_cycles(rate, trial->record);
	records->wait = clock_cycles(rate, RTE_MIN(trial->wait, trial->record / 2));
	records->streams = resident_zeros(nb_streams * sizeof(*records->streams));
	if (records->streams == NULL)
		return -ENOMEM;
	for (uint64_t number = 0; number < RECORDS; number++) {
		struct record *slot = records_slot(records, number);

		slot->streams = resident_zeros(nb_streams * sizeof(*slot->streams));
		if (slot->streams == NULL)
			return -ENOMEM;
		for (uint16_t i = 0; i < nb_streams; i++)
			histogram_clear(&slot->streams[i].latency);
	}
	return 0;
}

void trial_close_records(struct trial *trial)
{
	struct records *records = &trial->records;

	for (uint64_t number = 0; number < RECORDS; number++)
		resident_free(records->slots[number].streams, trial->nb_streams * sizeof(struct record_stream));
	resident_free(records->streams, trial->nb_streams * sizeof(*records->streams));
}

static void fill(struct trial *trial, uint64_t number)
{
	struct record *slot = records_slot(&trial->records, number);

	trial->records.filled = number;
	for (uint16_t i = 0; i < trial->nb_streams; i++)
		trial->streams[i].counting = &slot->streams[i].latency;
}

void trial_begin_records(struct trial *trial, uint64_t now)
{
	struct records *records = &trial->records;

	if (records->cycles == 0)
		return;
	records_slot(records, 0)->start = now - trial->started;
	records->end = now + records->cycles;
	fill(trial, 0);
}

/* Note what there is at the end of the present record, but for the loss. */
static void end_record(struct trial *trial, uint64_t end)
{
	struct records *records = &trial->records;
	struct record *slot = records_slot(records, records->filled);

	slot->end = end - trial->started;
	slot->real_time = seconds_of(CLOCK_REALTIME);
	slot->monotonic = seconds_of(CLOCK_MONOTONIC);
	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		slot->streams[i].counts = trial_counts(trial, i);
		records->streams[i] = (struct closing){.boundary = trial->streams[i].next};
	}
}

static void close_record(struct trial *trial, uint64_t number)
{
	struct records *records = &trial->records;
	struct record *slot = records_slot(records, number);

	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct trial_counts *counts = &slot->streams[i].counts;
		uint64_t lost = counts->sent - (trial->streams[i].sequence.unique - records->streams[i].after);

		slot->streams[i].in_flight = counts->lost - lost;
		counts->lost = lost;
	}
	records->closing = false;
	atomic_store_explicit(&records->closed, number + 1, memory_order_release);
}

void trial_look_at_records(struct trial *trial, uint64_t now)
{
	struct records *records = &trial->records;

	if (records->closing) {
		if (now >= records->closes_at)
			close_record(trial, records->filled - 1);
		return;
	}
	if (now < records->end)
		return;
	while (records->end <= now)
		records->end += records->cycles;
	/* With no slot free nobody has read for a long time: this record becomes longer. */
	if (records->filled + 1 - atomic_load_explicit(&records->kept, memory_order_acquire) >= RECORDS)
		return;
	end_record(trial, now);
	records_slot(records, records->filled + 1)->start = now - trial->started;
	fill(trial, records->filled + 1);
	records->closing = true;
	records->closes_at = now + records->wait;
}

void trial_end_records(struct trial *trial)
{
	struct records *records = &trial->records;

	if (records->cycles == 0)
		return;
	if (records->closing)
		close_record(trial, records->filled - 1);
	end_record(trial, trial->ended);
	close_record(trial, records->filled);
}

void trial_merge_records(struct trial *trial)
{
	struct records *records = &trial->records;
	uint64_t closed = atomic_load_explicit(&records->closed, memory_order_acquire);

	for (; records->merged < closed; records->merged++)
		for (uint16_t i = 0; i < trial->nb_streams; i++)
			histogram_merge(&trial->streams[i].latency,
					&records_slot(records, records->merged)->streams[i].latency);
}

void trial_release_records(struct trial *trial, uint64_t number)
{
	struct records *records = &trial->records;
	uint64_t kept = atomic_load_explicit(&records->kept, memory_order_relaxed);

	trial_merge_records(trial);
	for (; kept < RTE_MIN(number, records->merged); kept++)
		for (uint16_t i = 0; i < trial->nb_streams; i++)
			histogram_clear(&records_slot(records, kept)->streams[i].latency);
	atomic_store_explicit(&records->kept, kept, memory_order_release);
}
