/* SPDX-License-Identifier: Apache-2.0
 *
 * What is put aside for a guest that moves: in order, bounded, and each frame that comes to both switches only once.
 */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "steer/park.h"

enum { LENGTH = 60, MOST = 4096 };

static struct burst burst;

/* What workers do once, between the moments in which park_give() has the lock. */
static void (*meanwhile)(void);

/* The linker puts this in the place of the library's (meson.build). */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
	void (*const call)(void) = meanwhile;

	meanwhile = NULL;
	if (call != NULL)
		call();
	return __real_calloc(count, size);
}

/* A frame with a number, its head and one piece behind it. */
static struct packet *frame_of(uint32_t number, uint32_t length)
{
	static struct packet packet;
	static struct vring_piece pieces[2];
	static uint8_t bytes[VRING_FRAME_MAX];
	const uint32_t head = length / 2;

	memset(bytes, 0, length);
	memcpy(bytes + length - sizeof(number), &number, sizeof(number));
	packet = (struct packet){.head = bytes, .head_length = (uint16_t)head, .length = length, .received = length};
	pieces[1] = (struct vring_piece){bytes + head, length - head};
	packet.pieces = pieces;
	packet.nb_pieces = 2;
	return &packet;
}

static uint32_t number_of(const struct packet *packet)
{
	const uint32_t rest = packet->length - packet->head_length;
	uint32_t number;

	memcpy(&number,
	       rest >= sizeof(number) ? packet->pieces[1].at + rest - sizeof(number)
				      : packet->head + packet->head_length - sizeof(number),
	       sizeof(number));
	return number;
}

static struct park *park_of(bool slides)
{
	struct park *park = malloc(sizeof(*park));

	assert_true(park_open(park, slides));
	return park;
}

static void end(struct park *park)
{
	park_close(park);
	free(park);
}

static void put(struct park *park, uint32_t first, uint32_t behind)
{
	for (uint32_t number = first; number < behind; number++)
		assert_true(park_put(park, frame_of(number, LENGTH)));
}

/* All that is delivered, into `numbers`.  Returns how many. */
static unsigned deliver(struct park *park, uint32_t *numbers)
{
	struct shaper *queue;
	unsigned count = 0;

	while ((queue = park_next(park)) != NULL) {
		shaper_read(queue, &burst);
		for (unsigned i = 0; i < burst.count; i++) {
			assert_true(count < MOST);
			numbers[count++] = number_of(&burst.packets[i]);
		}
		park_delivered(park, queue, burst.count);
	}
	assert_int_equal(park_waiting(park), 0);
	return count;
}

static void expect_delivered(struct park *park, uint32_t first, uint32_t behind)
{
	static uint32_t numbers[MOST];
	const unsigned count = deliver(park, numbers);

	assert_int_equal(count, behind - first);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(numbers[i], first + i);
}

/* What one switch has goes to the other, in requests of this many frames; at least one. */
static void hand_over(struct park *from, struct park *to, unsigned each)
{
	struct shaper out;
	bool any = false;

	assert_true(shaper_open(&out));
	park_take(from, &out);
	while (shaper_waiting(&out) || !any) {
		shaper_read(&out, &burst);
		burst.count = RTE_MIN(burst.count, each);
		assert_true(park_give(to, burst.packets, burst.count));
		shaper_remove(&out, burst.count);
		any = true;
	}
	shaper_close(&out);
}

static void frames_wait_in_order_and_go_on(void **state)
{
	struct park *park = park_of(false);

	put(park, 0, 1000);
	assert_int_equal(park_waiting(park), 1000);
	expect_delivered(park, 0, 1000);
	assert_int_equal(park->counts.parked, 1000);
	assert_int_equal(park->counts.delivered, 1000);
	end(park);
}

