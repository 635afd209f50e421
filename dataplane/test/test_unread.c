/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether frames that a guest was given still lie in its ring: of both layouts, and of drivers that give buffers back
 * at once and of those that wait until there are many.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "port/guest_backend.h"
#include "test/ring_pair.h"
#include "vring/hop.h"

enum { LARGE = 256, KEPT = 64 /* that it may keep back */, LOOKS = 20, LENGTH = 60, ROOM = 1024, RINGS_PAGE = 4096 };

static int start_large(void **state)
{
	*state = sized_pair(LARGE, LARGE, true);
	return 0;
}

static void give_buffers(struct simulated_guest *guest, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		offer_buffer(guest, BUFFERS + i * ROOM, ROOM);
}

/* Frames from one guest to the other. */
static void pass(struct pair *pair, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		send_plain(&pair->from, FRAMES + i * ROOM, LENGTH, (uint8_t)i);
		assert_int_equal(vring_hop(&pair->from.ring, &pair->to.ring), 1);
	}
}

static void it_knows_how_many_buffers_there_are(void **state)
{
	struct pair *pair = *state;

	assert_int_equal(guest_unread_buffers(&pair->to.ring), 0);
	for (unsigned round = 0; round < 50; round++) {
		give_buffers(&pair->to, 11);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 11);
		pass(pair, 4);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 7);
		pass(pair, 7);
		assert_int_equal(guest_unread_buffers(&pair->to.ring), 0);
	}
	give_buffers(&pair->to, LARGE);
	assert_int_equal(guest_unread_buffers(&pair->to.ring), LARGE);
}

static void frames_wait_while_more_is_missing_than_a_guest_keeps_back(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	give_buffers(&pair->to, LARGE);
	assert_false(guest_unread_look(&unread, ring));
	for (unsigned round = 0; round < 10; round++) {
		pass(pair, KEPT);
		assert_false(guest_unread_look(&unread, ring));
		pass(pair, 3);
		assert_true(guest_unread_look(&unread, ring));
		give_buffers(&pair->to, 2);
		assert_true(guest_unread_look(&unread, ring));
		give_buffers(&pair->to, KEPT + 1);
		assert_false(guest_unread_look(&unread, ring));
	}
}

/* In small rings it keeps back fewer. */
static void a_small_ring_has_its_own_limit(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;

	give_buffers(&pair->to, RING);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	pass(pair, RING / 2);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	pass(pair, 1);
	assert_true(guest_unread_look(&unread, &pair->to.ring));
}

/* It takes each frame at once, at any rate. */
static void one_that_gives_buffers_back_in_batches_is_idle_under_steady_traffic(void **state)
{
	static const unsigned batches[] = {1, 16, 32, 64}, rates[] = {1, 3, 16};
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	unsigned owed = 0;

	give_buffers(&pair->to, LARGE);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	for (unsigned batch = 0; batch < RTE_DIM(batches); batch++)
		for (unsigned rate = 0; rate < RTE_DIM(rates); rate++)
			for (unsigned round = 0; round < 300; round++) {
				for (unsigned i = 0; i < rates[rate]; i++) {
					pass(pair, 1);
					if (++owed >= batches[batch]) {
						give_buffers(&pair->to, owed);
						owed = 0;
					}
				}
				assert_false(guest_unread_look(&unread, &pair->to.ring));
			}
}

static void one_that_stands_still_is_busy_however_long(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;

	give_buffers(&pair->to, LARGE);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	for (unsigned missing = 16; missing <= LARGE; missing += 16) {
		pass(pair, 16);
		for (unsigned i = 0; i < LOOKS; i++)
			assert_int_equal(guest_unread_look(&unread, &pair->to.ring), missing > KEPT);
	}
	assert_int_equal(guest_unread_buffers(&pair->to.ring), 0);
}

/* As many as it has given, and it has given few. */
static void a_ring_without_buffers_is_full(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;

	assert_false(guest_unread_look(&unread, &pair->to.ring)); /* it has never had any */
	give_buffers(&pair->to, 8);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	pass(pair, 7);
	assert_false(guest_unread_look(&unread, &pair->to.ring));
	pass(pair, 1);
	assert_true(guest_unread_look(&unread, &pair->to.ring));
}

