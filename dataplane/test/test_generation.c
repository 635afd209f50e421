/* SPDX-License-Identifier: Apache-2.0
 *
 * From one configuration to another: what is taken over, what is opened and closed, and that a change that fails leaves
 * what was.  Guests are not opened, and there are no workers (the linker puts these in the place of the real ones).
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "switch/apply.h"
#include "switch/generation.h"
#include "switch/observe.h"
#include "switch/pages.h"
#include "switch/switch.h"

static struct switch_state the_switch;
static unsigned opened, closed;
static const char *refused; /* the path of a guest that cannot be opened */
static bool no_memory;	    /* when programs are given to workers */

int __wrap_guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size);
void __wrap_guest_close(struct guest *guest);
int __wrap_workers_install(struct workers *workers, struct program *const *programs);
uint64_t __wrap_rte_get_tsc_hz(void);

int __wrap_guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size)
{
	if (refused != NULL && strcmp(refused, options->path) == 0) {
		snprintf(why, why_size, "%s is in use", options->path);
		return -EADDRINUSE;
	}
	guest->pairs = options->queues;
	opened++;
	return 0;
}

void __wrap_guest_close(struct guest *guest)
{
	closed++;
}

int __wrap_workers_install(struct workers *workers, struct program *const *programs)
{
	return no_memory ? -ENOMEM : 0;
}

/* Without DPDK's start there is none, and without it no rate. */
uint64_t __wrap_rte_get_tsc_hz(void)
{
	return UINT64_C(1000000000);
}

/* Returns what apply() does, with the error in `said`. */
static struct control_error said;

static int change(const char *text)
{
	json_t *document = json_loads(text, 0, NULL);
	struct model *model = model_make(document, 1, &said);
	int rc;

	json_decref(document);
	if (model == NULL)
		fail_msg("%s", said.message);
	rc = apply(&the_switch, model, &said);
	if (rc != 0)
		model_free(model);
	return rc;
}

#define PORTS(a, b)                                                                                \
	"\"ports\": {\"a\": {\"kind\": \"guest\", \"path\": \"" a "\"}, \"b\": {\"kind\": "        \
	"\"guest\", \"path\": \"" b "\"}, \"l\": {\"kind\": \"guest\", \"path\": \"/l\"}, \"r\": " \
	"{\"kind\": \"guest\", \"path\": \"/r\"}}"
#define CHAIN(match)                                                                                                 \
	"\"functions\": {\"f\": {\"pin\": \"flow\", \"replicas\": {\"f1\": {\"left\": \"l\", \"right\": \"r\"}}}}, " \
	"\"chains\": {\"c\": {\"from\": \"a\", \"through\": [\"f\"], \"to\": \"b\", \"match\": [{\"vlan\": " match   \
	"}]}}"

static const char start_text[] = "{" PORTS("/a", "/b") ", " CHAIN("1") "}";

static int start(void **state)
{
	char path[] = "/tmp/test-generation-XXXXXX";
	const int fd = mkstemp(path);

	close(fd);
	the_switch = (struct switch_state){.workers.count = 1, .parts = {generation_end_part, &the_switch}};
	the_switch.page = page_create(path, page_kinds, PAGE_KINDS, PAGE_SLOTS);
	assert_non_null(the_switch.page);
	observe_open(&the_switch.observation);
	opened = closed = 0;
	refused = NULL;
	no_memory = false;
	assert_int_equal(change(start_text), 0);
	assert_int_equal(opened, 4);
	return 0;
}

/* Whatever a test did, nothing is left. */
static int end(void **state)
{
	generation_drop(the_switch.generation);
	model_free(the_switch.model);
	page_close(the_switch.page);
	assert_int_equal(opened, closed);
	for (unsigned i = 0; i < PARTS_BUCKETS; i++)
		assert_null(the_switch.parts.buckets[i]);
	return 0;
}

static const struct source *source_of(const char *port)
{
	const struct program *program = the_switch.generation->programs[0];

	for (unsigned i = 0; i < program->nb_sources; i++)
		if (strcmp(program->sources[i].from->name, port) == 0)
			return &program->sources[i];
	fail_msg("port %s is not polled", port);
	return NULL;
}

static void is_made_again_of_the_same(void **state)
{
	const struct generation *before = the_switch.generation;
	const struct source a = *source_of("a"), r = *source_of("r");
	const struct pin_group *group = before->groups[0];

	assert_int_equal(reconcile(&the_switch, &said), 0);
	assert_ptr_not_equal(the_switch.generation, before);
	assert_ptr_equal(the_switch.generation->groups[0], group);
	assert_memory_equal(source_of("a"), &a, sizeof(a));
	assert_memory_equal(source_of("r"), &r, sizeof(r));
	assert_int_equal(opened - closed, 4);
}

static void only_what_changes_is_other(void **state)
{
	const struct steering *a = source_of("a")->steering, *r = source_of("r")->steering;
	const struct pin_group *group = the_switch.generation->groups[0];
	const struct hop *hop = the_switch.generation->hops[0][1];

	assert_int_equal(change("{" PORTS("/a", "/b") ", " CHAIN("2") "}"), 0);
	assert_ptr_not_equal(source_of("a")->steering, a);
	assert_ptr_not_equal(source_of("r")->steering, r);
	assert_ptr_equal(the_switch.generation->groups[0], group);
	assert_ptr_equal(the_switch.generation->hops[0][1], hop);
	assert_int_equal(opened, 4);
}

