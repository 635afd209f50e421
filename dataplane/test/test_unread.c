/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether frames that a guest was given still lie in its ring: of both layouts, and of drivers that give buffers back
 * at once and of those that wait until there are many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "port/guest_unread.h"
#include "test/ring_pair.h"
#include "vring/hop.h"

enum { STILL = 6, LENGTH = 60, ROOM = 2048 };

static void give_buffers(struct simulated_guest *guest, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		offer_buffer(guest, BUFFERS + i * ROOM, ROOM);
}

/* Frames from one guest to the other. */
static void pass(struct pair *pair, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		send_plain(&pair->from, FRAMES + i * ROOM, LENGTH, (uint8_t)i);
	assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), count);
}

static void it_knows_how_many_buffers_there_are(void **state)
{
	struct pair *pair = *state;

	assert_int_equal(guest_unread_buffers(&pair->to.ring), 0);
	for (unsigned round = 0; round < 5; round++) {
		give_buffers(&pair->to, 11);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 11);
		pass(pair, 4);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 7);
		pass(pair, 7);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 0);
	}
	give_buffers(&pair->to, RING);
	assert_int_equal(guest_unread_buffers(&pair->to.ring), RING);
}

static void frames_wait_until_as_many_buffers_have_come_back(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	give_buffers(&pair->to, RING);
	assert_false(guest_unread_look(&unread, ring));
	for (unsigned round = 0; round < 10; round++) {
		pass(pair, 5);
		assert_true(guest_unread_look(&unread, ring));
		give_buffers(&pair->to, 3);
		assert_true(guest_unread_look(&unread, ring));
		give_buffers(&pair->to, 2);
		assert_false(guest_unread_look(&unread, ring));
	}
}

static void one_that_gives_them_back_later_has_taken_them_all_the_same(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	give_buffers(&pair->to, RING);
	assert_false(guest_unread_look(&unread, ring));
	pass(pair, 5);
	assert_true(guest_unread_look(&unread, ring));
	for (unsigned i = 0; i < STILL; i++)
		guest_unread_look(&unread, ring);
	assert_false(guest_unread_look(&unread, ring));
	pass(pair, 1);
	assert_true(guest_unread_look(&unread, ring));
	give_buffers(&pair->to, 6);
	assert_false(guest_unread_look(&unread, ring));
}

static void a_ring_without_buffers_is_full_however_long(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;

	give_buffers(&pair->to, RING);
	guest_unread_look(&unread, &pair->to.ring);
	pass(pair, RING);
	for (unsigned i = 0; i < 3 * STILL; i++)
		assert_true(guest_unread_look(&unread, &pair->to.ring));
}

static void a_wrong_index_is_no_matter(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;

	give_buffers(&pair->to, RING);
	guest_unread_look(&unread, &pair->to.ring);
	if (!to_packed)
		pair->to.ring.avail->idx += 1000;
	guest_unread_look(&unread, &pair->to.ring);
	assert_int_equal(pair->to.ring.fault, VRING_FAULT_NONE);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(it_knows_how_many_buffers_there_are, start, end),
		cmocka_unit_test_setup_teardown(frames_wait_until_as_many_buffers_have_come_back, start, end),
		cmocka_unit_test_setup_teardown(one_that_gives_them_back_later_has_taken_them_all_the_same, start, end),
		cmocka_unit_test_setup_teardown(a_ring_without_buffers_is_full_however_long, start, end),
		cmocka_unit_test_setup_teardown(a_wrong_index_is_no_matter, start, end),
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
