/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include <rte_common.h>
#include <rte_version.h>

#include <sys/random.h>

#include "common/signature.h"
#include "methods.h"

enum {
	WEIGHT_LARGEST = 1000000,
	LONGEST_TRIAL = 30 * 86400, /* seconds; so below */
	LONGEST_WAIT = 3600,
	WINDOW_LEAST = 64, /* frames */
	WINDOW_MOST = 1 << 28,
};

#define SHORTEST_INTERVAL 1e-3
#define SHORTEST_RECORD	  1e-2
#define FASTEST		  1e9 /* frames a second; above any port, below any TSC */

/* An object of parameters, read key by key; `where` ("streams[0].") tells which in messages. */
struct parameters {
	json_t *object;
	char where[48];
	struct control_error *error;
};

/* Refuse keys that are not in the list, which ends with NULL.  Returns 0 or -EINVAL with the error filled in. */
static int check_keys(const struct parameters *parameters, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach (parameters->object, key, value) {
		size_t i = 0;

		while (known[i] != NULL && strcmp(known[i], key) != 0)
			i++;
		if (known[i] == NULL) {
			control_fail(parameters->error, CONTROL_INVALID_PARAMS, "%s%.64s: unknown key",
				     parameters->where, key);
			return -EINVAL;
		}
	}
	return 0;
}

static int wrong(const struct parameters *parameters, const char *key, const char *expected)
{
	control_fail(parameters->error, CONTROL_INVALID_PARAMS, "%s%s: expected %s", parameters->where, key, expected);
	return -EINVAL;
}

/* Read a number from low to high; a missing one is the fallback, or wrong if that is NAN. */
static int take_number(const struct parameters *parameters, const char *key, double low, double high, double fallback,
		       double *number)
{
	json_t *value = json_object_get(parameters->object, key);
	char expected[96];

	*number = value != NULL ? json_number_value(value) : fallback;
	if ((value == NULL || json_is_number(value)) && *number >= low && *number <= high)
		return 0;
	snprintf(expected, sizeof(expected), "a number from %.16g to %.16g", low, high);
	return wrong(parameters, key, expected);
}

static int take_integer(const struct parameters *parameters, const char *key, json_int_t low, json_int_t high,
			json_int_t fallback, json_int_t *number)
{
	json_t *value = json_object_get(parameters->object, key);
	char expected[96];

	*number = value != NULL ? json_integer_value(value) : fallback;
	if (value == NULL || (json_is_integer(value) && *number >= low && *number <= high))
		return 0;
	snprintf(expected, sizeof(expected), "an integer from %lld to %lld", (long long)low, (long long)high);
	return wrong(parameters, key, expected);
}

/* Read the name of a port of ours. */
static int take_port(const struct parameters *parameters, const char *key, const struct loop *loop, uint16_t *port)
{
	const char *name = json_string_value(json_object_get(parameters->object, key));

	if (name == NULL)
		return wrong(parameters, key, "the name of a port");
	for (*port = 0; *port < loop->nb_ports; (*port)++)
		if (strcmp(loop->ports[*port].name, name) == 0)
			return 0;
	control_fail(parameters->error, CONTROL_UNKNOWN, "%s%s: no port '%.32s'; see port.list", parameters->where, key,
		     name);
	return -EINVAL;
}

/* Read a list of 1 to FRAME_KINDS integers; returns how many, or -EINVAL. */
static int take_list(const struct parameters *parameters, const char *key, json_int_t low, json_int_t high,
		     json_int_t *list)
{
	json_t *value = json_object_get(parameters->object, key), *item;
	char expected[128];
	size_t i;

	snprintf(expected, sizeof(expected), "a list of 1 to %d integers from %lld to %lld", FRAME_KINDS,
		 (long long)low, (long long)high);
	if (!json_is_array(value) || json_array_size(value) < 1 || json_array_size(value) > FRAME_KINDS)
		return wrong(parameters, key, expected);
	json_array_foreach (value, i, item) {
		list[i] = json_integer_value(item);
		if (!json_is_integer(item) || list[i] < low || list[i] > high)
			return wrong(parameters, key, expected);
	}
	return (int)json_array_size(value);
}