static void a_port_stays_open_when_frames_are_to_wait_for_its_guest(void **state)
{
	const struct switch_port *port = generation_port(the_switch.generation, "a");

	assert_int_equal(change("{\"ports\": {\"a\": {\"kind\": \"guest\", \"path\": \"/a\", \"absent\": \"wait\"}}}"),
			 0);
	assert_ptr_equal(generation_port(the_switch.generation, "a"), port);
	assert_true(atomic_load(&port->port.guest.awaited));
	assert_int_equal(opened, 4);
	assert_int_equal(closed, 3);
}

static void a_change_that_fails_leaves_what_was(void **state)
{
	const struct generation *before = the_switch.generation;

	refused = "/z";
	assert_int_equal(change("{" PORTS("/y", "/z") ", " CHAIN("2") "}"), -1);
	assert_string_equal(said.message, "ports.b: /z is in use");
	assert_ptr_equal(the_switch.generation, before);
	refused = NULL;
	no_memory = true;
	assert_int_equal(change("{" PORTS("/y", "/z") ", " CHAIN("2") "}"), -1);
	assert_int_equal(reconcile(&the_switch, &said), -1);
	assert_ptr_equal(the_switch.generation, before);
	assert_int_equal(opened - closed, 4);
}

static void two_ports_change_places(void **state)
{
	const struct switch_port *left = generation_port(the_switch.generation, "l");

	assert_int_equal(change("{" PORTS("/b", "/a") ", " CHAIN("1") "}"), 0);
	assert_ptr_equal(generation_port(the_switch.generation, "l"), left);
	assert_int_equal(opened, 6);
	assert_int_equal(closed, 2);
}

static void what_was_closed_for_a_change_that_fails_comes_back(void **state)
{
	const struct switch_port *left = generation_port(the_switch.generation, "l");
	struct hop *hop = the_switch.generation->hops[0][0];

	refused = "/b";
	assert_int_equal(change("{" PORTS("/b", "/c") ", " CHAIN("1") "}"), -1);
	assert_string_equal(said.message, "ports.a: /b is in use");
	/* But for what cannot be opened any more. */
	assert_null(generation_port(the_switch.generation, "b"));
	assert_ptr_equal(generation_port(the_switch.generation, "l"), left);
	assert_ptr_equal(the_switch.generation->hops[0][0], hop);
	assert_int_equal(opened - closed, 3);
	/* It stays closed until a configuration is applied. */
	refused = NULL;
	assert_int_equal(reconcile(&the_switch, &said), 0);
	assert_null(generation_port(the_switch.generation, "b"));
	assert_int_equal(change(start_text), 0);
	assert_non_null(generation_port(the_switch.generation, "b"));
}

/* `more` is of the receiver's rate. */
static int change_rate(const char *more)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"ports\": {\"a\": {\"kind\": \"guest\", \"path\": \"/a\"}, \"b\": {\"kind\": \"guest\", "
		 "\"path\": \"/b\", \"rate\": {\"to\": {\"max\": 40000000%s}}}}, "
		 "\"chains\": {\"c\": {\"from\": \"a\", \"to\": \"b\", \"match\": [{\"protocol\": 17}]}}}",
		 more);
	return change(text);
}

/* The only one, and what it is to be set to. */
static const struct shaper_setting *setting(void)
{
	const struct shaper_setting *shapers = the_switch.generation->shapers;

	assert_non_null(shapers);
	assert_null(shapers->next);
	return shapers;
}

static void what_waits_for_a_receiver_stays_when_its_limits_change(void **state)
{
	const struct steering *steering;
	struct shaper_limits limits;
	struct shaper *shaper;

	assert_int_equal(change_rate(""), 0);
	steering = source_of("a")->steering;
	shaper = setting()->shaper;
	limits = shaper->limits;
	no_memory = true;
	assert_int_equal(change_rate(", \"latency\": 50000"), -1);
	assert_int_equal(shaper->limits.bytes, limits.bytes);
	no_memory = false;
	assert_int_equal(change_rate(", \"latency\": 50000"), 0);
	assert_ptr_equal(setting()->shaper, shaper);
	assert_ptr_equal(source_of("a")->steering, steering);
	assert_int_equal(shaper->limits.bytes, 5 * limits.bytes);
	assert_int_equal(reconcile(&the_switch, &said), 0);
	assert_ptr_equal(setting()->shaper, shaper);
	assert_int_equal(shaper->limits.bytes, 5 * limits.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(is_made_again_of_the_same, start, end),
		cmocka_unit_test_setup_teardown(only_what_changes_is_other, start, end),
		cmocka_unit_test_setup_teardown(a_port_stays_open_when_frames_are_to_wait_for_its_guest, start, end),
		cmocka_unit_test_setup_teardown(a_change_that_fails_leaves_what_was, start, end),
		cmocka_unit_test_setup_teardown(two_ports_change_places, start, end),
		cmocka_unit_test_setup_teardown(what_was_closed_for_a_change_that_fails_comes_back, start, end),
		cmocka_unit_test_setup_teardown(what_waits_for_a_receiver_stays_when_its_limits_change, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
