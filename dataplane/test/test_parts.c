/* SPDX-License-Identifier: Apache-2.0
 *
 * What generations share: found by content, ended with the last that has it, in the reverse order.
 */
#include "test/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "switch/parts.h"

enum { KIND, OTHER_KIND };

static char ended[64]; /* a letter each, in order */

static void note_end(void *context, unsigned kind, void *content)
{
	strcat(context, content);
}

static int start(void **state)
{
	static struct parts parts = {.end = note_end, .context = ended};

	ended[0] = '\0';
	*state = &parts;
	return 0;
}

static struct part *take(struct holding *holding, unsigned kind, const char *key, const char *content)
{
	struct part *part = holding_take_text(holding, kind, "%s", key);

	assert_non_null(part);
	if (part->content == NULL)
		part->content = (char *)content;
	return part;
}

static void what_is_made_from_the_same_is_the_same(void **state)
{
	struct holding before = {.parts = *state}, after = {.parts = *state};
	struct part *part = take(&before, KIND, "key", "a");

	assert_ptr_equal(take(&after, KIND, "key", "b"), part);
	assert_ptr_not_equal(take(&after, OTHER_KIND, "key", "c"), part);
	assert_ptr_not_equal(take(&after, KIND, "key ", "d"), part);
	holding_drop(&after);
	assert_string_equal(ended, "dc");
	holding_drop(&before);
	assert_string_equal(ended, "dca");
}

static void goes_with_its_last_holder(void **state)
{
	struct holding before = {.parts = *state}, after = {.parts = *state};

	take(&before, KIND, "stays", "a");
	take(&before, KIND, "goes", "b");
	take(&after, KIND, "stays", NULL);
	take(&after, KIND, "comes", "c");
	holding_drop(&before);
	assert_string_equal(ended, "b");
	/* It may come back, and is another then. */
	take(&after, KIND, "goes", "d");
	holding_drop(&after);
	assert_string_equal(ended, "bdca");
}

static void ends_what_was_made_of_others_before_them(void **state)
{
	struct holding holding = {.parts = *state};

	take(&holding, KIND, "port", "a");
	take(&holding, KIND, "steering", "b");
	take(&holding, KIND, "steering", NULL);
	take(&holding, KIND, "port", NULL);
	holding_drop(&holding);
	assert_string_equal(ended, "ba");
}

/* Whoever could not make the content drops all; the next one makes it. */
static void what_was_not_made_is_not_ended(void **state)
{
	struct holding failed = {.parts = *state}, next = {.parts = *state};

	take(&failed, KIND, "a", "a");
	assert_null(holding_take_text(&failed, KIND, "%s", "b")->content);
	holding_drop(&failed);
	assert_string_equal(ended, "a");
	assert_null(holding_take_text(&next, KIND, "%s", "b")->content);
	holding_drop(&next);
	assert_string_equal(ended, "a");
}

static void holds_more_than_there_are_buckets(void **state)
{
	struct holding before = {.parts = *state}, after = {.parts = *state};

	for (unsigned i = 0; i < 3 * PARTS_BUCKETS; i++)
		holding_take(&before, KIND, &i, sizeof(i));
	for (unsigned i = 0; i < 3 * PARTS_BUCKETS; i++)
		assert_ptr_equal(holding_take(&after, KIND, &i, sizeof(i)), before.list[i]);
	holding_drop(&before);
	assert_int_equal(after.list[7]->holders, 1);
	holding_drop(&after);
	assert_int_equal(after.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_made_from_the_same_is_the_same, start),
		cmocka_unit_test_setup(goes_with_its_last_holder, start),
		cmocka_unit_test_setup(ends_what_was_made_of_others_before_them, start),
		cmocka_unit_test_setup(what_was_not_made_is_not_ended, start),
		cmocka_unit_test_setup(holds_more_than_there_are_buckets, start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
