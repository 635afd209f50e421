/* SPDX-License-Identifier: Apache-2.0
 *
 * Interrupts by the receive queue of a network device: each is a frame that names it, and the guest is notified.
 */
#include "test/cmocka_all.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <x86intrin.h>

#include "common/grace.h"
#include "interrupts/raise.h"
#include "test/simulated_guest.h"

enum { HEADER = 12, BUFFER = 2048, FRAMES = 50, PERIOD_NS = 200000 };

/* A machine whose network device is set up, and its receiver. */
struct machine {
	struct simulated_guest guest;
	struct nic nic;
	struct interrupt_page *page;
	unsigned seen; /* frames */
	_Atomic bool end;
};

static struct interrupt_frame *frame_of(struct machine *machine, unsigned number)
{
	return (void *)guest_at(&machine->guest, GUEST_BASE + number % RING * BUFFER + HEADER);
}

static void offer(struct machine *machine, unsigned number)
{
	guest_offer(&machine->guest,
		    guest_desc(&machine->guest, GUEST_BASE + number % RING * BUFFER, BUFFER, VRING_DESC_F_WRITE));
}

static int start(void **state)
{
	struct machine *machine = aligned_alloc(_Alignof(struct machine), sizeof(*machine));

	memset(machine, 0, sizeof(*machine));
	machine->page = aligned_alloc(INTERRUPT_PAGE_LINE, sizeof(*machine->page));
	memset(machine->page, 0, sizeof(*machine->page));
	guest_start(&machine->guest, false, true);
	guest_sleep(&machine->guest, true);
	machine->guest.ring.call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_store(&machine->nic.guest.live[GUEST_RECEIVES], &machine->guest.ring);
	*state = machine;
	return 0;
}

static int end(void **state)
{
	struct machine *machine = *state;

	close(machine->guest.ring.call_fd);
	guest_end(&machine->guest);
	free(machine->page);
	free(machine);
	return 0;
}

static void a_frame_names_its_interrupt_and_the_guest_is_notified(void **state)
{
	struct machine *machine = *state;
	eventfd_t calls = 0;

	nic_begin();
	for (unsigned i = 0; i < 2; i++)
		offer(machine, i);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(nic_raise(&machine->nic, 0x123456789abc0 + i));
		assert_int_equal(guest_taken(&machine->guest), i + 1);
		assert_int_equal(machine->guest.used[i].length, HEADER + INTERRUPT_FRAME_BYTES);
		assert_int_equal(frame_of(machine, i)->type, htons(INTERRUPT_FRAME_TYPE));
		assert_int_equal(frame_of(machine, i)->number, 0x123456789abc0 + i);
		assert_int_equal(eventfd_read(machine->guest.ring.call_fd, &calls), 0);
		assert_int_equal(calls, 1);
	}
	nic_end();
}

static void a_guest_that_polls_is_not_notified(void **state)
{
	struct machine *machine = *state;
	eventfd_t calls;

	nic_begin();
	guest_sleep(&machine->guest, false);
	offer(machine, 0);
	assert_true(nic_raise(&machine->nic, 1));
	assert_int_equal(guest_taken(&machine->guest), 1);
	assert_int_equal(eventfd_read(machine->guest.ring.call_fd, &calls), -1);
	nic_end();
}

static void a_queue_that_takes_none_says_so(void **state)
{
	struct machine *machine = *state;

	nic_begin();
	assert_false(nic_raise(&machine->nic, 1)); /* it has no buffer */
	guest_offer(&machine->guest, guest_desc(&machine->guest, 0xdead0000, BUFFER, VRING_DESC_F_WRITE));
	assert_false(nic_raise(&machine->nic, 2));
	assert_int_equal(machine->guest.ring.fault, VRING_FAULT_address);
	assert_false(nic_raise(&machine->nic, 3));
	atomic_store(&machine->nic.guest.live[GUEST_RECEIVES], NULL);
	assert_false(nic_raise(&machine->nic, 4));
	nic_end();
}

/* What tailrace-interrupt-receiver does in a machine, with the driver's part. */
static void *receive(void *argument)
{
	struct machine *machine = argument;
	struct interrupt_page *page = machine->page;

	while (!machine->end) {
		if (page->phase == PHASE_CLOCK && page->question != page->answer) {
			page->answered_at = clocks_now();
			page->answer = page->question;
		} else if (page->phase == PHASE_FRAME && guest_taken(&machine->guest) > machine->seen) {
			page->arrived_at = clocks_now();
			page->arrived = frame_of(machine, machine->seen)->number;
			offer(machine, machine->seen++);
		}
		sched_yield();
	}
	return NULL;
}

static void every_interrupt_is_accounted_for(void **state)
{
	struct machine *machine = *state;
	struct interrupts_run *run = calloc(1, sizeof(*run));
	struct interrupts interrupts = {.page = machine->page, .nic = &machine->nic, .call = -1};
	struct clock_reading began = clock_read(), now;
	const atomic_bool stop = false;
	pthread_t thread;

	usleep(20000);
	now = clock_read();
	interrupts.rate = clock_rate(clock_measure(&began, &now));
	for (unsigned i = 0; i < RING; i++)
		offer(machine, i);
	run->count = FRAMES;
	run->budget_ns = UINT64_MAX;
	run->path = INTERRUPTS_VRING;
	run->grid = (struct grid){.clock = CLOCK_MONOTONIC, .period_ns = PERIOD_NS, .ahead = grid_ahead};
	assert_int_equal(pthread_create(&thread, NULL, receive, machine), 0);
	interrupts_raise(&interrupts, run, &stop);
	machine->end = true;
	pthread_join(thread, NULL);
	assert_int_equal(run->fault, INTERRUPTS_WELL);
	assert_int_equal(run->counts.raised + run->counts.held, FRAMES);
	assert_int_equal(run->latency.tally.count, run->counts.raised);
	assert_true(run->latency.tally.count > 0);
	free(run);
}

static int prepare(void **state)
{
	return grace_open();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_frame_names_its_interrupt_and_the_guest_is_notified, start, end),
		cmocka_unit_test_setup_teardown(a_guest_that_polls_is_not_notified, start, end),
		cmocka_unit_test_setup_teardown(a_queue_that_takes_none_says_so, start, end),
		cmocka_unit_test_setup_teardown(every_interrupt_is_accounted_for, start, end),
	};

	return cmocka_run_group_tests(tests, prepare, NULL);
}
