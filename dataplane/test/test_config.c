/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration as a document: names, merge patches, differences, and what is said about mistakes.
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/names.h"
#include "switch/diff.h"
#include "switch/model.h"
#include "switch/patch.h"
#include "switch/wires.h"

static void names_are_found_until_they_are_removed(void **state)
{
	static char texts[3000][8];
	struct names names = {0};

	for (unsigned i = 0; i < 3000; i++) {
		snprintf(texts[i], sizeof(texts[i]), "p%u", i);
		assert_int_equal(names_add(&names, texts[i], texts[i]), 0);
		assert_int_equal(names_add(&names, texts[i], NULL), -EEXIST);
	}
	for (unsigned i = 0; i < 3000; i += 3)
		names_remove(&names, texts[i]);
	names_remove(&names, "nobody");
	assert_int_equal(names.count, 2000);
	for (unsigned i = 0; i < 3000; i++)
		assert_ptr_equal(names_find(&names, texts[i]), i % 3 == 0 ? NULL : texts[i]);
	names_clear(&names);
	assert_null(names_find(&names, "p1"));
}

static json_t *parse(const char *text)
{
	json_error_t why;
	json_t *json = json_loads(text, JSON_DECODE_ANY, &why);

	if (json == NULL)
		fail_msg("%s: %s", text, why.text);
	return json;
}

