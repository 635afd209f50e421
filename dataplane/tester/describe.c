/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_common.h>

#include "describe.h"

/* Of an empty tally the minimum is 0. */
static json_int_t least(const struct tally *tally)
{
	return tally->count > 0 ? (json_int_t)tally->min : 0;
}

json_t *describe_sum(unsigned __int128 sum)
{
	char digits[40]; /* of 2^128 - 1, and the end */
	char *at = digits + sizeof(digits);

	if (sum <= INT64_MAX)
		return json_integer((json_int_t)sum);
	for (*--at = '\0'; sum > 0; sum /= 10)
		*--at = (char)('0' + (int)(sum % 10));
	return json_string(at);
}

static json_t *describe_counts(const struct histogram *histogram)
{
	json_t *counts = json_array();

	for (uint32_t i = 0; i < HISTOGRAM_SIZE; i++)
		if (histogram->counts[i] > 0)
			json_array_append_new(counts,
					      json_pack("[I, I]", (json_int_t)i, (json_int_t)histogram->counts[i]));
	return counts;
}

json_t *describe_latency(const struct histogram *latency)
{
	return json_pack("{s:I, s:I, s:I, s:o, s:I, s:o}", "count", (json_int_t)latency->tally.count, "min_ns",
			 least(&latency->tally), "max_ns", (json_int_t)latency->tally.max, "sum_ns",
			 describe_sum(latency->tally.sum), "overflow", (json_int_t)latency->overflow, "counts",
			 describe_counts(latency));
}

/* The extents of reordered frames, in frames. */
static json_t *describe_extents(const struct sequence *sequence)
{
	const struct histogram *extents = &sequence->extents;

	return json_pack("{s:I, s:I, s:o, s:I, s:o}", "count", (json_int_t)extents->tally.count, "max",
			 (json_int_t)extents->tally.max, "sum", describe_sum(extents->tally.sum), "unknown",
			 (json_int_t)sequence->extent_unknown, "counts", describe_counts(extents));
}

static json_t *describe_window(const struct stream *stream)
{
	return json_integer((json_int_t)(stream->sequence.mask + 1));
}

json_t *describe_clock(const struct loop *loop)
{
	struct clock_reading now = clock_read();
	struct clock_check check = clock_compare(&loop->rate, &loop->began, &now);

	return json_pack("{s:s, s:b, s:I, s:f, s:f}", "source", "tsc", "invariant", 1, "hz", (json_int_t)loop->rate.hz,
			 "error_ppm", check.error * 1e6, "checked_seconds", check.seconds);
}

static json_t *describe_intervals(const struct trial *trial, const struct stream *stream, const struct clock_rate *rate)
{
	json_t *intervals = json_array();

	for (uint32_t i = 0; i < trial->nb_intervals; i++) {
		const struct interval *interval = &stream->intervals[i];
		double start = clock_seconds(rate, i * trial->interval_cycles);

		json_array_append_new(intervals,
				      json_pack("{s:f, s:I, s:I, s:I, s:I, s:o}", "start", start, "sent",
						(json_int_t)interval->sent, "received",
						(json_int_t)interval->latency.count, "max_ns",
						(json_int_t)interval->latency.max, "min_ns", least(&interval->latency),
						"sum_ns", describe_sum(interval->latency.sum)));
	}
	return intervals;
}

static void add_counts(json_t *result, const struct trial_counts *all)
{
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{"offered", all->offered},
		{"sent", all->sent},
		{"unsent", all->offered - all->sent},
		{"refused", all->refused},
		{"held", all->held},
		{"received", all->received},
		{"lost", all->lost},
		{"duplicate", all->duplicate},
		{"out_of_sequence", all->out_of_sequence},
		{"beyond_window", all->beyond_window},
		{"foreign", all->foreign},
		{"latest", all->latest},
		{"sent_bytes", all->sent_bytes},
		{"received_bytes", all->received_bytes},
	};

	for (size_t i = 0; i < RTE_DIM(counts); i++)
		json_object_set_new(result, counts[i].key, json_integer((json_int_t)counts[i].value));
}

json_t *describe_stream(const struct tester *tester, const struct trial *trial, uint16_t number)
{
	const struct stream *stream = &trial->streams[number];
	const struct clock_rate *rate = &tester->loop.rate;
	const struct trial_counts counts = trial_counts(trial, number);
	json_t *result = json_pack("{s:s, s:s, s:s}", "name", stream->name, "from",
				   tester->loop.ports[stream->from].name, "to", tester->loop.ports[stream->to].name);

	add_counts(result, &counts);
	json_object_set_new(result, "sent_seconds",
			    json_real(clock_seconds(rate, stream->last_sent - stream->first_sent)));
	json_object_set_new(result, "received_seconds",
			    json_real(clock_seconds(rate, stream->last_received - stream->first_received)));
	json_object_set_new(result, "longest_gap_ns", json_integer((json_int_t)clock_ns(rate, stream->longest_gap)));
	json_object_set_new(result, "latency", describe_latency(&stream->latency));
	json_object_set_new(result, "window", describe_window(stream));
	json_object_set_new(result, "extents", describe_extents(&stream->sequence));
	json_object_set_new(result, "intervals", describe_intervals(trial, stream, rate));
	return result;
}

json_t *describe_record(const struct tester *tester, const struct trial *trial, uint64_t number)
{
	const struct record *record = &trial->records.slots[number % RECORDS];
	const struct clock_rate *rate = &tester->loop.rate;
	json_t *streams = json_array();

	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		json_t *stream = json_pack("{s:s, s:I, s:o}", "name", trial->streams[i].name, "in_flight",
					   (json_int_t)record->streams[i].in_flight, "latency",
					   describe_latency(&record->streams[i].latency));

		add_counts(stream, &record->streams[i].counts);
		json_object_set_new(stream, "window", describe_window(&trial->streams[i]));
		json_array_append_new(streams, stream);
	}
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "number", (json_int_t)number, "start",
			 clock_seconds(rate, record->start), "end", clock_seconds(rate, record->end), "real_time",
			 record->real_time, "monotonic", record->monotonic, "streams", streams);
}

json_t *describe_sightings(const struct sighting *frames, uint32_t count)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("[i, I, I, I]", frames[i].stream, (json_int_t)frames[i].sequence,
						      (json_int_t)frames[i].sent, (json_int_t)frames[i].received));
	return list;
}

json_t *describe_worst(const struct trial *trial)
{
	struct sighting frames[WORST];

	return describe_sightings(frames, worst_read(&trial->worst, frames));
}
