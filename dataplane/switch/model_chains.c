/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "steer/matches.h"
#include "steer/pin.h"
#include "switch/model_read.h"

static bool read_replica(struct reader *reader, const struct place *at, json_t *object, const char *function,
			 struct replica_model *replica)
{
	static const char *const known[] = {"left", "right", "state", NULL};
	static const char *const states[] = {"active", "draining", NULL};
	struct port_model *left, *right;
	unsigned state = 0;

	if (!model_good_name(reader, at, replica->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_word(&reader->fields, at, object, "state", false, states, &state))
		return false;
	left = model_port_field(reader, at, object, "left");
	right = left ? model_port_field(reader, at, object, "right") : NULL;
	if (right == NULL ||
	    !model_employ(reader, &(struct place){.up = at, .key = "left"}, left, ROLE_SIDE, function) ||
	    !model_employ(reader, &(struct place){.up = at, .key = "right"}, right, ROLE_SIDE, function))
		return false;
	replica->left = left;
	replica->right = right;
	replica->draining = state == 1;
	return true;
}

static bool read_function(struct reader *reader, const struct place *at, json_t *object,
			  struct function_model *function)
{
	static const char *const known[] = {"pin", "replicas", "ageing", NULL};
	static const char *const pins[] = {"flow", "addresses", NULL};
	const struct place up = {.up = at, .key = "replicas"};
	json_int_t ageing = PIN_FLOW_SECONDS;
	json_t *replicas, *replica;
	unsigned pin = 0, active = 0;
	const char *name;

	if (!model_good_name(reader, at, function->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_word(&reader->fields, at, object, "pin", false, pins, &pin) ||
	    !field_number(&reader->fields, at, object, "ageing", 1, PIN_FLOW_SECONDS_MOST, &ageing) ||
	    !field_object(&reader->fields, at, object, "replicas", &replicas))
		return false;
	if (json_object_size(replicas) == 0 || json_object_size(replicas) > MODEL_REPLICAS)
		return wrong(&reader->fields, &up, "1 to %d replicas are needed", MODEL_REPLICAS);
	function->by_addresses = pin == 1;
	function->ageing = ageing;
	function->replicas = arena_take(&reader->model->memory, json_object_size(replicas),
					sizeof(function->replicas[0]));
	json_object_foreach (replicas, name, replica) {
		struct replica_model *model = &function->replicas[function->nb_replicas++];

		model->name = name;
		if (!read_replica(reader, &(struct place){.up = &up, .key = name}, replica, function->name, model))
			return false;
		active += !model->draining;
	}
	function->pinned = function->nb_replicas > 1 || json_object_get(object, "pin") != NULL;
	return active > 0 || wrong(&reader->fields, &up, "all are draining; one at least must be active");
}

bool model_read_functions(struct reader *reader)
{
	const struct place at = {.key = "functions"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!model_section(reader, "functions", MODEL_FUNCTIONS, &section, &model->nb_functions))
		return false;
	model->functions = arena_take(&model->memory, model->nb_functions, sizeof(model->functions[0]));
	model->nb_functions = 0;
	json_object_foreach (section, name, object) {
		struct function_model *function = &model->functions[model->nb_functions];

		function->name = name;
		function->index = model->nb_functions++;
		if (!read_function(reader, &(struct place){.up = &at, .key = name}, object, function))
			return false;
		names_add(&model->functions_by_name, name, function);
	}
	return true;
}

/* Where several chains meet, it is their matches that part them. */
static bool parted(struct reader *reader, const struct place *at, const struct chain_model *chain, const char *what,
		   const char *name, const char *other_name)
{
	const struct chain_model *other = names_find(&reader->model->chains_by_name, other_name);

	if (other == NULL || other == chain || (chain->nb_matches > 0 && other->nb_matches > 0))
		return true;
	return wrong(&reader->fields, at, "%s '%s' is in chain '%s' too, so both chains need a match", what, name,
		     other_name);
}

static bool read_end(struct reader *reader, const struct place *up, json_t *object, const char *key,
		     struct chain_model *chain, struct port_model **port)
{
	const struct place at = {.up = up, .key = key};