/* RFC 7386, appendix A. */
static void patches_merge_as_the_rfc_says(void **state)
{
	static const char *const cases[][3] = {
		{"{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
		{"{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"},
		{"{\"a\":\"b\"}", "{\"a\":null}", "{}"},
		{"{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"},
		{"{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
		{"{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"},
		{"{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}"},
		{"{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"},
		{"[\"a\",\"b\"]", "[\"c\",\"d\"]", "[\"c\",\"d\"]"},
		{"{\"a\":\"b\"}", "[\"c\"]", "[\"c\"]"},
		{"{\"a\":\"foo\"}", "null", "null"},
		{"{\"a\":\"foo\"}", "\"bar\"", "\"bar\""},
		{"{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"},
		{"[1,2]", "{\"a\":\"b\",\"c\":null}", "{\"a\":\"b\"}"},
		{"{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *document = parse(cases[i][0]), *patch = parse(cases[i][1]), *expected = parse(cases[i][2]);
		json_t *before = json_deep_copy(document), *merged = patch_merge(document, patch);

		assert_true(json_equal(merged, expected));
		assert_true(json_equal(document, before));
		json_decref(document);
		json_decref(patch);
		json_decref(expected);
		json_decref(before);
		json_decref(merged);
	}
}

static void what_a_patch_leaves_alone_is_shared(void **state)
{
	json_t *document = parse("{\"a\":{\"x\":{\"y\":1},\"z\":{}}}"), *patch = parse("{\"a\":{\"z\":{\"n\":2}}}");
	json_t *merged = patch_merge(document, patch);

	assert_ptr_equal(json_object_get(json_object_get(merged, "a"), "x"),
			 json_object_get(json_object_get(document, "a"), "x"));
	json_decref(document);
	json_decref(patch);
	json_decref(merged);
}

#define PORTS                                                                                               \
	"\"ports\":{\"a\":{\"kind\":\"guest\",\"path\":\"/a\"},\"b\":{\"kind\":\"guest\",\"path\":\"/b\"}," \
	"\"l\":{\"kind\":\"guest\",\"path\":\"/l\"},\"r\":{\"kind\":\"guest\",\"path\":\"/r\"},"            \
	"\"m\":{\"kind\":\"guest\",\"path\":\"/m\"},\"n\":{\"kind\":\"guest\",\"path\":\"/n\"}}"
#define FUNCTION "\"functions\":{\"f\":{\"replicas\":{\"one\":{\"left\":\"l\",\"right\":\"r\"}}}}"

static void mistakes_are_named_by_their_key(void **state)
{
	static const char *const cases[][2] = {
		{"[]", "expected an object"},
		{"{\"port\":{}}", "port: no such key"},
		{"{\"ports\":[]}", "ports: expected an object"},
		{"{\"ports\":{\"a/b\":{}}}", "ports.a/b: "},
		{"{\"ports\":{\"a\":{\"kind\":\"guest\",\"path\":\"/a\",\"rate\":{\"max\":-1}}}}",
		 "ports.a.rate.max: "},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"memif:/run/m,role=none\"}}}",
		 "ports.a.device: memif:/run/m,role=none: 'role=none' is unknown"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"veth0\"}}}",
		 "ports.a.device: 'veth0' names no port"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"bond:\"}}}",
		 "ports.a.device: bond:: the mode of a bond is active-backup"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"bond:active-backup,if:x,if:x\"}}}",
		 "ports.a.device: bond:active-backup,if:x,if:x: a member is named twice"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"bond:active-backup,if:x,\"}}}",
		 "ports.a.device: bond:active-backup,if:x,: a member of a bond is if:NAME"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"bond:active-backup,if:x,if:\"}}}",
		 "ports.a.device: 'if:' names no port"},
		{"{\"ports\":{\"a\":{\"kind\":\"device\",\"device\":\"if:x\"},\"b\":{\"kind\":\"device\","
		 "\"device\":\"bond:active-backup,if:y,if:x\"}}}",
		 "ports.b: if:x belongs to port 'a'"},
		{"{" PORTS ",\"functions\":{\"f\":{}}}", "functions.f.replicas: "},
		{"{" PORTS ",\"functions\":{\"f\":{\"replicas\":{\"x\":{\"left\":\"l\",\"right\":\"l\"}}}}}",
		 "functions.f.replicas.x.right: "},
		{"{" PORTS ",\"functions\":{\"f\":{\"replicas\":{\"x\":{\"left\":\"l\",\"right\":\"r\",\"state\":"
		 "\"draining\"}}}}}",
		 "functions.f.replicas: all are draining"},
		{"{" PORTS "," FUNCTION ",\"chains\":{\"c\":{\"from\":\"l\",\"to\":\"b\"}}}",
		 "chains.c.from: port 'l' is a side"},
		{"{" PORTS "," FUNCTION ",\"chains\":{\"c\":{\"from\":\"a\",\"to\":\"b\",\"through\":[\"f\",\"f\"]}}}",
		 "chains.c.through[1]: function 'f' stands twice"},
		{"{" PORTS ",\"chains\":{\"c\":{\"from\":\"a\",\"to\":\"b\",\"match\":[{},{\"vlan\":[9,3]}]}}}",
		 "chains.c.match[1].vlan: the range ends before it begins"},
		{"{" PORTS ",\"chains\":{\"c\":{\"from\":\"a\",\"to\":\"b\",\"match\":[{\"source\":\"1.2.3.4/33\"}]}}}",
		 "chains.c.match[0].source: "},
		{"{" PORTS
		 ",\"chains\":{\"c\":{\"from\":\"a\",\"to\":\"b\"}},\"bridges\":{\"x\":{\"ports\":{\"a\":{}}}}}",
		 "bridges.x.ports.a: port 'a' is an end of chain 'c' already"},
		{"{" PORTS ",\"bridges\":{\"x\":{\"ports\":{\"a\":{\"trunk\":[10,4095]}}}}}",
		 "bridges.x.ports.a.trunk[1]: "},
		{"{" PORTS ",\"workers\":{\"pins\":{\"a\":0}}}", "workers.pins.a: expected PORT/QUEUE"},
		{"{" PORTS ",\"workers\":{\"pins\":{\"a/0\":2}}}", "workers.pins.a/0: "},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *document = parse(cases[i][0]);
		struct control_error error = {0};

		assert_null(model_make(document, 2, &error));
		if (strncmp(error.message, cases[i][1], strlen(cases[i][1])) != 0)
			fail_msg("%s: said \"%s\", expected \"%s...\"", cases[i][0], error.message, cases[i][1]);
		json_decref(document);
	}
}

static void wires_lead_both_ways_in_mirrored_order(void **state)
{
	static const char text[] = "{" PORTS
				   ",\"functions\":{\"f\":{\"replicas\":{\"one\":{\"left\":\"l\",\"right\":\"r\"}}},"
				   "\"g\":{\"replicas\":{\"one\":{\"left\":\"m\",\"right\":\"n\"}}}},"
				   "\"chains\":{\"late\":{\"from\":\"a\",\"to\":\"b\",\"match\":[{\"vlan\":1}]},"
				   "\"c\":{\"from\":\"a\",\"through\":[\"f\",\"g\"],\"to\":\"b\",\"match\":[{\"vlan\":"
				   "2}],\"priority\":7}}}";
	/* By port in the document's order: the first of its wires, where it leads, and whether that is back. */
	static const struct {
		const char *port, *leads_to;
		unsigned hop;
		bool back;
	} expected[] = {{"a", "l", 0, false}, {"b", "n", 2, true}, {"l", "a", 0, true},
			{"r", "m", 1, false}, {"m", "r", 1, true}, {"n", "b", 2, false}};
	json_t *document = parse(text);
	struct control_error error;
	struct model *model = model_make(document, 1, &error);
	struct arena memory;
	struct wires wires;

	assert_non_null(model);
	arena_open(&memory);
	wires_make(&wires, model, &memory);
	for (unsigned i = 0; i < 6; i++) {
		const struct port_model *port = names_find(&model->ports_by_name, expected[i].port), *end;
		const struct wire *wire = &wires.wires[wires.first[port->index]];
		const struct function_model *function = wire_function(wire, &end);
		const unsigned count = wires.first[port->index + 1] - wires.first[port->index];

		assert_int_equal(count, i < 2 ? 2 : 1);
		assert_string_equal(wire->chain->name, "c"); /* the priority stands above the order */
		assert_int_equal(wire->hop, expected[i].hop);
		assert_int_equal(wire->back, expected[i].back);
		assert_string_equal(function != NULL ? wire_side(wire, &function->replicas[0])->name : end->name,
				    expected[i].leads_to);
	}
	arena_close(&memory);
	model_free(model);
	json_decref(document);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_found_until_they_are_removed),
		cmocka_unit_test(patches_merge_as_the_rfc_says),
		cmocka_unit_test(what_a_patch_leaves_alone_is_shared),
		cmocka_unit_test(mistakes_are_named_by_their_key),
		cmocka_unit_test(wires_lead_both_ways_in_mirrored_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