/* Read what a stream sends: "frames" with "weights", or "pcap". */
static int take_traffic(const struct parameters *parameters, struct frames_plan *plan)
{
	json_int_t sizes[FRAME_KINDS], weights[FRAME_KINDS];
	json_t *capture = json_object_get(parameters->object, "pcap");
	int nb_sizes, nb_weights;

	if (capture != NULL) {
		if (json_object_get(parameters->object, "frames") || json_object_get(parameters->object, "weights") ||
		    json_object_get(parameters->object, "flows") || json_object_get(parameters->object, "flow"))
			return wrong(parameters, "pcap", "either this or 'frames', 'weights', 'flows' and 'flow'");
		plan->capture = json_string_value(capture);
		return plan->capture != NULL ? 0 : wrong(parameters, "pcap", "the path of a capture file");
	}
	nb_sizes = take_list(parameters, "frames", FRAME_SMALLEST,
			     RTE_MIN(FRAME_LARGEST, plan->longest + RTE_ETHER_CRC_LEN), sizes);
	if (nb_sizes < 0)
		return nb_sizes;
	nb_weights = nb_sizes;
	if (json_object_get(parameters->object, "weights") != NULL) {
		nb_weights = take_list(parameters, "weights", 1, WEIGHT_LARGEST, weights);
		if (nb_weights < 0)
			return nb_weights;
		if (nb_weights != nb_sizes)
			return wrong(parameters, "weights", "as many as 'frames'");
	} else {
		for (int i = 0; i < nb_sizes; i++)
			weights[i] = 1;
	}
	for (int i = 0; i < nb_sizes; i++) {
		plan->sizes[i] = (uint16_t)sizes[i];
		plan->weights[i] = (uint32_t)weights[i];
	}
	plan->nb_sizes = (uint16_t)nb_sizes;
	return 0;
}

static int take_name(const struct parameters *parameters, const struct trial *trial, struct stream *stream)
{
	const char *name = json_string_value(json_object_get(parameters->object, "name"));

	if (name == NULL || *name == '\0' || strlen(name) >= TRIAL_NAME)
		return wrong(parameters, "name", "a name of 1 to 63 bytes");
	for (const struct stream *other = trial->streams; other < stream; other++)
		if (strcmp(other->name, name) == 0)
			return wrong(parameters, "name", "a name that no other stream has");
	strcpy(stream->name, name);
	return 0;
}

static int take_stream(const struct parameters *parameters, struct tester *tester, struct trial *trial,
		       struct stream *stream)
{
	static const char *const known[] = {"name", "from",   "to",	 "rate", "count", "flows",
					    "flow", "frames", "weights", "pcap", NULL};
	struct frames_plan plan = {.first_sequence = trial->first_sequence};
	char why[sizeof(parameters->error->message)];
	json_int_t flows, flow, count;
	double rate;
	int rc;

	if (!json_is_object(parameters->object))
		return wrong(parameters, "", "an object");
	if (check_keys(parameters, known) != 0 || take_name(parameters, trial, stream) != 0 ||
	    take_port(parameters, "from", &tester->loop, &stream->from) != 0 ||
	    take_port(parameters, "to", &tester->loop, &stream->to) != 0 ||
	    take_number(parameters, "rate", 0, FASTEST, NAN, &rate) != 0 ||
	    take_integer(parameters, "count", 1, INT64_MAX, INT64_MAX, &count) != 0 ||
	    take_integer(parameters, "flows", 1, FRAME_FLOWS, 1, &flows) != 0 ||
	    take_integer(parameters, "flow", 0, FRAME_FLOWS - flows, 0, &flow) != 0)
		return -EINVAL;
	plan.flows = (uint32_t)flows;
	plan.first_flow = (uint32_t)flow;
	plan.port = stream->from;
	plan.reverse = stream->from > stream->to;
	plan.longest = RTE_MIN(tester->loop.ports[stream->from].device.longest,
			       tester->loop.ports[stream->to].device.longest);
	if (take_traffic(parameters, &plan) != 0)
		return -EINVAL;

	rc = frames_open(&stream->frames, &plan, &tester->pools, why, sizeof(why));
	if (rc != 0) {
		control_fail(parameters->error, rc == -EINVAL ? CONTROL_INVALID_PARAMS : CONTROL_FAILED, "%s%s%.400s",
			     parameters->where, plan.capture ? "pcap: " : "", why);
		return rc;
	}
	if (sequence_open(&stream->sequence, trial->first_sequence, trial->window) != 0) {
		control_fail(parameters->error, CONTROL_FAILED, "no memory for another stream; use a smaller 'window'");
		return -ENOMEM;
	}
	stream->next = trial->first_sequence;
	stream->pace = pace_plan(rate, trial->duration, TRIAL_PATIENCE, tester->loop.rate.hz);
	stream->pace.total = RTE_MIN(stream->pace.total, (uint64_t)count);
	return 0;
}

