/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "switch/apply.h"
#include "switch/balance.h"
#include "switch/config.h"
#include "switch/diff.h"
#include "switch/events.h"
#include "switch/generation.h"
#include "switch/model.h"
#include "switch/patch.h"
#include "switch/store.h"
#include "switch/switch.h"

/* What DPDK's heap takes of its memory by itself. */
enum { HEAP_OVERHEAD_MIB = 1 };

static void sign(struct config *config, struct control_caller caller)
{
	const time_t now = time(NULL);
	struct tm utc;

	config->author.pid = caller.pid;
	config->author.uid = caller.uid;
	strftime(config->author.when, sizeof(config->author.when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

/* Is `base`, if it is given, the version that holds?  Returns false after filling in the error. */
static bool on_base(const struct config *config, json_t *base, struct control_error *error)
{
	if (base != NULL && (!json_is_integer(base) || json_integer_value(base) < 0)) {
		control_fail(error, CONTROL_INVALID_PARAMS, "base: expected the number of a version");
		return false;
	}
	if (base == NULL || (uint64_t)json_integer_value(base) == config->version)
		return true;
	control_fail(error, CONTROL_CONFLICT,
		     "version %" PRIu64
		     " won: process %d of user %u made it at %s, and this change is based on %" PRIu64,
		     config->version, config->author.pid, config->author.uid, config->author.when,
		     (uint64_t)json_integer_value(base));
	return false;
}

/* The document that params ask for, a new reference, and the patch that they have or NULL; NULL: see the error. */
static json_t *wanted(const struct config *config, json_t *params, json_t **patch, struct control_error *error)
{
	json_t *document = NULL, *base = NULL, *merged;

	*patch = NULL;
	if (control_unpack(params, error, "{s?o, s?o, s?o}", "config", &document, "patch", patch, "base", &base) != 0)
		return NULL;
	if ((document == NULL) == (*patch == NULL))
		return control_fail(error, CONTROL_INVALID_PARAMS, "params: expected a 'config' or a 'patch'");
	if (!on_base(config, base, error))
		return NULL;
	if (document != NULL)
		return json_incref(document);
	merged = patch_merge(config->document, *patch);
	return merged ? merged : control_fail(error, CONTROL_FAILED, "out of memory");
}

static json_t *answer(const struct config *config, json_t *changes)
{
	return json_pack("{s:I, s:o}", "version", (json_int_t)config->version, "changes", changes);
}

json_t *config_get(void *context, json_t *params, struct control_error *error)
{
	const struct config *config = &((struct switch_state *)context)->config;

	return json_pack("{s:I, s:O}", "version", (json_int_t)config->version, "config", config->document);
}

/* Read a document and compare it with the one that holds.  Returns the changes and the model, or NULL. */
static json_t *read_change(const struct switch_state *state, json_t *document, struct model **model,
			   struct control_error *error)
{
	*model = model_make(document, state->workers.count, error);
	return *model != NULL ? config_diff(state->config.document, document) : NULL;
}

json_t *config_plan(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *patch, *document = wanted(&state->config, params, &patch, error), *changes;
	struct model *model;

	if (document == NULL)
		return NULL;
	changes = read_change(state, document, &model, error);
	if (changes != NULL && apply_try(state, model, error) != 0) {
		json_decref(changes);
		changes = NULL;
	}
	model_free(model);
	json_decref(document);
	return changes != NULL ? answer(&state->config, changes) : NULL;
}

/* Those who listen hear of the ports at once. */
static void look_again(struct switch_state *state)
{
	if (control_is_heard(state->control))
		balance_recount(state);
}

/*
 * Make the document hold, which is what the patch makes of the one that does, if there is a patch.  What the file will
 * say is written first, so that a full disk refuses the change before anything is done.
 */
static json_t *change(struct switch_state *state, json_t *document, json_t *patch, struct control_error *error)
{
	struct config *config = &state->config;
	struct config next = {
		.version = config->version + 1,
		.document = document,
		.previous = config->document,
		.path = config->path,
		.store = config->store,
	};
	struct model *model;
	json_t *changes = read_change(state, document, &model, error);

	if (changes == NULL)
		goto fail;
	if (json_array_size(changes) == 0 && !generation_lacks_a_port(state->generation)) {
		model_free(model);
		return answer(config, changes);
	}
	/* The same again: what a change that failed has left closed is opened now. */
	if (json_array_size(changes) == 0) {
		if (apply(state, model, error) != 0)
			goto fail;
		look_again(state);
		return answer(config, changes);
	}
	sign(&next, control_caller(state->control));
	if (store_prepare(&next, patch, error) != 0)
		goto fail;
	if (apply(state, model, error) != 0) {
		events_gone(state);
		store_abandon(&next);
		goto fail;
	}
	store_commit(&next);
	json_incref(document);
	json_decref(config->previous);
	*config = next;
	events_config(state);
	look_again(state);
	return answer(config, changes);
fail:
	model_free(model);
	json_decref(changes);
	return NULL;
}

json_t *config_apply(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *patch, *document = wanted(&state->config, params, &patch, error);
	json_t *result = document != NULL ? change(state, document, patch, error) : NULL;

	json_decref(document);
	return result;
}

json_t *config_rollback(void *context, json_t *params, struct control_error *error)
{
	struct switch_state *state = context;
	json_t *base = NULL, *document, *result;

	if (control_unpack(params, error, "{s?o}", "base", &base) != 0 || !on_base(&state->config, base, error))
		return NULL;
	if (state->config.previous == NULL)
		return control_fail(error, CONTROL_FAILED, "there is no earlier configuration to go back to");
	document = json_incref(state->config.previous);
	result = change(state, document, NULL, error);
	json_decref(document);
	return result;
}

int config_check(FILE *file, unsigned nb_workers, size_t memory_mib)
{
	const size_t left = memory_mib > HEAP_OVERHEAD_MIB ? (memory_mib - HEAP_OVERHEAD_MIB) << 20 : 0;
	struct control_error error;
	json_error_t why;
	json_t *document = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
	struct model *model;
	int rc = -EINVAL;

	if (document == NULL) {
		printf("line %d: %s\n", why.line, why.text);
		return rc;
	}
	model = model_make(document, nb_workers, &error);
	if (model != NULL && apply_fits(model, NULL, left, &error) == 0)
		rc = 0;
	else
		puts(error.message);
	model_free(model);
	json_decref(document);
	return rc;
}

/* Make the document that is there hold.  Returns 0, or -1 after filling in the error. */
static int begin(struct switch_state *state, struct control_error *error)
{
	struct model *model = model_make(state->config.document, state->workers.count, error);

	if (model != NULL && apply(state, model, error) == 0)
		return 0;
	model_free(model);
	return -1;
}

int config_open(struct switch_state *state)
{
	struct control_error error;

	state->config.document = json_object();
	if (begin(state, &error) == 0)
		return 0;
	log_error("%s", error.message);
	return -1;
}

/* Guests that listen for a switch may be back in a moment: those who send to them wait for that. */
static int resume(struct switch_state *state, struct control_error *error)
{
	int rc;

	state->resumes = true;
	rc = begin(state, error);
	state->resumes = false;
	if (rc == 0)
		balance_expect(state);
	return rc;
}

int config_restore(struct switch_state *state, const char *path)
{
	struct config *config = &state->config;
	struct control_error error;

	config->path = path;
	switch (store_read(config)) {
	case 0:
		break;
	case -ENOENT:
		return 0;
	default:
		return -1;
	}
	if (resume(state, &error) != 0) {
		log_error("%s: %s; correct the file, or move it away to start with nothing", path, error.message);
		return -1;
	}
	log_info("%s: version %" PRIu64 " is what the switch was", path, config->version);
	return 0;
}

void config_close(struct switch_state *state)
{
	store_sync(&state->config);
	json_decref(state->config.document);
	json_decref(state->config.previous);
}
