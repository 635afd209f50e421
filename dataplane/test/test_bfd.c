/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of BFD: two of them on one link whose time is ours, and what others may send.
 */
#include "test/cmocka_all.h"

#include <string.h>

#include "functions/bfd.h"

enum { FAST = 50 * 1000, SLOWER = 80 * 1000, MULTIPLIER = 3, SECOND = 1000 * 1000, FINAL = 0x10, POLL = 0x20 };

static struct bfd one, other;
static uint64_t now;
static bool cut; /* the link carries nothing */
static unsigned sent;

static void begin(void)
{
	now = 5 * SECOND;
	cut = false;
	bfd_begin(&one, &(struct bfd_settings){FAST, MULTIPLIER}, 7, now);
	bfd_begin(&other, &(struct bfd_settings){SLOWER, MULTIPLIER}, 8, now);
}

/* Let one of them do what is due; returns when it has something to do next. */
static uint64_t turn(struct bfd *from, struct bfd *to)
{
	uint8_t packet[BFD_PACKET];
	uint64_t next;

	while (bfd_step(from, packet, now, &next)) {
		sent += from == &one;
		if (!cut)
			assert_true(bfd_take(to, packet, sizeof(packet), now));
	}
	assert_true(next > now);
	return next;
}

/* For so many us. */
static void run(uint64_t time)
{
	for (const uint64_t until = now + time; now < until; now++) {
		uint64_t first = turn(&one, &other), second = turn(&other, &one);

		turn(&one, &other); /* what the other one has sent may ask for an answer at once */
		first = first < second ? first : second;
		now = first < until ? first - 1 : until - 1;
	}
}

static void test_two_ends_come_up_and_agree_on_the_slower_pace(void **state)
{
	begin();
	run(4 * SECOND);
	assert_int_equal(one.state, BFD_UP);
	assert_int_equal(other.state, BFD_UP);
	assert_int_equal(one.remote, 8);
	assert_int_equal(other.remote, 7);
	assert_false(one.polls || other.polls);
	assert_int_equal(bfd_detection(&one), MULTIPLIER * SLOWER);
	assert_int_equal(bfd_detection(&other), MULTIPLIER * SLOWER);
	sent = 0;
	run(8 * SECOND);
	/* From 75 % to 100 % of 80 ms. */
	assert_in_range(sent, 100, 134);
	assert_int_equal(one.ups, 1);
	assert_int_equal(one.downs, 0);
}

static void test_silence_is_noticed_in_time_and_forgiven(void **state)
{
	begin();
	run(4 * SECOND);
	cut = true;
	run(MULTIPLIER * SLOWER / 2);
	assert_int_equal(one.state, BFD_UP);
	run(MULTIPLIER * SLOWER);
	for (unsigned i = 0; i < 2; i++) {
		const struct bfd *end = i == 0 ? &one : &other;

		assert_int_equal(end->state, BFD_DOWN);
		assert_int_equal(end->diagnostic, BFD_EXPIRED);
		assert_int_equal(end->remote, 0);
		assert_int_equal(end->downs, 1);
	}
	sent = 0;
	run(10 * SECOND); /* one a second at most, while it is down */
	assert_in_range(sent, 9, 14);
	cut = false;
	run(4 * SECOND);
	assert_int_equal(one.state, BFD_UP);
	assert_int_equal(one.ups, 2);
	assert_int_equal(one.diagnostic, BFD_NONE); /* as packets say it */
	assert_int_equal(one.why_down, BFD_EXPIRED);
}

/* What an end sends, as it lies. */
static void packet_of(uint8_t *packet, enum bfd_state state, uint32_t yours, uint8_t flags)
{
	const uint8_t bytes[BFD_PACKET] = {
		[0] = 0x20,	  [1] = (uint8_t)((unsigned)state << 6 | flags),
		[2] = MULTIPLIER, [3] = BFD_PACKET,
		[7] = 8,	  [11] = (uint8_t)yours,
		[14] = 0xc3,	  [15] = 0x50,
		[18] = 0xc3,	  [19] = 0x50, /* 50000 */
	};

	memcpy(packet, bytes, sizeof(bytes));
}

static void test_a_packet_byte_by_byte(void **state)
{
	static const uint8_t expected[BFD_PACKET] = {0x20, 0x40, 3,    24,   0, 0, 0,	 7,    0, 0, 0, 0,
						     0,	   0x0f, 0x42, 0x40, 0, 0, 0xc3, 0x50, 0, 0, 0, 0};
	uint8_t packet[BFD_PACKET];
	uint64_t next;

	begin();
	assert_true(bfd_step(&one, packet, now, &next));
	assert_memory_equal(packet, expected, sizeof(expected));
	assert_false(bfd_step(&one, packet, now, &next));
}

