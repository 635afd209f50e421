/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <signal.h>

#include "priority/vcpu.h"

enum { AS_FOUND = -1 };

int vcpu_take(struct vcpu *vcpu, pid_t process, pid_t thread)
{
	struct sched_param found;

	*vcpu = (struct vcpu){.process = process, .thread = thread, .now = AS_FOUND};
	/* Numbers of threads are used again: it must be one of this process. */
	if (tgkill(process, thread, 0) < 0)
		return -errno;
	vcpu->policy = sched_getscheduler(thread);
	if (vcpu->policy < 0 || sched_getparam(thread, &found) < 0)
		return -errno;
	vcpu->planned = found.sched_priority;
	return 0;
}

static int set(struct vcpu *vcpu, int policy, int priority)
{
	const struct sched_param wanted = {.sched_priority = priority};

	if (tgkill(vcpu->process, vcpu->thread, 0) == 0 && sched_setscheduler(vcpu->thread, policy, &wanted) == 0) {
		vcpu->changes++;
		return 0;
	}
	if (errno != ESRCH)
		return -errno;
	vcpu->thread = 0;
	return 0;
}

int vcpu_set(struct vcpu *vcpu, int priority)
{
	int error;

	if (vcpu->thread == 0 || vcpu->now == priority)
		return 0;
	error = set(vcpu, priority > 0 ? SCHED_FIFO : SCHED_OTHER, priority);
	if (error == 0)
		vcpu->now = priority;
	return error;
}

int vcpu_give_back(struct vcpu *vcpu)
{
	int error;

	if (vcpu->thread == 0 || vcpu->now == AS_FOUND)
		return 0;
	error = set(vcpu, vcpu->policy, vcpu->planned);
	if (error == 0)
		vcpu->now = AS_FOUND;
	return error;
}
