/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuple space search, and not DPDK's rte_acl.  With 10000 rules of 36 masks tailrace-rules-cost says: rte_acl finds
 * one in 28 cycles, tuple space search in 460; it takes ten times as long to build (0.46 s), and one for each IP
 * version and port.  Only the first frame of a flow pays for a lookup, of whose 900 cycles that is half, and 2.9
 * million flows begin in a second on a core.  Rules that are replaced at once, in a memory that is bounded whatever
 * they are, and are the switch's own code, are worth more there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firewall_rules.h"
#include "steer/matches.h"

/* By enum firewall_action. */
static const char *const actions[] = {"deny", "allow", "reject", NULL};

/* What a set is read into before it is built. */
struct reading {
	struct fields fields;
	struct rule *parts[2]; /* by port: a rule for each match */
	unsigned nb_parts[2], room[2];
};

static bool add_part(struct reading *reading, unsigned port, const struct match *match, uint32_t number)
{
	if (reading->nb_parts[port] == reading->room[port]) {
		unsigned room = reading->room[port] * 2 + 64;
		struct rule *parts = realloc(reading->parts[port], room * sizeof(*parts));

		if (parts == NULL)
			return wrong(&reading->fields, NULL, "no memory for its rules");
		reading->parts[port] = parts;
		reading->room[port] = room;
	}
	reading->parts[port][reading->nb_parts[port]++] = (struct rule){.match = *match, .action = number};
	return true;
}

static bool add_matches(struct reading *reading, const struct place *at, json_t *matches, unsigned ports,
			uint32_t number)
{
	static const struct match everything;
	json_t *each;
	size_t i;

	for (unsigned port = 0; port < 2 && matches == NULL; port++)
		if (ports & 1u << port && !add_part(reading, port, &everything, number))
			return false;
	json_array_foreach (matches, i, each) {
		struct place list = {.up = at, .key = "match"}, here = {.up = &list, .index = i};
		struct match match;

		if (!match_read(&reading->fields, &here, each, &match))
			return false;
		for (unsigned port = 0; port < 2; port++)
			if (ports & 1u << port && !add_part(reading, port, &match, number))
				return false;
	}
	return true;
}

static bool read_rule(struct reading *reading, const struct place *at, json_t *object, struct firewall_rule *rule,
		      uint32_t number)
{
	static const char *const known[] = {"name", "action", "port", "match", NULL};
	const char *name = NULL;
	json_int_t port = -1;
	json_t *matches;
	unsigned action;

	if (!field_keys(&reading->fields, at, object, known) ||
	    !field_text(&reading->fields, at, object, "name", true, &name) ||
	    !field_word(&reading->fields, at, object, "action", true, actions, &action) ||
	    !field_number(&reading->fields, at, object, "port", 0, 1, &port) ||
	    !field_list(&reading->fields, at, object, "match", &matches))
		return false;
	rule->name = strdup(name);
	rule->action = action;
	if (rule->name == NULL)
		return wrong(&reading->fields, at, "no memory for its name");
	return add_matches(reading, at, matches, port < 0 ? 3 : 1u << port, number);
}

static bool build(struct reading *reading, struct firewall_rules *rules)
{
	for (unsigned port = 0; port < 2; port++) {
		unsigned culprit;
		int rc = classifier_build(&rules->by_port[port], reading->parts[port], reading->nb_parts[port],
					  rules->nb, &culprit);

		if (rc == -E2BIG)
			return wrong(&reading->fields, NULL,
				     "its port ranges, of rule '%s' and those before, come to more than %d prefixes, "
				     "or more "
				     "than %d different masks",
				     rules->rules[reading->parts[port][culprit].action].name, CLASSIFY_ENTRIES,
				     CLASSIFY_TUPLES);
		if (rc != 0)
			return wrong(&reading->fields, NULL, "%s", strerror(-rc));
	}
	return true;
}

static struct firewall_rules *read_document(struct reading *reading, json_t *document, unsigned nb_queues)
{
	static const char *const known[] = {"default", "rules", NULL};
	struct place list = {.key = "rules"};
	struct firewall_rules *rules;
	unsigned otherwise = 0;
	json_t *texts, *each;
	size_t i, nb;

	if (!field_keys(&reading->fields, NULL, document, known) ||
	    !field_word(&reading->fields, NULL, document, "default", false, actions, &otherwise) ||
	    !field_list(&reading->fields, NULL, document, "rules", &texts))
		return NULL;
	nb = json_array_size(texts);
	if (nb > FIREWALL_RULES_MOST) {
		wrong(&reading->fields, &list, "expected at most %d", FIREWALL_RULES_MOST);
		return NULL;
	}
	rules = calloc(1, sizeof(*rules) + (nb + 1) * sizeof(rules->rules[0]));
	if (rules == NULL) {
		wrong(&reading->fields, NULL, "no memory for its rules");
		return NULL;
	}
	rules->nb = nb;
	rules->nb_queues = nb_queues;
	rules->counts = calloc(nb_queues * (nb + 1), sizeof(rules->counts[0]));
	if (rules->counts == NULL) {
		wrong(&reading->fields, NULL, "no memory for its counters");
		goto refuse;
	}
	rules->rules[nb].action = otherwise;
	json_array_foreach (texts, i, each)
		if (!read_rule(reading, &(struct place){.up = &list, .index = i}, each, &rules->rules[i], i))
			goto refuse;
	if (build(reading, rules))
		return rules;
refuse:
	firewall_rules_free(rules);
	return NULL;
}

struct firewall_rules *firewall_rules_read(json_t *params, unsigned nb_queues, struct control_error *error)
{
	struct reading reading = {.fields.error = error};
	struct firewall_rules *rules = read_document(&reading, params, nb_queues);

	free(reading.parts[0]);
	free(reading.parts[1]);
	return rules;
}

void firewall_rules_free(struct firewall_rules *rules)
{
	if (rules == NULL)
		return;
	for (uint32_t i = 0; i < rules->nb; i++)
		free(rules->rules[i].name);
	free(rules->by_port[0]);
	free(rules->by_port[1]);
	free(rules->counts);
	free(rules);
}

void firewall_rules_find(const struct firewall_rules *rules, uint16_t in, const struct headers *headers, unsigned count,
			 uint32_t *found)
{
	classify(rules->by_port[in], headers, count, found);
}

static json_t *row(const struct firewall_rules *rules, uint32_t number)
{
	const struct firewall_rule *rule = &rules->rules[number];
	json_int_t frames = 0, bytes = 0;

	for (unsigned queue = 0; queue < rules->nb_queues; queue++) {
		const struct firewall_rule_counts *counts = &rules->counts[queue * (rules->nb + 1) + number];

		frames += (json_int_t)counts->frames;
		bytes += (json_int_t)counts->bytes;
	}
	return json_pack("{s:s, s:s, s:I, s:I}", "rule", number < rules->nb ? rule->name : "default", "action",
			 actions[rule->action], "frames", frames, "bytes", bytes);
}

json_t *firewall_rules_show(const struct firewall_rules *rules, unsigned most)
{
	json_t *rows = json_array();

	if (most > 0)
		json_array_append_new(rows, row(rules, rules->nb));
	for (uint32_t i = 0; i < rules->nb && i + 1 < most; i++)
		json_array_append_new(rows, row(rules, i));
	return json_pack("{s:I, s:o}", "total", (json_int_t)rules->nb + 1, "rows", rows);
}