/* Make the trial that the parameters describe; NULL with the error filled in. */
static struct trial *take_trial(struct tester *tester, json_t *params, struct control_error *error)
{
	static const char *const known[] = {"duration", "wait",	  "interval", "record", "first_sequence", "window",
					    "key",	"sample", "streams",  "age",	"clock_wraps_in", NULL};
	struct parameters parameters = {.object = params, .error = error};
	json_t *streams = json_object_get(params, "streams"), *item;
	double duration, wait, interval, record, age, wraps_in;
	json_int_t first_sequence, window, key, sample;
	struct trial *trial;
	size_t i;

	if (check_keys(&parameters, known) != 0 ||
	    take_number(&parameters, "duration", SHORTEST_INTERVAL, LONGEST_TRIAL, NAN, &duration) != 0 ||
	    take_number(&parameters, "wait", 0, LONGEST_WAIT, 0.5, &wait) != 0 ||
	    take_number(&parameters, "interval", SHORTEST_INTERVAL, LONGEST_TRIAL, 0.1, &interval) != 0 ||
	    take_integer(&parameters, "first_sequence", 0, (json_int_t)SIGNATURE_MASK, 0, &first_sequence) != 0 ||
	    take_integer(&parameters, "window", WINDOW_LEAST, WINDOW_MOST, SEQUENCE_WINDOW, &window) != 0 ||
	    take_integer(&parameters, "key", 0, UINT32_MAX, -1, &key) != 0 ||
	    take_integer(&parameters, "sample", 0, (json_int_t)SIGNATURE_MASK, 0, &sample) != 0 ||
	    take_number(&parameters, "record", 0, LONGEST_TRIAL, 0, &record) != 0 ||
	    take_number(&parameters, "age", 0, duration, 0, &age) != 0 ||
	    take_number(&parameters, "clock_wraps_in", 0, LONGEST_WAIT, 0, &wraps_in) != 0)
		return NULL;
	if (record > 0 && record < SHORTEST_RECORD) {
		wrong(&parameters, "record", "at least 0.01 seconds, or 0");
		return NULL;
	}
	if ((sample & (sample - 1)) != 0) {
		wrong(&parameters, "sample", "a power of two, or 0");
		return NULL;
	}
	if ((window & (window - 1)) != 0) {
		wrong(&parameters, "window", "a power of two");
		return NULL;
	}
	if (!json_is_array(streams) || json_array_size(streams) < 1 || json_array_size(streams) > TRIAL_STREAMS) {
		wrong(&parameters, "streams", "a list of 1 to 64 streams");
		return NULL;
	}

	trial = trial_make((uint16_t)json_array_size(streams));
	if (trial == NULL)
		return control_fail(error, CONTROL_FAILED, "no memory for %zu streams", json_array_size(streams)), NULL;
	trial->duration = duration;
	trial->wait = wait;
	trial->interval = interval;
	trial->record = record;
	trial->age = age;
	if (wraps_in > 0)
		trial->clock_ahead = -(rte_rdtsc() + clock_cycles(&tester->loop.rate, wraps_in)) & SIGNATURE_MASK;
	trial->first_sequence = (uint64_t)first_sequence;
	trial->window = (uint64_t)window;
	trial->samples.every = (uint64_t)sample;
	trial->key = (uint32_t)key;
	if (json_object_get(params, "key") == NULL &&
	    getrandom(&trial->key, sizeof(trial->key), 0) != sizeof(trial->key)) {
		control_fail(error, CONTROL_FAILED, "no random key for the signatures: %s", strerror(errno));
		goto fail;
	}
	if (record > 0 && trial_open_records(trial, &tester->loop.rate) != 0) {
		control_fail(error, CONTROL_FAILED, "no memory for the records of %zu streams",
			     json_array_size(streams));
		goto fail;
	}
	json_array_foreach (streams, i, item) {
		parameters.object = item;
		snprintf(parameters.where, sizeof(parameters.where), "streams[%zu].", i);
		if (take_stream(&parameters, tester, trial, &trial->streams[i]) != 0)
			goto fail;
	}
	return trial;
fail:
	trial_free(trial);
	return NULL;
}

