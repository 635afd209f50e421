/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include <rte_common.h>

#include <sys/random.h>

#include "common/signature.h"
#include "order.h"

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

struct trial *order_read(struct tester *tester, json_t *params, struct control_error *error)
{
	static const char *const known[] = {"duration",	      "wait",  "interval", "record",  "first_sequence",
					    "window",	      "key",   "sample",   "streams", "age",
					    "clock_wraps_in", "learn", NULL};
	struct parameters parameters = {.object = params, .error = error};
	json_t *streams = json_object_get(params, "streams"), *learn = json_object_get(params, "learn"), *item;
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
	if (learn != NULL && !json_is_boolean(learn)) {
		wrong(&parameters, "learn", "true or false");
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
	trial->learn = json_is_true(learn);
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
