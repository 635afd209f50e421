/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a machine's virtual CPUs, and their priorities: as they are found, as they are wanted, and as they
 * were.  One thread calls this.
 */
#ifndef TAILRACE_PRIORITY_VCPU_H
#define TAILRACE_PRIORITY_VCPU_H

#include <stdint.h>
#include <sys/types.h>

struct vcpu {
	pid_t process, thread; /* thread 0: gone */
	int policy, planned;   /* as it was found */
	int now;	       /* the SCHED_FIFO priority that it was given; 0: ordinary, -1: as it was found */
	uint64_t changes;
};

/* Returns 0 or -errno: -ESRCH where the process has no such thread. */
int vcpu_take(struct vcpu *vcpu, pid_t process, pid_t thread);

/* Give it a priority.  One that has gone is left alone from then on.  Returns 0 or -errno. */
int vcpu_set(struct vcpu *vcpu, int priority);

/* Give it back the one that it was found with.  Returns 0 or -errno. */
int vcpu_give_back(struct vcpu *vcpu);

#endif
