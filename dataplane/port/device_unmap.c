/* SPDX-License-Identifier: Apache-2.0
 *
 * When a memif peer goes, DPDK's driver marks the link as down and at once unmaps the shared memory, in DPDK's
 * interrupt thread, while a worker may still be copying from it (seen with DPDK 22.11; the driver takes no lock).
 * What the driver calls is our munmap(): in that thread, and no other, it first waits until every worker has finished
 * the round it was in.  The rounds after that see the link down.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_alarm.h>

#include "common/grace.h"
#include "port/device_monitor.h"

static _Thread_local bool is_interrupt_thread;

__attribute__((visibility("default"))) int munmap(void *address, size_t length)
{
	if (is_interrupt_thread)
		grace_wait();
	return (int)syscall(SYS_munmap, address, length);
}

static void mark(void *argument)
{
	is_interrupt_thread = true;
}

void device_guard_unmapping(void)
{
	static bool done;

	/* An alarm's callback runs in the interrupt thread. */
	if (!done)
		rte_eal_alarm_set(1, mark, NULL);
	done = true;
}
