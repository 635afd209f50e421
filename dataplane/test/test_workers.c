/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog looks after whoever may hang in a guest's descriptor until the last port is closed.
 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "switch/workers.h"

static _Atomic pthread_t hanging; /* in a guest's descriptor; 0: nobody */

void __wrap_guest_watchdog(void);

void __wrap_guest_watchdog(void)
{
	if (hanging != 0)
		pthread_kill(hanging, SIGUSR1);
}

static void who_closes_ports_is_interrupted_as_a_worker_is(void **state)
{
	static struct workers workers;
	const int call_fd = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(eventfd_write(call_fd, UINT64_MAX - 1), 0);
	assert_int_equal(workers_start(&workers), 0);
	workers_stop(&workers);
	hanging = pthread_self();
	alarm(60); /* or this hangs */
	assert_int_equal(eventfd_write(call_fd, 1), -1);
	assert_int_equal(errno, EINTR);
	alarm(0);
	hanging = 0;
	workers_close(&workers);
	close(call_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(who_closes_ports_is_interrupted_as_a_worker_is)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