static void test_the_other_end_says_that_it_is_down(void **state)
{
	uint8_t packet[BFD_PACKET];

	begin();
	run(4 * SECOND);
	packet_of(packet, BFD_ADMIN_DOWN, 7, 0);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_int_equal(one.state, BFD_DOWN);
	assert_int_equal(one.diagnostic, BFD_SIGNALLED);
	assert_int_equal(one.remote_state, BFD_ADMIN_DOWN);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_int_equal(one.state, BFD_DOWN);
	run(4 * SECOND); /* the other one is up, and learns that this one is not */
	assert_int_equal(one.state, BFD_UP);
	packet_of(packet, BFD_DOWN, 7, 0);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_int_equal(one.state, BFD_DOWN);
	assert_int_equal(one.diagnostic, BFD_SIGNALLED);
}

/* RFC 5880, 6.8.16: it may send nothing any more, which is no loss of the way there (RFC 5882, 3.2). */
static void test_silence_after_it_was_taken_down_says_no_more(void **state)
{
	uint8_t packet[BFD_PACKET];

	begin();
	run(4 * SECOND);
	packet_of(packet, BFD_ADMIN_DOWN, 7, 0);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	cut = true;
	run(10 * SECOND);
	assert_int_equal(one.remote, 0);
	assert_int_equal(one.state, BFD_DOWN);
	assert_int_equal(one.remote_state, BFD_ADMIN_DOWN);
	assert_int_equal(one.diagnostic, BFD_SIGNALLED);
	cut = false;
	run(4 * SECOND);
	assert_int_equal(one.state, BFD_UP);
	assert_int_equal(one.remote_state, BFD_UP);
	cut = true;
	run(4 * SECOND);
	assert_int_equal(one.remote_state, BFD_DOWN);
}

static void test_a_question_is_acknowledged_at_once(void **state)
{
	uint8_t packet[BFD_PACKET];
	uint64_t next;

	begin();
	run(4 * SECOND);
	packet_of(packet, BFD_UP, 7, POLL);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_true(bfd_step(&one, packet, now, &next));
	assert_int_equal(packet[1] & (POLL | FINAL), FINAL);
}

/* An end that takes none is sent none, but for what it asks for. */
static void test_an_end_that_takes_no_packets_gets_none(void **state)
{
	uint8_t packet[BFD_PACKET];
	uint64_t next;

	begin();
	run(4 * SECOND);
	packet_of(packet, BFD_UP, 7, 0);
	memset(packet + 16, 0, 4);
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_false(bfd_step(&one, packet, now + FAST, &next));
	packet[1] |= POLL;
	assert_true(bfd_take(&one, packet, sizeof(packet), now));
	assert_true(bfd_step(&one, packet, now, &next));
}

static void test_what_is_none_of_the_session_changes_nothing(void **state)
{
	static const struct {
		unsigned at;
		uint8_t byte;
	} wrong[] = {
		{0, 0x40},		  /* version 2 */
		{1, 0xc0 | 0x04},	  /* authenticated */
		{1, 0xc0 | 0x01},	  /* multipoint */
		{2, 0},			  /* multiplier */
		{3, 23},		  /* lengths */
		{3, 25},	  {7, 0}, /* its own discriminator */
		{11, 6},		  /* another one's session */
		{11, 0},		  /* nobody's, and it is up */
	};
	uint8_t packet[BFD_PACKET];
	struct bfd before;

	begin();
	run(4 * SECOND);
	before = one;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		packet_of(packet, BFD_UP, 7, 0);
		packet[wrong[i].at] = wrong[i].byte;
		assert_false(bfd_take(&one, packet, sizeof(packet), now));
	}
	packet_of(packet, BFD_UP, 7, 0);
	assert_false(bfd_take(&one, packet, BFD_PACKET - 1, now));
	assert_memory_equal(&before, &one, sizeof(one));
}

static void test_states_and_reasons_have_names(void **state)
{
	assert_string_equal(bfd_state_name(BFD_UP), "up");
	assert_string_equal(bfd_diagnostic_name(BFD_EXPIRED), "nothing heard in time");
	assert_string_equal(bfd_diagnostic_name(BFD_SIGNALLED), "signalled by the other end");
	assert_string_equal(bfd_diagnostic_name(31), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_ends_come_up_and_agree_on_the_slower_pace),
		cmocka_unit_test(test_silence_is_noticed_in_time_and_forgiven),
		cmocka_unit_test(test_a_packet_byte_by_byte),
		cmocka_unit_test(test_the_other_end_says_that_it_is_down),
		cmocka_unit_test(test_silence_after_it_was_taken_down_says_no_more),
		cmocka_unit_test(test_a_question_is_acknowledged_at_once),
		cmocka_unit_test(test_an_end_that_takes_no_packets_gets_none),
		cmocka_unit_test(test_what_is_none_of_the_session_changes_nothing),
		cmocka_unit_test(test_states_and_reasons_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