static json_t *trial_start(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	struct trial *trial;

	if (loop_busy(&tester->loop))
		return control_fail(error, CONTROL_FAILED, "a trial is running; wait for its end, or use trial.stop");
	for (uint16_t i = 0; i < tester->loop.nb_ports; i++)
		if (!atomic_load_explicit(&tester->loop.ports[i].up, memory_order_relaxed))
			return control_fail(
				error, CONTROL_FAILED, "port %s (%.128s) is down; bring up what is at its other end%s",
				tester->loop.ports[i].name, tester->loop.ports[i].uri,
				tester->loop.ports[i].device.kind == DEVICE_VHOST ? ", and start the tester again"
										  : "");
	trial = take_trial(tester, params, error);
	if (trial == NULL)
		return NULL;
	trial_free(tester->trial);
	tester->trial = trial;
	loop_start(&tester->loop, trial);
	return json_object();
}

static json_t *trial_stop(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	if (tester->trial == NULL)
		return control_fail(error, CONTROL_FAILED, "there is no trial; begin one with trial.start");
	loop_stop(&tester->loop);
	return json_object();
}

static json_t *trial_status(void *context, json_t *params, struct control_error *error)
{
	static const char *const states[] = {
		[TRIAL_RUNNING] = "running",
		[TRIAL_WAITING] = "waiting",
		[TRIAL_DONE] = "done",
		[TRIAL_FAILED] = "failed",
	};
	struct tester *tester = context;
	struct trial *trial = tester->trial;
	json_t *streams;
	bool busy;
	int state;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	streams = json_array();
	if (trial == NULL)
		return json_pack("{s:s, s:f, s:o, s:n}", "state", "idle", "elapsed", 0.0, "streams", streams, "reason");

	/* Ended is what the loop has let go of: only then is the result complete. */
	busy = loop_busy(&tester->loop);
	state = atomic_load_explicit(&trial->state, memory_order_relaxed);
	if (busy && state != TRIAL_RUNNING)
		state = TRIAL_WAITING;
	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		struct stream *stream = &trial->streams[i];
		uint64_t sent = atomic_load_explicit(&stream->sent_so_far, memory_order_relaxed);
		uint64_t received = atomic_load_explicit(&stream->received_so_far, memory_order_relaxed);

		json_array_append_new(streams, json_pack("{s:s, s:I, s:I}", "name", stream->name, "sent",
							 (json_int_t)sent, "received", (json_int_t)received));
	}
	return json_pack("{s:s, s:f, s:o, s:s?}", "state", states[state], "elapsed",
			 clock_seconds(&tester->loop.rate, atomic_load_explicit(&trial->elapsed, memory_order_relaxed)),
			 "streams", streams, "reason", state == TRIAL_FAILED ? trial->reason : NULL);
}

/* Of an empty tally the minimum is 0. */
static json_int_t least(const struct tally *tally)
{
	return tally->count > 0 ? (json_int_t)tally->min : 0;
}

/* A sum that no integer of JSON holds is rounded to 16 digits. */
static json_t *describe_sum(unsigned __int128 sum)
{
	return sum <= INT64_MAX ? json_integer((json_int_t)sum) : json_real((double)sum);
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

static json_t *describe_latency(const struct histogram *latency)
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

/* How well the clock has kept its rate since the start. */
static json_t *describe_clock(const struct loop *loop)
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
		{"sent_bytes", all->sent_bytes},
		{"received_bytes", all->received_bytes},
	};

	for (size_t i = 0; i < RTE_DIM(counts); i++)
		json_object_set_new(result, counts[i].key, json_integer((json_int_t)counts[i].value));
}

static json_t *describe_stream(const struct tester *tester, const struct trial *trial, uint16_t number)
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
	json_object_set_new(result, "latency", describe_latency(&stream->latency));
	json_object_set_new(result, "window", json_integer((json_int_t)(stream->sequence.mask + 1)));
	json_object_set_new(result, "latest", json_integer((json_int_t)stream->sequence.latest));
	json_object_set_new(result, "extents", describe_extents(&stream->sequence));
	json_object_set_new(result, "intervals", describe_intervals(trial, stream, rate));
	return result;
}

static json_t *describe_record(const struct tester *tester, const struct trial *trial, uint64_t number)
{
	const struct record *record = &trial->records.slots[number % RECORDS];
	const struct clock_rate *rate = &tester->loop.rate;
	json_t *streams = json_array();

	for (uint16_t i = 0; i < trial->nb_streams; i++) {
		json_t *stream = json_pack("{s:s, s:I, s:o}", "name", trial->streams[i].name, "in_flight",
					   (json_int_t)record->streams[i].in_flight, "latency",
					   describe_latency(&record->streams[i].latency));

		add_counts(stream, &record->streams[i].counts);
		json_array_append_new(streams, stream);
	}
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "number", (json_int_t)number, "start",
			 clock_seconds(rate, record->start), "end", clock_seconds(rate, record->end), "real_time",
			 record->real_time, "monotonic", record->monotonic, "streams", streams);
}