static void without_room_the_newest_are_dropped_and_while_nothing_is_known_the_oldest_forgotten(void **state)
{
	struct park *source = park_of(false), *target = park_of(true);
	const unsigned each = 9000, room = SHAPER_MOST_BYTES / (each + 4);

	for (uint32_t number = 0; number < room + 10; number++) {
		assert_int_equal(park_put(source, frame_of(number, each)), number < room);
		assert_true(park_put(target, frame_of(number, each)));
	}
	assert_int_equal(source->counts.dropped, 10);
	assert_int_equal(target->counts.forgotten, 10);
	shaper_read(&target->own, &burst);
	assert_int_equal(number_of(&burst.packets[0]), 10);
	expect_delivered(source, 0, room);
	end(source);
	end(target);
}

/* A network that leads frames to one of the two. */
static void what_the_source_had_comes_before_what_comes_to_the_target(void **state)
{
	struct park *source = park_of(false), *target = park_of(true);

	put(source, 0, 300);
	hand_over(source, target, 50);
	put(target, 300, 400);
	expect_delivered(target, 0, 400);
	assert_int_equal(target->counts.given, 300);
	assert_int_equal(source->counts.taken, 300);
	end(source);
	end(target);
}

/* Of which the guest has got the first hundred at the source. */
static void what_came_to_both_is_delivered_once(void **state)
{
	for (unsigned late = 0; late <= 100; late += 20) {
		struct park *source = park_of(false), *target = park_of(true);

		put(source, 100, 200);
		/* The target's worker is behind by some, or has seen more than the source's. */
		put(target, 0, 210 - late);
		hand_over(source, target, 7);
		put(target, 210 - late, 300);
		expect_delivered(target, 100, 300);
		assert_int_equal(target->counts.dropped + source->counts.dropped, 0);
		end(source);
		end(target);
	}
}

static void what_the_source_has_delivered_is_forgotten_where_nothing_came_since(void **state)
{
	struct park *source = park_of(false), *target = park_of(true);

	put(target, 0, 100);
	hand_over(source, target, 10);
	put(target, 100, 110);
	expect_delivered(target, 100, 110);
	assert_int_equal(target->counts.forgotten, 100);
	end(source);
	end(target);
}

/*
 * A hub, and nothing has come when the source is first asked.  What comes before the target hears so is forgotten
 * there, and is still at the source: it is taken the second time.
 */
static void what_comes_while_it_is_told_that_nothing_has_is_sent_on_next(void **state)
{
	struct park *source = park_of(false), *target = park_of(true);
	struct shaper out;

	put(target, 0, 100);
	assert_true(shaper_open(&out));
	park_take(source, &out);
	assert_false(shaper_waiting(&out));
	shaper_close(&out);
	put(source, 100, 110);
	put(target, 100, 110);
	assert_true(park_give(target, burst.packets, 0));
	put(target, 110, 115);
	put(source, 110, 120);
	hand_over(source, target, 4);
	put(target, 115, 130);
	expect_delivered(target, 100, 130);
	assert_int_equal(source->counts.dropped + target->counts.dropped, 0);
	end(source);
	end(target);
}

static struct park *meanwhile_to;

static void put_meanwhile(void)
{
	put(meanwhile_to, 0, 5 * VRING_BURST);
}

/* More than one burst of frames that come to both switches comes here while the other's are being given. */
static void what_comes_to_both_while_it_is_given_is_delivered_once(void **state)
{
	enum { MANY = 6 * VRING_BURST };
	static struct packet packets[MANY];
	static struct vring_piece pieces[MANY][2];
	static uint8_t bytes[MANY][LENGTH];
	struct park *target = park_of(true);

	for (uint32_t number = 0; number < MANY; number++) {
		const struct packet *packet = frame_of(number, LENGTH);

		packets[number] = *packet;
		memcpy(bytes[number], packet->head, LENGTH);
		packets[number].head = bytes[number];
		pieces[number][1] = (struct vring_piece){bytes[number] + LENGTH / 2, LENGTH / 2};
		packets[number].pieces = pieces[number];
	}
	meanwhile_to = target;
	meanwhile = put_meanwhile;
	assert_true(park_give(target, packets, MANY));
	assert_null(meanwhile);
	assert_int_equal(target->counts.forgotten, 5 * VRING_BURST);
	put(target, 5 * VRING_BURST, MANY + 10);
	expect_delivered(target, 0, MANY + 10);
	end(target);
}

