/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "steer/matches.h"
#include "switch/apply.h"
#include "switch/generation.h"
#include "switch/observe.h"
#include "switch/switch.h"

enum { MATCHES = 64, RING_LEAST = 1 << 16, RING_MOST = 1 << 30, READ_MOST = 4096 };

void observe_open(struct observation *observation)
{
	TAILQ_INIT(&observation->captures);
}

void observe_close(struct observation *observation)
{
	struct capture_session *session;

	while ((session = TAILQ_FIRST(&observation->captures)) != NULL) {
		TAILQ_REMOVE(&observation->captures, session, entry);
		capture_close(session);
	}
	parking_close_all(observation);
	follow_close(observation->follow);
}

/*
 * Build what distinguishes frames that match from others: an alternative for each entry of `list`.  NULL or an empty
 * list match every frame: `*match` is NULL.  Returns whether all is well.
 */
static bool read_match(json_t *list, struct classifier **match, struct control_error *error)
{
	const struct place at = {.key = "match"};
	struct fields fields = {.error = error};
	struct rule rules[MATCHES];
	unsigned culprit;
	json_t *entry;
	size_t i;
	int rc;

	*match = NULL;
	if (list != NULL && (!json_is_array(list) || json_array_size(list) > MATCHES)) {
		control_fail(error, CONTROL_INVALID_PARAMS, "match: expected a list of up to %d alternatives", MATCHES);
		return false;
	}
	if (json_array_size(list) == 0)
		return true;
	memset(rules, 0, sizeof(rules));
	json_array_foreach (list, i, entry) {
		if (!match_read(&fields, &(struct place){.up = &at, .index = i}, entry, &rules[i].match))
			return false;
		rules[i].action = 1;
	}
	rc = classifier_build(match, rules, (unsigned)json_array_size(list), 0, &culprit);
	if (rc == -EINVAL)
		control_fail(error, CONTROL_INVALID_PARAMS, "match[%u]: nothing can match this", culprit);
	else if (rc != 0)
		control_fail(error, CONTROL_FAILED, "match: %s",
			     rc == -ENOMEM ? "out of memory" : "its ranges are too many to be looked up quickly");
	return rc == 0;
}

/* One that matches every frame. */
static struct classifier *match_all(void)
{
	struct classifier *match;
	unsigned culprit;

	return classifier_build(&match, NULL, 0, 1, &culprit) == 0 ? match : NULL;
}

/* ------- captures ------- */

static struct capture_session *find_capture(struct switch_state *state, unsigned id)
{
	struct capture_session *session;

	TAILQ_FOREACH (session, &state->observation.captures, entry)
		if (session->id == id)
			return session;
	return NULL;
}

static int end_capture(struct switch_state *state, struct capture_session *session, struct control_error *error)
{
	struct observation *observation = &state->observation;

	TAILQ_REMOVE(&observation->captures, session, entry);
	if (reconcile(state, error) != 0) {
		TAILQ_INSERT_TAIL(&observation->captures, session, entry);
		return -1;
	}
	observation->nb_captures--;
	capture_close(session);
	return 0;
}

static json_t *begin_capture(struct switch_state *state, const struct capture_options *options,
			     struct control_error *error)
{
	struct observation *observation = &state->observation;
	struct capture_session *session = capture_open(options, ++observation->last_capture);

	if (session == NULL)
		return control_fail(error, CONTROL_FAILED, "no room for %u buffers of %zu bytes beside %s: %s",
				    options->workers, options->ring, options->folder_path, strerror(errno));
	TAILQ_INSERT_TAIL(&observation->captures, session, entry);
	observation->nb_captures++;
	if (reconcile(state, error) == 0)
		return capture_describe(session);
	TAILQ_REMOVE(&observation->captures, session, entry);
	observation->nb_captures--;
	capture_close(session);
	return NULL;
}

json_t *observe_capture_start(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	const char *port = NULL, *chain = NULL, *direction = "both";
	struct capture_options options = {.workers = state->workers.count, .folder_path = state->page_path};
	json_int_t snaplen = CAPTURE_SNAPLEN, buffer = 16 << 20;
	json_t *match = NULL;

	if (control_unpack(params, error, "{s?:s, s?:s, s?:s, s?:o, s?:I, s?:I}", "port", &port, "chain", &chain,
			   "direction", &direction, "match", &match, "snaplen", &snaplen, "buffer", &buffer) != 0)
		return NULL;
	if ((port == NULL) == (chain == NULL))
		return control_fail(error, CONTROL_INVALID_PARAMS, "expected a 'port' or a 'chain'");
	if (port != NULL && names_find(&state->model->ports_by_name, port) == NULL)
		return control_fail(error, CONTROL_UNKNOWN, "no port '%s'", port);
	if (chain != NULL && names_find(&state->model->chains_by_name, chain) == NULL)
		return control_fail(error, CONTROL_UNKNOWN, "no chain '%s'", chain);
	options.in = strcmp(direction, "out") != 0;
	options.out = strcmp(direction, "in") != 0;
	if (options.in && options.out && strcmp(direction, "both") != 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "direction: expected in, out or both");
	if (snaplen < 14 || snaplen > CAPTURE_SNAPLEN)
		return control_fail(error, CONTROL_INVALID_PARAMS, "snaplen: expected 14 to %d bytes", CAPTURE_SNAPLEN);
	if (buffer < RING_LEAST || buffer > RING_MOST || (buffer & (buffer - 1)) != 0)
		return control_fail(error, CONTROL_INVALID_PARAMS, "buffer: expected a power of two, %d to %d bytes",
				    RING_LEAST, RING_MOST);
	if (state->observation.nb_captures == CAPTURES)
		return control_fail(error, CONTROL_FAILED, "there are %d captures already; end one of them", CAPTURES);
	if (!read_match(match, &options.match, error))
		return NULL;
	options.of_chain = chain != NULL;
	options.name = chain != NULL ? chain : port;
	options.snaplen = (unsigned)snaplen;
	options.ring = (size_t)buffer;
	return begin_capture(state, &options, error);
}

