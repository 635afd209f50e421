/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_common.h>
#include <rte_version.h>

#include "describe.h"
#include "methods.h"
#include "order.h"

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
	trial = order_read(tester, params, error);
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

/* May be asked while the trial runs: the switch does not remember for long where its frames were. */
static json_t *trial_worst(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;

	if (tester->trial == NULL)
		return control_fail(error, CONTROL_FAILED, "there is no trial; begin one with trial.start");
	return json_pack("{s:o}", "frames", describe_worst(tester->trial));
}

static json_t *trial_samples(void *context, json_t *params, struct control_error *error)
{
	struct tester *tester = context;
	struct samples *samples;

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
	return json_pack("{s:s, s:s, s:s}", "program", "tailrace-tester", "version", TAILRACE_VERSION, "dpdk",
			 rte_version());
}

#define NONE CONTROL_NO_PARAMS
const struct control_method tester_methods[] = {
	{"version", version, NONE},
	{"port.list", port_list, NONE},
	{"trial.start", trial_start, NULL}, /* order.h */
	{"trial.status", trial_status, NONE},
	{"trial.stop", trial_stop, NONE},
	{"trial.result", trial_result, NONE},
	{"trial.worst", trial_worst, NONE},
	{"trial.samples", trial_samples, NONE},
	{"trial.records", trial_records, CONTROL_PARAMS("kept")},
};
const size_t nb_tester_methods = RTE_DIM(tester_methods);