/* Whoever sends frames cannot know which of them are taken for others. */
static void the_same_frame_has_another_hash_in_each_park(void **state)
{
	struct park *one = park_of(true), *other = park_of(true);

	for (unsigned i = 0; i < 2; i++) {
		assert_true(park_give(one, frame_of(1, LENGTH), 1));
		assert_true(park_give(other, frame_of(1, LENGTH), 1));
	}
	assert_int_equal(one->nb_expected, 2);
	assert_int_equal(one->expected[0], one->expected[1]);
	assert_int_equal(other->expected[0], other->expected[1]);
	assert_int_not_equal(one->expected[0], other->expected[0]);
	end(one);
	end(other);
}

static void what_is_given_without_room_is_counted_for_the_port(void **state)
{
	const unsigned each = 9000, room = SHAPER_MOST_BYTES / (each + 4);
	struct park *park = park_of(true);

	for (uint32_t number = 0; number < room + 10; number++)
		assert_true(park_give(park, frame_of(number, each), 1));
	assert_int_equal(park->counts.given, room);
	assert_int_equal(park->counts.dropped, 10);
	assert_int_equal(park->lost, 10);
	park_lose(park, 3);
	assert_int_equal(park->counts.dropped, 13);
	assert_int_equal(park->lost, 13);
	end(park);
}

/* Moments of pause, hand-over and workers at random. */
static void each_frame_comes_out_of_one_of_the_two(void **state)
{
	static uint32_t numbers[MOST];

	srandom(7);
	for (unsigned round = 0; round < 300; round++) {
		struct park *source = park_of(false), *target = park_of(true);
		const uint32_t paused = (uint32_t)random() % 300, seen = paused + 1 + (uint32_t)random() % 300;
		const uint32_t all = seen + 200;
		/* The target's worker has seen a frame at least of those that were put aside at the source. */
		const uint32_t there = paused + 1 + (uint32_t)random() % (all - paused - 1);
		unsigned count;

		put(source, paused, seen);
		put(target, 0, there);
		hand_over(source, target, 1 + (unsigned)random() % 64);
		put(target, there, all);
		count = deliver(target, numbers);
		assert_int_equal(count, all - paused);
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(numbers[i], paused + i);
		end(source);
		end(target);
	}
}

static void nothing_is_delivered_while_more_is_given(void **state)
{
	struct park *park = park_of(false);

	put(park, 0, 3);
	park->giving = true;
	assert_null(park_next(park));
	park->giving = false;
	expect_delivered(park, 0, 3);
	end(park);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_wait_in_order_and_go_on),
		cmocka_unit_test(without_room_the_newest_are_dropped_and_while_nothing_is_known_the_oldest_forgotten),
		cmocka_unit_test(what_the_source_had_comes_before_what_comes_to_the_target),
		cmocka_unit_test(what_came_to_both_is_delivered_once),
		cmocka_unit_test(what_the_source_has_delivered_is_forgotten_where_nothing_came_since),
		cmocka_unit_test(what_comes_while_it_is_told_that_nothing_has_is_sent_on_next),
		cmocka_unit_test(what_comes_to_both_while_it_is_given_is_delivered_once),
		cmocka_unit_test(the_same_frame_has_another_hash_in_each_park),
		cmocka_unit_test(what_is_given_without_room_is_counted_for_the_port),
		cmocka_unit_test(each_frame_comes_out_of_one_of_the_two),
		cmocka_unit_test(nothing_is_delivered_while_more_is_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