/* The session that the params name, or NULL with the error filled in. */
static struct capture_session *named_capture(struct switch_state *state, json_t *params, struct control_error *error)
{
	struct capture_session *session;
	int id;

	if (control_unpack(params, error, "{s:i}", "capture", &id) != 0)
		return NULL;
	session = find_capture(state, (unsigned)id);
	if (session == NULL)
		control_fail(error, CONTROL_UNKNOWN, "no capture %d; one that is not asked after for %d s ends", id,
			     CAPTURE_LEASE);
	return session;
}

json_t *observe_capture_status(void *context, json_t *params, struct control_error *error)
{
	struct capture_session *session = named_capture(context, params, error);

	if (session == NULL)
		return NULL;
	session->asked_at = rte_rdtsc();
	capture_set_clock(session);
	return capture_describe(session);
}

json_t *observe_capture_stop(void *context, json_t *params, struct control_error *error)
{
	struct capture_session *session = named_capture(context, params, error);

	if (session == NULL || end_capture(context, session, error) != 0)
		return NULL;
	return json_object();
}

/* ------- following ------- */

static int end_following(struct switch_state *state, struct control_error *error)
{
	struct follow *follow = state->observation.follow;

	state->observation.follow = NULL;
	if (reconcile(state, error) != 0) {
		state->observation.follow = follow;
		return -1;
	}
	follow_close(follow);
	return 0;
}

json_t *observe_trace_start(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct observation *observation = &state->observation;
	struct classifier *classifier;
	json_t *match = NULL;
	json_int_t count = 1;

	if (control_unpack(params, error, "{s?:o, s?:I}", "match", &match, "count", &count) != 0)
		return NULL;
	if (count < 1 || count > FOLLOW_FRAMES)
		return control_fail(error, CONTROL_INVALID_PARAMS, "count: expected 1 to %d frames", FOLLOW_FRAMES);
	if (observation->follow != NULL)
		return control_fail(error, CONTROL_IN_USE, "frames are being followed already; end that, or wait");
	if (!read_match(match, &classifier, error))
		return NULL;
	if (classifier == NULL)
		classifier = match_all();
	if (classifier != NULL)
		observation->follow = follow_open(classifier, (unsigned)count, state->workers.count);
	if (observation->follow == NULL)
		return control_fail(error, CONTROL_FAILED, "out of memory");
	observation->follow_asked_at = rte_rdtsc();
	if (reconcile(state, error) != 0) {
		follow_close(observation->follow);
		observation->follow = NULL;
		return NULL;
	}
	return json_pack("{s:I}", "tsc_hz", (json_int_t)rte_get_tsc_hz());
}

json_t *observe_trace_read(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_int_t most = READ_MOST;

	if (control_unpack(params, error, "{s?:I}", "most", &most) != 0)
		return NULL;
	if (state->observation.follow == NULL)
		return control_fail(error, CONTROL_UNKNOWN, "no frames are being followed");
	state->observation.follow_asked_at = rte_rdtsc();
	return follow_read(state->observation.follow, most > 0 && most < READ_MOST ? (unsigned)most : READ_MOST);
}

json_t *observe_trace_stop(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;

	if (state->observation.follow != NULL && end_following(state, error) != 0)
		return NULL;
	return json_object();
}

/* ------- the hop trace ------- */

json_t *observe_trace_key(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	struct trace *trace = state->generation->trace;
	json_int_t key;

	if (control_unpack(params, error, "{s:I}", "key", &key) != 0)
		return NULL;
	if (key < 0 || key > UINT32_MAX)
		return control_fail(error, CONTROL_INVALID_PARAMS, "key: expected a number of 32 bits");
	if (trace == NULL)
		return control_fail(error, CONTROL_UNKNOWN,
				    "there is no trace; configure one, as {\"trace\": {\"every\": 1024}}");
	trace_set_key(trace, (uint32_t)key);
	return json_pack("{s:s}", "path", trace->path);
}

/* ------- readers that have died ------- */

static bool is_forgotten(uint64_t asked_at)
{
	return rte_rdtsc() - asked_at > CAPTURE_LEASE * rte_get_tsc_hz();
}

void observe_tick(struct switch_state *state)
{
	struct observation *observation = &state->observation;
	struct capture_session *session, *next;
	struct control_error error;

	for (session = TAILQ_FIRST(&observation->captures); session != NULL; session = next) {
		next = TAILQ_NEXT(session, entry);
		if (!is_forgotten(session->asked_at))
			continue;
		log_info("capture %u of %s ends: its reader has not been heard of for %d s", session->id, session->name,
			 CAPTURE_LEASE);
		if (end_capture(state, session, &error) != 0)
			log_warning("capture %u: %s", session->id, error.message);
	}
	parking_tick(state);
	if (observation->follow != NULL && is_forgotten(observation->follow_asked_at))
		end_following(state, &error);
}