	*port = model_port_field(reader, up, object, key);
	if (*port == NULL || !model_employ(reader, &at, *port, ROLE_END, chain->name))
		return false;
	return parted(reader, &at, chain, "port", (*port)->name, (*port)->owner);
}

static bool read_through(struct reader *reader, const struct place *up, json_t *object, struct chain_model *chain)
{
	const struct place list_at = {.up = up, .key = "through"};
	json_t *list, *entry;
	size_t i;

	if (!field_list(&reader->fields, up, object, "through", &list))
		return false;
	if (json_array_size(list) > MODEL_THROUGH)
		return wrong(&reader->fields, &list_at, "more than %d functions", MODEL_THROUGH);
	chain->through = arena_take(&reader->model->memory, json_array_size(list), sizeof(chain->through[0]));
	json_array_foreach (list, i, entry) {
		const struct place at = {.up = &list_at, .index = i};
		const char *name = json_string_value(entry);
		struct function_model *function = name ? names_find(&reader->model->functions_by_name, name) : NULL;

		if (function == NULL)
			return wrong(&reader->fields, &at, name ? "no function '%s'" : "expected a function's name",
				     name);
		if (function->user == chain)
			return wrong(&reader->fields, &at, "function '%s' stands twice", name);
		if (function->user != NULL && !parted(reader, &at, chain, "function", name, function->user->name))
			return false;
		function->user = chain;
		chain->through[chain->nb_through++] = function;
	}
	return true;
}

static bool read_matches(struct reader *reader, const struct place *up, json_t *object, struct chain_model *chain)
{
	const struct place list_at = {.up = up, .key = "match"};
	json_t *list, *entry;
	size_t i;

	if (!field_list(&reader->fields, up, object, "match", &list))
		return false;
	if (json_array_size(list) > MODEL_MATCHES)
		return wrong(&reader->fields, &list_at, "more than %d alternatives", MODEL_MATCHES);
	chain->matches = arena_take(&reader->model->memory, json_array_size(list), sizeof(chain->matches[0]));
	json_array_foreach (list, i, entry)
		if (!match_read(&reader->fields, &(struct place){.up = &list_at, .index = i}, entry,
				&chain->matches[chain->nb_matches++]))
			return false;
	return true;
}

static bool read_chain(struct reader *reader, const struct place *at, json_t *object, struct chain_model *chain)
{
	static const char *const known[] = {"from", "through", "to", "match", "priority", NULL};
	json_int_t priority = 0;

	if (!model_good_name(reader, at, chain->name) || !field_keys(&reader->fields, at, object, known) ||
	    !field_number(&reader->fields, at, object, "priority", -1000000, 1000000, &priority) ||
	    !read_matches(reader, at, object, chain) || !read_end(reader, at, object, "from", chain, &chain->from) ||
	    !read_end(reader, at, object, "to", chain, &chain->to) || !read_through(reader, at, object, chain))
		return false;
	if (chain->from == chain->to)
		return wrong(&reader->fields, at, "port '%s' stands twice", chain->to->name);
	chain->priority = priority;
	return true;
}

bool model_read_chains(struct reader *reader)
{
	const struct place at = {.key = "chains"};
	struct model *model = reader->model;
	json_t *section, *object;
	const char *name;

	if (!model_section(reader, "chains", MODEL_CHAINS, &section, &model->nb_chains))
		return false;
	model->chains = arena_take(&model->memory, model->nb_chains, sizeof(model->chains[0]));
	model->nb_chains = 0;
	json_object_foreach (section, name, object) {
		struct chain_model *chain = &model->chains[model->nb_chains];

		chain->name = name;
		chain->index = model->nb_chains++;
		names_add(&model->chains_by_name, name, chain);
		if (!read_chain(reader, &(struct place){.up = &at, .key = name}, object, chain))
			return false;
	}
	return true;
}
