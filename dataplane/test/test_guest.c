/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking rings from the workers: what the thread that speaks the protocol, and so every front end, may have to wait
 * for; what it sends in a guest's name, and what it throws away.
 */
#include "test/cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/grace.h"
#include "port/guest_discard.h"
#include "port/guest_publish.h"
#include "test/simulated_guest.h"
#include "vring/hop.h"

/* As a guest leaves it that wants to be waited for. */
static int full_and_blocking(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(eventfd_write(fd, UINT64_MAX - 1), 0);
	return fd;
}

/* The guest has not been notified of its last frames, and wants to be. */
static struct virtqueue *unnotified_ring(struct simulated_guest *guest, int call_fd)
{
	struct virtqueue *ring = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*ring)));

	guest_start(guest, false, true);
	*ring = guest->ring;
	ring->call_fd = call_fd;
	ring->index = ring->unnotified = 1;
	return ring;
}

static void no_guest_is_waited_for_when_its_ring_is_taken(void **state)
{
	static struct guest guest;
	static struct guest_backend backend = {.guest = &guest};
	static struct simulated_guest simulated;
	const int call_fd = full_and_blocking();

	atomic_store(&guest.live[GUEST_RECEIVES], unnotified_ring(&simulated, call_fd));
	alarm(60); /* or this hangs */
	guest_withdraw(&backend, GUEST_ALL_RINGS);
	alarm(0);
	assert_null(atomic_load(&guest.live[GUEST_RECEIVES]));
	assert_true(fcntl(call_fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(backend.rings[GUEST_RECEIVES].base, 1);
	guest_end(&simulated);
	close(call_fd);
}

/* ------- announcements ------- */

#define USER 0x7f0000000000ULL /* where the front end says that its memory begins */

enum { FRAMES = GUEST_HALF / 2 /* in the guest's first region */, HEADER = 12 };

static const struct rte_ether_addr station = {{0x02, 0, 0, 0, 0x12, 0x34}};
static const uint8_t rarp[GUEST_ANNOUNCE_FRAME] = {
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0x12, 0x34, 0x80, 0x35, /* to all */
	0,    1,    8,	  0,	6,    4,    0,	  3,	   /* Ethernet, IPv4, "request reverse" */
	0x02, 0,    0,	  0,	0x12, 0x34, 0,	  0, 0, 0, /* the sender, */
	0x02, 0,    0,	  0,	0x12, 0x34, 0,	  0, 0, 0, /* who asks for itself */
};

/* A port whose guest has set up its first queue, and the same of who receives from it. */
struct announced {
	struct guest guest;
	struct guest_backend backend;
	struct guest_table table;
	struct queue_counters counters;
	struct simulated_guest from, to;
};

static uint64_t user_of(const struct announced *all, const void *at)
{
	return USER + ((const uint8_t *)at - all->from.memory.regions[2].host);
}

static int start_port(void **state)
{
	struct announced *all = aligned_alloc(_Alignof(struct announced), sizeof(*all));

	memset(all, 0, sizeof(*all));
	guest_start(&all->from, false, true);
	guest_start(&all->to, false, true);
	all->guest.pairs = 1;
	all->backend.guest = &all->guest;
	all->backend.counters[0] = &all->counters;
	all->backend.features = 1ULL << 32;
	all->table.count = 1;
	all->table.maps[0] = (struct guest_map){
		.user = USER, .size = GUEST_RINGS_SIZE, .host = all->from.memory.regions[2].host};
	all->table.memory = all->from.memory;
	atomic_store(&all->backend.memory.table, &all->table);
	for (unsigned i = 0; i < GUEST_VRINGS_EACH; i++)
		all->backend.rings[i] = (struct guest_ring){
			.desc = user_of(all, all->from.ring.desc),
			.avail = user_of(all, all->from.ring.avail),
			.used = user_of(all, all->from.ring.used),
			.size = RING,
			.addressed = true,
			.started = true,
			.enabled = true,
			.kick_fd = -1,
			.call_fd = -1,
		};
	*state = all;
	return 0;
}

static int end_port(void **state)
{
	struct announced *all = *state;

	guest_withdraw(&all->backend, GUEST_ALL_RINGS);
	guest_end(&all->from);
	guest_end(&all->to);
	free(all);
	return 0;
}

/* What a worker does for the port: one visit to its ring.  Returns how many frames it moved. */
static unsigned visit(struct announced *all)
{
	return vring_hop(atomic_load(&all->guest.live[GUEST_SENDS]), &all->to.ring);
}

static void offer(struct announced *all)
{
	guest_offer(&all->to, guest_desc(&all->to, GUEST_BASE + FRAMES, 2048, VRING_DESC_F_WRITE));
}

static void send_own(struct announced *all)
{
	guest_offer(&all->from, guest_desc(&all->from, GUEST_BASE + FRAMES, HEADER + 64, 0));
}

static void announce(struct announced *all)
{
	guest_withdraw(&all->backend, 1U << GUEST_SENDS);
	guest_announce(&all->backend, &station);
	guest_publish(&all->backend);
}

static void a_guest_is_announced_once_and_before_its_own_frames(void **state)
{
	struct announced *all = *state;

	guest_publish(&all->backend);
	send_own(all);
	offer(all);
	announce(all);
	announce(all);
	assert_int_equal(visit(all), 1);
	assert_memory_equal(guest_at(&all->to, GUEST_BASE + FRAMES + HEADER), rarp, sizeof(rarp));
	assert_int_equal(guest_taken(&all->to), 1);
	assert_int_equal(all->to.used[0].length, HEADER + sizeof(rarp));
	assert_int_equal(all->counters.received_packets, 1);
	assert_int_equal(all->counters.received_bytes, sizeof(rarp));
	assert_int_equal(guest_taken(&all->from), 0);

	guest_announced(&all->backend);
	offer(all);
	assert_int_equal(visit(all), 1);
	assert_int_equal(guest_taken(&all->to), 2);
	assert_int_equal(all->to.used[1].length, HEADER + 64);
	assert_int_equal(guest_taken(&all->from), 1);
	offer(all);
	assert_int_equal(visit(all), 0);
	assert_int_equal(all->counters.notifications_taken, 0);
}

static void an_announcement_waits_for_the_rings(void **state)
{
	struct announced *all = *state;

	offer(all);
	all->backend.rings[GUEST_SENDS].enabled = false;
	all->backend.features |= 1ULL << GUEST_F_PROTOCOL_FEATURES;
	announce(all);
	assert_null(atomic_load(&all->guest.live[GUEST_SENDS]));
	all->backend.rings[GUEST_SENDS].enabled = true;
	guest_publish(&all->backend);
	/* Taken away before a worker has come by, and given back. */
	guest_withdraw(&all->backend, GUEST_ALL_RINGS);
	guest_publish(&all->backend);
	guest_announced(&all->backend);
	assert_int_equal(visit(all), 1);
	assert_memory_equal(guest_at(&all->to, GUEST_BASE + FRAMES + HEADER), rarp, sizeof(rarp));
	/* Taken away before it was said that the worker has. */
	guest_withdraw(&all->backend, GUEST_ALL_RINGS);
	guest_publish(&all->backend);
	offer(all);
	assert_int_equal(visit(all), 0);
}

static void the_guests_ring_stands_where_it_stood_while_it_is_announced(void **state)
{
	struct announced *all = *state;

	for (unsigned i = 0; i < 3; i++) {
		send_own(all);
		offer(all);
	}
	guest_publish(&all->backend);
	assert_int_equal(visit(all), 3);
	announce(all);
	guest_withdraw(&all->backend, 1U << GUEST_SENDS);
	assert_int_equal(all->backend.rings[GUEST_SENDS].base, 3);
	assert_true(all->backend.announces);
	guest_publish(&all->backend);
	offer(all);
	assert_int_equal(visit(all), 1);
	guest_withdraw(&all->backend, 1U << GUEST_SENDS);
	assert_int_equal(all->backend.rings[GUEST_SENDS].base, 3);
	assert_false(all->backend.announces);
}

/* ------- rings that are started and not enabled ------- */

static void disable(struct announced *all)
{
	guest_withdraw(&all->backend, 1U << GUEST_SENDS);
	all->backend.features |= 1ULL << GUEST_F_PROTOCOL_FEATURES;
	all->backend.rings[GUEST_SENDS].enabled = false;
	all->backend.rings[GUEST_SENDS].idle_since = 0;
	guest_publish(&all->backend);
}

static void enable(struct announced *all)
{
	guest_withdraw(&all->backend, 1U << GUEST_SENDS);
	all->backend.rings[GUEST_SENDS].enabled = true;
	guest_publish(&all->backend);
}

static void what_is_sent_by_a_disabled_ring_is_thrown_away(void **state)
{
	struct announced *all = *state;

	guest_publish(&all->backend);
	send_own(all);
	disable(all);
	/* For a moment it may wait: so is every ring that is being set up. */
	assert_true(guest_discard(&all->backend, 1000));
	assert_true(guest_discard(&all->backend, 1099));
	assert_int_equal(guest_taken(&all->from), 0);
	assert_true(guest_discard(&all->backend, 1100));
	assert_int_equal(guest_taken(&all->from), 1);
	assert_false(guest_discard(&all->backend, 1120));
	send_own(all);
	send_own(all);
	assert_true(guest_discard(&all->backend, 1500));
	assert_int_equal(guest_taken(&all->from), 3);
	assert_int_equal(all->counters.drop_queue_disabled, 3);
	assert_int_equal(all->counters.received_packets, 3);
	assert_int_equal(all->counters.received_bytes, 0);

	enable(all);
	assert_int_equal(all->backend.rings[GUEST_SENDS].base, 3);
	send_own(all);
	offer(all);
	assert_false(guest_discard(&all->backend, 2000));
	assert_int_equal(visit(all), 1);
	assert_int_equal(guest_taken(&all->to), 1);
	assert_int_equal(all->counters.drop_queue_disabled, 3);
}

static void what_waits_while_a_ring_is_set_up_is_sent(void **state)
{
	struct announced *all = *state;

	send_own(all);
	for (unsigned i = 0; i < 3; i++) {
		disable(all);
		assert_true(guest_discard(&all->backend, 1000 + 90 * i));
		enable(all);
		assert_false(guest_discard(&all->backend, 1000 + 90 * i + 80));
	}
	offer(all);
	assert_int_equal(visit(all), 1);
	assert_int_equal(all->counters.drop_queue_disabled, 0);
}

static void a_disabled_ring_that_is_malformed_is_stopped(void **state)
{
	struct announced *all = *state;

	disable(all);
	assert_true(guest_discard(&all->backend, 1000));
	all->from.ring.avail->idx = RING + 1;
	assert_false(guest_discard(&all->backend, 1100));
	assert_int_equal(all->guest.fault[GUEST_SENDS], VRING_FAULT_available_index);
	assert_false(guest_discard(&all->backend, 1200));
	assert_int_equal(all->counters.drop_queue_disabled, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_guest_is_waited_for_when_its_ring_is_taken),
		cmocka_unit_test_setup_teardown(a_guest_is_announced_once_and_before_its_own_frames, start_port,
						end_port),
		cmocka_unit_test_setup_teardown(an_announcement_waits_for_the_rings, start_port, end_port),
		cmocka_unit_test_setup_teardown(what_is_sent_by_a_disabled_ring_is_thrown_away, start_port, end_port),
		cmocka_unit_test_setup_teardown(what_waits_while_a_ring_is_set_up_is_sent, start_port, end_port),
		cmocka_unit_test_setup_teardown(a_disabled_ring_that_is_malformed_is_stopped, start_port, end_port),
		cmocka_unit_test_setup_teardown(the_guests_ring_stands_where_it_stood_while_it_is_announced, start_port,
						end_port),
	};

	if (grace_open() != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