/* Interval records that are closed and not yet given back; those below `kept` are, with this call. */
static json_t *trial_records(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	json_t *list;
	json_int_t kept = 0;
	uint64_t from, to;
	bool busy;

	if (control_unpack(params, error, "{s?I}", "kept", &kept) != 0)
		return NULL;
	if (tester->trial == NULL || tester->trial->records.cycles == 0)
		return control_fail(error, CONTROL_FAILED, "there is no trial with records; begin one with `record`");
	if (kept < 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "kept: expected an integer from 0");
	busy = loop_busy(&tester->loop); /* asked before: what has ended by then has closed its last record */
	trial_release_records(tester->trial, (uint64_t)kept);
	from = atomic_load_explicit(&tester->trial->records.kept, memory_order_relaxed);
	to = tester->trial->records.merged;
	list = json_array();
	for (; from < to; from++)
		json_array_append_new(list, describe_record(tester, tester->trial, from));
	return json_pack("{s:b, s:o}", "ended", !busy, "records", list);
}

/* Frames as [stream, sequence, sent, received], times by the TSC. */
static json_t *describe_sightings(const struct sighting *frames, uint32_t count)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("[i, I, I, I]", frames[i].stream, (json_int_t)frames[i].sequence,
						      (json_int_t)frames[i].sent, (json_int_t)frames[i].received));
	return list;
}

static json_t *describe_worst(const struct trial *trial)
{
	struct sighting frames[WORST];

	return describe_sightings(frames, worst_read(&trial->worst, frames));
}

/* May be asked while the trial runs: the switch does not remember for long where its frames were. */
static json_t *trial_worst(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	if (tester->trial == NULL)
		return control_fail(error, CONTROL_FAILED, "there is no trial; begin one with trial.start");
	return json_pack("{s:o}", "frames", describe_worst(tester->trial));
}

static json_t *trial_samples(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	struct samples *samples;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	if (tester->trial == NULL || loop_busy(&tester->loop))
		return control_fail(error, CONTROL_FAILED, "there is no trial that has ended");
	samples = &tester->trial->samples;
	return json_pack("{s:I, s:o}", "every", (json_int_t)samples->every, "frames",
			 describe_sightings(samples->frames, samples->count));
}

static json_t *trial_result(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	struct trial *trial = tester->trial;
	json_t *streams;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	if (trial == NULL)
		return control_fail(error, CONTROL_FAILED, "there is no trial; begin one with trial.start");
	if (loop_busy(&tester->loop))
		return control_fail(error, CONTROL_FAILED,
				    "the trial is still running; ask trial.status until it is "
				    "done, or use trial.stop");
	trial_merge_records(trial);
	streams = json_array();
	for (uint16_t i = 0; i < trial->nb_streams; i++)
		json_array_append_new(streams, describe_stream(tester, trial, i));
	return json_pack("{s:I, s:o, s:f, s:f, s:b, s:f, s:o}", "tsc_hz", (json_int_t)tester->loop.rate.hz, "clock",
			 describe_clock(&tester->loop), "duration",
			 clock_seconds(&tester->loop.rate, trial->ended - trial->started), "interval",
			 clock_seconds(&tester->loop.rate, trial->interval_cycles), "stopped", trial->stopped,
			 "started_at", trial->started_at, "streams", streams);
}

static json_t *port_list(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	json_t *ports;

	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	ports = json_array();
	for (uint16_t i = 0; i < tester->loop.nb_ports; i++) {
		struct loop_port *port = &tester->loop.ports[i];
		bool up = atomic_load_explicit(&port->up, memory_order_relaxed);

		json_array_append_new(ports, json_pack("{s:s, s:s, s:s}", "name", port->name, "uri", port->uri, "link",
						       up ? "up" : "down"));
	}
	return ports;
}

static json_t *version(void *context, json_t *params, struct control_error *error)
{
	if (control_unpack(params, error, "{}") != 0)
		return NULL;
	return json_pack("{s:s, s:s, s:s}", "program", "tailrace-tester", "version", TAILRACE_VERSION, "dpdk",
			 rte_version());
}

const struct control_method tester_methods[] = {
	{"version", version},		{"port.list", port_list},	  {"trial.start", trial_start},
	{"trial.status", trial_status}, {"trial.stop", trial_stop},	  {"trial.result", trial_result},
	{"trial.worst", trial_worst},	{"trial.samples", trial_samples}, {"trial.records", trial_records},
};
const size_t nb_tester_methods = RTE_DIM(tester_methods);
