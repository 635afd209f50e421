/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a machine's words: whatever they are, a priority within the bounds, and only while its agent lives.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "priority/follow.h"
#include "priority/page.h"
#include "priority/vcpu.h"

static const struct follow_bounds ordinary = {.least = 0, .most = 40}, narrow = {.least = 10, .most = 20},
				  fixed = {.least = 15, .most = 15};

static void test_a_task_has_its_priority_within_the_bounds(void **state)
{
	assert_int_equal(follow_priority(&ordinary, 30, false), 30);
	assert_int_equal(follow_priority(&ordinary, 99, false), 40);
	assert_int_equal(follow_priority(&narrow, 5, true), 10);
	assert_int_equal(follow_priority(&narrow, 15, true), 15);
	assert_int_equal(follow_priority(&narrow, 99, true), 20);
}

static void test_ordinary_work_has_the_lowest_but_while_it_is_open(void **state)
{
	assert_int_equal(follow_priority(&ordinary, PRIORITY_OTHER, false), 0);
	assert_int_equal(follow_priority(&ordinary, PRIORITY_OTHER, true), 40);
	assert_true(follow_opens(&ordinary, PRIORITY_OTHER));
	assert_false(follow_opens(&ordinary, 30));
	assert_false(follow_opens(&ordinary, PRIORITY_IDLE));
	assert_false(follow_opens(&fixed, PRIORITY_OTHER));
}

static void test_one_that_is_idle_has_the_highest(void **state)
{
	assert_int_equal(follow_priority(&ordinary, PRIORITY_IDLE, false), 40);
	assert_int_equal(follow_priority(&narrow, PRIORITY_IDLE, false), 20);
}

static void test_a_word_that_means_nothing_has_the_lowest_always(void **state)
{
	static const uint32_t words[] = {PRIORITY_IDLE + 1, 1000, INT32_MAX, UINT32_C(1) << 31, UINT32_MAX};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		assert_int_equal(follow_priority(&ordinary, words[i], true), 0);
		assert_int_equal(follow_priority(&narrow, words[i], true), 10);
		assert_false(follow_opens(&ordinary, words[i]));
	}
}

static void test_no_word_leads_out_of_the_bounds(void **state)
{
	const struct follow_bounds *bounds[] = {&ordinary, &narrow, &fixed};

	srandom(1);
	for (unsigned i = 0; i < 300000; i++) {
		const struct follow_bounds *each = bounds[i % 3];
		uint32_t word = i < 3000 ? i / 3 : (uint32_t)random() << 1 | (i & 1);
		int found = follow_priority(each, word, (i / 2) % 2 == 0);

		assert_in_range(found, each->least, each->most);
	}
}

static const uint64_t second = 1000000000;

static void test_an_agent_is_believed_while_it_counts(void **state)
{
	struct follow_life life = {0};
	uint64_t now = 5 * second;

	/* What one has left that has ended. */
	assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC, 7, now));
	assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC, 7, now + second));
	assert_true(follow_lives(&life, PRIORITY_PAGE_MAGIC, 8, now += second));
	assert_true(follow_lives(&life, PRIORITY_PAGE_MAGIC, 8, now + 2 * second));
	assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC, 8, now + 4 * second));
	assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC, 8, now + 100 * second));
	assert_true(follow_lives(&life, PRIORITY_PAGE_MAGIC, 9, now + 101 * second));
}

static void test_another_page_is_not_believed(void **state)
{
	struct follow_life life = {0};

	for (unsigned i = 0; i < 10; i++)
		assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC + 1, i, (i + 1) * second));
	assert_false(follow_lives(&life, PRIORITY_PAGE_MAGIC, 10, 11 * second));
	assert_true(follow_lives(&life, PRIORITY_PAGE_MAGIC, 11, 12 * second));
	assert_false(follow_lives(&life, 0, 12, 13 * second));
}

static void *end_at_once(void *number)
{
	*(pid_t *)number = gettid();
	return NULL;
}

static pid_t thread_that_has_gone(void)
{
	pthread_t thread;
	pid_t number;

	assert_int_equal(pthread_create(&thread, NULL, end_at_once, &number), 0);
	pthread_join(thread, NULL);
	/* Linux has it for some µs after that. */
	while (tgkill(getpid(), number, 0) == 0)
		sched_yield();
	return number;
}

static void test_only_a_thread_of_the_process_is_taken(void **state)
{
	struct vcpu vcpu;

	assert_int_equal(vcpu_take(&vcpu, getpid(), getpid()), 0);
	assert_int_equal(vcpu_take(&vcpu, getpid(), getppid()), -ESRCH);
	assert_int_equal(vcpu_take(&vcpu, getpid(), thread_that_has_gone()), -ESRCH);
}

static void test_a_thread_that_has_gone_is_left_alone(void **state)
{
	struct vcpu vcpu;

	assert_int_equal(vcpu_take(&vcpu, getpid(), getpid()), 0);
	vcpu.thread = thread_that_has_gone();
	assert_int_equal(vcpu_set(&vcpu, 20), 0);
	assert_int_equal(vcpu.thread, 0);
	assert_int_equal(vcpu_set(&vcpu, 30), 0);
	assert_int_equal(vcpu_give_back(&vcpu), 0);
	assert_int_equal(vcpu.changes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_task_has_its_priority_within_the_bounds),
		cmocka_unit_test(test_ordinary_work_has_the_lowest_but_while_it_is_open),
		cmocka_unit_test(test_one_that_is_idle_has_the_highest),
		cmocka_unit_test(test_a_word_that_means_nothing_has_the_lowest_always),
		cmocka_unit_test(test_no_word_leads_out_of_the_bounds),
		cmocka_unit_test(test_an_agent_is_believed_while_it_counts),
		cmocka_unit_test(test_another_page_is_not_believed),
		cmocka_unit_test(test_only_a_thread_of_the_process_is_taken),
		cmocka_unit_test(test_a_thread_that_has_gone_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