static void a_wrong_index_is_no_matter(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	give_buffers(&pair->to, LARGE);
	assert_false(guest_unread_look(&unread, ring));
	if (!to_packed)
		ring->avail->idx += 1000;
	else
		for (unsigned i = 0; i < LARGE; i++)
			ring->packed_desc[i].flags |= VRING_FLAG_AVAILABLE | VRING_FLAG_USED;
	assert_int_equal(guest_unread_buffers(ring), 0);
	assert_true(guest_unread_look(&unread, ring));
	assert_int_equal(unread.most, LARGE);
	if (to_packed) {
		for (unsigned i = 0; i < LARGE; i++) /* any of them, in no order */
			ring->packed_desc[i].flags = (uint16_t)(i * 0x9e37);
		assert_true(guest_unread_buffers(ring) <= LARGE);
		ring->index = LARGE;
		assert_int_equal(guest_unread_buffers(ring), 0);
		ring->index = UINT16_MAX;
		assert_int_equal(guest_unread_buffers(ring), 0);
	}
	assert_int_equal(ring->fault, VRING_FAULT_NONE);
}

/* ------- what happens in the middle of a look: at its first touch of the guest's part of the ring ------- */

static struct {
	struct virtqueue *ring;
	unsigned moves; /* a worker uses so many buffers */
	uint32_t pages; /* it was missing, and has cost so much */
	unsigned caught;
} middle;

static void *guests_part(const struct virtqueue *ring)
{
	return ring->packed ? (void *)ring->packed_desc : (void *)ring->avail;
}

static void in_the_middle(int signal)
{
	(void)signal;
	/* Anything else that goes wrong ends the test. */
	if (middle.caught++ > 0 || mprotect(guests_part(middle.ring), RINGS_PAGE, PROT_READ | PROT_WRITE) != 0)
		abort();
	middle.ring->index += middle.moves;
	vring_pages_made += middle.pages;
}

static void arrange(struct virtqueue *ring, unsigned moves, uint32_t pages)
{
	const struct sigaction action = {.sa_handler = in_the_middle};

	middle.ring = ring;
	middle.moves = moves;
	middle.pages = pages;
	middle.caught = 0;
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	assert_int_equal(mprotect(guests_part(ring), RINGS_PAGE, PROT_NONE), 0);
}

static void assert_came(void)
{
	assert_int_equal(middle.caught, 1);
	signal(SIGSEGV, SIG_DFL);
}

static void a_worker_that_moves_on_meanwhile_spoils_nothing(void **state)
{
	struct guest_unread unread = {0};
	struct pair *pair = *state;
	struct virtqueue *ring = &pair->to.ring;

	give_buffers(&pair->to, 200);
	arrange(ring, 100, 0);
	guest_unread_look(&unread, ring);
	assert_came();
	assert_int_equal(unread.most, 0);
	assert_false(guest_unread_look(&unread, ring));
	assert_int_equal(unread.most, 100);
}

static void a_look_at_a_guest_ends_with_the_first_page_that_was_missing(void **state)
{
	struct pair *pair = *state;
	struct guest *guest = calloc(1, sizeof(*guest));
	struct guest_backend *backend = calloc(1, sizeof(*backend));
	struct queue_counters counters[2] = {0};

	give_buffers(&pair->to, LARGE);
	backend->guest = guest;
	guest->pairs = 2;
	for (unsigned i = 0; i < 2; i++) {
		guest->live[GUEST_VRINGS_EACH * i + GUEST_RECEIVES] = &pair->to.ring;
		backend->counters[i] = &counters[i];
	}
	assert_int_equal(guest_unread_count(backend), 0);
	assert_int_equal(counters[0].looks, 0);
	guest->unread = true;
	arrange(&pair->to.ring, 0, 1);
	assert_int_equal(guest_unread_count(backend), 2);
	assert_came();
	assert_int_equal(counters[0].looks + counters[1].looks, 0);
	assert_int_equal(guest_unread_count(backend), 2);
	assert_int_equal(counters[0].looks, 1);
	assert_int_equal(counters[1].looks, 1);
	assert_int_equal(counters[0].looks_unread + counters[1].looks_unread, 0);
	free(backend);
	free(guest);
}

#define LARGE_TEST(name) cmocka_unit_test_setup_teardown(name, start_large, end)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		LARGE_TEST(it_knows_how_many_buffers_there_are),
		LARGE_TEST(frames_wait_while_more_is_missing_than_a_guest_keeps_back),
		cmocka_unit_test_setup_teardown(a_small_ring_has_its_own_limit, start, end),
		LARGE_TEST(one_that_gives_buffers_back_in_batches_is_idle_under_steady_traffic),
		LARGE_TEST(one_that_stands_still_is_busy_however_long),
		LARGE_TEST(a_ring_without_buffers_is_full),
		LARGE_TEST(a_wrong_index_is_no_matter),
		LARGE_TEST(a_worker_that_moves_on_meanwhile_spoils_nothing),
		LARGE_TEST(a_look_at_a_guest_ends_with_the_first_page_that_was_missing),
	};

	choose_layouts(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
