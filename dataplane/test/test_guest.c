/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking rings from the workers: what the thread that speaks the protocol, and so every front end, may have to wait
 * for.
 */
#include "test/cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/grace.h"
#include "port/guest_backend.h"
#include "test/simulated_guest.h"

/* As a guest leaves it that wants to be waited for. */
static int full_and_blocking(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(eventfd_write(fd, UINT64_MAX - 1), 0);
	return fd;
}

/* The guest has frames that it has not been told of, and wants to be. */
static struct virtqueue *unsettled_ring(struct simulated_guest *guest, int call_fd)
{
	struct virtqueue *ring = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*ring)));

	guest_start(guest, false, true);
	*ring = guest->ring;
	ring->call_fd = call_fd;
	ring->index = ring->unsettled = 1;
	return ring;
}

static void no_guest_is_waited_for_when_its_ring_is_taken(void **state)
{
	static struct guest guest;
	static struct guest_backend backend = {.guest = &guest};
	static struct simulated_guest simulated;
	const int call_fd = full_and_blocking();

	atomic_store(&guest.live[GUEST_RECEIVES], unsettled_ring(&simulated, call_fd));
	alarm(10); /* or this hangs */
	guest_withdraw(&backend, GUEST_ALL_RINGS);
	alarm(0);
	assert_null(atomic_load(&guest.live[GUEST_RECEIVES]));
	assert_true(fcntl(call_fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(backend.rings[GUEST_RECEIVES].base, 1);
	guest_end(&simulated);
	close(call_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_guest_is_waited_for_when_its_ring_is_taken),
	};

	if (grace_open() != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
